//! The checks of a job: they pass, fail, send the parent back to work, or end the run.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::program::{Program, ProgramOutput};
use crate::support::report_skipped;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// A folder with a job that has these checks, as YAML, and a script of these texts.
fn folder(more: &str, texts: &[&str]) -> TestFolder {
    let folder = folder_with(&format!("limits: {{ tokens: 1000000 }}\n{more}"));
    if !more.contains("parent:") {
        folder.write("job.yaml", folder.read("job.yaml") + "parent: { prompt: Go., tools: [] }\n");
    }
    let replies: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
    folder.write("replies.yaml", json!({ "parent": replies }).to_string());
    folder
}

/// The runs have no sandbox, which would slow each command and has its own test here.
fn program(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml", "--sandbox", "off"])
}

/// Name, attempt, result and exit code of each check.
fn recorded_checks(ended: &ProgramOutput) -> Vec<(String, u64, bool, Value)> {
    let result = ended.run_folder().result();
    let note = |check: &Value| {
        let name = check["name"].as_str().unwrap().to_owned();
        (name, check["attempt"].as_u64().unwrap(), check["passed"].as_bool().unwrap(), check["exit_code"].clone())
    };
    result["checks"].as_array().unwrap().iter().map(note).collect()
}

fn expected_check(name: &str, attempt: u64, exit_code: impl Into<Value>) -> (String, u64, bool, Value) {
    let exit_code = exit_code.into();
    (name.to_owned(), attempt, exit_code == 0, exit_code)
}

/// The recorded output of a check's last event.
fn output(ended: &ProgramOutput, name: &str) -> String {
    let events = ended.run_folder().events();
    let of = |event: &&Value| event["type"] == "check_finished" && event["data"]["name"] == name;
    events.iter().rfind(of).unwrap()["data"]["output"].as_str().unwrap().to_owned()
}

/// Removes everything that can be rebuilt from the journals.
fn assert_rebuilds(ended: &ProgramOutput, folder: &TestFolder) {
    let run = ended.run_folder();
    let rebuilt = folder.legwork(&["show", run.id(), "--rebuild"]).run();
    rebuilt.assert_code(0);
    for line in rebuilt.stdout.lines() {
        assert!(line.starts_with("unchanged"), "{}", rebuilt.stdout);
    }
}

#[test]
fn passing_checks_are_reported_and_the_answer_stays() {
    let folder = folder(
        "checks:\n  - { name: first, run: echo one }\n  - { name: second, run: 'echo two; pwd > here' }\nrepairs: 2\n",
        &["Done."],
    );
    let ended = program(&folder).run();
    ended
        .assert_code(0)
        .assert_stdout("Done.\n")
        .assert_stderr_contains("check first")
        .assert_stderr_contains("check second passed");
    assert_eq!(recorded_checks(&ended), [expected_check("first", 1, 0), expected_check("second", 1, 0)]);
    assert_eq!(folder.read("here").trim_end(), folder.path().to_str().unwrap());
    let run = ended.run_folder();
    let result = run.result();
    assert_eq!(
        (&result["outcome"], &result["turns"], &result["text"]),
        (&json!("completed"), &json!(1), &json!("Done."))
    );
    let kinds: Vec<Value> = run.events().iter().map(|event| event["type"].clone()).collect();
    let at = kinds.iter().position(|kind| kind == "check_started").unwrap();
    let steps = ["check_started", "check_finished", "check_started", "check_finished"];
    assert_eq!(kinds[at..at + 4], steps.map(|kind| json!(kind)));
    let transcript = run.transcript();
    for part in [
        "## Checks\n",
        "### check first (passed, ",
        "- run: `echo one`",
        "\none\n",
        "- checks: first: passed, second: passed",
    ] {
        assert!(transcript.contains(part), "{part} in\n{transcript}");
    }
    assert!(run.file("report.html").contains("<b class=\"tool\">second</b> <span class=\"status\">passed</span>"));
    folder.legwork(&["show"]).run().assert_code(0).assert_stdout_contains("### check second (passed, ");
    assert_rebuilds(&ended, &folder);
}

