//! Measures subagents under a rate limit: the duration of a run, compared with the minimum that the limit allows.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::json;

use crate::server::{Answer, Checks, KEY, Request, Server};

/// The number of turns of each subagent.
const TURNS: usize = 4;

/// A limit: its title, requests per second, the burst, the pause in `retry-after`, and whether replies have headers
/// with the number of remaining requests.
type Limit = (&'static str, f64, f64, &'static str, bool);

const LIMITS: [Limit; 7] = [
    ("50 in 6 s, with headers", 50.0 / 6.0, 50.0, "1", true),
    ("50 in 6 s", 50.0 / 6.0, 50.0, "1", false),
    ("50 in 6 s, one at once", 50.0 / 6.0, 1.0, "0.2", false),
    ("4 a second", 4.0, 4.0, "1", false),
    ("3 a second", 3.0, 3.0, "1", false),
    ("2 a second", 2.0, 2.0, "2", false),
    ("1 a second", 1.0, 1.0, "2", false),
];

/// Prints a line for each limit and number of subagents.
pub(crate) fn print(legwork: &Path) {
    println!("\n| {:<26} | subagents | requests | refused | ideal    | takes    |", "a rate limit");
    println!("|{0:-<28}|----------:|---------:|--------:|---------:|---------:|", "");
    for limit in LIMITS {
        for children in [8, 12, 20] {
            row(legwork, limit, children);
        }
    }
}

fn row(legwork: &Path, (title, per_second, most, pause, sends_headers): Limit, children: usize) {
    let bucket = Mutex::new((most, Instant::now()));
    let server = Server::with(Checks::None, move |request: &Request| {
        let mut bucket = bucket.lock().expect("the bucket");
        let (tokens, at) = *bucket;
        let tokens = f64::min(tokens + at.elapsed().as_secs_f64() * per_second, most);
        let is_taken = tokens >= 1.0;
        let left = if is_taken { tokens - 1.0 } else { tokens };
        *bucket = (left, Instant::now());
        let answer = match is_taken {
            true => reply(request, children),
            false => Answer::status(429).header("retry-after", pause).error("rate_limit_error", "slow down"),
        };
        if !sends_headers {
            return answer;
        }
        answer
            .header("x-ratelimit-limit-requests", &most.to_string())
            .header("x-ratelimit-remaining-requests", &left.floor().to_string())
            .header("x-ratelimit-reset-requests", &format!("{:.3}s", (most - left) / per_second))
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("home")).expect("a home");
    let job = "model: anthropic/claude-sonnet-4-5\nparent: { prompt: go, tools: [task] }\nsubagents: { worker: { tools: \
               [glob] } }\nlimits: { parallel_subagents: 20 }\n";
    std::fs::write(folder.path().join("job.yaml"), job).expect("the job");
    let mut command = Command::new(legwork);
    command.args(["run", "job.yaml"]).current_dir(folder.path()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder.path().join("home"));
    command.env("NO_PROXY", "127.0.0.1").env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
    let begun = Instant::now();
    let output = command.output().expect("legwork starts");
    let takes = begun.elapsed().as_secs_f64();
    let needed = 2 + children * TURNS;
    let ideal = ((needed as f64 - most) / per_second).max(0.0);
    let takes = match output.status.code() {
        Some(0) => format!("{takes:>6.1} s"),
        code => format!("exit {code:?}"),
    };
    let refused = server.count().saturating_sub(needed);
    println!("| {title:<26} | {children:>9} | {needed:>8} | {refused:>7} | {ideal:>6.1} s | {takes} |");
}

fn reply(request: &Request, children: usize) -> Answer {
    let answer = match (request.prompt().starts_with("child"), request.turn()) {
        (false, 0) => {
            let task = |child| ("task", json!({"agent": "worker", "prompt": format!("child {child}")}));
            Answer::calls(&(0..children).map(task).collect::<Vec<_>>())
        }
        (true, turn) if turn + 1 < TURNS => Answer::calls(&[("glob", json!({"pattern": "*"}))]),
        _ => return Answer::text("done"),
    };
    answer.number_calls(request.number)
}
