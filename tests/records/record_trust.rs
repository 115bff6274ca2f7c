//! Records resume only on the machine that made them, with the options that were given there, and only once.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::journal::with_checksums;
use crate::support::program::ProgramOutput;
use crate::support::test_folder::{TestFolder, empty_folder};

const KILL_AFTER_VARIABLE: &str = "LEGWORK_KILL_AFTER";
/// A key of sufficient length.
const RECORD_KEY: &str = "a key of a whole cluster";
const TEXT_ONLY_JOB: &str = "model: replay/r.yaml\nparent: { prompt: Go., tools: [] }\n";

/// A job that only replies.
fn text_only_job() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", TEXT_ONLY_JOB).write("r.yaml", json!({"parent": [{"text": "Done."}]}).to_string());
    folder
}

/// A job that is interrupted before its command.
fn interrupted_run(arguments: &[&str]) -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\nenv: [DEPLOY_TOKEN]\n\
               git: commit\nallow_changes: [.envrc]\n",
    );
    let bash = json!({"tool": "bash", "input": {"command": "echo done >> log"}});
    folder.write("r.yaml", json!({"parent": [{"calls": [bash]}, {"text": "Done."}]}).to_string());
    let ended = folder.legwork(&["run", "job.yaml"]).args(arguments).env(KILL_AFTER_VARIABLE, "3").run();
    assert_eq!(ended.signal(), Some(9), "{}", ended.full_output());
    folder
}

fn record(folder: &TestFolder) -> PathBuf {
    folder.at("runs/job/latest").canonicalize().unwrap()
}

fn resume(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    folder.legwork(&["resume", "latest"]).args(arguments).run()
}

fn assert_refused(ended: &ProgramOutput, folder: &TestFolder) {
    ended
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("was made on another machine")
        .assert_stderr_contains("--trust-record");
    // The error lists the job's permissions before the user decides to trust it.
    ended
        .assert_stderr_contains("this record permits:")
        .assert_stderr_contains("DEPLOY_TOKEN")
        .assert_stderr_contains("replay/r.yaml with bash");
    ended.assert_stderr_contains("git: commit").assert_stderr_contains("changes allowed: .envrc");
    assert!(!folder.exists("log"));
}

#[test]
fn a_record_with_a_changed_job_is_rejected_unless_it_is_trusted() {
    for (from, to) in
        [("\"network\":\"none\"", "\"network\":\"open\""), ("[\"DEPLOY_TOKEN\"]", "[\"DEPLOY_TOKEN\",\"OTHER\"]")]
    {
        let folder = interrupted_run(&[]);
        let journal = record(&folder).join("events.jsonl");
        let text = std::fs::read_to_string(&journal).unwrap();
        assert!(text.contains(from), "{text}");
        folder.allow_forged_records();
        std::fs::write(&journal, with_checksums(&text.replacen(from, to, 1))).unwrap();
        assert_refused(&resume(&folder, &[]), &folder);
        // A record without its seal counts as made on another machine, too.
        let bare = text.lines().next().unwrap().split_once(",\"mac\":").unwrap().0;
        let rest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        std::fs::write(&journal, with_checksums(&format!("{bare},\"sum\":\"\"}}\n{rest}"))).unwrap();
        assert_refused(&resume(&folder, &[]), &folder);
        let trusted = resume(&folder, &["--trust-record"]);
        trusted.assert_code(0).assert_stdout("Done.\n").assert_stderr_contains("this record permits:");
    }
}

#[test]
fn another_users_record_is_rejected_until_it_is_trusted() {
    let folder = interrupted_run(&[]);
    let other = empty_folder();
    let resume = |arguments: &[&str]| folder.legwork(&["resume", "latest"]).args(arguments).env("HOME", other.path());
    assert_refused(&resume(&[]).run(), &folder);
    let cut = resume(&["--trust-record"]).env(KILL_AFTER_VARIABLE, "1").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    resume(&[]).run().assert_code(0).assert_stdout("Done.\n").assert_not_printed("grants");
}

