//! Measures the overhead of a sandbox for a call of `bash`, from the times in the run's journal.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::aims;
use serde_json::{Value, json};

/// The number of calls in a run. The first one warms the caches and isn't counted.
const CALLS: usize = 101;

/// A tier, its target time, and the value of `--sandbox` that selects it.
const TIERS: [(&str, &str, &str); 3] =
    [("off", "", "off"), ("landlock", "under 2 ms", "auto"), ("bubblewrap", "takes 5 ms", "required")];

/// Prints the median for each tier, and the overhead compared with a call without a sandbox.
pub(crate) fn print(legwork: &Path) {
    println!(
        "\n| a call of `bash: true`, median of {:<12} | {:<12} | {:>10} | {:>10} |",
        CALLS - 1,
        "aim",
        "takes",
        "adds"
    );
    println!("|{}|{}|{}|{}|", "-".repeat(46), "-".repeat(14), "-".repeat(12), "-".repeat(12));
    let mut without = None;
    for (tier, aim, option) in TIERS {
        let (takes, adds) = match call(legwork, tier, option) {
            Ok(takes) => {
                let base = *without.get_or_insert(takes);
                match tier {
                    "landlock" => aims::at_most("a call of `bash: true` in landlock adds", 2.0, takes - base, "ms"),
                    "bubblewrap" => aims::at_most("a call of `bash: true` in bubblewrap takes", 5.0, takes, "ms"),
                    _ => {}
                }
                let adds = if tier == "off" { String::new() } else { format!("{:.2} ms", takes - base) };
                (format!("{takes:.2} ms"), adds)
            }
            Err(why) => (why, String::new()),
        };
        println!("| {tier:<44} | {aim:<12} | {takes:>10} | {adds:>10} |");
    }
}

/// The median time of a call, in milliseconds.
fn call(legwork: &Path, tier: &str, option: &str) -> Result<f64, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["home", "work", "programs"] {
        std::fs::create_dir(at(name)).expect("a folder");
    }
    let turn = json!({ "calls": [{ "tool": "bash", "input": { "command": "true" } }] });
    let turns: Vec<Value> = std::iter::repeat_n(turn, CALLS).chain([json!({ "text": "done" })]).collect();
    std::fs::write(at("replies.yaml"), json!({ "parent": turns }).to_string()).expect("the script");
    let job = "model: anthropic/claude-sonnet-4-6\nparent: { prompt: go, tools: [bash], max_turns: 200 }\n";
    std::fs::write(at("work/job.yaml"), job).expect("the job");
    let mut command = Command::new(legwork);
    command.args(["run", "job.yaml", "--model", "replay/../replies.yaml", "--sandbox", option]);
    command.current_dir(at("work")).env_clear().env("HOME", at("home"));
    if tier == "landlock" {
        // Landlock is used if there is no bwrap in PATH.
        for shell in ["bash", "sh"] {
            symlink(Path::new("/bin").join(shell), at("programs").join(shell)).expect("a link");
        }
        command.env("PATH", at("programs"));
    } else {
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    }
    let output = command.output().expect("the executable starts");
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(stderr.lines().find(|line| line.starts_with("error")).unwrap_or("it failed").to_owned());
    }
    let journal = std::fs::read_to_string(at("work/runs/job/latest/events.jsonl")).expect("the journal");
    let entries: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let times = |kind: &str| {
        let entries = entries.iter().filter(|entry| entry["type"] == kind);
        let times = entries.map(|entry| entry["at"].as_str().expect("a time").parse::<jiff::Timestamp>());
        times.collect::<Result<Vec<_>, _>>().expect("times")
    };
    let (started, finished) = (times("call_started"), times("call_finished"));
    let took = started.iter().zip(&finished).skip(1).map(|(from, to)| to.duration_since(*from).as_secs_f64() * 1e3);
    let used = entries[0]["data"]["sandbox"].as_str().unwrap_or_default();
    if used == tier { Ok(super::median(took)) } else { Err(format!("{used} was used")) }
}
