//! Records are resumed only where they were made, with what was granted there, and only once.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::folder::Folder;
use crate::support::journal::summed;
use crate::support::program::Ended;

const CUT: &str = "LEGWORK_KILL_AFTER";
/// A long enough key.
const KEY: &str = "a key of a whole cluster";
const TALK: &str = "model: replay/r.yaml\nparent: { prompt: Go., tools: [] }\n";

/// A job that only answers.
fn talk() -> Folder {
    let folder = Folder::new();
    folder.write("job.yaml", TALK).write("r.yaml", json!({"parent": [{"text": "Done."}]}).to_string());
    folder
}

/// A job that was cut off before its command.
fn cut(arguments: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\nenv: [DEPLOY_TOKEN]\n\
               git: commit\nallow_changes: [.envrc]\n",
    );
    let bash = json!({"tool": "bash", "input": {"command": "echo done >> log"}});
    folder.write("r.yaml", json!({"parent": [{"calls": [bash]}, {"text": "Done."}]}).to_string());
    let ended = folder.legwork(&["run", "job.yaml"]).args(arguments).env(CUT, "3").run();
    assert_eq!(ended.signal(), Some(9), "{}", ended.all());
    folder
}

fn record(folder: &Folder) -> PathBuf {
    folder.at("runs/job/latest").canonicalize().unwrap()
}

fn resume(folder: &Folder, arguments: &[&str]) -> Ended {
    folder.legwork(&["resume", "latest"]).args(arguments).run()
}

fn is_refused(ended: &Ended, folder: &Folder) {
    ended.code(2).stdout_is("").stderr_has("wasn't made here").stderr_has("--trust-record");
    // What it grants is to be seen before anybody trusts it.
    ended.stderr_has("the record grants:").stderr_has("DEPLOY_TOKEN").stderr_has("replay/r.yaml with bash");
    ended.stderr_has("git: commit").stderr_has("commands may change: .envrc");
    assert!(!folder.exists("log"));
}

#[test]
fn a_record_whose_job_was_changed_is_refused_unless_it_is_trusted() {
    for (from, to) in
        [("\"network\":\"none\"", "\"network\":\"open\""), ("[\"DEPLOY_TOKEN\"]", "[\"DEPLOY_TOKEN\",\"OTHER\"]")]
    {
        let folder = cut(&[]);
        let journal = record(&folder).join("events.jsonl");
        let text = std::fs::read_to_string(&journal).unwrap();
        assert!(text.contains(from), "{text}");
        folder.forges_records();
        std::fs::write(&journal, summed(&text.replacen(from, to, 1))).unwrap();
        is_refused(&resume(&folder, &[]), &folder);
        // Without its seal it isn't this machine's either.
        let bare = text.lines().next().unwrap().split_once(",\"mac\":").unwrap().0;
        let rest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        std::fs::write(&journal, summed(&format!("{bare},\"sum\":\"\"}}\n{rest}"))).unwrap();
        is_refused(&resume(&folder, &[]), &folder);
        let trusted = resume(&folder, &["--trust-record"]);
        trusted.code(0).stdout_is("Done.\n").stderr_has("the record grants:");
    }
}

#[test]
fn a_record_of_another_user_is_refused_and_once_trusted_it_is_this_ones() {
    let folder = cut(&[]);
    let other = tempfile::tempdir().unwrap();
    let resume = |arguments: &[&str]| folder.legwork(&["resume", "latest"]).args(arguments).env("HOME", other.path());
    is_refused(&resume(&[]).run(), &folder);
    let cut = resume(&["--trust-record"]).env(CUT, "1").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.all());
    resume(&[]).run().code(0).stdout_is("Done.\n").nowhere("grants");
}

