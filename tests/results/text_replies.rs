//! What servers leave in the text of a reply: calls in the notation of the model, and the model's thoughts.

use serde_json::{Value, json};

use crate::support::job::Job;
use crate::support::server::{Answer, Checks, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const RUN: &[&str] = &["run", "job.yaml"];
const CALL: &str = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>";

fn folder(tools: &str, more: &str) -> TestFolder {
    let folder = TestFolder::new();
    let head = "model: openai-chat/local\nlimits: { tokens: 1000000 }\n";
    folder.write("job.yaml", format!("{head}parent: {{ prompt: Go., tools: [{tools}] }}\n{more}"));
    folder.write("a.txt", "alpha\n");
    folder
}

fn read_file() -> Answer {
    Answer::calls(&[("read_file", json!({ "path": "a.txt" }))])
}

fn server(answers: impl IntoIterator<Item = Answer>) -> Server {
    Server::with(Checks::AllowRepeats, ScriptedAgents::of(answers))
}

#[test]
fn a_call_in_the_text_ends_the_run_and_a_resumed_run_asks_again() {
    let folder = folder("read_file", "");
    // The server parses calls when the run is resumed.
    let parserless = server([Answer::text(CALL), Answer::text(CALL), read_file(), Answer::text("It says alpha.")]);
    let ended = folder.legwork(RUN).openai(&parserless).run();
    ended.assert_code(5).assert_stderr_contains("wrote a call of `read_file` as text");
    ended.assert_stderr_contains("--enable-auto-tool-choice --tool-call-parser").assert_stderr_contains("--jinja");
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["turns"]), (&json!("provider_rejected"), &json!(2)));
    let resumed = folder.legwork(&["resume", "latest"]).openai(&parserless).run();
    resumed.assert_code(0).assert_stdout("It says alpha.\n");
    assert_eq!(resumed.run_folder().result()["tool_calls"], 1);
    let requests = parserless.finish();
    let messages = |at: usize| requests[at].body()["messages"].to_string();
    assert!(messages(1).starts_with(messages(0).trim_end_matches(']')), "{}", messages(1));
    let note = "No tool was called: your last reply has a call of `read_file` as text";
    assert!(messages(1).contains(note), "{}", messages(1));
    assert_eq!(messages(2), messages(1), "the second text is no part of the conversation");
    // Or it still doesn't.
    let still = server([Answer::text(CALL), Answer::text(CALL), Answer::text(CALL)]);
    folder.legwork(RUN).openai(&still).run().assert_code(5);
    folder.legwork(&["resume", "latest"]).openai(&still).run().assert_code(5);
}

#[test]
fn a_call_that_is_in_the_text_once_is_asked_for_again_also_after_a_kill() {
    for killed_after in 2..10 {
        let folder = folder("read_file", "");
        let server = Server::with(Checks::AllowRepeats, {
            let count = std::sync::atomic::AtomicUsize::new(0);
            move |request: &crate::support::server::Request| match request.results().len() {
                0 if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => Answer::text(CALL),
                0 => read_file(),
                _ => Answer::text("It says alpha."),
            }
        });
        let mut ended = folder.legwork(RUN).openai(&server).env("LEGWORK_KILL_AFTER", killed_after.to_string()).run();
        if ended.signal() == Some(9) {
            ended = folder.legwork(&["resume", "latest"]).openai(&server).run();
        }
        ended.assert_code(0).assert_stdout("It says alpha.\n");
    }
}

#[test]
fn a_call_in_the_text_of_a_subagent_ends_the_run() {
    let subagent = "subagents: { reader: { description: Reads., tools: [read_file] } }\n";
    let folder = folder("task", subagent);
    let task = Answer::calls(&[("task", json!({ "prompt": "Read it.", "description": "read" }))]);
    let script = ScriptedAgents::new().agent("Read it.", [Answer::text(CALL), Answer::text(CALL)]).agent("Go.", [task]);
    let server = Server::with(Checks::AllowRepeats, script);
    let ended = Job::in_folder(&folder).openai(&server).run();
    ended.assert_code(5).assert_error_contains("--tool-call-parser");
    assert_eq!(ended.run_folder().result()["outcome"], "provider_rejected");
}

#[test]
fn an_answer_that_shows_a_call_or_that_calls_another_tool_is_an_answer() {
    for (tools, text) in [
        ("read_file", format!("Hermes writes:\n```\n{CALL}\n```")),
        ("read_file", format!("```\n{CALL}\n```")),
        ("read_file", format!("{CALL}\nis how Hermes writes a call.")),
        ("glob", CALL.to_owned()),
        ("", CALL.to_owned()),
    ] {
        let folder = folder(tools, "");
        let server = server([Answer::text(&text)]);
        Job::in_folder(&folder).openai(&server).run().assert_code(0).assert_stdout(&format!("{text}\n"));
    }
}

#[test]
fn a_call_of_submit_result_in_the_text_is_asked_for_again() {
    let folder =
        folder("", "result: { schema: { type: object, required: [n], properties: { n: { type: integer } } } }\n");
    let text = "<tool_call>{\"name\": \"submit_result\", \"arguments\": {\"n\": 3}}</tool_call>";
    let submit = Answer::calls(&[("submit_result", json!({ "n": 3 }))]);
    let server = server([Answer::text(text), submit, Answer::text("Done.")]);
    let ended = Job::in_folder(&folder).openai(&server).run();
    ended.assert_code(0);
    assert_eq!(ended.run_folder().result()["result"], json!({ "n": 3 }));
}

#[test]
fn thoughts_in_the_text_are_no_part_of_answers_and_summaries() {
    let subagent = "subagents: { reader: { description: Reads., tools: [read_file] } }\n";
    let folder = folder("task", subagent);
    let task = Answer::calls(&[("task", json!({ "prompt": "Read it.", "description": "read" }))]);
    let script = ScriptedAgents::new()
        .agent("Read it.", [Answer::deltas(["<thi", "nk>It is short.\n</th", "ink>\n\n", "It says alpha."])])
        .agent("Go.", [task, Answer::deltas(["<think>\nI say", " 42.\n</think>", "\n\nThe answer is 42."])]);
    let server = Server::with(Checks::AllowRepeats, script);
    let ended = Job::in_folder(&folder).openai(&server).run();
    ended.assert_code(0).assert_stdout("The answer is 42.\n");
    let record = ended.run_folder();
    assert_eq!(record.result()["text"], "The answer is 42.");
    let ended = record.events_of("reader-1").into_iter().find(|event| event["type"] == "agent_finished").unwrap();
    assert_eq!(ended["data"]["text"], "It says alpha.");
    assert!(record.transcript().contains("I say 42."), "the record keeps them: {}", record.transcript());
    let requests = server.finish();
    let results: Vec<Value> = requests.iter().flat_map(|request| request.results()).map(|it| json!(it.text)).collect();
    assert_eq!(results, [json!("It says alpha.")]);
}
