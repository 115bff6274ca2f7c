//! One vocabulary: every output of a record says the same about a step.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::test_folder::TestFolder;

/// The outputs of a record that show its steps, by their names.
fn outputs(folder: &TestFolder, stderr: &str) -> Vec<(&'static str, String)> {
    let legwork = |arguments: &[&str]| {
        let ended = folder.legwork(arguments).run();
        ended.assert_code(0);
        ended.stdout.clone()
    };
    legwork(&["show", "--rebuild"]);
    let file = |name: &str| folder.read(&format!("runs/job/latest/{name}"));
    vec![
        ("the lines of progress", stderr.to_owned()),
        ("show", legwork(&["show"])),
        ("show --errors", legwork(&["show", "--errors"])),
        ("transcript.md", file("transcript.md")),
        ("report.html", file("report.html").replace("&#x27;", "'")),
        ("atif", legwork(&["export", "--format", "atif"])),
        ("otlp", legwork(&["export", "--format", "otlp"])),
    ]
}

/// Checks that each output contains the words, except for those that show no such steps.
fn assert_words(outputs: &[(&str, String)], words: &str, except: &[&str]) {
    for (name, text) in outputs {
        assert_eq!(text.contains(words), !except.contains(name), "`{words}` in {name}:\n{text}");
    }
}

fn bash(command: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": command } })
}

fn folder(limits: &str, checks: &str, replies: &Value) -> TestFolder {
    let folder = TestFolder::new();
    let job = format!("model: replay/r.json\nparent: {{ prompt: Go., tools: [bash] }}\n{limits}{checks}");
    folder.write("job.yaml", job).write("r.json", json!({ "parent": replies }).to_string());
    folder
}

#[test]
fn a_refused_call_is_called_so_in_every_output() {
    let replies = json!([
        { "calls": [bash("echo one; exit 3"), bash("echo two")] },
        { "calls": [bash("echo refused")] },
        { "text": "Summed up." },
    ]);
    let folder = folder("limits: { tool_calls: 2 }\n", "", &replies);
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).run();
    ended.assert_code(4);
    let outputs = outputs(&folder, &ended.stderr);
    assert_words(&outputs, "not run because of limits.tool_calls", &[]);
    // A limit is an event with attributes in a trace.
    assert_words(&outputs, "Limit limits.tool_calls", &["otlp"]);
    assert_words(&outputs, "limits.tool_calls", &[]);
    // The trajectory has `is_error` for a tool that answered with an error.
    assert_words(&outputs, "failed", &["atif"]);
    let lines = &outputs[0].1;
    assert!(lines.contains("bash failed: one") && !lines.contains("bash failed: the call"), "{lines}");
    // The report counts the calls that were run, as the result does.
    let report = &outputs[4].1;
    assert_eq!(ended.run_folder().result()["tool_calls"], 2);
    assert!(report.contains("<td class=\"n\">2</td>"), "{report}");
}

#[test]
fn a_check_that_was_cut_off_is_called_so_in_every_output() {
    let checks = "checks:\n- { name: first, run: echo no; exit 3 }\n\
                  - { name: second, run: '[ -e begun ] && exit 0; touch begun; sleep 63' }\n";
    let folder = folder("", checks, &json!([{ "text": "Done." }]));
    let running = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).spawn();
    folder.wait_for("begun");
    running.signal(Signal::TERM);
    let ended = running.wait();
    ended.assert_code(143);
    let outputs = outputs(&folder, &ended.stderr);
    assert_words(&outputs, "failed, exit code 3", &[]);
    // The lines of progress end with the run.
    assert_words(&outputs, "not finished", &["the lines of progress"]);
    assert_words(&outputs, "didn't end", &outputs.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[test]
fn a_case_counts_the_calls_that_were_run() {
    let replies = json!([{ "calls": [bash("true"), bash("true")] }, { "text": "Summed up." }]);
    let folder = folder("limits: { tool_calls: 1 }\n", "", &replies);
    folder.write("tests/job/case/script.yaml", folder.read("r.json"));
    let expect = |count: u32| format!("outcome: budget_exceeded\ntools: {{ bash: {count} }}\nfailed_calls: 1\n");
    folder.write("tests/job/case/expect.yaml", expect(1));
    folder.legwork(&["test", "job.yaml"]).run().assert_code(0);
    folder.write("tests/job/case/expect.yaml", expect(2));
    folder.legwork(&["test", "job.yaml"]).run().assert_code(1).assert_stdout_contains("`bash` was called once");
}
