//! A disk that fails under the journal, once or from a certain operation on.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::json;

use super::workload::{
    DONE, RESUME, RUN, Workload, assert_journals_kept, assert_not_repeated, for_each_parallel, journals,
};
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// Makes the disk fail, and resumes the run when the disk works again. Returns whether anything failed.
fn fail_and_resume(work: &Workload, order: &str, number: u64) -> bool {
    let folder = work.folder();
    let why = format!("{order}={number}");
    let failed = folder.legwork(RUN).env(order, number.to_string()).run();
    assert_not_repeated(&folder, &why);
    if !folder.exists("runs/job/latest") {
        failed.assert_code(5).assert_stderr_contains("Free some disk space, then repeat the command");
        assert!(!folder.list().iter().any(|name| name.ends_with(".jsonl")), "{why}: half a record stays");
        folder.legwork(RESUME).run().assert_code(2).assert_stdout("").assert_stderr_contains("no runs");
        return true;
    }
    let run = failed.run_folder();
    if failed.stdout == DONE && run.has("result.json") && run.result()["outcome"] == "completed" {
        work.assert_complete(&failed, &folder, &why);
        folder.legwork(RESUME).run().assert_code(0).assert_stdout("").assert_stderr_contains("has ended: completed");
        return false;
    }
    failed.assert_code(5);
    assert!(failed.stderr.contains("storage") || failed.stderr.contains("space"), "{why}\n{}", failed.full_output());
    if run.has("result.json") {
        assert_eq!(run.result()["outcome"], "environment_failed", "{why}");
    }
    let before = journals(run.path());
    let resumed = folder.legwork(RESUME).run();
    if before.get("events.jsonl").is_some_and(|journal| journal.contains(&b'\n')) {
        assert_journals_kept(&before, run.path(), &why);
        work.assert_complete(&resumed, &folder, &why);
    } else {
        resumed.assert_code(2).assert_stdout("").assert_stderr_contains("start a new run");
    }
    true
}

#[test]
fn a_disk_that_keeps_failing_loses_nothing() {
    let work = Workload::short();
    for_each_parallel((1..100).step_by(8), |number| {
        assert!(fail_and_resume(&work, "LEGWORK_FAIL_AT", number), "only {number} operations");
    });
}

#[test]
fn a_disk_that_fails_once_loses_nothing() {
    let work = Workload::short();
    for_each_parallel((5..200).step_by(13), |number| {
        fail_and_resume(&work, "LEGWORK_FAIL_ONCE_AT", number);
    });
}

/// Fails each operation in turn, up to the first number at which nothing fails.
fn for_each_failure_point(order: &str) {
    let work = Workload::long();
    let first = std::sync::atomic::AtomicU64::new(u64::MAX);
    for_each_parallel(1..5_000, |number| {
        use std::sync::atomic::Ordering::SeqCst;
        if number <= first.load(SeqCst) && !fail_and_resume(&work, order, number) {
            first.fetch_min(number, SeqCst);
        }
    });
    let first = first.into_inner();
    assert!((500..5_000).contains(&first), "{first} operations");
}

#[test]
#[ignore = "takes minutes: fifty turns, with a disk that fails from each operation on"]
fn a_disk_that_keeps_failing_from_any_operation_loses_nothing_of_a_long_run() {
    for_each_failure_point("LEGWORK_FAIL_AT");
}

#[test]
#[ignore = "takes minutes: fifty turns, with a disk that fails once, at each operation"]
fn a_disk_that_fails_once_at_any_operation_loses_nothing_of_a_long_run() {
    for_each_failure_point("LEGWORK_FAIL_ONCE_AT");
}

/// The failure stops the run, even while another agent waits much longer for its provider.
#[test]
fn a_failing_journal_stops_parallel_agents() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [task] }\n\
         subagents: { worker: { tools: [bash] } }\nlimits: { tokens: 100000 }\n",
    );
    let task = |prompt: &str| ("task", json!({ "description": prompt, "prompt": prompt }));
    let (begun, heard) = channel();
    let heard = Mutex::new(heard);
    let server = Server::start(move |request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Go.", _) => Answer::calls(&[task("break"), task("wait")]),
        ("wait", _) => {
            begun.send(()).unwrap();
            Answer::empty().hang()
        }
        (_, 0) => {
            heard.lock().unwrap().recv().unwrap();
            Answer::calls(&[("bash", json!({ "command": "rm runs/job/latest/events.jsonl" }))])
        }
        _ => Answer::text("Broken."),
    });
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    ended.assert_code(5).assert_stderr_contains("the journal was deleted");
    assert_eq!(ended.run_folder().result()["outcome"], "environment_failed");
}
