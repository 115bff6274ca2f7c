//! `legwork test`: cases run through the real binary, and the files that they leave.

mod fixtures;
mod flaky_cases;
mod options;
mod outputs;
mod save_case;

use std::path::Path;

use serde_json::Value;

use crate::support::program::{Program, ProgramOutput};
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: anthropic/claude-sonnet-4-6\n\
                   parent: { prompt: Go., tools: [read_file, write_file, bash, task], max_turns: 5 }\n\
                   subagents: { helper: { tools: [read_file] } }\nlimits: { cost_usd: 1 }\n";

/// Replaces `hi` in a file with `hello` through a subagent, and reports it.
const SCRIPT: &str = "parent:\n\
    \x20 - calls: [{ tool: task, input: { agent: helper, prompt: Look. } }]\n\
    \x20 - calls: [{ tool: write_file, input: { path: a.txt, overwrite: true, content: \"hello\\n\" } }]\n\
    \x20 - text: I wrote hello.\n\
    subagents:\n\
    \x20 helper-1:\n\
    \x20   - calls: [{ tool: read_file, input: { path: a.txt } }]\n\
    \x20   - text: It says hi.\n";

/// A folder with a job and, in `jobs/tests/job`, a case with these expectations.
fn with_case(expect: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB);
    case(&folder, "one", expect);
    folder
}

fn case(folder: &TestFolder, name: &str, expect: &str) {
    let at = |file: &str| format!("jobs/tests/job/{name}/{file}");
    folder.write(&at("script.yaml"), SCRIPT).write(&at("expect.yaml"), expect).write(&at("workspace/a.txt"), "hi\n");
}

/// `legwork test` with its own folder for temporary files.
fn test(folder: &TestFolder, arguments: &[&str]) -> Program {
    std::fs::create_dir_all(folder.home().join("tmp")).unwrap();
    folder.legwork(&["test"]).args(arguments).env("TMPDIR", folder.home().join("tmp"))
}

