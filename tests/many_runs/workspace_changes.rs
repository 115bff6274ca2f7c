//! The files that a run has changed, in `result.json` and `changes.patch`.

mod hostile_workspace;
mod workspace_locations;

use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::record::RunFolder;
use crate::support::report_skipped;
use crate::support::test_folder::{TestFolder, empty_folder};

pub(crate) const RUN: &[&str] = &["run", "job.yaml", "--model", "replay/../home/replies.yaml", "--out", "../home/runs"];

/// The run's record, which is outside of the workspace.
pub(crate) fn record(folder: &TestFolder) -> RunFolder {
    RunFolder::new(folder.home().join("runs/job/latest").canonicalize().expect("a run"))
}

/// A job whose parent runs these commands, one per turn.
pub(crate) fn write_job_with_commands(folder: &TestFolder, commands: &[&str]) {
    let turn = |command: &&str| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
    let turns: Vec<Value> = commands.iter().map(turn).chain([json!({ "text": "done" })]).collect();
    std::fs::write(folder.home().join("replies.yaml"), json!({ "parent": turns }).to_string()).unwrap();
    let job = "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [bash], max_turns: 60 }\ngit: commit\n";
    folder.write("job.yaml", job);
}

/// Copies the workspace, runs the commands, and asserts that the patch turns the copy into the new workspace.
#[track_caller]
fn changed_by(folder: &TestFolder, list: &[&str]) -> (ProgramOutput, Value) {
    write_job_with_commands(folder, list);
    let copy = copy_workspace(folder);
    let ended = folder.legwork(RUN).run();
    ended.assert_code(0);
    let record = record(folder);
    for how in ["git", "patch"] {
        let again = empty_folder();
        let target = again.path().join("copy");
        sh(&format!("cp -a {} {}", copy.path().join("copy").display(), target.display()));
        if record.has("changes.patch") {
            let patch = record.path().join("changes.patch");
            match how {
                "git" => sh(&format!(
                    "cd {} && rm -rf .git && GIT_CEILING_DIRECTORIES={} git apply --whitespace=nowarn {}",
                    target.display(),
                    again.path().display(),
                    patch.display()
                )),
                _ if has_patch() => {
                    sh(&format!("cd {} && patch --binary -s -p1 < {}", target.display(), patch.display()));
                }
                _ => continue,
            }
        }
        sh(&format!("diff -r --no-dereference -x .git {} {}", target.display(), folder.path().display()));
    }
    let changes = record.result()["changes"].clone();
    (ended, changes)
}

fn has_patch() -> bool {
    let has = Command::new("patch").arg("--version").output().is_ok();
    if !has {
        report_skipped("there is no patch here to try the patch with");
    }
    has
}

fn copy_workspace(folder: &TestFolder) -> tempfile::TempDir {
    let copy = empty_folder();
    sh(&format!("cp -a {} {}", folder.path().display(), copy.path().join("copy").display()));
    copy
}

#[track_caller]
fn sh(command: &str) {
    let output = Command::new("sh").arg("-c").arg(command).output().unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command}\n{printed}");
}

/// `path change +added -removed`, one line each.
fn change_lines(changes: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_u64().map_or("?".to_owned(), |number| number.to_string());
    let line = |change: &Value| {
        let (added, removed) = (number(&change["lines_added"]), number(&change["lines_removed"]));
        format!("{} {} +{added} -{removed}", change["path"].as_str().unwrap(), change["change"].as_str().unwrap())
    };
    changes.as_array().expect("changes").iter().map(line).collect()
}

fn prepared() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("a.txt", "one\ntwo\nthree\n").write("src/gone.txt", "x\n").write("src/moved.txt", "m\nn\n");
    folder.write("mode.sh", "#!/bin/sh\n").write("same.txt", "same\n").write("ignored/x", "1\n");
    folder.write(".gitignore", "ignored/\n*.log\n");
    folder
}

const SETUP_COMMANDS: &[&str] = &[
    "sed -i s/two/2/ a.txt; rm src/gone.txt; mv src/moved.txt src/here.txt",
    "chmod +x mode.sh; touch same.txt; echo same > same.txt; printf 'no end' > new.txt; : > empty",
    "echo 2 > ignored/x; echo log > a.log; ln -s a.txt link; mkdir -p deep/er; echo d > deep/er/f",
];

const CHANGE_COMMANDS: &[&str] = &[
    "a.txt modified +1 -1",
    "deep/er/f added +1 -0",
    "empty added +0 -0",
    "link added +1 -0",
    "mode.sh modified +0 -0",
    "new.txt added +1 -0",
    "src/gone.txt deleted +0 -1",
    "src/here.txt added +2 -0",
    "src/moved.txt deleted +0 -2",
];

