//! The measured jobs, and the scripted replies of their model.

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;

use crate::server::{Answer, Request};

/// One measured case.
pub(crate) struct BenchCase {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The aim: a time, or a multiple of the baseline's.
    pub(crate) target: &'static str,
    pub(crate) job: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// The prompt of the baseline program; if empty, it only starts and exits.
    pub(crate) prompt: &'static str,
    pub(crate) answers: fn(&Request) -> Answer,
    /// The number of requests.
    pub(crate) requests: usize,
    /// The measured time is divided by this number.
    pub(crate) turns: f64,
}

const RUN: &[&str] = &["run", "job.yaml"];
const CHILDREN: usize = 8;
const CHILD_TURNS: usize = 10;

const SPEAK_JOB: &str = "model: anthropic/claude-sonnet-4-6
parent: { prompt: go, tools: [] }
";

const WORK_JOB: &str = "model: anthropic/claude-sonnet-4-6
parent: { prompt: go, tools: [bash], max_turns: 200 }
";

const DELEGATE_JOB: &str = "model: anthropic/claude-sonnet-4-6
parent: { prompt: go, tools: [task] }
subagents:
  worker: { description: Works., system: You work., tools: [bash], max_turns: 20 }
limits: { parallel_subagents: 8 }
";

/// The aim of a turn with a command: 1.6 times the baseline's, and one flush.
pub(crate) const FLUSHED: &str = "1.6 + flush";

/// All measurements.
pub(crate) const CASES: [BenchCase; 6] = [
    BenchCase {
        name: "one",
        title: "a run of one turn",
        target: "20 ms",
        job: SPEAK_JOB,
        arguments: RUN,
        prompt: "go",
        answers: |_| Answer::text("done"),
        requests: 1,
        turns: 1.0,
    },
    BenchCase {
        name: "turns",
        title: "100 turns of `bash: true`",
        target: FLUSHED,
        job: WORK_JOB,
        arguments: RUN,
        prompt: "go",
        answers: |request| next_call(request, 100, "true"),
        requests: 101,
        turns: 100.0,
    },
    BenchCase {
        name: "children",
        title: "8 children of 10 turns, 50 ms a reply",
        target: "1.1",
        job: DELEGATE_JOB,
        arguments: RUN,
        prompt: "go",
        answers: delegate,
        requests: 2 + CHILDREN * (CHILD_TURNS + 1),
        turns: 1.0,
    },
    BenchCase {
        name: "results",
        title: "50 results of 50,000 characters (65 MB sent)",
        target: "1.5",
        job: WORK_JOB,
        arguments: RUN,
        prompt: "go",
        answers: |request| next_call(request, 50, "cat big.txt"),
        requests: 51,
        turns: 1.0,
    },
    BenchCase {
        name: "deltas",
        title: "a reply of 5,000 deltas",
        target: "3",
        job: SPEAK_JOB,
        arguments: RUN,
        prompt: "go",
        answers: deltas,
        requests: 1,
        turns: 1.0,
    },
    BenchCase {
        name: "validate",
        title: "`validate` of one file",
        target: "10 ms",
        job: DELEGATE_JOB,
        arguments: &["validate", "job.yaml"],
        prompt: "",
        answers: |_| Answer::empty(),
        requests: 0,
        turns: 1.0,
    },
];

/// Replies with one command until it has been called `calls` times, then with text. The number of a call is its id, so
/// no request body needs to be parsed.
fn next_call(request: &Request, calls: usize, command: &str) -> Answer {
    let done = request
        .last_answered()
        .and_then(|id| id.strip_prefix("toolu_"))
        .map_or(0, |number| number.parse().expect("the ids are ours"));
    if done == calls {
        return Answer::text("done");
    }
    Answer::empty().then_call_as(&format!("toolu_{}", done + 1), "bash", &json!({"command": command}))
}

fn delegate(request: &Request) -> Answer {
    let answer = match (request.prompt().starts_with("child"), request.turn()) {
        (false, 0) => {
            let task =
                |child| ("task", json!({"agent": "worker", "description": "work", "prompt": format!("child {child}")}));
            Answer::calls(&(0..CHILDREN).map(task).collect::<Vec<_>>()).number_calls(request.number)
        }
        (true, turn) if turn < CHILD_TURNS => {
            Answer::calls(&[("bash", json!({"command": "true"}))]).number_calls(request.number)
        }
        _ => Answer::text("done"),
    };
    answer.delay(Duration::from_millis(50))
}

/// The reply is built once, because only reading it is measured.
fn deltas(request: &Request) -> Answer {
    static ANSWER: OnceLock<Answer> = OnceLock::new();
    ANSWER.get_or_init(|| Answer::deltas(std::iter::repeat_n("word ", 5000)).rendered(request)).clone()
}