/// The content of the folder for temporary files.
fn leftover_files(folder: &TestFolder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.home().join("tmp")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn run(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    test(folder, arguments).run()
}

#[test]
fn a_passing_case_leaves_no_files() {
    let expect = "outcome: completed\nexit_code: 0\nmax_turns: 3\nsubagents: 1\nfailed_calls: 0\n\
        text: { is: I wrote hello., contains: [hello, I], lacks: bye, matches: '^I .*\\.$', snapshot: true }\n\
        files: { a.txt: snapshot, b.txt: absent, ./a.txt: exists }\n\
        tools: { task: 1, read_file: { at_most: 1 }, bash: never, write_file: called }\n\
        agents: { parent: { tools: { read_file: 0 } }, helper-1: { outcome: completed, max_turns: 2, text: { contains: hi } } }\n";
    let folder = with_case(expect);
    folder.write("jobs/tests/job/one/expect/a.txt", "hello\n").write("jobs/tests/job/one/text.md", "I wrote hello.\n");
    let before = folder.list();
    let ended = run(&folder, &[]);
    ended
        .assert_code(0)
        .assert_stderr("")
        .assert_stdout_contains("ok   job/one (")
        .assert_stdout_contains("\n1 case: 1 passed, ");
    assert_eq!(folder.list(), before, "neither runs nor anything else");
    assert_eq!(folder.read("jobs/tests/job/one/workspace/a.txt"), "hi\n");
    assert_eq!(leftover_files(&folder), Vec::<String>::new());
}

/// Expectations that [`SCRIPT`] doesn't meet, and the message for each.
const FAILING_EXPECTATIONS: [(&str, &str); 24] = [
    ("outcome: turn_limit", "1:10: the outcome is `completed`, expected `turn_limit`"),
    ("exit_code: 4", "1:12: the exit code is 0, expected 4"),
    ("max_turns: 2", "1:12: the parent took 3 turns, expected at most 2"),
    ("subagents: never", "1:12: the number of subagents is 1, expected 0"),
    ("failed_calls: called", "1:15: the number of failed calls is 0, expected at least 1"),
    ("text: { is: I wrote. }", "1:13: the last text differs"),
    ("text: { contains: [hello, bye] }", "1:27: the last text doesn't contain \"bye\""),
    ("text: { lacks: hello }", "1:16: the last text contains \"hello\""),
    ("text: { matches: '^hello' }", "1:18: the last text doesn't match `^hello`"),
    ("text: { snapshot: true }", "1:19: the snapshot text.md doesn't exist"),
    ("result: { is: 1 }", "1:15: the result differs"),
    ("result: { has: { a: 1 } }", "1:16: the result doesn't match"),
    ("files: { b.txt: exists }", "1:10: b.txt doesn't exist"),
    ("files: { a.txt: absent }", "1:10: a.txt exists"),
    ("files: { a.txt: snapshot }", "1:17: the snapshot expect/a.txt doesn't exist"),
    ("files: { a.txt: { is: hi } }", "1:23: a.txt differs"),
    ("tools: { bash: called }", "1:10: `bash` was called 0 times, expected at least 1"),
    ("tools: { task: { at_least: 2, at_most: 3 } }", "1:10: `task` was called once, expected 2 to 3"),
    ("agents: { helper-2: { outcome: completed } }", "1:11: agent `helper-2` wasn't started"),
    ("agents: { helper-1: { outcome: stuck } }", "1:32: helper-1: the outcome is `completed`, expected `stuck`"),
    ("agents: { helper-1: { max_turns: 1 } }", "1:34: helper-1: it took 2 turns, expected at most 1"),
    ("agents: { helper-1: { text: { is: no } } }", "1:35: the text of helper-1 differs"),
    ("agents: { parent: { tools: { read_file: 1 } } }", "1:30: parent: `read_file` was called 0 times, expected 1"),
    ("timeout: 10m\ntext: { lacks: I }", "2:16: the last text contains \"I\""),
];

#[test]
fn every_difference_is_reported_with_its_position() {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB);
    for (number, (expect, _)) in FAILING_EXPECTATIONS.iter().enumerate() {
        case(&folder, &format!("case-{number}"), expect);
    }
    let ended = run(&folder, &["--format", "json"]);
    let report = ended.assert_code(1).json();
    assert_eq!(report["failed"], FAILING_EXPECTATIONS.len());
    for (number, (expect, said)) in FAILING_EXPECTATIONS.iter().enumerate() {
        let name = format!("job/case-{number}");
        let cases = report["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["name"] == name).unwrap();
        let failures = case["failures"].as_array().unwrap();
        assert_eq!(failures.len(), 1, "{expect}: {failures:#?}");
        let failure = &failures[0];
        let found = format!("{}:{}: {}", failure["line"], failure["column"], failure["message"].as_str().unwrap());
        assert_eq!(&found, said, "{expect}");
        assert_eq!(failure["file"], format!("jobs/tests/{name}/expect.yaml"));
        let kept_folder = Path::new(case["kept"].as_str().unwrap());
        assert_eq!(
            std::fs::read_to_string(kept_folder.join("work/a.txt")).unwrap(),
            "hello\n",
            "what it left can be looked at"
        );
    }
    assert_eq!(leftover_files(&folder).len(), 1);
}

#[test]
fn replies_that_do_not_match_fail_the_case() {
    let folder = with_case("outcome: completed\n");
    let script = "jobs/tests/job/one/script.yaml";
    folder.write(script, SCRIPT.replace("subagents:", "  - text: Nobody asks.\nsubagents:"));
    run(&folder, &[]).assert_code(1).assert_stdout_contains("script.yaml: only 3 of 4 replies of parent were used");
    folder.write(script, format!("{SCRIPT}  helper-2: [{{ text: Nobody. }}]\n"));
    run(&folder, &[])
        .assert_code(1)
        .assert_stdout_contains("script.yaml: helper-2 wasn't started, but there is 1 reply for it");
    folder.write(script, SCRIPT.replace("  - text: I wrote hello.\n", ""));
    let ended = run(&folder, &[]);
    ended
        .assert_code(1)
        .assert_stdout_contains("the outcome is `replay_differs`, expected `completed`")
        .assert_stdout_contains("has no reply 3 for the agent");
}

#[test]
fn checks_are_compared_with_their_last_attempt() {
    let folder = with_case("checks: { tests: passed, style: not_run }\n");
    let checks = "checks:\n- { name: tests, run: grep hello a.txt }\n\
                  - { name: style, run: 'false', when: \"{{ workspace == 'x' }}\" }\n";
    folder.write("jobs/job.yaml", format!("{JOB}{checks}"));
    run(&folder, &[]).assert_code(0);
    case(&folder, "one", "checks: { tests: failed, style: passed }\n");
    let ended = run(&folder, &[]);
    ended.assert_code(1).assert_stdout_contains("the check `tests` is `passed`, expected `failed`");
    ended.assert_stdout_contains("the check `style` is `not_run`, expected `passed`");
    case(&folder, "one", "outcome: checks_failed\nexit_code: 1\nchecks: { tests: failed }\n");
    folder.write("jobs/job.yaml", format!("{JOB}{}", checks.replace("hello", "bye")));
    run(&folder, &[]).assert_code(0);
}

#[test]
fn what_a_run_proposes_is_compared_by_its_ids() {
    let folder = TestFolder::new();
    let job = "model: anthropic/claude-haiku-4-5\nlimits: { cost_usd: 1 }\noutputs: { comment: {}, labels: { add: [bug, question], max: 2 } }\n\
               parent: { prompt: Go., tools: [{ output: [comment, labels] }] }\n";
    let calls = "{ tool: comment, input: { body: Hello., key: greeting } }, { tool: labels, input: { add: [bug] } }";
    folder
        .write("jobs/job.yaml", job)
        .write("jobs/tests/job/one/script.yaml", format!("parent:\n  - calls: [{calls}]\n  - text: Done.\n"))
        .write(
            "jobs/tests/job/one/event.json",
            r#"{ "issue": { "number": 3 }, "repository": { "full_name": "o/r" } }"#,
        );
    let test = |expect: &str| {
        folder.write("jobs/tests/job/one/expect.yaml", expect);
        run(&folder, &[])
    };
    test("tools: { comment: 1, labels: 1 }\noutputs: { greeting: { body: Hello. }, labels-1: {} }\n").assert_code(0);
    let ended = test("outputs: { comment-1: {}, labels-1: { add: [question] } }\n");
    ended.assert_code(1).assert_stdout_contains("the output `comment-1` wasn't proposed");
    ended.assert_stdout_contains("the output `labels-1` doesn't match at `/add/0`");
    ended.assert_stdout_contains("the output `greeting` isn't expected");
    test("outputs: {}\n").assert_code(1).assert_stdout_contains("the output `labels-1` isn't expected");
}

#[test]
fn accept_updates_snapshots_and_nothing_else() {
    let folder = with_case("text: { snapshot: true }\nfiles: { a.txt: snapshot }\n");
    case(&folder, "two", "max_turns: 1\nfiles: { a.txt: snapshot }\n");
    folder.write("jobs/tests/job/one/expect/a.txt", "hullo\n");
    run(&folder, &["--filter", "one"])
        .assert_code(1)
        .assert_stdout_contains("a.txt differs from expect/a.txt")
        .assert_stdout_contains("    -hullo\n    +hello\n");
    let before = folder.list();
    let ended = run(&folder, &["--accept"]);
    ended
        .assert_code(1)
        .assert_stdout_contains("     updated jobs/tests/job/one/expect/a.txt")
        .assert_stdout_contains("the parent took 3 turns");
    assert_eq!(folder.read("jobs/tests/job/one/expect/a.txt"), "hello\n");
    assert_eq!(folder.read("jobs/tests/job/one/text.md"), "I wrote hello.\n");
    let new: Vec<String> = folder.list().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new, ["jobs/tests/job/one/text.md"], "not of the case in which something else is wrong");
    run(&folder, &["jobs/tests/job/one"]).assert_code(0);
    folder.write("jobs/tests/job/one/expect/b/old.txt", "");
    run(&folder, &["--filter", "one"])
        .assert_code(1)
        .assert_stdout_contains("the snapshot expect/b/old.txt has no file in `files`");
}

