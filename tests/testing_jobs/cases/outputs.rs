//! Cases that say what a run proposes to do outside.

use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;
use serde_json::json;

const JOB: &str = "\
model: anthropic/claude-haiku-4-5
limits: { tokens: 1000000 }
parent: { prompt: Go., tools: [{ output: [comment, labels, nothing_to_do] }] }
outputs:
  comment: { max: 2 }
  labels: { add: [bug], max: 1 }
";
const EVENT: &str = r#"{ "repository": { "full_name": "o/r" }, "issue": { "number": 3 } }"#;

/// A job with a case in which a comment is refused and two are accepted.
fn folder(expect: &str) -> TestFolder {
    let folder = TestFolder::new();
    let call = |key: &str, body: &str| json!({ "tool": "comment", "input": { "key": key, "body": body } });
    let calls = json!([call("a", "Hi @mallory"), call("a", "Hello in /nowhere."), call("b", "Second.")]);
    let script = json!({ "parent": [{ "calls": calls }, { "text": "Done." }] });
    folder
        .write("job.yaml", JOB)
        .write("tests/job/case/event.json", EVENT)
        .write("tests/job/case/script.yaml", script.to_string())
        .write("tests/job/case/expect.yaml", expect);
    folder
}

#[test]
fn texts_and_refused_calls_are_compared_with_conditions() {
    let folder = folder("outputs: none\n");
    let test = |expect: &str| {
        folder.write("tests/job/case/expect.yaml", expect);
        folder.legwork(&["test"]).run()
    };
    for expect in [
        "outputs: { a: { body: { matches: '^Hello', lacks: '@' } }, b: { body: Second. } }\nrefused_outputs: { comment: 1, labels: never }\n",
        "outputs: { a: {}, b: {} }\nrefused_outputs: { comment: { contains: 'mention at line 1, column 4' } }\n",
    ] {
        test(expect).assert_code(0);
    }
    for (expect, place, why) in [
        ("outputs: none\n", "expect.yaml:1:10", "the output `a` isn't expected"),
        (
            "outputs: { a: { body: { contains: Bye } }, b: {} }\n",
            "expect.yaml:1:35",
            "the output `a` at `/body` doesn't contain \"Bye\"",
        ),
        (
            "outputs: { a: { body: { contain: x } }, b: {} }\n",
            "expect.yaml:1:23",
            "the output `a` doesn't match at `/body`",
        ),
        ("outputs: { a: { title: x }, b: {} }\n", "expect.yaml:1:15", "the output `a` doesn't match at `/title`"),
        ("refused_outputs: { comment: 0 }\n", "expect.yaml:1:29", "1 calls of `comment` are refused, expected 0"),
        (
            "refused_outputs: { labels: { contains: x } }\n",
            "1:28",
            "0 calls of `labels` are refused, expected at least 1",
        ),
        ("refused_outputs: { comment: { lacks: mention } }\n", "1:38", "why `comment` is refused contains \"mention\""),
    ] {
        test(expect).assert_code(1).assert_stdout_contains(place).assert_stdout_contains(why);
    }
    // Names are checked before anything runs.
    test("refused_outputs: { comments: 1 }\n").assert_code(3).assert_stderr_contains("did you mean `comment`?");
}

#[test]
fn a_snapshot_of_what_is_proposed_is_accepted_and_compared() {
    let folder = folder("outputs: snapshot\n");
    let missing = folder.legwork(&["test"]).run();
    missing.assert_code(1).assert_stdout_contains("the snapshot outputs.yaml doesn't exist");
    folder.legwork(&["test", "--accept"]).run().assert_code(0).assert_stdout_contains("outputs.yaml");
    let snapshot = folder.read("tests/job/case/outputs.yaml");
    for part in [
        "- id: a\n",
        "  output: comment\n",
        "  target: 3\n",
        "body: Hello in /nowhere.",
        "refused:\n",
        "mention at line 1",
    ] {
        assert!(snapshot.contains(part), "{part}: {snapshot}");
    }
    folder.legwork(&["test"]).run().assert_code(0);
    folder.write("tests/job/case/outputs.yaml", snapshot.replace("Second.", "Third."));
    let differs = folder.legwork(&["test"]).run();
    differs.assert_code(1).assert_stdout_contains("what the run proposes differs from outputs.yaml");
    differs.assert_stdout_contains("+    body: Second.");
}

#[test]
fn a_saved_case_has_the_event_and_what_was_proposed() {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("event.json", EVENT);
    let calls = [("nothing_to_do", json!({ "reason": "Answered." })), ("labels", json!({ "add": ["bug"] }))];
    let server = Server::start(ScriptedAgents::of([Answer::calls(&calls), Answer::text("Done.")]));
    let ended =
        folder.legwork(&["run", "job.yaml", "--event", "event.json", "--save-case", "real"]).anthropic(&server).run();
    ended.assert_code(0);
    assert!(!ended.stderr.contains("the saved case fails"), "{}", ended.stderr);
    assert!(folder.read("tests/job/real/expect.yaml").contains("outputs: snapshot\n"));
    let snapshot = folder.read("tests/job/real/outputs.yaml");
    assert!(snapshot.contains("output: labels") && !snapshot.contains("nothing_to_do"), "{snapshot}");
    folder.legwork(&["test"]).run().assert_code(0);
}