#[test]
fn a_failing_check_without_repairs_ends_the_run() {
    let folder = folder(
        "checks:\n  - { name: good, run: 'true' }\n  - { name: tests pass, run: 'echo 3 failed; exit 7' }\n  - { name: last, run: touch last }\n",
        &["Done."],
    );
    let summary = folder.write("summary.md", "").at("summary.md");
    let ended = program(&folder).env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", &summary).run();
    ended
        .assert_code(1)
        .assert_stdout("Done.\n")
        .assert_stderr_contains("`tests pass` (exit code 7)")
        .assert_stderr_contains("3 failed");
    assert_eq!(
        recorded_checks(&ended),
        [expected_check("good", 1, 0), expected_check("tests pass", 1, 7), expected_check("last", 1, 0)]
    );
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("checks_failed"), &json!(1)));
    assert_eq!(result["error"]["message"], "the check `tests pass` (exit code 7) doesn't pass");
    assert!(result["error"]["hint"].as_str().unwrap().contains("repairs"));
    assert!(
        folder.read("summary.md").contains("| tests pass | ❌ failed, exit code 7 | 1 |"),
        "{}",
        folder.read("summary.md")
    );
    let json = program(&folder).args(["--format", "json"]).run();
    assert_eq!(json.assert_code(1).json()["checks"][1]["passed"], false);
    assert_rebuilds(&ended, &folder);
}

#[test]
fn failures_are_sent_to_the_parent_in_the_same_conversation() {
    let folder = folder_with(
        "parent: { prompt: Write it., tools: [write_file] }\nrepairs: 3\nchecks:\n  - { name: there, run: 'echo looking; cat made' }\n  \
         - { name: always, run: 'true' }\n",
    );
    let server = Server::start(ScriptedAgents::of([
        Answer::text("Written."),
        Answer::calls(&[("write_file", json!({ "path": "made", "content": "it\n" }))]),
        Answer::text("Now it is."),
    ]));
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    ended
        .assert_code(0)
        .assert_stdout("Now it is.\n")
        .assert_stderr_contains("check there failed, exit code 1")
        .assert_stderr_contains("(attempt 2)");
    assert_eq!(
        recorded_checks(&ended),
        [
            expected_check("there", 1, 1),
            expected_check("always", 1, 0),
            expected_check("there", 2, 0),
            expected_check("always", 2, 0)
        ]
    );
    let requests = server.finish();
    assert_eq!(requests.len(), 3);
    let note = requests[1].last_text();
    assert!(note.contains("## there (exit code 1)\n\nlooking\ncat: made") && !note.contains("always"), "{note}");
    let roles: Vec<&Value> = requests[1].messages().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert!(requests[2].last_text().is_empty() && requests[2].messages().len() == 5);
    let run = ended.run_folder();
    assert_eq!((run.result()["turns"].as_u64(), run.result()["outcome"].as_str()), (Some(3), Some("completed")));
    assert!(
        run.transcript().contains("## Checks (attempt 2)") && run.file("report.html").contains("Checks (attempt 2)")
    );
    assert_rebuilds(&ended, &folder);
}

/// A reply without blocks can't be sent back as a message.
#[test]
fn an_empty_answer_is_repaired() {
    let folder = folder_with(
        "parent: { prompt: Go., tools: [] }\nrepairs: 1\nchecks: [{ name: twice, run: '[ -e seen ] || { touch seen; false; }' }]\n",
    );
    let server = Server::start(ScriptedAgents::of([Answer::empty(), Answer::text("Now.")]));
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Now.\n");
    let requests = server.finish();
    assert_eq!(requests[1].messages().len(), 1);
    let note = requests[1].last_text();
    assert!(note.starts_with("Go.") && note.contains("## twice (exit code 1)\n\n(no output)"), "{note}");
}

#[test]
fn a_run_ends_when_its_repairs_are_used_up() {
    let folder =
        folder("checks: [{ name: never, run: 'echo no; false' }]\nrepairs: 2\n", &["One.", "Two.", "Three.", "Never."]);
    let ended = program(&folder).run();
    ended.assert_code(1).assert_stdout("Three.\n").assert_stderr_contains("in 3 attempts");
    assert_eq!(recorded_checks(&ended), [1, 2, 3].map(|attempt| expected_check("never", attempt, 1)));
    assert_eq!(ended.run_folder().result()["outcome"], "checks_failed");
}

#[test]
fn turns_are_counted_across_repairs() {
    let folder = folder_with(
        "parent: { prompt: Go., tools: [], max_turns: 1 }\nrepairs: 2\nchecks: [{ name: never, run: 'echo no; false' }]\n",
    );
    let server = Server::start(ScriptedAgents::of([Answer::text("One."), Answer::text("It fails.")]));
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    ended.assert_code(4).assert_stdout("It fails.\n");
    assert_eq!(ended.run_folder().result()["outcome"], "turn_limit");
    let last = server.finish()[1].last_text();
    assert!(last.contains("## never (exit code 1)") && last.contains("The work ends here"), "{last}");
}

