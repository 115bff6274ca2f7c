//! Records built to attack their readers.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::support::journal::with_checksums;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/r.yaml\nparent: { prompt: Go., tools: [task] }\nsubagents: { a: { tools: [] } }\n";

/// A finished run with one subagent.
fn ended() -> TestFolder {
    let folder = TestFolder::new();
    let script = json!({
        "parent": [{ "calls": [{ "tool": "task", "input": { "prompt": "one" } }] }, { "text": "Done." }],
        "subagents": { "a-1": [{ "text": "first" }] },
    });
    folder.write("job.yaml", JOB).write("r.yaml", script.to_string());
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    folder
}

const READING_COMMANDS: [&[&str]; 6] = [
    &["show", "latest"],
    &["show", "latest", "--rebuild"],
    &["resume", "latest"],
    &["replay", "latest"],
    &["diff", "latest", "latest"],
    &["run", "job.yaml", "--out", "elsewhere", "--model", "replay/runs/job/latest"],
];

#[test]
fn only_regular_files_are_opened() {
    type Make = fn(&std::path::Path);
    let kinds: [(&str, Make); 3] = [
        ("a FIFO", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("a device", |path| symlink("/dev/zero", path).unwrap()),
        ("a link", |path| symlink("job.yaml", path).unwrap()),
    ];
    for (kind, make) in kinds {
        let folder = ended();
        let journal = folder.at("runs/job/latest/events.jsonl");
        std::fs::remove_file(&journal).unwrap();
        make(&journal);
        for reader in READING_COMMANDS {
            let refused = folder.legwork(reader).timeout(Duration::from_secs(180)).run();
            // The plan is still there, and shows what was to run.
            refused.assert_code(if reader == ["show", "latest"] { 0 } else { 2 });
            refused.assert_not_printed("panicked").assert_stderr_contains("isn't a regular file");
            assert!(!folder.exists("elsewhere"), "{kind}: {reader:?}");
        }
    }
}

#[test]
fn an_id_that_is_a_path_is_refused() {
    let folder = ended();
    let path = folder.at("runs/job/latest/events.jsonl");
    std::fs::remove_file(folder.at("runs/job/latest/result.json")).unwrap();
    let journal = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, with_checksums(&journal.replace("a-1", "../../../../evil-1"))).unwrap();
    for reader in READING_COMMANDS {
        let refused = folder.legwork(reader).run();
        refused.assert_not_printed("panicked").assert_stderr_contains("is not an agent's id");
        // These commands list the existing runs.
        let shows = reader == ["show", "latest"] || reader[0] == "diff";
        assert!(shows || !refused.exited_with(0), "{reader:?}");
    }
    assert!(!folder.at("../evil-1.md").exists() && !folder.exists("evil-1.md"));
}

#[test]
fn a_link_named_subagents_is_not_followed() {
    let folder = ended();
    let (record, outside) = (folder.at("runs/job/latest"), folder.at("outside"));
    std::fs::remove_dir_all(record.join("subagents")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    symlink(&outside, record.join("subagents")).unwrap();
    folder.allow_forged_records();
    folder.legwork(&["show", "latest", "--rebuild"]).run().assert_stderr_contains("is not a folder");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_committed_link_does_not_redirect_records_jobs_or_cases() {
    let folder = ended();
    let outside = folder.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::remove_dir_all(folder.at("runs")).unwrap();
    for (link, command) in [
        ("runs", &["run", "job.yaml"][..]),
        ("runs/job", &["run", "job.yaml"]),
        ("jobs", &["init"]),
        ("tests", &["run", "job.yaml", "--save-case", "good"]),
        ("tests/job", &["run", "job.yaml", "--save-case", "good"]),
    ] {
        if let Some((parent, _)) = link.split_once('/') {
            std::fs::create_dir_all(folder.at(parent)).unwrap();
        }
        symlink(&outside, folder.at(link)).unwrap();
        folder
            .legwork(command)
            .run()
            .assert_code(2)
            .assert_stderr_contains("is a symbolic link to")
            .assert_stderr_contains("outside");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{link}");
        std::fs::remove_file(folder.at(link)).unwrap();
        let _ = std::fs::remove_dir_all(folder.at("runs"));
    }
    // A dangling link would create a file elsewhere.
    std::fs::create_dir_all(folder.at("runs")).unwrap();
    symlink(outside.join("ignore"), folder.at("runs/.gitignore")).unwrap();
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    std::fs::create_dir_all(folder.at("jobs")).unwrap();
    symlink(outside.join("schema"), folder.at("jobs/job.schema.json")).unwrap();
    folder.legwork(&["init"]).run().assert_code(2);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}
