//! Parallel subagents under a rate limit wait for it together, and none of them ends the run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::job::Job;
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "parent: { prompt: Go., tools: [task] }\nsubagents: { worker: { tools: [glob] } }\nlimits: \
                   { parallel_subagents: 20 }\n";

/// A parent that starts a number of subagents, each of which takes two turns.
fn reply(request: &Request, children: usize) -> Answer {
    let task = |child| ("task", json!({ "agent": "worker", "prompt": format!("Child {child}.") }));
    match (request.prompt().starts_with("Child"), request.turn()) {
        (false, 0) => Answer::calls(&(0..children).map(task).collect::<Vec<_>>()),
        (true, 0) => Answer::calls(&[("glob", json!({ "pattern": "*" }))]),
        _ => Answer::text("Done."),
    }
}

fn refusal() -> Answer {
    Answer::status(429).error("rate_limit_error", "Slow down.")
}

fn outcomes(record: &Value) -> Vec<&Value> {
    record["subagents"].as_array().unwrap().iter().map(|child| &child["outcome"]).collect()
}

fn completes(folder: &TestFolder, server: &Server, children: usize) {
    let ended = Job::in_folder(folder).anthropic(server).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    let result = ended.run_folder().result();
    assert_eq!(outcomes(&result), vec!["completed"; children], "{result}");
}

#[test]
fn many_subagents_share_a_limit_of_a_few_requests_per_second() {
    const CHILDREN: usize = 12;
    let bucket = Mutex::new((4.0, Instant::now()));
    let server = Server::start(move |request: &Request| {
        let mut bucket = bucket.lock().unwrap();
        let (tokens, at) = *bucket;
        let tokens = f64::min(tokens + at.elapsed().as_secs_f64() * 10.0, 4.0);
        let is_taken = tokens >= 1.0;
        *bucket = (tokens - f64::from(u8::from(is_taken)), Instant::now());
        if is_taken { reply(request, CHILDREN) } else { refusal().header("retry-after-ms", "100") }
    });
    completes(&folder_with(JOB), &server, CHILDREN);
    let requests = server.finish().len();
    assert!(requests < 3 * (2 * CHILDREN + 2), "{requests} requests: a storm");
}

#[test]
fn a_throttled_subagent_does_not_end_the_run() {
    let refused = AtomicUsize::new(0);
    let server = Server::start(move |request: &Request| {
        let is_unlucky = request.prompt() == "Child 3." && request.turn() == 0;
        match is_unlucky && refused.fetch_add(1, Ordering::SeqCst) < 9 {
            true => refusal(),
            false => reply(request, 5),
        }
    });
    completes(&folder_with(JOB), &server, 5);
    assert_eq!(server.finish().len(), 2 + 2 * 5 + 9);
}
