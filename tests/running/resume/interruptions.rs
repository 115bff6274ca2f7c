//! Runs that are killed at a moment that depends on the provider, and how they resume.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::served;
use super::workload::{RESUME, RUN, Workload, assert_not_repeated, effects, journals, lines, started_commands};
use crate::support::journal::with_checksums;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

const EIGHT: &str = "
model: anthropic/claude-haiku-4-5
parent: { prompt: Go., tools: [task] }
subagents: { worker: { tools: [bash] } }
limits: { tokens: 1000000, parallel_subagents: 8 }
";

/// Waits until the parent's journal has this many events of a kind; fails the test after a timeout.
fn wait_for(folder: &TestFolder, kind: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let journals = journals(&folder.at("runs/job/latest"));
        let events = journals.get("events.jsonl").map(|journal| lines(journal)).unwrap_or_default();
        if events.iter().filter(|event| event["type"] == kind).count() >= count {
            return;
        }
        assert!(Instant::now() < deadline, "no {count} {kind} within a minute: {events:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_kill_with_three_of_eight_parallel_calls_done_resumes_with_the_other_five() {
    let folder = TestFolder::new();
    folder.write("job.yaml", EIGHT);
    let resumed = std::sync::Arc::new(AtomicBool::new(false));
    let (goes_on, answered) = (resumed.clone(), AtomicUsize::new(0));
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        let prompt = request.prompt();
        match (prompt.strip_prefix("part "), request.turn()) {
            (None, 0) => {
                let task = |part| ("task", json!({ "description": "a part", "prompt": format!("part {part}") }));
                Answer::calls(&(1..=8).map(task).collect::<Vec<_>>())
            }
            (None, _) => Answer::text("All parts."),
            (Some(part), 0) => Answer::calls(&[("bash", json!({ "command": format!("echo {part} >> log") }))]),
            // The first three results are recorded; the commands of the other calls have already run.
            (Some(part), _) if goes_on.load(Ordering::SeqCst) || answered.fetch_add(1, Ordering::SeqCst) < 3 => {
                Answer::text(&format!("Part {part}."))
            }
            _ => Answer::empty().hang(),
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1 + 8 + 8);
    wait_for(&folder, "call_finished", 3);
    running.signal(Signal::KILL);
    running.wait();
    resumed.store(true, Ordering::SeqCst);
    let ended = folder.legwork(RESUME).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("All parts.\n");
    let mut marks = effects(&folder);
    marks.sort();
    assert_eq!(marks, ["1", "2", "3", "4", "5", "6", "7", "8"]);
    let requests = server.finish();
    assert_eq!(requests.len(), 17 + 5 + 1, "agents with a recorded reply aren't requested again");
    let results = requests.last().unwrap().results();
    let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
    assert_eq!(texts, (1..=8).map(|part| format!("Part {part}.")).collect::<Vec<_>>());
    let children = ended.run_folder().result()["subagents"].as_array().unwrap().clone();
    let turns: Vec<(&Value, &Value)> = children.iter().map(|child| (&child["id"], &child["turns"])).collect();
    let ids = (1..=8).map(|number| json!(format!("worker-{number}"))).collect::<Vec<_>>();
    assert_eq!(turns, ids.iter().map(|id| (id, &children[0]["turns"])).collect::<Vec<_>>());
    assert_eq!(children[0]["turns"], 2);
}

#[test]
fn a_kill_during_a_backoff_retries_immediately() {
    let folder = served("");
    let first = AtomicBool::new(true);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        if first.swap(false, Ordering::SeqCst) {
            Answer::status(529).header("retry-after", "200").error("overloaded_error", "Overloaded")
        } else {
            Answer::text("Now.")
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    wait_for(&folder, "retrying", 1);
    running.signal(Signal::KILL);
    running.wait();
    let ended = folder.legwork(RESUME).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Now.\n");
    assert_eq!(server.finish().len(), 2);
}

/// If the model replies differently after an interruption, the new reply counts, and the recorded replies remain.
#[test]
fn a_provider_that_replies_differently_continues_from_the_record() {
    let folder = served("bash");
    let request_count = AtomicUsize::new(0);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        let calls = |mark: &str| Answer::calls(&[("bash", json!({ "command": format!("echo {mark} >> log") }))]);
        match request_count.fetch_add(1, Ordering::SeqCst) {
            0 => calls("one"),
            1 => calls("never").hang(),
            2 => calls("other").then_call("bash", &json!({ "command": "echo another >> log" })),
            _ => Answer::text("Otherwise."),
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(2);
    running.signal(Signal::KILL);
    running.wait();
    let ended = folder.legwork(RESUME).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Otherwise.\n");
    assert_eq!(effects(&folder), ["one", "other", "another"]);
    assert_eq!(server.finish().len(), 4);
    assert_eq!(ended.run_folder().result()["turns"], 3);
}

/// A run that ends right after its resume reports all earlier work.
#[test]
fn a_run_without_time_left_reports_its_earlier_work() {
    // The kills are after a reply, during the subagents, and later.
    for after in [4, 30, 40, 50] {
        without_time_left(after);
    }
}

fn without_time_left(after: u64) {
    let folder = Workload::short().folder();
    let cut = folder.legwork(RUN).env("LEGWORK_KILL_AFTER", after.to_string()).run();
    assert_eq!(cut.signal(), Some(9));
    let run = cut.run_folder();
    let (known, journal) = (started_commands(&journals(run.path())), run.file("events.jsonl"));
    let children = run.events().iter().filter(|event| !event["data"]["child"].is_null()).count();
    let (long, short) = ("\"wall_clock_ms\":1800000", "\"wall_clock_ms\":1");
    assert!(journal.contains(long) && (children > 0 || after < 30), "{journal}");
    std::fs::write(run.path().join("events.jsonl"), with_checksums(&journal.replace(long, short))).unwrap();
    // The test has changed the journal, so its seal doesn't match.
    let ended = folder.legwork(RESUME).arg("--trust-record").run();
    ended.assert_code(4).assert_stderr_contains("the run's time is up");
    let result = run.result();
    assert_eq!(result["outcome"], "timed_out");
    let replied = run.events().iter().filter(|event| event["type"] == "reply_received").count();
    assert_eq!(result["turns"], replied);
    assert_eq!(result["subagents"].as_array().unwrap().len(), children, "{result}");
    assert!(effects(&folder).iter().all(|effect| known.contains(effect)), "nothing new was begun");
    assert_not_repeated(&folder, "without time left");
}

#[test]
fn a_run_resumes_by_each_of_its_names_and_from_any_folder() {
    let work = Workload::short();
    let cut = || {
        let folder = work.folder();
        let cut = folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "20").run();
        assert_eq!(cut.signal(), Some(9));
        let id = cut.run_folder().id().to_owned();
        (folder, id)
    };
    let (folder, _) = cut();
    work.assert_complete(&folder.legwork(&["resume", "job/latest"]).run(), &folder, "JOB/latest");
    let (folder, id) = cut();
    work.assert_complete(&folder.legwork(&["resume"]).arg(&id).run(), &folder, "its id");
    let (folder, id) = cut();
    folder.write("below/x", "");
    let ended = folder.legwork(&["resume"]).arg(folder.at("runs/job").join(&id)).in_folder("below").run();
    work.assert_complete(&ended, &folder, "its folder, from elsewhere");
}

#[test]
fn a_moved_record_resumes_and_is_protected_at_its_new_location() {
    let folder = served("write_file");
    let write = |path: &str| ("write_file", json!({ "path": path, "content": "x" }));
    let request_count = AtomicUsize::new(0);
    let server =
        Server::with(Checks::AllowRepeats, move |_: &Request| match request_count.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::empty().hang(),
            1 => Answer::calls(&[write("kept/plan.json"), write("kept/new"), write("new"), write("runs/new")]),
            _ => Answer::text("Moved."),
        });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1);
    running.signal(Signal::KILL);
    let cut = running.wait();
    std::fs::rename(cut.run_folder().path(), folder.at("kept")).unwrap();
    folder.legwork(&["resume", "kept"]).anthropic(&server).run().assert_code(0).assert_stdout("Moved.\n");
    let requests = server.finish();
    let failed: Vec<bool> = requests[2].results().iter().map(|result| result.is_error).collect();
    assert_eq!(failed, [true, true, false, false]);
    assert!(folder.read("kept/result.json").contains("\"completed\""));
}