#[test]
fn all_mistakes_in_cases_are_reported_together_and_nothing_runs() {
    let folder = with_case("outcom: completed\nfiles: { ../x: exists }\ntools: { bahs: never }\n");
    case(&folder, "two", "outcome: completed\n");
    folder.write("jobs/tests/job/two/script.yaml", "parent:\n  - text: a\nsubagents: { reader-1: [] }\n");
    folder.write("jobs/tests/job/three/expect.yaml", "max_turns: 1\n");
    folder.write("jobs/tests/job/four/script.yaml", SCRIPT);
    folder.write("jobs/tests/job/five/expect.yaml", "max_turns: 1\n").write("jobs/tests/job/five/script.yaml", SCRIPT);
    folder.write("jobs/tests/job/five/inputs.yaml", "colour: red\n");
    folder.write("jobs/tests/gone/case/expect.yaml", "max_turns: 1\n");
    let ended = run(&folder, &[]);
    ended
        .assert_code(3)
        .assert_stdout("")
        .assert_stderr_contains("jobs/tests/job/one/expect.yaml:1:1")
        .assert_stderr_contains("error[unknown-key]: unknown key `outcom`")
        .assert_stderr_contains("this path leads out of the workspace")
        .assert_stderr_contains("did you mean `bash`?")
        .assert_stderr_contains("the job has no subagent `reader`")
        .assert_stderr_contains("this case has neither a script nor a record")
        .assert_stderr_contains("jobs/tests/job/four/expect.yaml")
        .assert_stderr_contains("there is no job `gone` next to the folder `tests`")
        .assert_stderr_contains("colour");
    assert_eq!(leftover_files(&folder), Vec::<String>::new());
    // A broken job is reported once, no matter how many cases it has.
    let folder = with_case("max_turns: 3\n");
    case(&folder, "two", "max_turns: 3\n");
    folder.write("jobs/job.yaml", JOB.replace("bash", "bahs"));
    let ended = run(&folder, &[]);
    ended.assert_code(3).assert_stderr_contains("jobs/job.yaml:2");
    assert_eq!(ended.stderr.matches("error[").count(), 1, "{}", ended.stderr);
}

