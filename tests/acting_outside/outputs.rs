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
fn a_body_of_any_length_is_refused_in_one_sentence() {
    let folder = job("{ output: [comment, nothing_to_do] }", "  comment: { target: any, max: 2 }\n");
    let body = |length: usize| json!({ "body": "x".repeat(length), "number": 3 });
    for (input, why) in [
        (body(60_001), "a text can have 60000 characters: shorten it"),
        (json!({ "body": "x", "number": "3" }), "/number: expected a whole number, found \"3\""),
        (json!({ "body": 3, "number": 3 }), "/body: expected a"),
        (json!({ "body": "x", "number": 1e300 }), "`number` is 1e+300, which no issue or pull request has"),
    ] {
        let size = input.to_string().len();
        let answers = [Answer::calls(&[("comment", input)]), Answer::text("Done.")];
        let (record, results) = run(&folder, answers);
        let [(is_error, text)] = results.as_slice() else { panic!("{results:?}") };
        assert!(*is_error && text.contains(why) && text.len() < 1_000, "{size} bytes: {why}: {text}");
        assert!(outputs(&record).get("entries").is_none_or(|entries| entries == &json!([])));
    }
    // This fills the model's window, too. What is longer, no provider's reply can have.
    let server = Server::start(ScriptedAgents::of([Answer::calls(&[("comment", body(3 << 20))])]));
    let ended = folder.legwork(RUN).anthropic(&server).run();
    ended.assert_stderr_contains("Refused: the input has 3145750 bytes; a text can have at most 60000 characters");
    assert!(outputs(&ended.run_folder()).get("entries").is_none_or(|entries| entries == &json!([])));
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
    // After the first call's end, the next reply, and the ends of its calls.
    for events in ["6", "8", "10", "12"] {
        let folder = job("{ output: [comment] }", "  comment: { max: 2 }\n");
        let server = Server::start(ScriptedAgents::of([
            Answer::calls(&[("comment", json!({ "body": "First." }))]),
            Answer::calls(&[("comment", json!({ "body": "Second." })), ("comment", json!({ "body": "Third." }))]),
            Answer::text("Done."),
        ]));
        let killed = folder.legwork(RUN).anthropic(&server).env("LEGWORK_KILL_AFTER", events).run();
        assert_eq!(killed.signal(), Some(9), "{events}: {}", killed.full_output());
        let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
        ended.assert_code(0);
        let file = outputs(&ended.run_folder());
        let bodies: Vec<&Value> =
            file["entries"].as_array().unwrap().iter().map(|entry| &entry["data"]["body"]).collect();
        assert_eq!(bodies, [&json!("First."), &json!("Second.")], "{events}");
    }
}

/// A repository whose branch `feature` changes lines 10 and 30 of `a.txt`. Returns the commits of `main` and `feature`.
fn with_branch(folder: &TestFolder) -> (String, String) {
    let lines = |changed: &[u32]| -> String {
        let line =
            |number: u32| if changed.contains(&number) { format!("new {number}\n") } else { format!("{number}\n") };
        (1..=40).map(line).collect()
    };
    folder.write("a.txt", lines(&[])).commit_all();
    let base = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    folder.git(&["checkout", "--quiet", "-b", "feature"]);
    folder.write("a.txt", lines(&[10, 30]));
    folder.git(&["commit", "--quiet", "--all", "--message=change"]);
    (base, folder.git(&["rev-parse", "HEAD"]).trim().to_owned())
}

fn pull_request_event(base: &str, head: &str) -> String {
    let branch = |name: &str, sha: &str| json!({ "ref": name, "sha": sha, "repo": { "full_name": "o/r" } });
    json!({
        "pull_request": { "number": 3, "base": branch("main", base), "head": branch("feature", head) },
        "repository": { "full_name": "o/r" },
    })
    .to_string()
}