#[test]
fn workspace_and_commit_come_from_the_last_resume() {
    let work = Workload::short();
    let folder = work.folder();
    folder.commit_all();
    let cut = |line: &[&str]| {
        let cut = folder.legwork(line).env("LEGWORK_KILL_AFTER", "14").run();
        assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    };
    cut(RUN);
    let before = effects(&folder);
    folder.write("elsewhere/job.yaml", "");
    cut(&["resume", "latest", "--workspace", "elsewhere"]);
    folder.git(&["commit", "--quiet", "--allow-empty", "--message=more"]);
    folder.legwork(RESUME).run().assert_code(2).assert_stderr_contains("--force");
    cut(&["resume", "latest", "--force"]);
    folder.legwork(RESUME).run().assert_code(0).assert_stdout("All done.\n");
    assert_eq!(effects(&folder), before, "the rest was done elsewhere");
    assert!(folder.read("elsewhere/log").ends_with("four\n"));
    assert_not_repeated(&folder, "elsewhere");
}

/// Temporary journals are kept while the run can resume.
#[test]
fn temporary_journals_are_kept_until_the_run_has_ended() {
    let work = Workload::short().keep("never");
    let folder = work.folder();
    let failed = folder.legwork(RUN).env("LEGWORK_FAIL_ONCE_AT", "90").run();
    failed.assert_code(5);
    let run = failed.run_folder();
    assert!(run.has("result.json") && run.has("subagents/worker-1.events.jsonl"));
    let ended = folder.legwork(RESUME).run();
    work.assert_complete(&ended, &folder, "resumed");
    assert!(!run.has("subagents/worker-1.events.jsonl"));
    folder.legwork(RESUME).run().assert_code(0).assert_stdout("").assert_stderr_contains("has ended: completed");
}

/// A run that is interrupted before it has a plan has done nothing, but `latest` still doesn't select an older run.
#[test]
fn latest_is_the_newest_run_even_if_it_had_not_started() {
    let folder = Workload::short().folder();
    assert_eq!(folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "20").run().signal(), Some(9));
    let before = effects(&folder);
    let second = folder.legwork(RUN).env("LEGWORK_KILL_AT", "1").run();
    assert_eq!(second.signal(), Some(9));
    for name in ["latest", "job/latest"] {
        let ended = folder.legwork(&["resume", name]).run();
        ended
            .assert_code(2)
            .assert_stdout("")
            .assert_stderr_contains("has no plan.json")
            .assert_stderr_contains("start a new run");
    }
    assert_eq!(effects(&folder), before);
}
