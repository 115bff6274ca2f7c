//! Scripts, cases and edited plans for conversations with compaction.

use serde_json::{Value, json};

use super::{WINDOW, events_of_type, reader};
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// A job with a context window that runs from a script, and the script: two long turns, a summary, one more turn, and
/// the final answer.
fn scripted(summary: &Value) -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: { name: replay/replies.yaml, context: 2500 }\nparent: { prompt: Go., tools: [todo], max_tokens: 400 }\n\
         limits: { tokens: 100000 }\n",
    );
    let long = |name: &str| {
        let text = format!("{name} {}", "of many words ".repeat(90));
        json!({ "text": text, "calls": [{ "tool": "todo", "input": { "items": [{ "text": "x" }] } }] })
    };
    let replies = json!({ "parent": [long("First"), long("Second"), long("Third"), summary, { "text": "Over." }] });
    folder.write("replies.yaml", replies.to_string());
    folder
}

#[test]
fn a_script_includes_the_summary_among_its_replies() {
    let folder = scripted(&json!({ "text": "The first two are done." }));
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended
        .assert_code(0)
        .assert_stdout("Over.\n")
        .assert_stderr_contains("conversation summarized except for the last turn");
    let summed_up = events_of_type(&ended.run_folder(), "context_compacted");
    assert_eq!(summed_up.len(), 1);
    assert_eq!((&summed_up[0]["summary"], &summed_up[0]["kept_turns"]), (&json!("The first two are done."), &json!(1)));
    assert_eq!(ended.run_folder().result()["turns"], 4);
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout("equal: 1 agent, 4 turns, 3 calls\n");
}

#[test]
fn a_script_can_mark_the_position_of_a_summary() {
    let folder = scripted(&json!({ "text": "Done so far.", "kept_turns": 2 }));
    // Without a context window, nothing else triggers a summary.
    folder.write("job.yaml", folder.read("job.yaml").replace(", context: 2500", ""));
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended
        .assert_code(0)
        .assert_stdout("Over.\n")
        .assert_stderr_contains("conversation summarized except for the last 2 turns");
    assert_eq!(events_of_type(&ended.run_folder(), "context_compacted")[0]["kept_turns"], 2);
    // Scripts generated from records have the same form.
    let path = format!("replay/{}", ended.run_folder().path().display());
    let again = folder.legwork(&["run", "job.yaml", "--model", &path]).run();
    again.assert_code(0).assert_stdout("Over.\n");
    assert_eq!(
        events_of_type(&again.run_folder(), "context_compacted"),
        events_of_type(&ended.run_folder(), "context_compacted")
    );
}

#[test]
fn a_saved_case_with_compaction_passes() {
    let folder = super::folder(&super::with_window("anthropic/claude-haiku-4-5"), "");
    let server = Server::start(reader(12));
    std::fs::create_dir_all(folder.home().join("tmp")).unwrap();
    let saved = folder.legwork(&["run", "job.yaml", "--save-case", "long"]).env("TMPDIR", folder.home().join("tmp"));
    let ended = saved.anthropic(&server).run();
    ended.assert_code(0).assert_stderr_contains("case:   ");
    assert!(!ended.stderr.contains("the saved case fails"), "{}", ended.stderr);
    assert!(!events_of_type(&ended.run_folder(), "context_compacted").is_empty());
    assert!(folder.read("tests/job/long/script.yaml").contains("kept_turns: 1"));
    folder
        .legwork(&["test"])
        .env("TMPDIR", folder.home().join("tmp"))
        .run()
        .assert_code(0)
        .assert_stdout_contains("ok   job/long");
}

#[test]
fn replay_of_an_edited_job_reports_a_different_compaction() {
    let folder = scripted(&json!({ "text": "The first two are done." }));
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    let job = folder.read("job.yaml");
    for (edited, why) in [
        (format!("{job}compaction: off\n"), "compaction is off instead of summary"),
        (job.replace("context: 2500", "context: 3000"), "the model's context is 3000 instead of 2500"),
    ] {
        folder.write("edited.yaml", edited);
        let ended = folder.legwork(&["replay", "latest", "--job", "edited.yaml"]).run();
        ended.assert_code(7).assert_stdout_contains(why);
    }
}

#[test]
fn a_reply_in_a_script_can_fill_the_window() {
    let folder = scripted(&json!({ "text": "Cut", "stop": "context_full" }));
    let mut replies: Value = serde_json::from_str(&folder.read("replies.yaml")).unwrap();
    replies["parent"].as_array_mut().unwrap().insert(4, json!({ "text": "Two are done." }));
    folder.write("replies.yaml", replies.to_string());
    folder.write("job.yaml", folder.read("job.yaml").replace(", context: 2500", ""));
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0).assert_stdout("Over.\n").assert_stderr_contains("Reply discarded: the reply was cut");
    assert_eq!(events_of_type(&ended.run_folder(), "context_compacted")[0]["summary"], "Two are done.");
    folder.write("job.yaml", folder.read("job.yaml") + "compaction: off\n");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(4).assert_not_printed("conversation summarized");
}

#[test]
fn nothing_is_compacted_if_the_conversation_fits() {
    let folder = super::folder("{ name: anthropic/claude-haiku-4-5, context: 1000000 }", "");
    let server = Server::start(reader(6));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0);
    let requests = server.finish();
    assert!(requests.iter().map(|request| super::tokens(request)).max() > Some(WINDOW));
    assert!(events_of_type(&ended.run_folder(), "results_truncated").is_empty());
    // The table has the context window of known models.
    let dry = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    dry.assert_code(0).assert_stdout_contains("compaction  summary");
}

#[test]
fn file_versions_are_remembered_after_a_summary() {
    let folder = super::folder(&super::with_window("anthropic/claude-haiku-4-5"), "");
    folder.write("job.yaml", folder.read("job.yaml").replace("todo]", "todo, edit_file, bash]"));
    let reads = reader(9);
    let edited = std::sync::atomic::AtomicBool::new(false);
    let server = Server::start(move |request: &Request| {
        let is_summed_up = request.prompt().contains("SUMMARY 1");
        if is_summed_up && !edited.swap(true, std::sync::atomic::Ordering::SeqCst) {
            let edit = json!({ "path": "notes.txt", "old_text": "0: some words", "new_text": "0: no words", "replace_all": true });
            return Answer::calls(&[("bash", json!({ "command": "echo more >> notes.txt" })), ("edit_file", edit)]);
        }
        reads(request)
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0).assert_stderr_contains("edit_file failed");
    assert!(!folder.read("notes.txt").contains("no words"));
}