/// Cases that wait for each other pass only if both run at the same time. They share only the folder of this test.
#[test]
fn cases_run_in_parallel_in_separate_folders() {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB);
    let meeting = folder.at("meeting");
    std::fs::create_dir(&meeting).unwrap();
    for (own, other) in [("one", "two"), ("two", "one")] {
        case(&folder, own, "failed_calls: 0\nmax_turns: 2\nfiles: { mine: { is: '/workspace' } }\n");
        let at = meeting.display();
        let command =
            format!("touch {at}/{own}; while ! [ -e {at}/{other} ]; do sleep 0.01; done; pwd > mine; ls > names");
        let script = serde_json::json!({ "parent": [
            { "calls": [{ "tool": "bash", "input": { "command": command } }] }, { "text": "Met." },
        ] });
        folder.write(&format!("jobs/tests/job/{own}/script.yaml"), script.to_string());
    }
    run(&folder, &["--jobs", "2", "--sandbox", "off"]).assert_code(0).assert_stdout_contains("2 cases: 2 passed");
}

#[test]
fn the_cases_of_the_repositorys_jobs_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = TestFolder::new();
    let ended = test(&folder, &["--format", "json"]).arg(root.join("jobs")).run();
    let report: Value = ended.assert_code(0).json();
    let names: Vec<&str> =
        report["cases"].as_array().unwrap().iter().map(|case| case["name"].as_str().unwrap()).collect();
    for job in crate::getting_started::jobs::names() {
        assert!(names.iter().any(|name| name.starts_with(&job)), "{job} has no case: {names:?}");
    }
    // The book quotes one of them verbatim.
    let expect = std::fs::read_to_string(root.join("jobs/tests/docstrings/one-file/expect.yaml")).unwrap();
    let (_, shown) = expect.split_once('\n').unwrap();
    let page = std::fs::read_to_string(root.join("docs/src/testing-jobs.md")).unwrap();
    assert!(page.contains(&format!("```yaml\n{shown}```\n")), "docs/src/testing-jobs.md shows another expect.yaml");
}