#[test]
fn machines_with_the_same_key_resume_each_others_records() {
    let folder = text_only_job();
    let run = |arguments: &[&str], key: &str| folder.legwork(arguments).env("LEGWORK_RECORD_KEY", key);
    let ended = run(&["run", "job.yaml"], RECORD_KEY).env_remove("HOME").env(KILL_AFTER_VARIABLE, "2").run();
    assert_eq!(ended.signal(), Some(9));
    ended.assert_not_printed("isn't signed");
    let elsewhere = |key: &str| run(&["resume", "latest"], key).env("HOME", "/nonexistent").run();
    elsewhere("another key of a cluster").assert_code(2).assert_stderr_contains("was made on another machine");
    elsewhere("short").assert_code(2).assert_stderr_contains("LEGWORK_RECORD_KEY is too short");
    let ended = elsewhere(RECORD_KEY);
    ended.assert_code(0).assert_stdout("Done.\n");
    assert!(!folder.home().join(".local").exists(), "no other key is made");
    assert!(!ended.run_folder().file("events.jsonl").contains(RECORD_KEY));
}

#[test]
fn a_run_that_cannot_store_the_key_warns_and_runs() {
    let folder = text_only_job();
    let homeless = |arguments: &[&str]| folder.legwork(arguments).env_remove("HOME");
    homeless(&["run", "job.yaml"])
        .run()
        .assert_code(0)
        .assert_stdout("Done.\n")
        .assert_stderr_contains("the record isn't signed");
    let ended = homeless(&["run", "job.yaml"]).env(KILL_AFTER_VARIABLE, "2").run();
    assert_eq!(ended.signal(), Some(9));
    homeless(&["resume", "latest"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("LEGWORK_RECORD_KEY")
        .assert_stderr_contains("--trust-record");
    homeless(&["resume", "latest", "--trust-record"]).run().assert_code(0).assert_stdout("Done.\n");
    let limited = homeless(&["run", "job.yaml", "--limit", "tokens=1"]).run();
    let command = limited.assert_code(4).stderr.lines().last().unwrap().strip_prefix("resume: legwork ").unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    homeless(&words).run().assert_not_printed("was made on another machine");
}

#[test]
fn the_key_is_private_and_not_readable_by_tools() {
    use std::os::unix::fs::PermissionsExt;
    let folder = text_only_job();
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    let key = folder.home().join(".local/state/legwork/record.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let elsewhere = empty_folder();
    folder.legwork(&["run", "job.yaml"]).env("XDG_STATE_HOME", elsewhere.path()).run().assert_code(0);
    assert!(elsewhere.path().join("legwork/record.key").is_file());
    folder.write("job.yaml", TEXT_ONLY_JOB.replace("[]", "[bash]") + "env: [LEGWORK_RECORD_KEY]\n");
    let refused = folder.legwork(&["validate", "job.yaml"]).run();
    refused.assert_code(3);
    assert!(
        refused.full_output().contains("api-key-in-env")
            && refused.full_output().contains("the key that signs records"),
        "{}",
        refused.full_output()
    );
}

/// A command could read such a key, or the key came with the checkout, together with a record that matches it.
#[test]
fn a_key_in_the_workspace_or_its_repository_is_not_used() {
    let folder = interrupted_run(&[]);
    let state = folder.at("sub/state");
    std::fs::create_dir(folder.at("sub")).unwrap();
    let key = state.join("legwork/record.key");
    copy(&folder.home().join(".local/state"), &state);
    assert!(key.is_file());
    folder.commit_all();
    let with = |arguments: &[&str]| folder.legwork(arguments).env("XDG_STATE_HOME", &state);
    with(&["resume", "latest"])
        .run()
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("was made on another machine")
        .assert_stderr_contains("or its repository");
    assert!(!folder.exists("log"));
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::create_dir_all(folder.at("work")).unwrap();
    let ended = with(&["run", "job.yaml", "--workspace", "work"]).run();
    ended.assert_code(0).assert_stderr_contains("isn't signed").assert_stderr_contains("or its repository");
    assert!(!state.exists());
    with(&["resume", "latest", "--trust-record"]).env("XDG_STATE_HOME", folder.home().join("elsewhere")).run();
}

#[test]
fn a_record_that_git_tracks_is_never_the_latest() {
    let folder = interrupted_run(&[]);
    std::fs::write(folder.at("runs/.gitignore"), "").unwrap();
    folder.commit_all();
    for name in ["latest", "job/latest"] {
        folder
            .legwork(&["resume", name])
            .run()
            .assert_code(2)
            .assert_stdout("")
            .assert_stderr_contains("no run is called");
        folder.legwork(&["show", name]).run().assert_code(2);
    }
    let id = record(&folder).file_name().unwrap().to_str().unwrap().to_owned();
    folder.legwork(&["show", &id]).run().assert_code(0);
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    assert_ne!(record(&folder).file_name().unwrap(), id.as_str());
    folder.legwork(&["show", "latest"]).run().assert_code(0).assert_stdout_contains("completed");
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_copied_record_is_rejected_and_a_moved_one_is_accepted() {
    let folder = interrupted_run(&[]);
    let original = record(&folder);
    let twin = folder.at("runs/job/20990101-000000-aaaaaa");
    copy(&original, &twin);
    let run = |path: &Path, more: &[&str]| folder.legwork(&["resume"]).arg(path).args(more).run();
    let refused = run(&twin, &[]);
    refused
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("this is a copy of the record")
        .assert_stderr_contains("--force");
    refused.assert_stderr_contains(&format!("legwork resume {}", original.display()));
    run(&original, &[]).assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("log"), "done\n");
    run(&twin, &[]).assert_code(2).assert_stderr_contains("this is a copy of the record");
    assert_eq!(folder.read("log"), "done\n", "not a second time");

    let folder = interrupted_run(&[]);
    let moved = folder.at("archive");
    std::fs::rename(record(&folder), &moved).unwrap();
    folder.legwork(&["resume"]).arg(&moved).run().assert_code(0).assert_stdout("Done.\n");
}

/// The options of a resumed run, from its journal.
fn options(folder: &TestFolder) -> Value {
    let journal = std::fs::read_to_string(record(folder).join("events.jsonl")).unwrap();
    let mut lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.rfind(|line| line["type"] == "resumed").unwrap()["data"]["options"].clone()
}

#[test]
fn a_resumed_run_keeps_its_options() {
    let more = empty_folder();
    let folder = TestFolder::new();
    let shared = more.path().to_str().unwrap();
    let job = "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\n\
               result: { schema: { type: object, properties: { a: { type: integer } } } }\n";
    let calls = json!([
        {"tool": "bash", "input": {"command": format!("echo done >> {shared}/log && cat {shared}/log")}},
        {"tool": "submit_result", "input": {"a": 1}},
    ]);
    folder.write("job.yaml", job).write("r.yaml", json!({"parent": [{"calls": calls}, {"text": "Done."}]}).to_string());
    let run = |arguments: &[&str]| folder.legwork(arguments);
    let given = ["run", "job.yaml", "--offline", "--allow-write", shared, "--result", "out.json"];
    let cut = run(&given).env(KILL_AFTER_VARIABLE, "3").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    let cut = run(&["resume", "latest"]).env(KILL_AFTER_VARIABLE, "1").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    let path = folder.at("out.json");
    assert_eq!(options(&folder), json!({"allow_write": [shared], "result": path, "offline": true}));
    let ended = run(&["resume", "latest"]).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(std::fs::read_to_string(more.path().join("log")).unwrap(), "done\n");
    assert_eq!(folder.read("out.json"), "{\n  \"a\": 1\n}\n");
}

#[test]
fn sandbox_off_persists_until_the_command_line_changes_it() {
    let folder = interrupted_run(&["--sandbox", "off"]);
    let ended = resume(&folder, &[]);
    ended.assert_code(0).assert_stderr_contains("commands are not confined");
    assert_eq!(ended.run_folder().result()["sandbox"], "off");
    assert_eq!(options(&folder), json!({"sandbox": "off"}));
    let folder = interrupted_run(&["--sandbox", "off"]);
    resume(&folder, &["--sandbox", "auto"]).assert_not_printed("not confined");
    assert_eq!(options(&folder), json!({"sandbox": "auto"}));
}

/// Trusting a record means trusting its job, but not the options of its command line.
#[test]
fn a_trusted_record_does_not_apply_its_command_line_options() {
    let folder = interrupted_run(&["--sandbox", "off"]);
    let other = empty_folder();
    let ended = folder.legwork(&["resume", "latest", "--trust-record"]).env("HOME", other.path()).run();
    ended.assert_not_printed("not confined");
    assert_eq!(options(&folder), Value::Null);
}

#[test]
fn an_untrusted_job_stays_untrusted() {
    let folder = text_only_job();
    folder.write("job.yaml", TEXT_ONLY_JOB.replace("replay/r.yaml", "anthropic/claude-haiku-4-5"));
    let cut = folder
        .legwork(&["run", "job.yaml", "--untrusted", "--model", "replay/r.yaml"])
        .env(KILL_AFTER_VARIABLE, "2")
        .run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    resume(&folder, &["--sandbox", "off"])
        .assert_code(2)
        .assert_stderr_contains("an untrusted job can't run without a sandbox");
    resume(&folder, &[]).assert_code(0).assert_stdout("Done.\n");
}
