//! Outputs: the tools that propose them, what is refused at the call, and `outputs.json`.

use serde_json::{Value, json};

use crate::support::program::Program;
use crate::support::record::RunFolder;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const RUN: &[&str] = &["run", "job.yaml", "--event", "event.json"];

/// An issue with the number 3.
fn event() -> Value {
    json!({
        "action": "opened",
        "issue": { "number": 3, "title": "bug", "user": { "login": "mallory" } },
        "repository": { "full_name": "o/r", "html_url": "https://github.com/o/r" },
    })
}

/// A job whose parent has these tools and this under `outputs`.
fn job(tools: &str, outputs: &str) -> TestFolder {
    let folder = TestFolder::new();
    let head = "model: anthropic/claude-haiku-4-5\nlimits: { tokens: 1000000 }\n";
    folder.write("job.yaml", format!("{head}parent: {{ prompt: Go., tools: [{tools}] }}\noutputs:\n{outputs}"));
    folder.write("event.json", event().to_string());
    folder
}

fn outputs(record: &RunFolder) -> Value {
    serde_json::from_str(&record.file("outputs.json")).unwrap()
}

fn run(folder: &TestFolder, answers: impl IntoIterator<Item = Answer>) -> (RunFolder, Vec<(bool, String)>) {
    run_with(folder.legwork(RUN), answers)
}

fn run_with(program: Program, answers: impl IntoIterator<Item = Answer>) -> (RunFolder, Vec<(bool, String)>) {
    let server = Server::start(ScriptedAgents::of(answers));
    let ended = program.anthropic(&server).run();
    let results = server.finish().iter().skip(1).flat_map(|request| request.results()).collect::<Vec<_>>();
    (ended.run_folder(), results.into_iter().map(|result| (result.is_error, result.text)).collect())
}

