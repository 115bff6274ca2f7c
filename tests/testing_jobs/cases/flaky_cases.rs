//! Cases that run several times, and cases with varying results.

use super::{case, leftover_files, run, test, with_case};
use crate::support::test_folder::TestFolder;

/// A case whose commands count their runs in a file outside of all workspaces, and write down the number.
fn counting_case(expect: &str) -> TestFolder {
    let folder = with_case("max_turns: 3\n");
    let counter = folder.home().join("counter");
    let command = format!("echo x >> {0}; wc -l < {0} > a.txt", counter.display());
    case(&folder, "one", expect);
    let script = serde_json::json!({ "parent": [
        { "calls": [{ "tool": "bash", "input": { "command": command } }] },
        { "text": "Counted." },
    ] });
    folder.write("jobs/tests/job/one/script.yaml", script.to_string());
    folder
}

fn run_count(folder: &TestFolder) -> usize {
    std::fs::read_to_string(folder.home().join("counter")).unwrap().lines().count()
}

const NO_SANDBOX: &str = "--sandbox=off";

#[test]
fn repeat_runs_a_case_several_times() {
    let folder = counting_case("files: { a.txt: exists }\n");
    run(&folder, &[NO_SANDBOX]).assert_code(0);
    assert_eq!(run_count(&folder), 1);
    run(&folder, &[NO_SANDBOX, "--repeat", "3"]).assert_code(0).assert_stdout_contains("1 case: 1 passed");
    assert_eq!(run_count(&folder), 4);
    assert_eq!(leftover_files(&folder), Vec::<String>::new());
    run(&folder, &[NO_SANDBOX, "--repeat", "0"]).assert_code(2);
}

#[test]
fn a_case_with_varying_outcomes_is_flaky() {
    let folder = counting_case("files: { a.txt: { is: '1' } }\n");
    let ended = run(&folder, &[NO_SANDBOX, "--repeat", "5"]);
    ended
        .assert_code(1)
        .assert_stdout_contains("the case is flaky: only in run 2, a.txt differs")
        .assert_stdout_contains("1 failed");
    assert_eq!(run_count(&folder), 2, "it is known by then");
    let folder = counting_case("files: { a.txt: exists }\n");
    let check =
        format!("checks: [{{ name: once, run: 'test $(wc -l < {}) = 1' }}]\n", folder.home().join("counter").display());
    folder.write("jobs/job.yaml", format!("{}{check}", super::JOB));
    let report = test(&folder, &[NO_SANDBOX, "--repeat", "2", "--format", "json"]).run().assert_code(1).json();
    let case = &report["cases"][0];
    let message = case["failures"][0]["message"].as_str().unwrap();
    assert_eq!(message, "the case is flaky: the outcome is `completed` in run 1 and `checks_failed` in run 2");
    for (run, count) in [("run-1", "1\n"), ("run-2", "2\n")] {
        let file = std::path::Path::new(case["kept"].as_str().unwrap()).join(run).join("work/a.txt");
        assert_eq!(std::fs::read_to_string(file).unwrap(), count, "both can be looked at");
    }
}

#[test]
fn a_case_that_always_fails_is_not_flaky() {
    let folder = counting_case("max_turns: 1\n");
    let ended = run(&folder, &[NO_SANDBOX, "--repeat", "3"]);
    ended
        .assert_code(1)
        .assert_stdout_contains("the parent took 2 turns, expected at most 1")
        .assert_not_printed("flaky");
    assert_eq!(run_count(&folder), 3);
}

#[test]
fn a_snapshot_that_varies_is_not_accepted() {
    let folder = counting_case("files: { a.txt: snapshot }\n");
    let before = folder.list();
    let ended = run(&folder, &[NO_SANDBOX, "--accept"]);
    ended.assert_code(1).assert_stdout_contains("the case is flaky: expect/a.txt differs between run 1 and run 2");
    ended.assert_stdout_contains("    -1\n    +2\n").assert_not_printed("updated");
    assert_eq!(folder.list(), before);
    // An existing snapshot differs in one of the two runs.
    folder.write("jobs/tests/job/one/expect/a.txt", "4\n");
    run(&folder, &[NO_SANDBOX, "--accept"])
        .assert_code(1)
        .assert_stdout_contains("expect/a.txt differs between run 1 and run 2");
    assert_eq!(folder.read("jobs/tests/job/one/expect/a.txt"), "4\n");
    let folder = counting_case("text: { snapshot: true }\n");
    run(&folder, &[NO_SANDBOX, "--accept", "--repeat", "3"])
        .assert_code(0)
        .assert_stdout_contains("updated jobs/tests/job/one/text.md");
    assert_eq!(run_count(&folder), 3);
}
