//! `legwork runs prune`: removes the records of runs that have ended.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::json;

use crate::support::journal::with_checksums;
use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

/// Writes the record of a run that ended at the beginning of a day of 2026.
fn record(folder: &TestFolder, path: &str, day: &str, outcome: &str, code: u8) {
    folder.allow_forged_records();
    let id = path.rsplit('/').next().unwrap();
    let result = json!({
        "format": 2, "run_id": id, "job": "job", "outcome": outcome, "exit_code": code, "text": "", "result": null,
        "error": null, "started_at": format!("2026-{day}T00:00:00Z"), "finished_at": format!("2026-{day}T00:00:01Z"),
        "duration_ms": 1000, "turns": 1, "tool_calls": 0,
        "usage": { "input_tokens": 1, "output_tokens": 1, "cache_read_tokens": 0, "cache_write_tokens": 0 },
        "cost_usd": 0.5, "model": "a/b", "sandbox": "off", "subagents": [], "checks": [], "changes": null,
    });
    folder.write(&format!("runs/{path}/result.json"), result.to_string());
    folder.write(&format!("runs/{path}/subagents/a-1.md"), "x".repeat(10_000));
}

/// Records of the job `job`, one for each day of January from the first on, and one of another job.
fn five_records() -> TestFolder {
    let folder = TestFolder::new();
    for day in 1..=5 {
        record(&folder, &format!("job/2026010{day}-000000-aaaaaa"), &format!("01-0{day}"), "completed", 0);
    }
    record(&folder, "other/20260101-000000-bbbbbb", "01-01", "stuck", 4);
    symlink("20260105-000000-aaaaaa", folder.at("runs/job/latest")).unwrap();
    folder
}

fn prune(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    folder.legwork(&["runs", "prune"]).args(arguments).run()
}

/// The folders below those of the jobs, hidden ones included.
fn left(folder: &TestFolder) -> Vec<String> {
    let mut names = Vec::new();
    for job in fs::read_dir(folder.at("runs")).unwrap().flatten().filter(|job| job.file_type().unwrap().is_dir()) {
        for run in fs::read_dir(job.path()).unwrap().flatten().filter(|run| run.file_type().unwrap().is_dir()) {
            names.push(format!("{}/{}", job.file_name().display(), run.file_name().display()));
        }
    }
    names.sort();
    names
}

#[test]
fn the_newest_of_each_job_are_kept() {
    let folder = five_records();
    let before = left(&folder);
    let dry = prune(&folder, &["--keep", "2", "--dry-run"]);
    dry.assert_code(0).assert_stdout_contains("would remove job/20260103-000000-aaaaaa (completed, 2026-01-03, ");
    dry.assert_stderr_contains("would remove 3 records, ").assert_not_printed("removed ");
    assert_eq!(left(&folder), before);
    let pruned = prune(&folder, &["--keep", "2"]);
    pruned.assert_code(0).assert_stderr_contains("removed 3 records, ").assert_stderr_contains(" kB\n");
    pruned.assert_stderr_contains("kept 3 records, among the newest of their job\n");
    assert_eq!(pruned.stdout.lines().count(), 3);
    assert_eq!(
        left(&folder),
        ["job/20260104-000000-aaaaaa", "job/20260105-000000-aaaaaa", "other/20260101-000000-bbbbbb"]
    );
    assert_eq!(prune(&folder, &["--keep", "2"]).assert_code(0).stdout, "");
}

#[test]
fn age_and_count_must_both_allow_a_removal() {
    let folder = five_records();
    // All are older than a day, and one of each job is kept.
    prune(&folder, &["--older-than", "1d", "--keep", "4", "--job", "job"]).assert_code(0);
    assert_eq!(left(&folder).len(), 5);
    let now = jiff::Timestamp::now().strftime("%m-%d").to_string();
    record(&folder, "job/new", &now, "completed", 0);
    record(&folder, "job/newer", "12-31", "completed", 0);
    prune(&folder, &["--older-than", "30d"]).assert_code(0).assert_stderr_contains("kept 2 records, not old enough");
    assert_eq!(left(&folder), ["job/new", "job/newer"]);
    // The newest that is left is the latest again.
    let latest = fs::read_link(folder.at("runs/job/latest")).unwrap();
    assert_eq!(latest.to_str(), Some("newer"));
    prune(&folder, &["--keep", "0"]).assert_code(0);
    assert!(fs::symlink_metadata(folder.at("runs/job/latest")).is_err(), "no run is left");
    assert_eq!(left(&folder), Vec::<String>::new());
    for wrong in [&[][..], &["--older-than", "0d"], &["--older-than", "month"], &["--keep", "-1"]] {
        prune(&folder, wrong).assert_code(2);
    }
}