/// Removes ignored files, which the patch can't restore in the copy.
fn without_ignored(folder: &TestFolder) {
    for name in ["ignored", "a.log"] {
        sh(&format!("rm -rf {}", folder.at(name).display()));
    }
}

#[test]
fn changes_are_tracked_without_git() {
    let folder = prepared();
    let list: Vec<&str> =
        SETUP_COMMANDS.iter().copied().chain(["rm -rf ignored/x a.log; echo 1 > ignored/x"]).collect();
    let (ended, changes) = changed_by(&folder, &list);
    assert_eq!(change_lines(&changes), CHANGE_COMMANDS);
    ended.assert_stderr_contains("9 files changed, +6 -4");
    without_ignored(&folder);
    let events = record(&folder).events();
    let kinds: Vec<&str> = events.iter().rev().take(3).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["run_finished", "workspace_changed", "agent_finished"]);
    assert_eq!(events[events.len() - 2]["data"].get("incomplete"), None);
    assert!(!record(&folder).has("workspace.start"));
}

#[test]
fn changes_are_tracked_with_git_across_commits() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    let commit = "rm -rf a.log; echo 1 > ignored/x; git add -A && git -c user.name=a -c user.email=b commit -qm work";
    let list: Vec<&str> = SETUP_COMMANDS.iter().copied().chain([commit]).collect();
    let (_, changes) = changed_by(&folder, &list);
    assert_eq!(change_lines(&changes), CHANGE_COMMANDS);
}

#[test]
fn files_modified_or_untracked_before_the_run_are_not_changes() {
    let folder = prepared();
    folder.write("staged.txt", "1\n").commit_all();
    folder.write("a.txt", "one\ntwo\nthree\nfour\n").write("untracked.txt", "u\n").write("staged.txt", "2\n");
    folder.git(&["add", "staged.txt"]);
    std::fs::remove_file(folder.at("src/gone.txt")).unwrap();
    let (_, changes) = changed_by(&folder, &["true"]);
    assert_eq!(changes, json!([]));
    assert!(!record(&folder).has("changes.patch"));
    let list =
        ["sed -i s/four/4/ a.txt; echo v >> untracked.txt; git checkout -q src/gone.txt; git add a.txt; git reset -q"];
    let (_, changes) = changed_by(&folder, &list);
    let expected = ["a.txt modified +1 -1", "src/gone.txt added +1 -0", "untracked.txt modified +1 -0"];
    assert_eq!(change_lines(&changes), expected);
}

#[test]
fn a_run_without_writing_tools_tracks_no_changes() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [read_file, todo] }\n");
    std::fs::write(folder.home().join("replies.yaml"), r#"{"parent": [{"text": "done"}]}"#).unwrap();
    folder.legwork(RUN).run().assert_code(0).assert_not_printed("changed");
    let record = record(&folder);
    assert_eq!(record.result()["changes"], json!([]));
    assert!(!record.events().iter().any(|event| event["type"] == "workspace_changed"));
}

#[test]
fn all_file_names_survive_the_patch() {
    let folder = TestFolder::new();
    for name in
        ["with space.txt", "tab\tname", "line\nbreak", "quote\"d", "back\\slash", "ünï.txt", "-dash", " lead", "a'b"]
    {
        folder.write(name, "old\n").write(&format!("{name}.gone"), "old\n");
    }
    let (_, changes) = changed_by(
        &folder,
        &[
            "for f in *; do case $f in *.gone) rm -- \"$f\";; job.yaml) ;; *) echo new > \"./$f\"; echo n > \"./$f.new\"; : > \"./$f.e\";; esac; done",
        ],
    );
    assert_eq!(changes.as_array().unwrap().len(), 9 * 4);
}

#[test]
fn line_endings_links_and_file_types_survive_the_patch() {
    let folder = TestFolder::new();
    folder.write("crlf", "a\r\nb\r\nc\r\n").write("noend", "a\nb").write("end", "a\nb\n").write("becomes-link", "x\n");
    folder.write("becomes-folder", "x\n").write("cr", "a\rb\rc\n").write("folder/in", "i\n");
    symlink("crlf", folder.at("link")).unwrap();
    symlink("end", folder.at("becomes-file")).unwrap();
    let (_, changes) = changed_by(
        &folder,
        &[
            "printf 'a\\r\\nB\\r\\nc\\r\\n' > crlf; printf 'a\\nb\\n' > noend; printf 'a\\nb' > end; ln -sf end link",
            "rm becomes-link becomes-file; ln -s crlf becomes-link; echo f > becomes-file; sed -i s/b/B/ cr",
        ],
    );
    assert_eq!(changes.as_array().unwrap().len(), 7, "{changes:#}");
}