#[test]
fn machines_with_the_same_key_go_on_with_each_others_records() {
    let folder = talk();
    let run = |arguments: &[&str], key: &str| folder.legwork(arguments).env("LEGWORK_RECORD_KEY", key);
    let ended = run(&["run", "job.yaml"], KEY).env_remove("HOME").env(CUT, "2").run();
    assert_eq!(ended.signal(), Some(9));
    ended.nowhere("isn't signed");
    let elsewhere = |key: &str| run(&["resume", "latest"], key).env("HOME", "/nonexistent").run();
    elsewhere("another key of a cluster").code(2).stderr_has("wasn't made here");
    elsewhere("short").code(2).stderr_has("LEGWORK_RECORD_KEY is too short");
    let ended = elsewhere(KEY);
    ended.code(0).stdout_is("Done.\n");
    assert!(!folder.home().join(".local").exists(), "no other key is made");
    assert!(!ended.run_folder().file("events.jsonl").contains(KEY));
}

#[test]
fn a_run_without_a_place_for_the_key_says_so_and_runs() {
    let folder = talk();
    let homeless = |arguments: &[&str]| folder.legwork(arguments).env_remove("HOME");
    homeless(&["run", "job.yaml"]).run().code(0).stdout_is("Done.\n").stderr_has("the record isn't signed");
    let ended = homeless(&["run", "job.yaml"]).env(CUT, "2").run();
    assert_eq!(ended.signal(), Some(9));
    homeless(&["resume", "latest"]).run().code(2).stderr_has("LEGWORK_RECORD_KEY").stderr_has("--trust-record");
    homeless(&["resume", "latest", "--trust-record"]).run().code(0).stdout_is("Done.\n");
}

#[test]
fn the_key_is_for_its_user_alone_and_no_tool_gets_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = talk();
    folder.legwork(&["run", "job.yaml"]).run().code(0);
    let key = folder.home().join(".local/state/legwork/record.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let elsewhere = tempfile::tempdir().unwrap();
    folder.legwork(&["run", "job.yaml"]).env("XDG_STATE_HOME", elsewhere.path()).run().code(0);
    assert!(elsewhere.path().join("legwork/record.key").is_file());
    folder.write("job.yaml", TALK.replace("[]", "[bash]") + "env: [LEGWORK_RECORD_KEY]\n");
    let refused = folder.legwork(&["validate", "job.yaml"]).run();
    refused.code(3);
    assert!(refused.all().contains("key-in-env") && refused.all().contains("the key of records"), "{}", refused.all());
}

/// A command could read it there, or it came with the checkout, together with a record that it fits.
#[test]
fn a_key_in_the_workspace_or_its_repository_seals_nothing() {
    let folder = cut(&[]);
    let state = folder.at("sub/state");
    std::fs::create_dir(folder.at("sub")).unwrap();
    let key = state.join("legwork/record.key");
    copy(&folder.home().join(".local/state"), &state);
    assert!(key.is_file());
    folder.commit_all();
    let with = |arguments: &[&str]| folder.legwork(arguments).env("XDG_STATE_HOME", &state);
    with(&["resume", "latest"])
        .run()
        .code(2)
        .stdout_is("")
        .stderr_has("wasn't made here")
        .stderr_has("or its repository");
    assert!(!folder.exists("log"));
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::create_dir_all(folder.at("work")).unwrap();
    let ended = with(&["run", "job.yaml", "--workspace", "work"]).run();
    ended.code(0).stderr_has("isn't signed").stderr_has("or its repository");
    assert!(!state.exists());
    with(&["resume", "latest", "--trust-record"]).env("XDG_STATE_HOME", folder.home().join("elsewhere")).run();
}