#[test]
fn only_checks_whose_condition_is_true_run() {
    let job = "inputs: { style: { type: string, default: numpy }, deep: { type: boolean, default: false } }\n\
         checks:\n  - { name: numpy, run: 'true', when: \"{{ inputs.style == 'numpy' }}\" }\n  \
         - { name: google, run: 'false', when: \"{{ inputs.style == 'google' }}\" }\n  \
         - { name: deep, run: 'false', when: '{{ inputs.deep }}' }\n";
    let folder = folder(job, &["Done."]);
    let ended = program(&folder).run();
    ended.assert_code(0);
    assert_eq!(recorded_checks(&ended), [expected_check("numpy", 1, 0)]);
    assert_eq!(ended.run_folder().plan()["checks"][1]["skipped"], true);
    let google = program(&folder).args(["--set", "style=google"]).run();
    assert_eq!(recorded_checks(google.assert_code(1)), [expected_check("google", 1, 1)]);
    let dry = program(&folder).arg("--dry-run").run();
    dry.assert_code(0)
        .assert_stdout_contains("numpy (at most 10 min)")
        .assert_stdout_contains("google (skipped: `when` is false)")
        .assert_stdout_contains("repairs");
    folder.write("job.yaml", folder.read("job.yaml").replace("'{{ inputs.deep }}'", "'{{ inputs.style }}'"));
    program(&folder).run().assert_code(3).assert_stderr_contains("bad-condition").assert_stderr_contains("not `numpy`");
    folder.write("job.yaml", folder.read("job.yaml").replace("default: numpy", "enum: ['true', maybe]"));
    program(&folder).args(["--set", "style=maybe"]).run().assert_code(3).assert_stderr_contains("bad-condition");
}

#[test]
fn a_check_without_an_exit_code_fails_with_a_reason() {
    let folder = folder(
        "checks:\n  - { name: slow, run: echo begun; sleep 301, timeout: 3s }\n  - { name: killed, run: 'echo x; kill -9 $$' }\n  \
         - { name: unknown, run: no-such-command-here }\n",
        &["Done."],
    );
    let ended = program(&folder).run();
    ended
        .assert_code(1)
        .assert_stderr_contains("`slow` (no exit code), `killed` (no exit code), `unknown` (exit code 127)");
    assert_eq!(
        recorded_checks(&ended),
        [
            expected_check("slow", 1, Value::Null),
            expected_check("killed", 1, Value::Null),
            expected_check("unknown", 1, 127)
        ]
    );
    assert_eq!(output(&ended, "slow"), "begun\ntimed out after 3s");
    assert_eq!(output(&ended, "killed"), "x\nkilled by signal 9");
}

#[test]
fn a_check_that_removes_the_workspace_ends_the_run() {
    let folder = folder(
        "checks:\n  - { name: removes, run: 'rmdir \"$PWD\"' }\n  - { name: starts, run: 'true' }\n",
        &["Done."],
    );
    std::fs::create_dir(folder.at("below")).unwrap();
    let ended = program(&folder).args(["--workspace", "below"]).run();
    assert_eq!(recorded_checks(ended.assert_code(5)), [expected_check("removes", 1, 0)]);
    ended.assert_stderr_contains("environment_failed: the workspace ");
}

#[test]
fn a_signal_ends_a_check_and_resume_runs_it_again() {
    let folder = folder(
        "checks:\n  - { name: once, run: echo once >> log }\n  - { name: twice, run: '[ -e begun ] && exit 0; touch begun; sleep 301' }\n",
        &["Done."],
    );
    let running = program(&folder).spawn();
    folder.wait_for("begun");
    running.signal(Signal::INT);
    let cut = running.wait();
    cut.assert_code(130);
    assert_eq!(recorded_checks(&cut), [expected_check("once", 1, 0)]);
    assert!(cut.run_folder().transcript().contains("### check twice (not finished)"));
    let ended = folder.legwork(&["resume", "latest", "--sandbox", "off"]).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(recorded_checks(&ended), [expected_check("once", 1, 0), expected_check("twice", 1, 0)]);
    assert_eq!(folder.read("log"), "once\n", "what has ended isn't run again");
    assert_rebuilds(&ended, &folder);
}

