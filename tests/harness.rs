//! Tests of the test harness: a program has a clean environment, and every wait ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::record::RunFolder;
use crate::support::server::{Answer, KEY, Request, Server};
use crate::support::test_folder::TestFolder;

#[test]
fn a_program_gets_a_clean_environment() {
    let folder = TestFolder::new();
    let server = Server::start(|_: &Request| Answer::text("hello"));
    let ended = folder.program("env", &[]).env("EXTRA", "1").anthropic(&server).run();
    let mut names: Vec<&str> = ended.assert_code(0).stdout.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "EXTRA", "HOME", "NO_PROXY", "PATH"]);
    ended
        .assert_stdout_contains(&format!("HOME={}", folder.home().display()))
        .assert_stdout_contains(&server.url())
        .assert_stdout_contains(KEY);
    folder.program("sh", &["-c", "pwd; cat"]).run().assert_stdout(&format!("{}\n", folder.path().display()));
    folder.program("cat", &[]).stdin("given").run().assert_stdout("given").assert_stderr("").assert_not_printed("else");
}

#[test]
fn a_program_that_takes_too_long_is_killed() {
    let folder = TestFolder::new();
    let program = folder.program("sh", &["-c", "echo begun; exec sleep 60"]).timeout(Duration::from_millis(300));
    let panic = catch_unwind(AssertUnwindSafe(|| program.run())).err().unwrap();
    let text = *panic.downcast::<String>().unwrap();
    assert!(text.contains("took longer") && text.contains("begun"), "{text}");
}

#[test]
fn a_signal_reaches_the_program() {
    let folder = TestFolder::new();
    let server = Server::start(|_: &Request| Answer::text("never").hang());
    let script = format!("trap 'exit 143' TERM; echo > started; while :; do sleep 0.01; done # {}", server.url());
    let caught = folder.program("sh", &["-c", &script]).spawn();
    folder.wait_for("started");
    caught.signal(Signal::TERM);
    assert_eq!(caught.wait().assert_code(143).signal(), None);
    let killed = folder.program("sleep", &["60"]).spawn();
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait().signal(), Some(9));
}

#[test]
fn a_failed_assertion_shows_all_output() {
    let folder = TestFolder::new();
    let ended = folder.program("sh", &["-c", "echo out; echo err >&2; exit 3"]).run();
    ended.assert_code(3).assert_stdout_contains("out").assert_stderr_contains("err");
    let panic = catch_unwind(AssertUnwindSafe(|| drop(ended.assert_code(0).full_output()))).err().unwrap();
    let text = *panic.downcast::<String>().unwrap();
    assert!(text.contains("instead of exit code 0") && text.contains("out\n") && text.contains("err\n"), "{text}");
}

#[test]
fn a_run_folder_is_found_and_read() {
    let folder = TestFolder::new();
    folder.write("runs/tour/0001/result.json", r#"{"format": 1}"#);
    let lines = concat!(
        r#"{"seq":1,"at":"2026-01-02T03:04:05Z","agent":"parent","type":"note_sent","data":{"text":"one"},"sum":"a4d1a83ae6817c03"}"#,
        "\n",
        r#"{"seq":2,"at":"2026-01-02T03:04:05Z","agent":"parent","type":"note_sent","data":{"text":"two"},"sum":"fbb37d0e56666e35"}"#,
        "\n",
    );
    folder.write("runs/tour/0001/events.jsonl", lines).write("runs/.gitignore", "*\n");
    std::os::unix::fs::symlink("0001", folder.at("runs/tour/latest")).unwrap();
    let run: RunFolder = folder.program("true", &[]).run().run_folder();
    assert_eq!((run.id(), run.files().len()), ("0001", 2));
    assert_eq!(run.result(), json!({"format": 1}));
    assert_eq!(run.events()[1]["data"]["text"], "two");
    for (was, is) in [("two", "twO"), ("\"seq\":2,", ""), ("\"seq\":2", "\"seq\":3")] {
        folder.write("runs/tour/0001/events.jsonl", lines.replace(was, is));
        assert!(catch_unwind(AssertUnwindSafe(|| run.events())).is_err(), "{was} -> {is}");
    }
    assert!(!run.has("report.html"));
    run.assert_absent("secret");
    assert!(catch_unwind(AssertUnwindSafe(|| run.assert_absent("format"))).is_err());
}

#[test]
fn a_workspace_can_be_a_repository() {
    let folder = TestFolder::new();
    folder.write("src/a.txt", "a\n").commit_all();
    folder.write("src/a.txt", "b\n");
    assert_eq!(folder.git(&["diff", "--name-only"]), "src/a.txt\n");
    assert_eq!(folder.list(), ["src", "src/a.txt"]);
    assert_eq!(folder.read("src/a.txt"), "b\n");
}
