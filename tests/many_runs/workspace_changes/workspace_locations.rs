//! Where a workspace can be, what it can contain, and when a run can end.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{RUN, change_lines, changed_by, prepared, record, sh, write_job_with_commands};
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// The reason in the last event that some changes are missing.
fn incomplete(folder: &TestFolder) -> String {
    let events = record(folder).events();
    let changed = events.iter().rev().find(|event| event["type"] == "workspace_changed").expect("a look");
    changed["data"]["incomplete"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn objects_are_found_from_worktrees_and_subfolders() {
    let folder = TestFolder::new();
    folder.write("repo/sub/a.txt", "1\n2\n").write("repo/b.txt", "b\n").write("repo/.gitignore", "*.log\n");
    let git = "git -c user.name=a -c user.email=b -c commit.gpgSign=false";
    let repo = folder.at("repo");
    sh(&format!("cd {0} && git init -q && {git} add -A && {git} commit -qm start", repo.display()));
    sh(&format!("cd {0} && {git} worktree add -q ../tree", repo.display()));
    for place in ["tree/sub", "tree", "repo/sub"] {
        write_job_with_commands(&folder, &["f=$(find . -name a.txt); echo 3 >> $f; echo l > x.log"]);
        let out = folder.home().join("runs").display().to_string();
        let line = ["run", "job.yaml", "--model", "replay/../home/replies.yaml", "--out", &out, "--workspace", place];
        folder.legwork(&line).run().assert_code(0);
        let lines = change_lines(&record(&folder).result()["changes"]);
        assert_eq!(lines.len(), 1, "{place}: {lines:?}");
        assert!(lines[0].ends_with("a.txt modified +1 -0"), "{place}: {lines:?}");
        let start = format!("cd {0} && git checkout -q . && rm -f x.log", folder.at(place).display());
        sh(&start);
    }
}

/// Output files of the run aren't changes, even in the workspace.
#[test]
fn output_files_of_the_run_are_not_changes() {
    let folder = prepared();
    write_job_with_commands(&folder, &["echo 2 >> a.txt", "echo 3 >> a.txt"]);
    let shell = |line: &str| {
        let arguments = RUN.iter().map(|part| format!("'{part}'")).collect::<Vec<_>>().join(" ");
        let program = folder.program("sh", &["-c", line]).env("LEGWORK", env!("CARGO_BIN_EXE_legwork"));
        program.env("RUN", arguments).run()
    };
    let ended = shell("eval \"\\\"$LEGWORK\\\" $RUN --format jsonl > events.jsonl 2>> said.txt\"");
    assert_eq!(change_lines(&record(&folder).result()["changes"]), ["a.txt modified +2 -0"], "{}", ended.full_output());
    let whole = folder.read("events.jsonl").lines().count();
    std::fs::remove_file(folder.at("events.jsonl")).unwrap();
    std::fs::remove_file(folder.at("said.txt")).unwrap();
    let killed = format!(
        "export LEGWORK_KILL_AFTER={}; eval \"\\\"$LEGWORK\\\" $RUN --format jsonl > one.jsonl 2> one.txt\"",
        whole / 2
    );
    assert!(!shell(&killed).exited_with(0));
    let ended = shell("\"$LEGWORK\" resume --out ../home/runs --format jsonl > two.jsonl 2> two.txt");
    ended.assert_code(0);
    assert_eq!(change_lines(&record(&folder).result()["changes"]), ["a.txt modified +2 -0"], "{}", ended.full_output());
    assert!(folder.exists("one.jsonl") && folder.exists("two.txt"));
}

#[test]
fn a_nested_repository_is_part_of_the_workspace() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    let inner = folder.at("vendor/inner");
    std::fs::create_dir_all(&inner).unwrap();
    sh(&format!(
        "cd {} && git init -q && echo 1 > f && git add f && git -c user.name=a -c user.email=b commit -qm x",
        inner.display()
    ));
    let (_, changes) = changed_by(&folder, &["echo 2 >> vendor/inner/f; echo g > vendor/inner/g; echo o > o.txt"]);
    assert_eq!(
        change_lines(&changes),
        ["o.txt added +1 -0", "vendor/inner/f modified +1 -0", "vendor/inner/g added +1 -0"]
    );
}

#[test]
fn tracked_files_count_even_if_ignored() {
    let folder = prepared();
    folder.write("job.yaml", "").write("ignored/kept", "1\n").commit_all();
    folder.git(&["add", "--force", "ignored/kept"]);
    folder.git(&["commit", "--quiet", "--message=more"]);
    let (_, changes) = changed_by(&folder, &["echo 2 >> ignored/kept; echo 2 >> ignored/x; echo 1 > ignored/x"]);
    assert_eq!(change_lines(&changes), ["ignored/kept modified +1 -0"]);
}

#[test]
fn line_endings_in_the_patch_are_those_of_the_workspace() {
    let folder = TestFolder::new();
    folder.write("a.txt", "1\r\n2\r\n3\r\n").write("b.txt", "1\r\n2\r\n").write("job.yaml", "");
    folder.git(&["init", "--quiet"]);
    folder.git(&["config", "core.autocrlf", "true"]);
    folder.git(&["add", "--all"]);
    folder.git(&["commit", "--quiet", "--message=start"]);
    for name in ["a.txt", "b.txt"] {
        std::fs::remove_file(folder.at(name)).unwrap();
    }
    folder.git(&["checkout", "--quiet", "."]);
    std::thread::sleep(Duration::from_millis(20));
    folder.git(&["update-index", "--refresh", "--really-refresh"]);
    let (_, changes) = changed_by(&folder, &["sed -i 's/2/two/' a.txt; touch b.txt"]);
    assert_eq!(change_lines(&changes), ["a.txt modified +1 -1"]);
    assert!(record(&folder).file("changes.patch").contains("\n-2\r\n+two\r\n 3\r\n"));
}

#[test]
fn binary_or_large_files_are_listed_without_content() {
    let folder = prepared();
    folder.write("image", b"\x89PNG\0\x01").write("latin", b"caf\xe9\n").write("large", "x\n".repeat(600_000));
    folder.write("same-image", b"\0\x01");
    let work = "printf '\\0' >> image; printf '\\351' >> latin; echo y >> large; cp same-image t; rm same-image; mv t same-image; echo 4 >> a.txt";
    write_job_with_commands(&folder, &[work]);
    folder.legwork(RUN).run().assert_code(0);
    let lines = change_lines(&record(&folder).result()["changes"]);
    assert_eq!(lines, ["a.txt modified +1 -0", "image modified +? -?", "large modified +? -?", "latin modified +? -?"]);
    let incomplete_note = incomplete(&folder);
    assert!(
        incomplete_note.contains("aren't text, are too large") && incomplete_note.contains("`image`, `large`, `latin`"),
        "{incomplete_note}"
    );
    let patch = record(&folder).file("changes.patch");
    assert!(patch.contains("+4\n") && patch.ends_with(&format!("# {incomplete_note}\n")), "{patch}");
}

#[test]
fn very_many_and_very_long_changes_are_truncated() {
    let folder = TestFolder::new();
    folder.write("list", "");
    write_job_with_commands(
        &folder,
        &["mkdir d; cd d; for i in $(seq 5200); do echo $i > f$i; done", "seq 120000 > a; seq 120000 > b"],
    );
    folder
        .legwork(RUN)
        .run()
        .assert_code(0)
        .assert_stderr_contains("5202 files changed, +")
        .assert_stderr_contains(" in the first 5000, ");
    let result = record(&folder).result();
    assert_eq!((result["changes"].as_array().unwrap().len(), &result["changed_files"]), (5000, &json!(5202)));
    let incomplete_note = incomplete(&folder);
    assert!(
        incomplete_note.contains("5202 files have changed, and only the first 5000 are listed"),
        "{incomplete_note}"
    );
    assert!(
        incomplete_note.contains("too long") && result["changes_incomplete"] == incomplete_note,
        "{incomplete_note}"
    );
    let beside = folder.legwork(&["diff", "latest", "latest", "--out", "../home/runs"]).run();
    beside.assert_code(0).assert_stdout_contains("5202 changed, +");
    assert!(record(&folder).file("changes.patch").len() < 1_100_000);
    assert!(record(&folder).transcript().contains("and 5102 more; result.json lists the first 5000"));
}

#[test]
fn a_killed_run_is_compared_with_its_original_baseline() {
    let folder = prepared();
    folder.write("untracked.txt", "1\n");
    write_job_with_commands(
        &folder,
        &[
            "echo one >> untracked.txt; echo 4 >> a.txt; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)",
            "echo two >> untracked.txt; rm src/gone.txt",
        ],
    );
    let cut = folder.legwork(RUN).args(["--sandbox", "off"]).run();
    assert_eq!(cut.signal(), Some(9));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(record(&folder).path().join("workspace.start")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let out = folder.home().join("runs").display().to_string();
    folder.legwork(&["resume", "latest", "--out", &out, "--sandbox", "off"]).run().assert_code(0);
    let expected = ["a.txt modified +1 -0", "src/gone.txt deleted +0 -1", "untracked.txt modified +2 -0"];
    assert_eq!(change_lines(&record(&folder).result()["changes"]), expected);
    assert!(!record(&folder).has("workspace.start"));
}

#[test]
fn a_lost_or_damaged_baseline_is_reported() {
    for damage in ["rm", "sed -i s/untracked/untrackeD/", "truncate -s 10"] {
        let folder = prepared();
        folder.write("untracked.txt", "1\n");
        write_job_with_commands(
            &folder,
            &["echo one >> untracked.txt; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)", "true"],
        );
        folder.legwork(RUN).args(["--sandbox", "off"]).run();
        sh(&format!("{damage} {}", record(&folder).path().join("workspace.start").display()));
        let out = folder.home().join("runs").display().to_string();
        let resumed = folder.legwork(&["resume", "latest", "--out", &out, "--sandbox", "off"]).run();
        resumed.assert_code(0).assert_stderr_contains("warning: the changes to the workspace are unknown");
        assert_eq!(record(&folder).result()["changes"], Value::Null, "{damage}");
    }
}

#[test]
fn a_run_ended_by_a_signal_records_its_changes_and_resumes() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [bash] }\nlimits: { tokens: 100000 }\n",
    );
    let server = Server::start(|request: &Request| match request.turn() {
        0 => Answer::calls(&[("bash", json!({ "command": "echo 1 > new.txt" }))]),
        _ => Answer::empty().hang(),
    });
    let running = folder.legwork(&["run", "job.yaml", "--out", "../home/runs"]).anthropic(&server).spawn();
    server.wait_for(2);
    running.signal(Signal::TERM);
    running.wait().assert_code(143);
    assert_eq!(change_lines(&record(&folder).result()["changes"]), ["new.txt added +1 -0"]);
    assert!(record(&folder).has("workspace.start"), "it can continue");
    let out = folder.home().join("runs").display().to_string();
    folder
        .legwork(&["show", "latest", "--rebuild", "--out", &out])
        .run()
        .assert_code(0)
        .assert_stdout_contains("unchanged  changes.patch");
    std::fs::remove_file(record(&folder).path().join("changes.patch")).unwrap();
    folder
        .legwork(&["show", "latest", "--rebuild", "--out", &out])
        .run()
        .assert_code(0)
        .assert_stdout_contains("created    changes.patch");
}