#[test]
fn what_agents_propose_is_checked_counted_and_in_the_record() {
    let folder = job(
        "{ output: [comment, labels, nothing_to_do] }",
        "  comment: { target: trigger, max: 2 }\n  labels: { add: [bug, question], remove: [needs-triage], max: 2 }\n",
    );
    let calls = [
        ("comment", json!({ "body": "First." })),
        ("comment", json!({ "body": "Summary.", "key": "summary" })),
        ("comment", json!({ "body": "Better summary.", "key": "summary" })),
        ("comment", json!({ "body": "One too many." })),
        ("comment", json!({ "body": "Other issue.", "number": 4 })),
        ("labels", json!({ "add": ["wontfix"] })),
        ("labels", json!({ "add": ["bug"], "remove": ["needs-triage"] })),
        ("labels", json!({ "add": ["question"] })),
        ("nothing_to_do", json!({ "reason": "All is well." })),
        ("labels", json!({ "add": ["bug"], "key": "../.. x" })),
    ];
    let (record, results) = run(&folder, [Answer::calls(&calls), Answer::text("Done.")]);
    let expected = [
        (false, "accepted (1 of 2)"),
        (false, "accepted (2 of 2)"),
        (false, "accepted (2 of 2, in place of the one with this key)"),
        (true, "the limit of `comment` is 2 outputs"),
        (true, "number"),
        (true, "/add/0"),
        (false, "accepted (2 of 2)"),
        (true, "the limit of `labels` is 2 labels"),
        (true, "`comment-1` is accepted already"),
        (true, "`key` is 1 to 100 of"),
    ];
    for ((is_error, text), (expected_error, part)) in results.iter().zip(expected) {
        assert!(*is_error == expected_error && text.contains(part), "{part}: {text}");
    }
    let file = outputs(&record);
    assert_eq!((&file["format"], &file["job"]), (&json!(1), &json!("job")));
    assert_eq!(file["trigger"]["number"], 3);
    let entries: Vec<(&Value, &Value, &Value)> =
        file["entries"].as_array().unwrap().iter().map(|it| (&it["id"], &it["target"], &it["data"])).collect();
    assert_eq!(
        entries,
        [
            (&json!("comment-1"), &json!(3), &json!({ "body": "First." })),
            (&json!("summary"), &json!(3), &json!({ "body": "Better summary." })),
            (&json!("labels-1"), &json!(3), &json!({ "add": ["bug"], "remove": ["needs-triage"] })),
        ]
    );
    assert_eq!(file["job_sha256"].as_str().unwrap().len(), 64);
    let last = record.events().pop().unwrap();
    assert_eq!((&last["type"], &file["journal_head"]), (&json!("run_finished"), &last["sum"]));
    // The file is derived from the journal.
    let path = record.path().join("outputs.json");
    std::fs::remove_file(&path).unwrap();
    folder.legwork(&["show", "--rebuild", "latest"]).run().assert_code(0);
    assert_eq!(outputs(&record), file);
    // A replay takes the recorded results.
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn a_run_that_must_propose_something_is_reminded_once() {
    let rules = "  comment: {}\n  rules: { required: true }\n";
    let folder = job("{ output: [comment, nothing_to_do] }", rules);
    let server = Server::start(ScriptedAgents::of([Answer::text("Done."), Answer::text("Really done.")]));
    let ended = folder.legwork(RUN).anthropic(&server).run();
    ended.assert_code(1);
    assert_eq!(ended.run_folder().result()["outcome"], "result_invalid");
    ended.assert_stderr_contains("requires an output");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    let (record, _) = run(
        &folder,
        [
            Answer::text("Done."),
            Answer::calls(&[("nothing_to_do", json!({ "reason": "Answered before." }))]),
            Answer::text("Done."),
        ],
    );
    assert_eq!(record.result()["outcome"], "completed");
    assert_eq!(outputs(&record)["nothing_to_do"], "Answered before.");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn an_output_for_a_trigger_needs_an_event() {
    let folder = job("{ output: [comment] }", "  comment: {}\n");
    let server = Server::start(ScriptedAgents::of([]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(3).assert_stderr_contains("missing-trigger").assert_stderr_contains("--event FILE");
    let plan = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    plan.assert_code(0).assert_stdout_contains("outputs     comment: comment for <trigger>, at most 1");
    let plan = folder.legwork(RUN).arg("--dry-run").run();
    plan.assert_code(0).assert_stdout_contains("comment: comment for #3, at most 1");
    // With `optional`, such a run does without the output.
    folder.write("job.yaml", folder.read("job.yaml").replace("comment: {}", "comment: { optional: true }"));
    let plan = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    plan.assert_code(0).assert_stdout_contains("outputs     comment: comment for <trigger>, not in this run");
    let plan = folder.legwork(RUN).arg("--dry-run").run();
    plan.assert_code(0).assert_stdout_contains("comment: comment for #3, at most 1");
    let (record, results) = run_with(
        folder.legwork(&["run", "job.yaml"]),
        [Answer::calls(&[("comment", json!({ "body": "x" }))]), Answer::text("Done.")],
    );
    assert!(results[0].0 && results[0].1.contains("comment"), "{results:?}");
    assert_eq!(outputs(&record)["entries"], json!([]));
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    folder.write("event.json", "not an event");
    let ended = folder.legwork(RUN).anthropic(&server).run();
    ended.assert_code(2).assert_stderr_contains("isn't an event of a forge");
    assert!(server.finish().is_empty());
}

#[test]
fn changes_are_checked_when_they_are_proposed_and_at_the_end() {
    let folder =
        job("write_file, { output: [docs] }", "  docs: { kind: pull_request, paths: [\"docs/**\"], max_files: 1 }\n");
    folder.write("README.md", "# R\n").commit_all();
    let propose = || ("docs", json!({ "title": "Docs", "body": "New." }));
    let write = |path: &str| ("write_file", json!({ "path": path, "content": "text\n" }));
    let (record, results) = run(
        &folder,
        [
            Answer::calls(&[propose()]),
            Answer::calls(&[write("docs/a.md")]),
            Answer::calls(&[propose()]),
            Answer::text("Done."),
        ],
    );
    assert!(results[0].0 && results[0].1.contains("changed no file"), "{results:?}");
    assert!(!results[2].0, "{results:?}");
    let patch = outputs(&record)["patch"].clone();
    assert_eq!(patch["files"], json!([{ "path": "docs/a.md", "change": "added" }]));
    assert_eq!(patch["base_commit"].as_str().unwrap(), folder.git(&["rev-parse", "HEAD"]).trim());
    // A later change that isn't allowed.
    let (record, results) = run(
        &folder,
        [
            Answer::calls(&[write("docs/b.md")]),
            Answer::calls(&[propose()]),
            Answer::calls(&[write("src.py")]),
            Answer::text("Done."),
        ],
    );
    assert!(!results[1].0, "{results:?}");
    let result = record.result();
    assert_eq!(result["outcome"], "result_invalid");
    assert!(result["error"]["message"].as_str().unwrap().contains("can't be published"), "{result}");
}

#[test]
fn a_resumed_run_proposes_nothing_twice() {
    let folder = job("bash, { output: [comment] }", "  comment: { max: 2 }\n");
    let kill = "[ -e resumed ] && exit; touch resumed; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 61";
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("comment", json!({ "body": "First." }))]),
        Answer::calls(&[("bash", json!({ "command": kill }))]),
        Answer::calls(&[("comment", json!({ "body": "Second." })), ("comment", json!({ "body": "Third." }))]),
        Answer::text("Done."),
    ]));
    folder.legwork(RUN).anthropic(&server).run();
    let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    ended.assert_code(0);
    let file = outputs(&ended.run_folder());
    let bodies: Vec<&Value> = file["entries"].as_array().unwrap().iter().map(|entry| &entry["data"]["body"]).collect();
    assert_eq!(bodies, [&json!("First."), &json!("Second.")]);
}