#[test]
fn what_can_go_on_is_kept_unless_it_is_named() {
    let folder = TestFolder::new();
    record(&folder, "job/interrupted", "01-01", "interrupted", 130);
    record(&folder, "job/unreachable", "01-02", "provider_failed", 75);
    record(&folder, "job/limit", "01-03", "turn_limit", 4);
    prune(&folder, &["--keep", "0"])
        .assert_code(0)
        .assert_stderr_contains("kept 2 records, can be resumed")
        .assert_stderr_contains("job/unreachable, job/interrupted");
    assert_eq!(left(&folder), ["job/interrupted", "job/unreachable"]);
    prune(&folder, &["--keep", "0", "--include-resumable"]).assert_code(0);
    assert_eq!(left(&folder), Vec::<String>::new());
}

#[test]
fn nothing_outside_of_the_records_is_touched() {
    let folder = five_records();
    record(&folder, "../precious/20260101-000000-cccccc", "01-01", "completed", 0);
    folder.write("precious/note", "mine");
    symlink(folder.at("precious"), folder.at("runs/linked-job")).unwrap();
    symlink(folder.at("precious/20260101-000000-cccccc"), folder.at("runs/job/linked-run")).unwrap();
    symlink(folder.at("precious"), folder.at("runs/job/20260101-000000-aaaaaa/inside")).unwrap();
    // What a map's own file names isn't removed either.
    record(&folder, "job/m/rows/one", "01-01", "completed", 0);
    let manifest = json!({
        "format": 1, "job": "job", "rows_file": "r.csv", "isolation": "copy",
        "snapshot": { "kind": "copy", "folder": folder.at("precious") }, "started_at": "2026-01-01T00:00:00Z",
    });
    folder.write("runs/job/m/map.json", manifest.to_string());
    fs::create_dir_all(folder.at("runs/.workspaces")).unwrap();
    symlink(folder.at("precious"), folder.at("runs/.workspaces/job")).unwrap();
    fs::create_dir_all(folder.at("precious/m")).unwrap();
    folder.write("runs/job/notes.txt", "kept").write("runs/job/notes/todo", "kept");
    prune(&folder, &["--keep", "0"]).assert_code(0).assert_stderr_contains("removed 7 records");
    assert_eq!(left(&folder), ["job/notes"]);
    assert_eq!(folder.read("precious/note"), "mine");
    assert!(folder.exists("precious/20260101-000000-cccccc/result.json") && folder.exists("precious/m"));
    assert!(folder.exists("runs/job/notes.txt") && folder.exists("runs/job/linked-run/result.json"));
}

#[test]
fn what_git_tracks_is_kept() {
    let folder = TestFolder::new();
    record(&folder, "job/20260101-000000-aaaaaa", "01-01", "completed", 0);
    folder.commit_all();
    record(&folder, "job/20260102-000000-bbbbbb", "01-02", "completed", 0);
    prune(&folder, &["--keep", "0"])
        .assert_code(0)
        .assert_stderr_contains("kept 1 record, tracked by git: job/20260101-000000-aaaaaa");
    assert_eq!(left(&folder), ["job/20260101-000000-aaaaaa"]);
    assert!(fs::symlink_metadata(folder.at("runs/job/latest")).is_err());
    record(&folder, "job/20260102-000000-bbbbbb", "01-02", "completed", 0);
    folder.write(".git/index", "damaged");
    prune(&folder, &["--keep", "0"]).assert_code(2).assert_stderr_contains("can't be read");
    assert_eq!(left(&folder).len(), 2);
}

#[test]
fn what_a_killed_process_has_left_is_deleted() {
    let folder = five_records();
    fs::rename(folder.at("runs/job/20260101-000000-aaaaaa"), folder.at("runs/job/.removed-20260101-000000-aaaaaa"))
        .unwrap();
    fs::remove_file(folder.at("runs/job/.removed-20260101-000000-aaaaaa/result.json")).unwrap();
    let list = folder.legwork(&["runs"]).run();
    list.assert_code(0).assert_not_printed("20260101-000000-aaaaaa");
    let dry = prune(&folder, &["--keep", "9", "--dry-run"]);
    dry.assert_code(0);
    assert!(folder.exists("runs/job/.removed-20260101-000000-aaaaaa"));
    // It was killed before it had changed the link.
    fs::remove_file(folder.at("runs/job/latest")).unwrap();
    symlink("20260101-000000-aaaaaa", folder.at("runs/job/latest")).unwrap();
    prune(&folder, &["--keep", "9"]).assert_code(0).assert_stderr_contains("removed 0 records, ");
    assert_eq!(left(&folder).len(), 5);
    assert_eq!(fs::read_link(folder.at("runs/job/latest")).unwrap().to_str(), Some("20260105-000000-aaaaaa"));
}

