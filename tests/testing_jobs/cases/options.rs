//! Command-line options of `test`, and its output.

use rustix::process::Signal;

use super::{SCRIPT, case, leftover_files, run, test, with_case};
use crate::support::test_folder::TestFolder;

#[test]
fn cases_can_be_selected_by_file_folder_and_name() {
    let folder = with_case("max_turns: 3\n");
    case(&folder, "two", "max_turns: 3\n");
    folder.write("jobs/other.yaml", super::JOB.replacen("model", "name: another\nmodel", 1));
    let of_other = |file: &str| format!("jobs/tests/another/three/{file}");
    folder.write(&of_other("expect.yaml"), "max_turns: 3\n").write(&of_other("script.yaml"), SCRIPT);
    folder
        .write(&of_other("workspace/a.txt"), "hi\n")
        .write(&of_other("workspace/tests/job/x/expect.yaml"), "no case\n");
    // These are tests of other programs.
    folder.write("src/tests/unit/data/input.yaml", "x: 1\n");
    let count = |arguments: &[&str]| {
        let ended = run(&folder, arguments);
        let line = ended.assert_code(0).stdout.lines().last().unwrap_or_default().to_owned();
        line.split(':').next().unwrap_or_default().to_owned()
    };
    assert_eq!(count(&[]), "3 cases");
    assert_eq!(count(&["."]), "3 cases");
    assert_eq!(count(&["jobs", "jobs/tests", "jobs/tests/job/one"]), "3 cases", "each once");
    assert_eq!(count(&["jobs/tests/job"]), "2 cases");
    assert_eq!(count(&["jobs/job.yaml"]), "2 cases");
    assert_eq!(count(&["jobs/other.yaml"]), "1 case");
    assert_eq!(count(&["jobs/tests/job/two/expect.yaml"]), "1 case");
    assert_eq!(count(&["--filter", "job/t", "--filter", "three"]), "2 cases");
    let inside = test(&folder, &["."]).in_folder("jobs/tests/another/three").run();
    inside.assert_code(0).assert_stdout_contains("another/three");
}

#[test]
fn having_no_cases_is_an_error() {
    let folder = TestFolder::new();
    run(&folder, &[])
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("no test cases found in .")
        .assert_stderr_contains("--save-case");
    folder.write("jobs/job.yaml", super::JOB).write("jobs/tests/job/README.md", "");
    run(&folder, &[]).assert_code(2).assert_stderr_contains("no test cases found in jobs");
    run(&folder, &["gone"]).assert_code(3).assert_stderr_contains("no such file");
    case(&folder, "one", "max_turns: 3\n");
    run(&folder, &["--filter", "x"]).assert_code(2).assert_stderr_contains("the only case doesn't match --filter x");
    run(&folder, &["--jobs", "0"]).assert_code(2);
}

/// The elements of an XML document, in order, with their attributes. Panics if it isn't well-formed.
fn elements(xml: &str) -> Vec<(String, String)> {
    assert!(xml.chars().all(|letter| letter >= ' ' || letter == '\n' || letter == '\t'), "{xml:?}");
    let body = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").expect("a declaration");
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for piece in body.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(
            !text.contains("]]>")
                && !text
                    .replace("&amp;", "")
                    .replace("&lt;", "")
                    .replace("&gt;", "")
                    .replace("&quot;", "")
                    .contains('&')
        );
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{xml}");
            continue;
        }
        let (name, attributes) = tag.trim_end_matches('/').split_once(' ').unwrap_or((tag, ""));
        assert_eq!(attributes.matches('"').count() % 2, 0, "{tag}");
        if !tag.ends_with('/') {
            open.push(name.to_owned());
        }
        found.push((name.to_owned(), attributes.to_owned()));
    }
    assert_eq!(open, Vec::<String>::new(), "every element is closed");
    found
}

#[test]
fn junit_reports_have_the_format_that_ci_systems_read() {
    let folder = with_case("max_turns: 3\n");
    case(&folder, "two", "text: { is: \"\\e[31m]]>&<b>\\\"\\a\" }\nmax_turns: 1\n");
    let ended = run(&folder, &["--format", "junit"]);
    ended.assert_code(1).assert_stderr_contains("ok   job/one").assert_stderr_contains("FAIL job/two");
    let found = elements(&ended.stdout);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["testsuites", "testsuite", "testcase", "testcase", "failure"]);
    assert!(found[0].1.contains("tests=\"2\" failures=\"1\" errors=\"0\" time=\""), "{found:?}");
    assert!(found[1].1.starts_with("name=\"job\" tests=\"2\" failures=\"1\""), "{found:?}");
    assert!(found[3].1.starts_with("name=\"two\" classname=\"job\" file=\"jobs/tests/job/two/expect.yaml\" time=\""));
    assert!(found[4].1.contains("the parent took 3 turns") && found[4].1.contains("(and 1 more)"), "{found:?}");
    assert!(ended.stdout.contains("-␛[31m]]&gt;&amp;&lt;b&gt;&quot;␇"), "{}", ended.stdout);
}

#[test]
fn a_signal_ends_all_cases_and_leaves_no_files() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = with_case("max_turns: 3\n");
        let begun = folder.at("begun");
        let command = format!("exec 9>{0}/lock; flock -s 9; touch {0}/begun; sleep 600", folder.path().display());
        let script =
            serde_json::json!({ "parent": [{ "calls": [{ "tool": "bash", "input": { "command": command } }] }] });
        folder.write("jobs/tests/job/one/script.yaml", script.to_string());
        let running = test(&folder, &["--sandbox", "off"]).spawn();
        folder.wait_for("begun");
        running.signal(signal);
        let ended = running.wait();
        ended.assert_code(code).assert_stdout_contains("0 cases: 0 passed, interrupted");
        assert!(begun.exists());
        assert_eq!(leftover_files(&folder), Vec::<String>::new());
        crate::running::signals::assert_no_processes(&folder);
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = with_case("max_turns: 3\n");
    for number in 0..3 {
        case(&folder, &format!("more-{number}"), "max_turns: 3\n");
    }
    let line = format!("{} test --jobs 1 | head -n 1", env!("CARGO_BIN_EXE_legwork"));
    let ended = folder.program("bash", &["-o", "pipefail", "-c", &line]).run();
    ended.assert_code(0).assert_stderr("");
    assert_eq!(ended.stdout.lines().count(), 1);
}

#[test]
fn a_record_can_be_a_case() {
    let folder = with_case("failed_calls: 0\nmax_turns: 3\nfiles: { a.txt: { is: hello } }\n");
    // A path of the recorded workspace maps to the fresh copy.
    let path = folder.at("a.txt").display().to_string();
    folder.write("a.txt", "hi\n").write("script.yaml", SCRIPT.replace("path: a.txt", &format!("path: {path}")));
    let ended = folder.legwork(&["run", "jobs/job.yaml", "--model", "replay/script.yaml"]).run();
    let record = ended.assert_code(0).run_folder();
    for name in ["events.jsonl", "subagents/helper-1.events.jsonl"] {
        folder.write(&format!("jobs/tests/job/one/record/{name}"), record.file(name));
    }
    run(&folder, &[]).assert_code(3).assert_stderr_contains("this case has both a script and a record");
    std::fs::remove_file(folder.at("jobs/tests/job/one/script.yaml")).unwrap();
    folder.write("a.txt", "untouched\n");
    run(&folder, &[]).assert_code(0);
    assert_eq!(folder.read("a.txt"), "untouched\n");
}
