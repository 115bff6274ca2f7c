//! Runs that are killed around compaction, and resume as if they had never been interrupted.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{events_of_type, folder, reader, with_window};
use crate::support::program::ProgramOutput;
use crate::support::sample;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

/// A job that reads, thinks and is summarized twice, with a script for its model.
fn scripted() -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: { name: replay/replies.yaml, context: 4040 }\nparent: { prompt: Go., tools: [read_file], max_tokens: 400 }\n\
         limits: { tokens: 100000 }\n",
    );
    folder.write("notes.txt", super::lines());
    let turn = |number: usize| {
        let text = format!("Turn {number}. {}", "I think about it. ".repeat(50));
        json!({ "text": text, "calls": [{ "tool": "read_file", "input": { "path": "notes.txt", "limit": 30 } }] })
    };
    let mut replies: Vec<Value> = (1..=9).map(turn).collect();
    replies.insert(7, json!({ "text": "Second summary.", "kept_turns": 1 }));
    replies.insert(4, json!({ "text": "First summary.", "kept_turns": 2 }));
    replies.push(json!({ "text": "All is read." }));
    folder.write("replies.yaml", json!({ "parent": replies }).to_string());
    folder
}

/// The parts of a run that must equal those of an uninterrupted run.
fn comparable_parts(ended: &ProgramOutput) -> (Value, Vec<Value>, Vec<Value>) {
    let record = ended.run_folder();
    let result = record.result();
    let figures = json!([result["outcome"], result["turns"], result["tool_calls"], result["text"]]);
    (figures, events_of_type(&record, "results_truncated"), events_of_type(&record, "context_compacted"))
}

/// After how many events a run is killed, unless `LEGWORK_TEST_POINTS` is `all`.
const MOST_POINTS: usize = 16;

#[test]
fn a_run_killed_after_any_event_compacts_the_same_way() {
    let whole = scripted();
    let ended = whole.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0).assert_stdout("All is read.\n");
    let expected = comparable_parts(&ended);
    assert!(!expected.1.is_empty() && expected.2.len() == 2, "{expected:?}");
    let events = ended.run_folder().events().len() as u64;
    for number in sample(1..events, MOST_POINTS) {
        let folder = scripted();
        let cut = folder.legwork(&["run", "job.yaml"]).env("LEGWORK_KILL_AFTER", number.to_string()).run();
        assert_eq!(cut.signal(), Some(9), "{number}: {}", cut.full_output());
        if number % 3 == 0 {
            folder.legwork(&["resume", "latest"]).env("LEGWORK_KILL_AFTER", "2").run();
        }
        let ended = folder.legwork(&["resume", "latest"]).run();
        assert!(ended.exited_with(0), "{number}: {}", ended.full_output());
        assert_eq!(comparable_parts(&ended), expected, "{number} of {events}");
    }
}

#[test]
fn a_resumed_run_sends_the_same_requests() {
    let sent = |kill: Option<u64>| -> (Vec<Value>, Vec<String>) {
        let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "");
        let place = folder.path().display().to_string();
        let server = Server::with(Checks::AllowRepeats, by_turn());
        let run = folder.legwork(&["run", "job.yaml"]).anthropic(&server);
        let mut ended = match kill {
            None => run.run(),
            Some(after) => run.env("LEGWORK_KILL_AFTER", after.to_string()).run(),
        };
        if kill.is_some() {
            ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
        }
        ended.assert_code(0);
        let mut bytes: Vec<String> =
            server.finish().iter().map(|request| without_ids(request).replace(&place, "/")).collect();
        bytes.dedup();
        (ended.run_folder().events(), bytes)
    };
    let (events, expected) = sent(None);
    let places = events.iter().enumerate().filter(|(_, event)| {
        event["type"] == "results_truncated"
            || event["type"] == "context_compacted"
            || !event["data"]["kept_turns"].is_null()
    });
    let places: Vec<u64> = places.flat_map(|(at, _)| [at as u64, at as u64 + 1]).collect();
    assert!(places.len() > 6, "{places:?}");
    for after in places {
        let (_, again) = sent(Some(after));
        let differs = again.iter().zip(&expected).position(|(now, then)| now != then);
        let parts = differs.map(|at| first_difference(&again[at], &expected[at]));
        assert!(
            again == expected,
            "killed after event {after}: {} of {}, {differs:?} {parts:?}",
            again.len(),
            expected.len()
        );
    }
}

/// A request's body without the numbers in call ids, which depend on the server's count of requests.
fn without_ids(request: &Request) -> String {
    let body = String::from_utf8(request.bytes().to_vec()).unwrap();
    let mut parts = body.split("toolu_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "toolu" + part.trim_start_matches(|letter: char| letter.is_ascii_digit()))
}

/// A model whose replies depend only on the conversation.
fn by_turn() -> impl Fn(&Request) -> Answer + Send + Sync {
    move |request: &Request| {
        let is_over = request.prompt().contains("Summary 2");
        let reply = if super::asks_for_a_summary(request) {
            let number = if request.prompt().contains("Summary 1") { 2 } else { 1 };
            Answer::text(&format!("Summary {number}."))
        } else if is_over {
            Answer::text("Over.")
        } else {
            Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))])
                .then_text(&"I think about it. ".repeat(60))
                .allow_changed_echo()
        };
        reply.usage(super::tokens(request), 300)
    }
}

#[test]
fn an_interrupted_summary_is_requested_again() {
    let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "");
    let reads = reader(12);
    let hangs = AtomicBool::new(true);
    let (tell, told) = std::sync::mpsc::channel();
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        if super::asks_for_a_summary(request) && hangs.swap(false, Ordering::SeqCst) {
            let _ = tell.send(());
            return Answer::empty().hang();
        }
        reads(request)
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    told.recv_timeout(std::time::Duration::from_secs(120)).unwrap();
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("All is read.\n");
    let record = ended.run_folder();
    let asked = events_of_type(&record, "request_started");
    let summaries = asked.iter().filter(|asked| !asked["kept_turns"].is_null()).count();
    assert_eq!(summaries, events_of_type(&record, "context_compacted").len() + 1);
    assert!(record.result()["usage"]["output_tokens"].as_u64().unwrap() > 600, "what was reserved counts");
}

/// The position of the first difference between two texts.
fn first_difference(now: &str, then: &str) -> (String, String) {
    let at = now.chars().zip(then.chars()).take_while(|(now, then)| now == then).count();
    let from = |text: &str| text.chars().skip(at.saturating_sub(60)).take(200).collect();
    (from(now), from(then))
}
