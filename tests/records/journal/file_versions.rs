//! After a resume, an agent remembers which files it has read.

use serde_json::{Value, json};

use super::latest;
use crate::support::program::Program;
use crate::support::test_folder::TestFolder;

const JOB: &str = r#"
model: anthropic/claude-haiku-4-5
inputs: { token: { type: string, secret: true } }
parent: { prompt: Go., tools: [task, read_file, write_file, edit_file] }
subagents: { a: { tools: [read_file, write_file, edit_file] } }
"#;

fn call(tool: &str, input: &Value) -> Value {
    json!({ "tool": tool, "input": input })
}

fn edit(path: &str, new: &str) -> Value {
    call("edit_file", &json!({ "path": path, "old_text": "old", "new_text": new }))
}

/// A folder in which an agent reads one file, writes another, is killed, and then edits both.
fn interrupted_run(by_subagent: bool) -> TestFolder {
    let work = json!([
        { "calls": [call("read_file", &json!({ "path": "read.txt" }))] },
        { "calls": [call("write_file", &json!({ "path": "written.txt", "content": "old\n" }))] },
        { "calls": [edit("read.txt", "new"), edit("written.txt", "new")] },
        { "text": "Over." },
    ]);
    let task = json!([{ "calls": [call("task", &json!({ "prompt": "x" }))] }, { "text": "Over." }]);
    let replies =
        if by_subagent { json!({ "parent": task, "subagents": { "a-1": work } }) } else { json!({ "parent": work }) };
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("replies.yaml", replies.to_string());
    folder.write("read.txt", "old, and hush-hush\n");
    begin(&folder, by_subagent);
    folder
}

fn program(folder: &TestFolder, line: &[&str]) -> Program {
    folder.legwork(line).arg("--set-env").arg("token=T").env("T", "hush-hush-hush")
}

/// Runs the job to the end of the second call.
fn begin(folder: &TestFolder, by_subagent: bool) {
    let events = if by_subagent { "14" } else { "10" };
    let run = program(folder, &["run", "job.yaml", "--model", "replay/replies.yaml"]);
    let cut = run.env("LEGWORK_KILL_AFTER", events).run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.stderr);
}

/// The results of the two calls of `edit_file`.
fn edit_results(folder: &TestFolder, by_subagent: bool) -> Vec<String> {
    let record = latest(folder);
    let events = if by_subagent { record.events_of("a-1") } else { record.events() };
    let edits = events.iter().filter(|event| event["type"] == "call_finished" && event["data"]["tool"] == "edit_file");
    edits.map(|event| event["data"]["result"]["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn editing_a_file_that_changed_since_it_was_read_is_refused_after_a_resume() {
    for by_subagent in [false, true] {
        for name in ["read.txt", "written.txt"] {
            let folder = interrupted_run(by_subagent);
            folder.write(name, "old, and something else\n");
            program(&folder, &["resume", "latest"]).run().assert_code(0);
            let results = edit_results(&folder, by_subagent);
            let refusals: Vec<&String> = results.iter().filter(|text| text.contains("read it again")).collect();
            assert!(refusals.len() == 1 && refusals[0].contains(name), "{name}: {results:?}");
            assert_eq!(folder.read(name), "old, and something else\n");
        }
    }
}

#[test]
fn an_unchanged_file_can_be_edited_after_a_resume() {
    let folder = interrupted_run(false);
    program(&folder, &["resume", "latest"]).run().assert_code(0);
    assert_eq!([folder.read("read.txt"), folder.read("written.txt")], ["new, and hush-hush\n", "new\n"]);
}

/// From a digest, a reader of the record could guess the secret.
#[test]
fn files_with_secrets_are_not_stored() {
    let folder = interrupted_run(false);
    let seen = |folder: &TestFolder| -> Vec<Value> {
        let finished = latest(folder).events().into_iter().filter(|event| event["type"] == "call_finished");
        finished.filter_map(|event| Some(event["data"].get("file_version")?["path"].clone())).collect()
    };
    assert_eq!(seen(&folder), ["read.txt", "written.txt"]);
    let secret = TestFolder::new();
    for name in ["job.yaml", "replies.yaml"] {
        secret.write(name, folder.read(name));
    }
    secret.write("read.txt", "old, and hush-hush-hush\n");
    begin(&secret, false);
    assert_eq!(seen(&secret), ["written.txt"]);
}

#[test]
fn a_resumed_agent_may_replace_only_what_it_has_read_and_is_unchanged() {
    for changes in [false, true] {
        let folder = interrupted_run(false);
        let write = |path: &str| call("write_file", &json!({ "path": path, "content": "replaced\n" }));
        let replies = folder.read("replies.yaml");
        let mut replies: Value = serde_json::from_str(&replies).unwrap();
        replies["parent"][2]["calls"] = json!([write("read.txt"), write("written.txt"), write("other.txt")]);
        folder.write("replies.yaml", replies.to_string()).write("other.txt", "never read\n");
        if changes {
            folder.write("read.txt", "changed\n");
        }
        program(&folder, &["resume", "latest"]).run().assert_code(0);
        let events = latest(&folder).events();
        let writes =
            events.iter().filter(|event| event["type"] == "call_finished" && event["data"]["tool"] == "write_file");
        let results: Vec<&str> =
            writes.skip(1).map(|event| event["data"]["result"]["text"].as_str().unwrap()).collect();
        let first = if changes { "`read.txt` has changed since" } else { "replaced `read.txt`" };
        for (result, expected) in results.iter().zip([first, "replaced `written.txt`", "`other.txt` exists"]) {
            assert!(result.starts_with(expected), "{results:?}");
        }
        assert_eq!(results.len(), 3);
        assert_eq!(folder.read("other.txt"), "never read\n");
    }
}