#[test]
fn lines_of_a_review_are_checked_against_the_pull_request() {
    let folder = job("task, { output: [review] }", "  review: { max: 3 }\n");
    folder.write("job.yaml", folder.read("job.yaml") + "subagents: { helper: { description: Helps., workspace: own, tools: [write_file, { output: [review] }] } }\n");
    let (base, head) = with_branch(&folder);
    folder.write("event.json", pull_request_event(&base, &head));
    let review = |comment: Value| ("review", json!({ "body": "One thing.", "comments": [comment] }));
    let comment = |line: u32| json!({ "path": "a.txt", "line": line, "body": "Why?" });
    let answers = ScriptedAgents::new()
        .agent("Review it", [Answer::calls(&[review(comment(1)), review(comment(33))]), Answer::text("Done.")])
        .agent(
            "Go.",
            [
                Answer::calls(&[
                    review(comment(20)),
                    review(json!({ "path": "b.txt", "line": 1, "body": "Why?" })),
                    review(json!({ "path": "a.txt", "line": 28, "start_line": 12, "body": "Why?" })),
                    review(json!({ "path": "a.txt", "line": 31, "start_line": 29, "body": "Why?" })),
                    review(json!({ "path": "a.txt", "line": 10, "side": "LEFT", "body": "Why?" })),
                    ("task", json!({ "agent": "helper", "prompt": "Review it." })),
                ]),
                Answer::text("Done."),
            ],
        );
    let server = Server::start(answers);
    let ended = folder.legwork(RUN).anthropic(&server).run();
    ended.assert_code(0);
    assert!(!ended.stderr.contains("weren't checked"), "{}", ended.stderr);
    let requests = server.finish();
    let results: Vec<(bool, String)> =
        requests.iter().flat_map(|request| request.results()).map(|result| (result.is_error, result.text)).collect();
    for (is_error, part) in [
        (
            true,
            "line 20 of `a.txt` isn't in the diff of the pull request; the nearest there: 13 and 27; it shows 7 to 13, 27 to 33",
        ),
        (true, "the pull request doesn't change `b.txt`; it changes a.txt"),
        (true, "lines 12 to 28 of `a.txt` aren't in one part of the diff"),
        (false, "accepted (1 of 3)"),
        (false, "accepted (2 of 3)"),
        // A subagent with a copy of the workspace.
        (true, "line 1 of `a.txt` isn't in the diff"),
        (false, "accepted (3 of 3)"),
    ] {
        assert!(results.iter().any(|(error, text)| *error == is_error && text.contains(part)), "{part}: {results:?}");
    }
    // A replay needs no git: the answers are in the record.
    std::fs::remove_dir_all(folder.at(".git")).unwrap();
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn lines_of_an_unknown_base_are_left_to_publish() {
    let folder = job("{ output: [review] }", "  review: { max: 2 }\n");
    let (_, head) = with_branch(&folder);
    folder.write("event.json", pull_request_event(&"a".repeat(40), &head));
    let review = ("review", json!({ "body": "x", "comments": [{ "path": "a.txt", "line": 20, "body": "Why?" }] }));
    let server = Server::start(ScriptedAgents::of([Answer::calls(&[review.clone(), review]), Answer::text("Done.")]));
    let ended = folder.legwork(RUN).anthropic(&server).run();
    ended.assert_code(0);
    let warning = "the lines of a review weren't checked, because the base commit aaaaaaaaaa isn't in this clone; `publish` checks them";
    assert_eq!(ended.stderr.matches(warning).count(), 1, "{}", ended.stderr);
    assert_eq!(outputs(&ended.run_folder())["entries"].as_array().unwrap().len(), 2);
}

#[test]
fn a_trusted_step_decides_a_list() {
    let folder = job("{ output: [labels] }", "  labels: { add: \"{{ before.names }}\", max: 2 }\n");
    let steps = "before: [{ name: names, run: cat names.json, trusted: true, schema: { type: array } }]\n";
    folder.write("job.yaml", folder.read("job.yaml") + steps).write("names.json", "[\"bug\", \"docs\"]\n");
    let plan = folder.legwork(RUN).arg("--dry-run").run();
    plan.assert_code(0).assert_stdout_contains("<before.names>");
    let label = |name: &str| ("labels", json!({ "add": [name] }));
    let (record, results) = run(
        &folder,
        [Answer::calls(&[label("wontfix"), label("<before.names>"), label("docs")]), Answer::text("Done.")],
    );
    let errors: Vec<bool> = results.iter().map(|(is_error, _)| *is_error).collect();
    assert_eq!(errors, [true, true, false], "{results:?}");
    assert!(results[0].1.contains("\"bug\"") && results[0].1.contains("\"docs\""), "{}", results[0].1);
    assert_eq!(outputs(&record)["entries"][0]["data"], json!({ "add": ["docs"] }));
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    // What can't be a list ends the run before the agent starts.
    for (printed, why) in [("[1]", "`1` in its list isn't a text"), ("[\"a\\nb\"]", "it has a line break")] {
        folder.write("names.json", printed);
        let server = Server::start(ScriptedAgents::of([]));
        let ended = folder.legwork(RUN).anthropic(&server).run();
        ended
            .assert_code(5)
            .assert_stderr_contains("the step `names` decides `outputs.labels.add`")
            .assert_stderr_contains(why);
        assert!(server.finish().is_empty());
    }
}