#[test]
fn a_record_that_git_tracks_is_never_the_latest() {
    let folder = cut(&[]);
    std::fs::write(folder.at("runs/.gitignore"), "").unwrap();
    folder.commit_all();
    for name in ["latest", "job/latest"] {
        folder.legwork(&["resume", name]).run().code(2).stdout_is("").stderr_has("no run is called");
        folder.legwork(&["show", name]).run().code(2);
    }
    let id = record(&folder).file_name().unwrap().to_str().unwrap().to_owned();
    folder.legwork(&["show", &id]).run().code(0);
    folder.legwork(&["run", "job.yaml"]).run().code(0);
    assert_ne!(record(&folder).file_name().unwrap(), id.as_str());
    folder.legwork(&["show", "latest"]).run().code(0).stdout_has("completed");
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_copy_beside_its_original_is_refused_and_a_record_that_was_moved_is_not() {
    let folder = cut(&[]);
    let original = record(&folder);
    let twin = folder.at("runs/job/20990101-000000-aaaaaa");
    copy(&original, &twin);
    let run = |path: &Path, more: &[&str]| folder.legwork(&["resume"]).arg(path).args(more).run();
    let refused = run(&twin, &[]);
    refused.code(2).stdout_is("").stderr_has("this is a copy of the record").stderr_has("--force");
    refused.stderr_has(&format!("legwork resume {}", original.display()));
    run(&original, &[]).code(0).stdout_is("Done.\n");
    assert_eq!(folder.read("log"), "done\n");
    run(&twin, &[]).code(2).stderr_has("this is a copy of the record");
    assert_eq!(folder.read("log"), "done\n", "not a second time");

    let folder = cut(&[]);
    let moved = folder.at("archive");
    std::fs::rename(record(&folder), &moved).unwrap();
    folder.legwork(&["resume"]).arg(&moved).run().code(0).stdout_is("Done.\n");
}

/// What a run that went on was given, as its journal says.
fn options(folder: &Folder) -> Value {
    let journal = std::fs::read_to_string(record(folder).join("events.jsonl")).unwrap();
    let mut lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.rfind(|line| line["type"] == "resumed").unwrap()["data"]["options"].clone()
}

#[test]
fn a_run_goes_on_with_the_options_that_it_was_given() {
    let more = tempfile::tempdir().unwrap();
    let folder = Folder::new();
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
    let cut = run(&given).env(CUT, "3").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.all());
    let cut = run(&["resume", "latest"]).env(CUT, "1").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.all());
    let path = folder.at("out.json");
    assert_eq!(options(&folder), json!({"allow_write": [shared], "result": path, "offline": true}));
    let ended = run(&["resume", "latest"]).run();
    ended.code(0).stdout_is("Done.\n");
    assert_eq!(std::fs::read_to_string(more.path().join("log")).unwrap(), "done\n");
    assert_eq!(folder.read("out.json"), "{\n  \"a\": 1\n}\n");
}

#[test]
fn a_sandbox_that_was_switched_off_stays_off_until_the_command_line_says_otherwise() {
    let folder = cut(&["--sandbox", "off"]);
    let ended = resume(&folder, &[]);
    ended.code(0).stderr_has("commands are not confined");
    assert_eq!(ended.run_folder().result()["sandbox"], "off");
    assert_eq!(options(&folder), json!({"sandbox": "off"}));
    let folder = cut(&["--sandbox", "off"]);
    resume(&folder, &["--sandbox", "auto"]).nowhere("not confined");
    assert_eq!(options(&folder), json!({"sandbox": "auto"}));
}

/// Whoever trusts a record trusts its job, not what another command line gave it.
#[test]
fn a_trusted_record_brings_no_options_of_a_command_line_with_it() {
    let folder = cut(&["--sandbox", "off"]);
    let other = tempfile::tempdir().unwrap();
    let ended = folder.legwork(&["resume", "latest", "--trust-record"]).env("HOME", other.path()).run();
    ended.nowhere("not confined");
    assert_eq!(options(&folder), Value::Null);
}

#[test]
fn an_untrusted_job_stays_untrusted() {
    let folder = talk();
    folder.write("job.yaml", TALK.replace("replay/r.yaml", "anthropic/claude-haiku-4-5"));
    let cut = folder.legwork(&["run", "job.yaml", "--untrusted", "--model", "replay/r.yaml"]).env(CUT, "2").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.all());
    resume(&folder, &["--sandbox", "off"]).code(2).stderr_has("an untrusted job is not run without a sandbox");
    resume(&folder, &[]).code(0).stdout_is("Done.\n");
}