#[test]
fn a_run_that_would_take_a_removal_for_an_attack_is_waited_for() {
    let folder = five_records();
    folder.write("job.yaml", "model: replay/r.yaml\nparent: { prompt: Go., tools: [] }\n");
    folder.write("r.yaml", "parent: [{ text: Done. }]\n");
    folder.legwork(&["run", "job.yaml", "--key", "k"]).run().assert_code(0);
    fs::remove_file(folder.at("runs/job/k/result.json")).unwrap();
    let journal = folder.read("runs/job/k/events.jsonl");
    let started = |sandbox: &str| {
        let line = journal.lines().next().unwrap();
        with_checksums(&format!("{line}\n").replacen(
            "\"sandbox\":\"unused\"",
            &format!("\"sandbox\":\"{sandbox}\""),
            1,
        ))
    };
    folder.write("runs/job/k/events.jsonl", started("landlock"));
    let locked = fs::File::open(folder.at("runs/job/k")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    let refused = prune(&folder, &["--keep", "0"]);
    refused.assert_code(2).assert_stderr_contains("job/k is running without bubblewrap");
    assert_eq!(left(&folder).len(), 7);
    folder.write("runs/job/k/events.jsonl", started("bubblewrap"));
    prune(&folder, &["--keep", "0"]).assert_code(0).assert_stderr_contains("in use: job/k");
    assert_eq!(left(&folder), ["job/k"]);
}

#[test]
fn a_map_is_removed_with_its_workspaces_or_not_at_all() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [write_file] }\n",
    );
    folder.write("rows.csv", "item\ngood\nbad\n").write(".gitignore", "runs\n").commit_all();
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.prompt().contains("bad") {
        true => Answer::status(400).error("invalid_request_error", "no credit"),
        false => Answer::text("Done."),
    });
    let map = ["map", "job.yaml", "--rows", "rows.csv", "--id", "item", "--jobs", "1", "--isolate", "worktree"];
    let mapped = folder.legwork(&map).anthropic(&server).run();
    mapped.assert_code(5).assert_stderr_contains("2 rows: 1 completed, 1 provider_rejected");
    assert!(folder.exists("runs/.workspaces/job/map-rows/bad"));
    assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 2);
    let list = folder.legwork(&["runs"]).run();
    list.assert_code(0).assert_stdout_contains("1 completed, 1 provider_rejected");
    prune(&folder, &["--keep", "0"]).assert_code(0).assert_stderr_contains("can be resumed");
    assert!(folder.exists("runs/job/map-rows/rows/good/result.json"));
    let pruned = prune(&folder, &["--keep", "0", "--include-resumable"]);
    pruned.assert_code(0).assert_stdout_contains("removed job/map-rows (mixed, ").assert_stdout_contains(", 2 rows, ");
    assert_eq!(left(&folder), Vec::<String>::new());
    assert!(!folder.exists("runs/.workspaces"), "{:?}", folder.list());
    assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_map_that_goes_on_is_kept() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [] }\n",
    );
    folder.write("rows.csv", "item\nfirst\nsecond\n");
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.prompt().contains("first") {
        true => Answer::text("Done."),
        false => Answer::empty().hang(),
    });
    let map = ["map", "job.yaml", "--rows", "rows.csv", "--id", "item", "--jobs", "1"];
    let running = folder.legwork(&map).anthropic(&server).spawn();
    server.wait_for(2);
    // The second row starts while the first one's record is still being written.
    folder.wait_for("runs/job/map-rows/rows/first/result.json");
    let list = folder.legwork(&["runs", "--outcome", "running"]).run();
    list.assert_code(0).assert_stdout_contains("1 completed, 1 running");
    prune(&folder, &["--keep", "0", "--include-resumable"])
        .assert_code(0)
        .assert_stderr_contains("in use: job/map-rows");
    assert!(running.is_alive() && folder.exists("runs/job/map-rows/rows/first/result.json"));
    running.signal(Signal::TERM);
    running.wait();
}
