//! What a run costs: legwork's binary beside a program that does nothing but the exchange, on the same loopback server.
//!
//! `cargo bench` runs everything; `cargo bench -- --runs 5 turns deltas` only those cases, five times each. Beside the
//! cases there are `validate` (many files), `changes` (in large workspaces), `journal` (an event's way to the disk), `resume` (of long records) and
//! `memory` (over long runs). `rates` (subagents under a rate limit) runs only where it is named.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "it is a program of its own")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark that can't go on says so and stops")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/bodies.rs"]
mod bodies;
mod cases;
mod changes;
mod files;
mod floor;
mod journal;
mod long;
mod many;
mod measure;
mod plain;
mod rates;
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
#[path = "../../tests/support/server/mod.rs"]
mod server;
mod tiers;

use std::path::Path;
use std::process::{Command, ExitCode};

use cases::{BenchCase, CASES};
use measure::Measurement;
use server::{Checks, KEY, Server};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--floor", address, prompt] => floor::run(address, prompt),
        ["--check", folder] => files::check(Path::new(folder)),
        ["--decode", what, folder] => files::decode(what, Path::new(folder)),
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
        println!("This is a debug build: its figures say nothing.\n");
    }
    println!("median (least to greatest) of {runs} runs each, taken in turns; the whole process from start to end\n");
    println!(
        "| {:<46} | {:<12} | {:<30} | {:>8} | {:>8} | {:<30} | {:>8} |",
        "", "aim", "legwork", "CPU", "memory", "floor", "memory"
    );
    println!("|{0:-<48}|{0:-<14}|{0:-<32}|{0:->9}:|{0:->9}:|{0:-<32}|{0:->9}:|", "");
    for case in CASES.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|word| **word == case.name)) {
        row(case, legwork, runs);
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| **word == name);
    if is_wanted("validate") {
        files::compare(legwork, runs);
    }
    if is_wanted("journal") {
        journal::compare(runs);
    }
    if is_wanted("resume") {
        long::resume(legwork, runs);
    }
    if is_wanted("memory") {
        long::memory(legwork);
    }
    if is_wanted("changes") {
        changes::compare(legwork, runs);
    }
    // Minutes of waiting, so only where it is asked for.
    if wanted.iter().any(|word| **word == "rates") {
        rates::print(legwork);
    }
    if is_wanted("tiers") {
        tiers::print(legwork);
    }
    let size = std::fs::metadata(legwork).expect("the executable").len();
    println!("\nthe executable: {:.1} MB (aim: under 15 MB)", size as f64 / 1e6);
}

fn row(case: &BenchCase, legwork: &Path, runs: usize) {
    let server = Server::with(Checks::None, case.answers);
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("home")).expect("a home");
    std::fs::write(folder.path().join("job.yaml"), case.job).expect("the job");
    let line = format!("{}\n", "x".repeat(99));
    std::fs::write(folder.path().join("big.txt"), line.repeat(500)).expect("50,000 characters");
    let own = std::env::current_exe().expect("this program");
    let start = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(&own);
        command.arg("--measure").arg(program).args(arguments).current_dir(folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder.path().join("home"));
        command.env("NO_PROXY", "127.0.0.1").env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
        let before = server.count();
        let figure = measure::measure(&mut command);
        let asked = server.count() - before;
        figure.and_then(|figure| match asked == case.requests {
            true => Ok(figure),
            false => Err(format!("{asked} requests instead of {}", case.requests)),
        })
    };
    let mut arguments = case.arguments.to_vec();
    if arguments.first() == Some(&"run") && can_switch_the_sandbox_off(legwork) {
        arguments.extend(["--sandbox", "off"]);
    }
    let address = server.address().to_string();
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    // The first of each only warms the caches.
    for _ in 0..=runs {
        ours.push(start(legwork, &arguments));
        floors.push(start(&own, &["--floor", &address, case.prompt]));
    }
    let [ours, floors] = [ours, floors].map(|figures| figures.into_iter().skip(1).collect::<Result<Vec<_>, _>>());
    let memory =
        |figures: &[Measurement]| figures.iter().map(|figure| figure.memory).max().unwrap_or_default() as f64 / 1e6;
    let (ours, cpu, our_memory) = match &ours {
        Ok(figures) => (
            spread(figures.iter().map(|figure| figure.wall), case.turns),
            format!("{:.1} ms", median(figures.iter().map(|figure| figure.cpu))),
            format!("{:.1} MB", memory(figures)),
        ),
        Err(why) => (why.clone(), String::new(), String::new()),
    };
    let (floor, floor_memory) = match &floors {
        Ok(figures) => {
            (spread(figures.iter().map(|figure| figure.wall), case.turns), format!("{:.1} MB", memory(figures)))
        }
        Err(why) => (why.clone(), String::new()),
    };
    println!(
        "| {:<46} | {:<12} | {ours:<30} | {cpu:>8} | {our_memory:>8} | {floor:<30} | {floor_memory:>8} |",
        case.title, case.target
    );
}

/// A run is measured without the sandbox, where there is one to switch off.
fn can_switch_the_sandbox_off(legwork: &Path) -> bool {
    let help = Command::new(legwork).args(["run", "--help"]).output().expect("the executable starts");
    String::from_utf8_lossy(&help.stdout).contains("--sandbox")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Milliseconds, of one turn where there are several.
fn spread(values: impl Iterator<Item = f64> + Clone, turns: f64) -> String {
    let (least, greatest) = values.clone().fold((f64::MAX, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
    let unit = if turns > 1.0 { "ms a turn" } else { "ms" };
    let digits = if turns > 1.0 { 2 } else { 1 };
    let shown = |value: f64| format!("{:.digits$}", value / turns);
    format!("{} {unit} ({} to {})", shown(median(values)), shown(least), shown(greatest))
}
