//! Cases that are run several times, and those that don't come out the same.

use super::{case, left, run, test, with_case};
use crate::support::folder::Folder;

/// A case whose commands count how often they ran, in a file beside all workspaces, and write that down.
fn counting(expect: &str) -> Folder {
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

fn times(folder: &Folder) -> usize {
    std::fs::read_to_string(folder.home().join("counter")).unwrap().lines().count()
}

const OFF: &str = "--sandbox=off";

#[test]
fn a_case_is_run_as_often_as_is_asked_for() {
    let folder = counting("files: { a.txt: exists }\n");
    run(&folder, &[OFF]).code(0);
    assert_eq!(times(&folder), 1);
    run(&folder, &[OFF, "--repeat", "3"]).code(0).stdout_has("1 case: 1 passed");
    assert_eq!(times(&folder), 4);
    assert_eq!(left(&folder), Vec::<String>::new());
    run(&folder, &[OFF, "--repeat", "0"]).code(2);
}

#[test]
fn a_case_that_comes_out_otherwise_is_flaky() {
    let folder = counting("files: { a.txt: { is: '1' } }\n");
    let ended = run(&folder, &[OFF, "--repeat", "5"]);
    ended.code(1).stdout_has("the case is flaky: only in run 2, a.txt is another").stdout_has("1 failed");
    assert_eq!(times(&folder), 2, "it is known by then");
    let folder = counting("files: { a.txt: exists }\n");
    let check =
        format!("checks: [{{ name: once, run: 'test $(wc -l < {}) = 1' }}]\n", folder.home().join("counter").display());
    folder.write("jobs/job.yaml", format!("{}{check}", super::JOB));
    let report = test(&folder, &[OFF, "--repeat", "2", "--format", "json"]).run().code(1).json();
    let case = &report["cases"][0];
    let told = case["failures"][0]["message"].as_str().unwrap();
    assert_eq!(told, "the case is flaky: the outcome is `completed` in run 1 and `checks_failed` in run 2");
    for (run, count) in [("run-1", "1\n"), ("run-2", "2\n")] {
        let file = std::path::Path::new(case["kept"].as_str().unwrap()).join(run).join("work/a.txt");
        assert_eq!(std::fs::read_to_string(file).unwrap(), count, "both can be looked at");
    }
}

#[test]
fn a_case_that_fails_each_time_is_not_flaky() {
    let folder = counting("max_turns: 1\n");
    let ended = run(&folder, &[OFF, "--repeat", "3"]);
    ended.code(1).stdout_has("the parent took 2 turns, not at most 1").nowhere("flaky");
    assert_eq!(times(&folder), 3);
}

#[test]
fn a_snapshot_that_is_never_the_same_is_not_accepted() {
    let folder = counting("files: { a.txt: snapshot }\n");
    let before = folder.list();
    let ended = run(&folder, &[OFF, "--accept"]);
    ended.code(1).stdout_has("the case is flaky: expect/a.txt isn't the same in run 1 and run 2");
    ended.stdout_has("    -1\n    +2\n").nowhere("renewed");
    assert_eq!(folder.list(), before);
    // One that it had is another in one run of two.
    folder.write("jobs/tests/job/one/expect/a.txt", "4\n");
    run(&folder, &[OFF, "--accept"]).code(1).stdout_has("expect/a.txt isn't the same in run 1 and run 2");
    assert_eq!(folder.read("jobs/tests/job/one/expect/a.txt"), "4\n");
    let folder = counting("text: { snapshot: true }\n");
    run(&folder, &[OFF, "--accept", "--repeat", "3"]).code(0).stdout_has("renewed jobs/tests/job/one/text.md");
    assert_eq!(times(&folder), 3);
}
