//! Measures long runs: how long a resume takes, and how memory grows with the number of turns.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::aims;
use crate::measure::{self, Measurement};
use crate::server::{Answer, Checks, KEY, Request, Server};
use crate::{has_sandbox_option, median};

const JOB: &str = "model: anthropic/claude-sonnet-4-6
parent: { prompt: go, tools: [bash], max_turns: 5000 }
limits: { tool_calls: none }
";

/// The lengths of the resumed records, in turns.
const RECORDED_TURNS: [usize; 4] = [125, 250, 500, 1000];
/// The lengths, in turns, of the runs whose memory is measured.
const TURNS: [usize; 4] = [1, 200, 1000, 2000];

/// The number of subagents at once.
const CROWD: usize = 200;

/// A model that calls one command a fixed number of times.
struct Model {
    turns: AtomicUsize,
    /// Whether the request after the last call stays unanswered.
    is_finishing: AtomicBool,
    /// The size of the last request.
    size: AtomicUsize,
}

impl Model {
    fn serve(command: &'static str) -> (Arc<Self>, Server) {
        let model = Arc::new(Self { turns: 0.into(), is_finishing: false.into(), size: 0.into() });
        let answering = Arc::clone(&model);
        (model, Server::with(Checks::None, move |request: &Request| answering.answer(request, command)))
    }

    fn answer(&self, request: &Request, command: &str) -> Answer {
        self.size.store(request.bytes().len(), Ordering::SeqCst);
        let done = request.last_answered().and_then(|id| id.strip_prefix("toolu_")?.parse().ok()).unwrap_or(0);
        if done < self.turns.load(Ordering::SeqCst) {
            return Answer::empty().then_call_as(&format!("toolu_{}", done + 1), "bash", &json!({"command": command}));
        }
        if self.is_finishing.load(Ordering::SeqCst) { Answer::empty().hang() } else { Answer::text("done") }
    }
}

/// Starts a program in a folder, with a provider.
fn legwork(program: &Path, arguments: &[&str], folder: &Path, server: &Server) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder.join("home"));
    command.env("NO_PROXY", "127.0.0.1").env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
    // The home folder is in the workspace, so it can't hold the key.
    command.env("LEGWORK_RECORD_KEY", "the key of the benchmark's records");
    command
}

/// The arguments of a command, with `--sandbox off` if the binary has that option.
fn unconfined<'a>(legwork: &Path, arguments: &[&'a str]) -> Vec<&'a str> {
    let off: &[&str] = if has_sandbox_option(legwork) { &["--sandbox", "off"] } else { &[] };
    [arguments, off].concat()
}

fn measured(program: &Path, arguments: &[&str], folder: &Path, server: &Server) -> Measurement {
    let this_program = std::env::current_exe().expect("this program");
    let program = program.to_str().expect("a path that is text");
    let all = [&["--measure", program], arguments].concat();
    measure::measure(&mut legwork(&this_program, &all, folder, server))
        .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    std::fs::create_dir(folder.path().join("home")).expect("a home");
    std::fs::write(folder.path().join("job.yaml"), JOB).expect("the job");
    std::fs::write(folder.path().join("note.txt"), "A line of some words.\n".repeat(100)).expect("a text");
    folder
}

/// Prints the time to resume records of different lengths.
pub(crate) fn resume(program: &Path, runs: usize) {
    println!("\nresume of a run that was killed during its next request; each turn `bash: cat` of 2,200 characters\n");
    println!(
        "| {:<14} | {:>9} | {:<30} | {:>9} | {:>14} | {:>9} |",
        "", "journal", "resume", "CPU", "CPU per turn", "memory"
    );
    println!("|{0:-<16}|{0:->10}:|{0:-<32}|{0:->10}:|{0:->15}:|{0:->10}:|", "");
    for turns in RECORDED_TURNS {
        let (model, server) = Model::serve("cat note.txt");
        model.turns.store(turns, Ordering::SeqCst);
        model.is_finishing.store(true, Ordering::SeqCst);
        let folder = prepared();
        let mut run = legwork(program, &unconfined(program, &["run", "job.yaml"]), folder.path(), &server);
        let mut run = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a run");
        let deadline = Instant::now() + Duration::from_secs(300);
        while server.count() <= turns {
            assert!(Instant::now() < deadline, "{turns} turns took too long");
            std::thread::sleep(Duration::from_millis(5));
        }
        run.kill().and_then(|()| run.wait()).expect("its end");
        model.is_finishing.store(false, Ordering::SeqCst);
        let record = folder.path().join("runs/job/latest").canonicalize().expect("the record");
        let journal = std::fs::read(record.join("events.jsonl")).expect("the journal");
        let mut figures = Vec::new();
        for _ in 0..=runs {
            let _ = std::fs::remove_file(record.join("result.json"));
            std::fs::write(record.join("events.jsonl"), &journal).expect("the journal");
            let before = server.count();
            figures.push(measured(program, &unconfined(program, &["resume", "latest"]), folder.path(), &server));
            assert_eq!(server.count() - before, 1, "only the request without a reply is sent again");
        }
        let walls: Vec<f64> = figures[1..].iter().map(|figure| figure.wall).collect();
        let (least, greatest) = walls.iter().fold((f64::MAX, 0.0_f64), |(a, b), wall| (a.min(*wall), b.max(*wall)));
        let cpu = median(figures[1..].iter().map(|figure| figure.cpu));
        let middle = median(walls.into_iter());
        let memory = figures.iter().map(|figure| figure.memory).max().unwrap_or_default() as f64 / 1e6;
        println!(
            "| {:<14} | {:>9} | {:<30} | {:>9} | {:>14} | {:>9} |",
            format!("{turns} turns"),
            format!("{:.1} MB", journal.len() as f64 / 1e6),
            format!("{middle:.1} ms ({least:.1} to {greatest:.1})"),
            format!("{cpu:.1} ms"),
            format!("{:.0} µs", cpu * 1e3 / turns as f64),
            format!("{memory:.1} MB"),
        );
    }
}

