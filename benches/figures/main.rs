//! Measures the cost of a run: the legwork binary, compared with a program that only exchanges messages with the
//! server.
//!
//! `cargo bench` runs everything; `cargo bench -- --runs 5 turns deltas` runs these two cases five times each. The
//! names are those of the cases in `cases.rs`, and `validate` (many job files), `changes` (large workspaces),
//! `phases` (of a short run), `journal` (writing events), `resume` (long records), `memory` (long runs), `map` (many rows), `tiers` (sandboxes)
//! and `builds` (of the program itself, which takes minutes). `rates` (subagents under a rate limit) takes minutes, has no aim,
//! and only runs if it is named.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "this is a separate program")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark that fails panics")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/body_dump.rs"]
mod body_dump;
mod cases;
mod workspace_changes;
mod validate_many;
mod aims;
mod baseline;
mod builds;
mod journal;
mod long_runs;
mod map_rows;
mod job_generator;
mod measure;
mod phases;
mod plain_types;
mod rate_limits;
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
#[path = "../../tests/support/server/mod.rs"]
mod server;
mod sandbox_tiers;

use std::path::Path;
use std::process::{Command, ExitCode};

use cases::{BenchCase, CASES};
use measure::Measurement;
use server::{Checks, KEY, Server};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--baseline", address, prompt] => baseline::run(address, prompt),
        ["--map-baseline", address, folder] => map_rows::baseline(address, Path::new(folder)),
        ["--check", folder] => validate_many::check(Path::new(folder)),
        ["--decode", what, folder] => validate_many::decode(what, Path::new(folder)),
        ["--measure", program, rest @ ..] => measure::child(program, rest),
        options => compare(options),
    }
    ExitCode::SUCCESS
}

/// Runs the cases and prints the table.
fn compare(options: &[&str]) {
    let after = |name: &str| options.iter().position(|word| *word == name).and_then(|at| options.get(at + 1));
    let runs: usize = after("--runs").map_or(9, |number| number.parse().expect("--runs takes a number"));
    let wanted: Vec<&&str> =
        options.iter().filter(|word| !word.starts_with("--") && Some(**word) != after("--runs").copied()).collect();
    let legwork = Path::new(env!("CARGO_BIN_EXE_legwork"));
    if cfg!(debug_assertions) {
        println!("This is a debug build: its figures mean nothing.\n");
    }
    println!("median (min to max) of {runs} runs each, interleaved; the whole process from start to end\n");
    println!(
        "| {:<46} | {:<12} | {:<30} | {:>8} | {:>8} | {:>8} | {:<30} | {:>8} |",
        "", "aim", "legwork", "ratio", "CPU", "memory", "baseline", "memory"
    );
    println!("|{0:-<48}|{0:-<14}|{0:-<32}|{0:->9}:|{0:->9}:|{0:->9}:|{0:-<32}|{0:->9}:|", "");
    let flush = flush_ms();
    for case in CASES.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|word| **word == case.name)) {
        row(case, legwork, runs, flush);
    }
    println!("\none flush of a journal (fdatasync): {flush:.2} ms");
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| **word == name);
    // First of all that write many files, and its own remain until the end.
    let maps = if is_wanted("map") { map_rows::print(legwork, runs) } else { Vec::new() };
    if is_wanted("phases") {
        phases::print(legwork, runs);
    }
    if is_wanted("validate") {
        validate_many::compare(legwork, runs);
    }
    if is_wanted("journal") {
        journal::compare(runs);
    }
    if is_wanted("resume") {
        long_runs::resume(legwork, runs);
    }
    if is_wanted("memory") {
        long_runs::memory(legwork);
    }
    if is_wanted("changes") {
        workspace_changes::compare(legwork, runs);
    }
    // This takes minutes, so it only runs on request.
    if wanted.iter().any(|word| **word == "rates") {
        rate_limits::print(legwork);
    }
    if is_wanted("tiers") {
        sandbox_tiers::print(legwork);
    }
    if is_wanted("builds") {
        builds::time();
    }
    let size = std::fs::metadata(legwork).expect("the executable").len();
    aims::at_most("the executable", 15.0, size as f64 / 1e6, "MB");
    aims::print();
    drop(maps);
}