#[test]
fn checks_count_towards_the_wall_clock() {
    let folder = folder("checks: [{ name: slow, run: sleep 301 }]\n", &["Done."]);
    folder.write("job.yaml", folder.read("job.yaml").replace("tokens: 1000000", "wall_clock: 1s"));
    let ended = program(&folder).run();
    ended.assert_code(4).assert_stderr_contains("the run's time is up");
    assert_eq!(ended.run_folder().result()["outcome"], "timed_out");
    assert_eq!(recorded_checks(&ended), []);
}

#[test]
fn check_output_is_redacted_and_truncated_in_the_middle() {
    let folder = folder(
        "inputs: { token: { type: string, secret: true } }\nchecks:\n  - { name: tells, run: 'echo \"it is $INPUT_TOKEN\"; false' }\n  \
         - { name: long, run: 'echo begin; head -c 100000 /dev/zero | tr \"\\0\" x; echo; echo end; false' }\nrepairs: 1\n",
        &["Done.", "Again."],
    );
    let ended = program(&folder).args(["--set-env", "token=T"]).env("T", "hush-hush-hush").run();
    ended.assert_code(1).assert_not_printed("hush-hush");
    assert_eq!(output(&ended, "tells"), "it is [masked:token]\n");
    let long = output(&ended, "long");
    assert!(long.len() < 20_100 && long.starts_with("begin\nxx") && long.ends_with("xx\nend\n"), "{}", long.len());
    ended.run_folder().assert_absent("hush-hush");
    let events = ended.run_folder().events();
    let note = events.iter().find(|event| event["type"] == "note_sent").unwrap()["data"]["text"].as_str().unwrap();
    assert!(note.len() < 21_000 && note.contains("it is [masked:token]") && note.contains("characters left out"));
}

#[test]
fn checks_run_in_the_same_sandbox_as_bash() {
    let folder = folder(
        "checks:\n  - { name: out, run: echo x > ../outside }\n  - { name: within, run: echo x > inside }\n",
        &["Done."],
    );
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml"]).run();
    if ended.exited_with(5) && ended.stderr.contains("sandbox") {
        return report_skipped("there is no sandbox here");
    }
    // With a private /tmp, the command can write there.
    assert!(!folder.exists("../outside") && folder.exists("inside"), "{}", ended.full_output());
    assert_ne!(ended.run_folder().result()["sandbox"], "unused");
}

#[test]
fn checks_cannot_change_protected_paths() {
    let folder = folder("checks: [{ name: changes, run: 'echo \"# more\" >> job.yaml' }]\n", &["Done."]);
    let before = folder.read("job.yaml");
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml"]).run();
    if ended.exited_with(5) && !ended.stderr.contains("record:") {
        return report_skipped("there is no sandbox here");
    }
    // One sandbox prevents the change. The other reverts it, which ends the run.
    assert!(ended.exited_with(1) || ended.exited_with(5), "{}", ended.full_output());
    assert_eq!(folder.read("job.yaml"), before);
    assert!(recorded_checks(&ended).iter().all(|check| !check.2));
}

/// Text that breaks out of careless quoting.
const HOSTILE: &str = "'; touch broken; '\" $(touch broken) `touch broken`\n touch broken #{{ x }}\\";

#[test]
fn a_check_gets_inputs_as_variables() {
    let folder = folder(
        "inputs:\n  text: { type: string, untrusted: true }\n  files: { type: list, default: [\"a b\", \"c'd\"] }\n  \
         deep: { type: boolean, default: true }\n  count: { type: integer, default: 3 }\n  token: { type: string, secret: true }\n\
         checks:\n  - name: prints\n    run: |\n      printf %s \"$INPUT_TEXT\" > text\n      \
         printf '<%s>' \"$INPUT_FILES\" \"$INPUT_DEEP\" \"$INPUT_COUNT\" \"$LEGWORK_RUN_ID\" > others\n      \
         [ ${#INPUT_TOKEN} = 14 ]\n",
        &["Done."],
    );
    folder.write("hostile", HOSTILE);
    let given = ["--set", "text=@hostile", "--set-env", "token=T"];
    let ended = program(&folder).args(given).env("T", "hush-hush-hush").run();
    ended.assert_code(0);
    assert_eq!(folder.read("text"), HOSTILE);
    assert_eq!(folder.read("others"), format!("<a b\nc'd><true><3><{}>", ended.run_folder().id()));
    assert!(!folder.exists("broken"));
    let run = &ended.run_folder().plan()["checks"][0]["run"];
    assert!(run.as_str().unwrap().contains("\"$INPUT_TEXT\""), "the plan has the command as written: {run}");
    let dry = || program(&folder).args(given).env("T", "hush-hush-hush").args(["--dry-run", "--format", "json"]).run();
    let (one, other) = (dry(), dry());
    one.assert_code(0).assert_stdout(&other.stdout).assert_stdout_contains("printf %s \\\"$INPUT_TEXT\\\" > text");
    one.assert_not_printed("hush-hush");
}