/// Prints the peak memory of runs and the size of the conversation that they send.
pub(crate) fn memory(program: &Path) {
    println!(
        "\nmemory of a run of `bash: true` to its end, transcript and report included (aim: flat beyond the conversation)\n"
    );
    println!(
        "| {:<12} | {:>9} | {:>14} | {:>22} | {:>16} |",
        "", "memory", "conversation", "more than after 1 turn", "per turn"
    );
    println!("|{0:-<14}|{0:->10}:|{0:->15}:|{0:->23}:|{0:->17}:|", "");
    let mut first: Option<(u64, usize)> = None;
    for turns in TURNS {
        let (model, server) = Model::serve("true");
        model.turns.store(turns, Ordering::SeqCst);
        let folder = prepared();
        let figure = measured(program, &unconfined(program, &["run", "job.yaml"]), folder.path(), &server);
        let size = model.size.load(Ordering::SeqCst);
        let (memory, small) = *first.get_or_insert((figure.memory, size));
        let (more, longer) = (figure.memory as f64 - memory as f64, size - small);
        println!(
            "| {:<12} | {:>9} | {:>14} | {:>22} | {:>16} |",
            format!("{turns} turns"),
            format!("{:.1} MB", figure.memory as f64 / 1e6),
            format!("{:.0} kB", size as f64 / 1e3),
            format!("{:.0} kB", more / 1e3),
            format!("{:.0} of {:.0} B", more / turns as f64, longer as f64 / turns as f64),
        );
        if turns == TURNS[3] {
            let growth = growth(folder.path());
            println!("\nturn 2,000 takes {growth:.2} times as long as turn 20 (aim: 1.2)");
            aims::at_most("turn 2,000, as a multiple of turn 20", 1.2, growth, "times");
            let room = (figure.memory as f64 - size as f64) / 1e6;
            aims::at_most("memory of 2,000 turns without the conversation", 64.0, room, "MB");
        }
    }
    let memory = crowd(program) as f64 / 1e6;
    println!("{CROWD} subagents at once take {memory:.0} MB (aim: below 150)");
    aims::at_most("memory of 200 subagents at once", 150.0, memory, "MB");
}

/// How much longer the last turns of a run took than those around the 20th, each from a reply to the next one.
fn growth(folder: &Path) -> f64 {
    let journal = std::fs::read_to_string(folder.join("runs/job/latest/events.jsonl")).expect("the journal");
    let entries = journal.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let replies = entries.filter(|entry| entry["type"] == "reply_received");
    let times: Vec<jiff::Timestamp> =
        replies.map(|entry| entry["at"].as_str().expect("a time").parse().expect("a time")).collect();
    let turns: Vec<f64> = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).collect();
    let around = |from: usize, to: usize| median(turns[from..to].iter().copied());
    around(turns.len() - 100, turns.len()) / around(10, 30)
}

/// The peak memory in bytes of a run with many subagents at once.
fn crowd(program: &Path) -> u64 {
    let server = Server::with(Checks::None, |request: &Request| {
        if request.prompt() != "go" {
            return Answer::text("done").delay(Duration::from_millis(500));
        }
        let task = |number: usize| ("task", json!({ "prompt": format!("part {number}"), "description": "a part" }));
        match request.turn() {
            0 => Answer::calls(&(0..CROWD).map(task).collect::<Vec<_>>()).number_calls(request.number),
            _ => Answer::text("done"),
        }
    });
    let folder = prepared();
    let job = format!(
        "model: anthropic/claude-sonnet-4-6\nparent: {{ prompt: go, tools: [task] }}\nsubagents:\n  worker: {{ description: \
         Works., system: You work., tools: [read_file] }}\nlimits: {{ subagents: {CROWD}, parallel_subagents: {CROWD} }}\n"
    );
    std::fs::write(folder.path().join("job.yaml"), job).expect("the job");
    measured(program, &unconfined(program, &["run", "job.yaml"]), folder.path(), &server).memory
}