/// Runs a case and prints its row. `flush` is the time of one flush in milliseconds.
fn row(case: &BenchCase, legwork: &Path, runs: usize, flush: f64) {
    let server = Server::with(Checks::None, case.answers);
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("home")).expect("a home");
    std::fs::write(folder.path().join("job.yaml"), case.job).expect("the job");
    let line = format!("{}\n", "x".repeat(99));
    std::fs::write(folder.path().join("big.txt"), line.repeat(500)).expect("50,000 characters");
    let this_program = std::env::current_exe().expect("this program");
    let start = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(&this_program);
        command.arg("--measure").arg(program).args(arguments).current_dir(folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder.path().join("home"));
        command.env("NO_PROXY", "127.0.0.1").env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
        let before = server.count();
        let figure = measure::measure(&mut command);
        let requests = server.count() - before;
        figure.and_then(|figure| match requests == case.requests {
            true => Ok(figure),
            false => Err(format!("{requests} requests instead of {}", case.requests)),
        })
    };
    let mut arguments = case.arguments.to_vec();
    if arguments.first() == Some(&"run") && has_sandbox_option(legwork) {
        arguments.extend(["--sandbox", "off"]);
    }
    let address = server.address().to_string();
    let (mut ours, mut baselines) = (Vec::new(), Vec::new());
    // The first run only warms the caches.
    for _ in 0..=runs {
        ours.push(start(legwork, &arguments));
        baselines.push(start(&this_program, &["--baseline", &address, case.prompt]));
    }
    let ratio = |ours: &[Measurement], baselines: &[Measurement]| {
        median(ours.iter().map(|figure| figure.wall)) / median(baselines.iter().map(|figure| figure.wall))
    };
    let [ours, baselines] = [ours, baselines].map(|figures| figures.into_iter().skip(1).collect::<Result<Vec<_>, _>>());
    let memory =
        |figures: &[Measurement]| figures.iter().map(|figure| figure.memory).max().unwrap_or_default() as f64 / 1e6;
    let ratio = match (&ours, &baselines) {
        (Ok(ours), Ok(baselines)) => {
            let per_turn = |figures: &[Measurement]| median(figures.iter().map(|figure| figure.wall)) / case.turns;
            if case.target == cases::FLUSHED {
                let title = format!("{}, a turn", case.title);
                aims::at_most(&title, 1.6 * per_turn(baselines) + flush, per_turn(ours), "ms");
            } else if let Ok(aim) = case.target.parse() {
                aims::at_most(case.title, aim, ratio(ours, baselines), "times");
            }
            format!("{:.2}", ratio(ours, baselines))
        }
        _ => String::new(),
    };
    let (ours, cpu, our_memory) = match &ours {
        Ok(figures) => (
            spread(figures.iter().map(|figure| figure.wall), case.turns),
            format!("{:.1} ms", median(figures.iter().map(|figure| figure.cpu))),
            format!("{:.1} MB", memory(figures)),
        ),
        Err(why) => (why.clone(), String::new(), String::new()),
    };
    let (baseline, baseline_memory) = match &baselines {
        Ok(figures) => {
            (spread(figures.iter().map(|figure| figure.wall), case.turns), format!("{:.1} MB", memory(figures)))
        }
        Err(why) => (why.clone(), String::new()),
    };
    println!(
        "| {:<46} | {:<12} | {ours:<30} | {ratio:>8} | {cpu:>8} | {our_memory:>8} | {baseline:<30} | {baseline_memory:>8} |",
        case.title, case.target
    );
}

/// The median time in milliseconds to append a line to a file and flush it, as a run does before each command.
fn flush_ms() -> f64 {
    let mut file = tempfile::tempfile().expect("a temporary file");
    let flush = |_| {
        let start = std::time::Instant::now();
        std::io::Write::write_all(&mut file, &[b'x'; 200]).and_then(|()| file.sync_data()).expect("a flush");
        start.elapsed().as_secs_f64() * 1e3
    };
    let times: Vec<f64> = (0..101).map(flush).collect();
    median(times.into_iter())
}

/// Whether this binary has the option `--sandbox`, so that runs can be measured without one.
fn has_sandbox_option(legwork: &Path) -> bool {
    let help = Command::new(legwork).args(["run", "--help"]).output().expect("the executable starts");
    String::from_utf8_lossy(&help.stdout).contains("--sandbox")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median, minimum and maximum in milliseconds; per turn if there are several turns.
fn spread(values: impl Iterator<Item = f64> + Clone, turns: f64) -> String {
    let (least, greatest) = values.clone().fold((f64::MAX, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
    let unit = if turns > 1.0 { "ms a turn" } else { "ms" };
    let digits = if turns > 1.0 { 2 } else { 1 };
    let shown = |value: f64| format!("{:.digits$}", value / turns);
    format!("{} {unit} ({} to {})", shown(median(values)), shown(least), shown(greatest))
}
