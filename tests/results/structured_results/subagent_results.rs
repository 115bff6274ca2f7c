//! Data that subagents return.

use serde_json::{Value, json};

use super::{RUN, job};
use crate::support::job::{EndedRun, Job};
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const WORKER: &str = "
subagents:
  worker:
    description: Counts.
    tools: []
    max_turns: 4
    returns: { schema: { type: object, required: [count], properties: { count: { type: integer }, note: { type: string } } } }
";

fn parent() -> TestFolder {
    job("task", WORKER)
}

fn task() -> Answer {
    Answer::calls(&[("task", json!({ "prompt": "Count the files.", "description": "count" }))])
}

fn submit(data: &Value) -> Answer {
    Answer::calls(&[("submit_result", data.clone())])
}

/// The outcome of a run whose subagent gives this reply, and the result that its parent gets.
fn run(folder: &TestFolder, worker: Vec<Answer>) -> (EndedRun, String, bool) {
    let server = Server::start(
        ScriptedAgents::new().agent("Count the files.", worker).agent("Go.", [task(), Answer::text("Over.")]),
    );
    let ended = Job::in_folder(folder).anthropic(&server).run();
    ended.assert_code(0);
    let requests = server.finish();
    let result =
        requests.iter().find(|request| request.prompt() == "Go." && !request.results().is_empty()).unwrap().results();
    let tools = &requests[0].body()["tools"];
    assert!(tools[0]["description"].as_str().unwrap().contains("worker: Counts. (Its summary is data, as JSON.)"));
    assert_eq!(tools.as_array().unwrap().len(), 1, "the parent itself ends with a text");
    let (text, is_error) = (result[0].text.clone(), result[0].is_error);
    (ended, text, is_error)
}

#[test]
fn the_parent_gets_only_the_data() {
    let data = json!({ "count": 3, "note": "`a`\n```" });
    let folder = parent();
    let (ended, text, is_error) =
        run(&folder, vec![submit(&json!({ "count": "3" })), submit(&data), Answer::text("I counted.")]);
    assert_eq!((serde_json::from_str::<Value>(&text).unwrap(), is_error), (data.clone(), false));
    let summary = ended.run_folder().summary("worker-1");
    assert!(summary.contains(&format!("\n````json\n{data:#}\n````\n\nI counted.\n")), "{summary}");
    assert_eq!(ended.run_folder().result()["subagents"][0]["outcome"], "completed");
    assert_eq!(ended.run_folder().result()["result"], Value::Null);
}

#[test]
fn a_subagent_without_data_is_reported_to_the_parent() {
    let folder = parent();
    let (ended, text, is_error) = run(&folder, vec![Answer::text("Three."), Answer::text("Three, I said.")]);
    assert!(is_error && text.starts_with("[worker-1 ended with result_invalid"), "{text}");
    assert!(text.ends_with("\n\nThree, I said."), "{text}");
    assert_eq!(ended.run_folder().result()["subagents"][0]["outcome"], "result_invalid");
    assert_eq!(ended.run_folder().result()["outcome"], "completed");
}

#[test]
fn a_submission_before_the_turn_limit_counts_and_the_limit_is_reported() {
    let data = json!({ "count": 3 });
    let more = || submit(&json!({ "count": 3 }));
    let (_, text, is_error) = run(&parent(), vec![more(), more(), more(), more(), Answer::text("No turn left.")]);
    assert!(!is_error && text.starts_with("[worker-1 ended with turn_limit after 4 turns; this is the data"), "{text}");
    assert_eq!(serde_json::from_str::<Value>(text.split_once("\n\n").unwrap().1).unwrap(), data);
}

#[test]
fn data_too_large_for_the_parent_is_rejected() {
    let fits = "ä".repeat(48_000);
    let large = submit(&json!({ "count": 1, "note": "ä".repeat(49_000) }));
    let folder = parent();
    let (ended, text, _) = run(&folder, vec![large, submit(&json!({ "count": 1, "note": fits })), Answer::empty()]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["note"], fits);
    let events = ended.run_folder().events_of("worker-1");
    let refused = events.iter().find(|event| event["type"] == "call_finished").unwrap();
    let why = refused["data"]["result"]["text"].as_str().unwrap();
    assert!(refused["data"]["result"]["is_error"] == true && why.contains("the limit is 49000"), "{why}");
}

#[test]
fn parent_and_subagent_have_separate_schemas() {
    let folder = job("task", &format!("{WORKER}result: {{ schema: {{ type: array, items: {{ type: integer }} }} }}\n"));
    folder.write(
        "replies.yaml",
        json!({
            "parent": [
                { "calls": [{ "tool": "task", "input": { "prompt": "Count." } }, { "tool": "submit_result", "input": { "result": [7] } }] },
                { "text": "Seven." },
            ],
            "subagents": { "worker-1": [{ "calls": [{ "tool": "submit_result", "input": { "count": 7 } }] }, { "text": "" }] },
        })
        .to_string(),
    );
    let ended = folder.legwork(RUN).args(["--model", "replay/replies.yaml"]).run();
    ended.assert_code(0).assert_stdout("Seven.\n");
    assert_eq!(ended.run_folder().result()["result"], json!([7]));
    let summary = ended.run_folder().summary("worker-1");
    assert!(summary.contains("---\n\n```json\n{\n  \"count\": 7\n}\n```\n\n# worker-1: completed\n"), "{summary}");
}

#[test]
fn a_text_that_is_valid_data_is_the_summary() {
    let folder = parent();
    let (ended, text, is_error) = run(&folder, vec![Answer::text("```json\n{\"count\": 3}\n```")]);
    assert_eq!((serde_json::from_str::<Value>(&text).unwrap(), is_error), (json!({ "count": 3 }), false));
    assert_eq!(ended.run_folder().result()["subagents"][0]["outcome"], "completed");
}