#[test]
fn the_environment_does_not_replace_an_inputs_variable_in_a_check() {
    let folder = folder(
        "inputs: { text: { type: string, default: mine } }\nenv: [INPUT_TEXT]\n\
         checks: [{ name: same, run: '[ \"$INPUT_TEXT\" = mine ]' }]\n",
        &["Done."],
    );
    program(&folder).env("INPUT_TEXT", "theirs").run().assert_code(0);
}

#[test]
fn a_resumed_check_gets_the_same_variables() {
    let folder = folder(
        "inputs: { text: { type: string }, token: { type: string, secret: true } }\nchecks:\n  \
         - { name: prints, run: 'printf \"%s|\" \"$INPUT_TEXT\" \"$INPUT_TOKEN\" \"$LEGWORK_RUN_ID\" > said; [ -e begun ] && exit 0; touch begun; sleep 301' }\n",
        &["Done."],
    );
    folder.write("hostile", HOSTILE);
    let running =
        program(&folder).args(["--set", "text=@hostile", "--set-env", "token=T"]).env("T", "hush-hush-hush").spawn();
    folder.wait_for("begun");
    running.signal(Signal::INT);
    let cut = running.wait();
    cut.assert_code(130);
    let output = folder.read("said");
    assert_eq!(output, format!("{HOSTILE}|hush-hush-hush|{}|", cut.run_folder().id()));
    std::fs::remove_file(folder.at("said")).unwrap();
    let resume = ["resume", "latest", "--sandbox", "off", "--set-env", "token=T"];
    folder.legwork(&resume).env("T", "hush-hush-hush").run().assert_code(0);
    assert_eq!(folder.read("said"), output);
}

#[test]
fn a_value_that_no_variable_can_hold_is_rejected_if_a_check_uses_it() {
    let job = "inputs: { text: { type: string } }\nchecks: [{ name: reads, run: 'test -n \"$INPUT_TEXT\"' }]\n";
    let folder = folder(job, &["Done."]);
    folder.write("large", "x".repeat(140_000));
    let refused = program(&folder).args(["--set", "text=@large"]).run();
    refused.assert_code(3).assert_stderr_contains("bad-input").assert_stderr_contains("longer than 128 kB");
    let unused = folder.read("job.yaml").replace("test -n \"$INPUT_TEXT\"", "true") + "description: x\n";
    folder.write("job.yaml", unused.replace("prompt: Go.", "prompt: '{{ inputs.text | length }}'"));
    program(&folder).args(["--set", "text=@large"]).run().assert_code(0);
}

#[test]
fn a_template_tag_in_a_command_is_rejected_and_fixed() {
    let folder = folder(
        "inputs: { folder: { type: path, default: src } }\nchecks:\n  - { name: there, run: \"test -d {{ inputs.folder }}\" }\n  \
         - name: named\n    run: |\n      test -d {{ inputs.folder }} && echo {{ run.id }}\n",
        &["Done."],
    );
    program(&folder).run().assert_code(3).assert_stderr_contains("not-a-template");
    assert!(!folder.exists("runs"));
    let found = folder.legwork(&["validate", "job.yaml"]).run();
    found.assert_code(3).assert_stdout_contains("`run` is plain shell, not a template");
    folder.legwork(&["validate", "--fix", "job.yaml"]).run().assert_code(0);
    let fixed = folder.read("job.yaml");
    assert!(fixed.contains(r#"run: "test -d \"$INPUT_FOLDER\"" }"#), "{fixed}");
    assert!(fixed.contains(r#"      test -d "$INPUT_FOLDER" && echo "$LEGWORK_RUN_ID""#), "{fixed}");
    std::fs::create_dir(folder.at("src")).unwrap();
    program(&folder).run().assert_code(0);
}

#[test]
fn a_tag_within_quotes_has_no_fix() {
    let folder = folder(
        "inputs: { x: { type: string } }\nchecks: [{ name: quoted, run: \"echo '{{ inputs.x }}'\" }]\n",
        &["Done."],
    );
    let before = folder.read("job.yaml");
    let found = folder.legwork(&["validate", "--fix", "job.yaml"]).run();
    found.assert_code(3).assert_stdout_contains("not-a-template").assert_stdout_contains("$INPUT_X");
    assert_eq!(folder.read("job.yaml"), before);
}
