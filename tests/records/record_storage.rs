//! Folders and disks that don't accept a record: the result is an error or a complete record, never a partial one.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::running::run_failures::assert_complete_record;
use crate::running::runs::folder_with;
use crate::support::program::Program;
use crate::support::record::RunFolder;
use crate::support::report_skipped;
use crate::support::server::{Answer, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "parent:\n  prompt: Go.\n  tools: [bash]\n";
/// A user id without any privileges.
const NOBODY_UID: u32 = 65_534;

/// A job that runs from a script, with a command and two subagents.
fn scripted() -> TestFolder {
    let folder = TestFolder::new();
    let job = "model: replay/r.yaml\nparent: { prompt: Go., tools: [task, bash] }\nsubagents: { a: { tools: [] } }\n";
    let task = |prompt: &str| json!({ "tool": "task", "input": { "prompt": prompt } });
    let script = json!({
        "parent": [
            { "calls": [task("one"), task("two"), { "tool": "bash", "input": { "command": "head -c 9000 /dev/zero | tr '\\0' x" } }] },
            { "text": "Done." },
        ],
        "subagents": { "a-1": [{ "text": "first" }], "a-2": [{ "text": "second" }] },
    });
    folder.write("job.yaml", job).write("r.yaml", script.to_string());
    folder
}

/// The program as a user who isn't root. If that isn't possible, returns `None` and prints a note to stderr.
fn as_unprivileged_user(folder: &TestFolder, arguments: &[&str]) -> Option<Program> {
    let executable = env!("CARGO_BIN_EXE_legwork");
    if !rustix::process::geteuid().is_root() {
        return Some(folder.legwork(arguments));
    }
    for path in [folder.path(), folder.home()] {
        chown(&path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        std::fs::set_permissions(path.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let id = NOBODY_UID.to_string();
    let alone = ["--reuid", &id, "--regid", &id, "--clear-groups", "--", executable];
    if !Command::new("setpriv").args(alone).arg("--version").output().is_ok_and(|ended| ended.status.success()) {
        report_skipped("setpriv can't run the program as somebody else");
        return None;
    }
    Some(folder.program("setpriv", &alone.into_iter().chain(arguments.iter().copied()).collect::<Vec<_>>()))
}

#[test]
fn an_impossible_out_folder_is_rejected_before_anything_is_spent() {
    for (out, why) in [
        ("file", "Not a directory"),
        ("file/below", "Not a directory"),
        ("link-to-file", "Not a directory"),
        ("link-to-nothing", "it is a dangling link"),
        ("link-to-nothing/below", "a symbolic link is in the way"),
        ("/proc/none/such", "No such file or directory"),
    ] {
        let folder = folder_with(JOB);
        folder.write("file", "x");
        symlink("file", folder.at("link-to-file")).unwrap();
        symlink("nothing", folder.at("link-to-nothing")).unwrap();
        let before = folder.list();
        let server = Server::start(ScriptedAgents::of([]));
        let ended = folder.legwork(&["run", "job.yaml", "--out", out]).anthropic(&server).run();
        ended
            .assert_code(5)
            .assert_stdout("")
            .assert_stderr_contains(why)
            .assert_stderr_contains("--out")
            .assert_not_printed("panicked");
        assert_eq!((folder.list(), folder.read("file").as_str()), (before, "x"), "{out}");
        assert_eq!(server.count(), 0);
    }
}

#[test]
fn an_unwritable_out_folder_is_rejected_before_anything_is_spent() {
    for out in ["closed", "closed/below", "job-closed"] {
        let folder = folder_with(JOB);
        for name in ["closed", "job-closed/job"] {
            std::fs::create_dir_all(folder.at(name)).unwrap();
            std::fs::set_permissions(folder.at(name), PermissionsExt::from_mode(0o555)).unwrap();
        }
        let before = folder.list();
        let server = Server::start(ScriptedAgents::of([]));
        let Some(program) = as_unprivileged_user(&folder, &["run", "job.yaml", "--out", out]) else { return };
        let ended = program.anthropic(&server).run();
        ended
            .assert_code(5)
            .assert_stdout("")
            .assert_stderr_contains("Permission denied")
            .assert_stderr_contains("--out");
        assert_eq!(folder.list(), before, "{out}");
        assert_eq!(server.count(), 0);
    }
}

#[test]
fn an_out_folder_behind_a_link_takes_the_record() {
    let folder = scripted();
    std::fs::create_dir(folder.at("elsewhere")).unwrap();
    symlink("elsewhere", folder.at("out")).unwrap();
    folder.legwork(&["run", "job.yaml", "--out", "out"]).run().assert_code(0).assert_stdout("Done.\n");
    let record = RunFolder::new(folder.at("elsewhere/job/latest").canonicalize().unwrap());
    assert_complete_record(&record);
    folder.legwork(&["show", "latest", "--out", "out"]).run().assert_code(0).assert_stdout_contains("# job: completed");
}

#[test]
fn a_file_named_latest_is_preserved() {
    for kind in ["file", "folder"] {
        let folder = folder_with(JOB);
        match kind {
            "file" => folder.write("runs/job/latest", "mine"),
            _ => folder.write("runs/job/latest/mine", "mine"),
        };
        let before = folder.list();
        let server = Server::start(ScriptedAgents::of([]));
        let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
        ended.assert_code(5).assert_stderr_contains("latest").assert_stderr_contains("must be a link");
        assert_eq!(folder.list(), before, "{kind}");
        assert_eq!(server.count(), 0);
    }
    for target in ["nothing", "/", "latest"] {
        let folder = scripted();
        std::fs::create_dir_all(folder.at("runs/job")).unwrap();
        symlink(target, folder.at("runs/job/latest")).unwrap();
        let ended = folder.legwork(&["run", "job.yaml"]).run();
        ended.assert_code(0);
        assert_complete_record(&ended.run_folder());
    }
}

/// Changes the run's folder during the first request. The reply to it then calls a command.
fn run_with_disturbance(with: fn(&std::path::Path)) -> (TestFolder, crate::support::program::ProgramOutput) {
    let folder = folder_with(JOB);
    let latest = folder.at("runs/job/latest");
    let server = Server::start(move |_: &Request| {
        with(&latest.canonicalize().unwrap());
        Answer::calls(&[("bash", json!({"command": "touch ran"}))])
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(5).assert_stdout("").assert_stderr_contains("record").assert_not_printed("panicked");
    assert_eq!(server.count(), 1);
    assert!(!folder.exists("ran"), "nothing happens that the record doesn't hold");
    (folder, ended)
}

#[test]
fn moving_a_record_stops_the_run_and_leaves_the_record_unchanged() {
    let (folder, _) = run_with_disturbance(|run| std::fs::rename(run, run.with_file_name("moved")).unwrap());
    let record = RunFolder::new(folder.at("runs/job/moved"));
    assert!(record.has("plan.json") && !record.has("result.json"));
    assert_eq!(
        record.events().last().unwrap()["type"],
        "request_started",
        "what was written before it was moved is whole"
    );
    assert_eq!(std::fs::read_dir(folder.at("runs/job")).unwrap().count(), 2, "it and the link, and no second one");

    let (folder, _) = run_with_disturbance(|run| {
        std::fs::rename(run, run.with_file_name("moved")).unwrap();
        std::fs::create_dir(run).unwrap();
        std::fs::write(run.join("mine"), "mine").unwrap();
    });
    let other = RunFolder::new(folder.at("runs/job/latest").canonicalize().unwrap());
    assert_eq!(other.files(), ["mine"], "nothing is mixed into another folder");

    let (folder, _) = run_with_disturbance(|run| {
        let runs = run.ancestors().nth(2).unwrap();
        std::fs::rename(runs, runs.with_file_name("archive")).unwrap();
    });
    assert!(!folder.exists("runs"));
}

#[test]
fn deleting_a_journal_stops_the_run() {
    let (_folder, ended) = run_with_disturbance(|run| std::fs::remove_file(run.join("events.jsonl")).unwrap());
    let record = ended.run_folder();
    let result = record.result();
    assert_eq!(result["outcome"], "environment_failed");
    assert!(result["error"]["message"].as_str().unwrap().contains("the journal was deleted"), "{result}");
    assert!(!record.has("events.jsonl"), "half a journal doesn't come up in its place");
}

#[test]
fn eight_parallel_runs_leave_eight_complete_records() {
    let folder = scripted();
    let running: Vec<_> =
        (0..8).map(|_| folder.legwork(&["run", "job.yaml", "--out", "new", "--format", "json"]).spawn()).collect();
    let mut ids: Vec<String> = running
        .into_iter()
        .map(|running| {
            let ended = running.wait();
            ended.assert_code(0);
            ended.json()["run_id"].as_str().unwrap().to_owned()
        })
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8);
    for id in &ids {
        let record = RunFolder::new(folder.at("new/job").join(id));
        assert_complete_record(&record);
        assert_eq!((&record.result()["run_id"], &record.result()["outcome"]), (&json!(id), &json!("completed")));
        assert_eq!(record.events()[0]["data"]["run_id"], json!(id));
        for child in ["a-1", "a-2"] {
            assert_eq!(record.events_of(child).last().unwrap()["type"], "agent_finished");
            assert!(record.summary(child).contains("outcome: completed"));
        }
        assert!(record.events().iter().enumerate().all(|(at, event)| event["seq"] == at + 1));
    }
    let latest = folder.at("new/job/latest").canonicalize().unwrap();
    assert!(ids.contains(&RunFolder::new(latest).id().to_owned()));
    assert_eq!(folder.read("new/.gitignore"), "*\n");
    let mut entries: Vec<String> = std::fs::read_dir(folder.at("new/job"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    entries.sort();
    ids.push("latest".to_owned());
    assert_eq!(entries, ids, "and nothing else");
}

/// Disks of many sizes, from one that accepts nothing to one that accepts everything, and disks with each number of
/// inodes. The process that restores files after a kill ends a moment after the run.
#[test]
fn a_full_disk_at_any_point_leaves_a_complete_record_or_an_error() {
    let folder = scripted();
    std::fs::create_dir(folder.at("disk")).unwrap();
    let program = env!("CARGO_BIN_EXE_legwork");
    let script = format!(
        "set -e; mount -t tmpfs -o size=1m none disk; umount disk; touch mounted; set +e; \
         for room in $(seq -f size=%gk,nr_inodes=999 4 8 196) $(seq -f size=9m,nr_inodes=%g 1 20) size=9m; do \
           mount -t tmpfs -o $room none disk || exit 9; \
           {program} run job.yaml --out disk/runs >out 2>err; \
           code=$?; to=kept/$room; mkdir -p $to; echo $code >$to/code; cp err $to/err; cp out $to/out; \
           cp -r disk/runs/job/latest/. $to/record 2>/dev/null; \
           for wait in $(seq 300); do umount disk 2>umount-error && continue 2; sleep 0.1; done; \
           cat umount-error >&2; exit 9; \
         done"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-rm", "bash", "-c", &script]).current_dir(folder.path()).env_clear();
    let output = unshare.env("PATH", std::env::var_os("PATH").unwrap()).output();
    if !folder.exists("mounted") {
        report_skipped("no file system can be mounted here");
        return;
    }
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut failed, mut completed, mut with_result) = (0, 0, 0);
    for kept in std::fs::read_dir(folder.at("kept")).unwrap() {
        let kept = kept.unwrap().path();
        let text = |name: &str| std::fs::read_to_string(kept.join(name)).unwrap();
        let (code, out, err) = (text("code"), text("out"), text("err"));
        let record = RunFolder::new(kept.join("record"));
        let result: Option<Value> = record.has("result.json").then(|| record.result());
        assert!(!err.contains("panicked"), "{kept:?}: {err}");
        match code.trim() {
            "0" => {
                completed += 1;
                assert_complete_record(&record);
                assert_eq!(out, "Done.\n");
                assert_eq!(result.unwrap()["outcome"], "completed", "{kept:?}");
                for child in ["a-1", "a-2"] {
                    assert!(record.summary(child).contains("outcome: completed"), "{kept:?}");
                }
            }
            "5" => {
                failed += 1;
                assert!(err.contains("No space left"), "{kept:?}: {err}");
                // Before it starts, a run can use another folder. Later it can only continue in the same folder.
                let has_begun = record.has("events.jsonl");
                let advice = if has_begun { "then resume the run: legwork resume" } else { "--out" };
                assert!(err.contains(advice), "{kept:?}: {err}");
                assert!(has_begun || !record.has("plan.json"), "{kept:?}: an empty record stays");
                if let Some(result) = result {
                    with_result += 1;
                    assert_eq!(result["outcome"], "environment_failed", "{kept:?}");
                    assert_eq!(result["exit_code"], 5, "{kept:?}");
                }
            }
            other => panic!("{kept:?}: exit code {other}\n{err}"),
        }
    }
    assert!(failed > 20 && completed > 2 && with_result > 0, "{failed} failed, {completed} completed, {with_result}");
}
