//! A process that dies at any point: after any event, during any file operation, and again after a resume.

use super::workload::{RESUME, RUN, Workload, assert_journals_kept, for_each_parallel, journals};
use crate::support::sample;

/// How many points of a long run are tried, unless `LEGWORK_TEST_POINTS` is `all`.
pub(super) const MOST_POINTS: usize = 40;

/// Kills a run after a number of events and, if `again` is set, once more after that many events, then resumes it.
fn cut_and_resume(work: &Workload, order: &str, number: u64, again: Option<u64>) -> bool {
    let folder = work.folder();
    let mut why = format!("{order}={number}");
    let cut = folder.legwork(RUN).env(order, number.to_string()).run();
    if cut.signal().is_none() {
        cut.assert_code(0);
        return false;
    }
    assert_eq!(cut.signal(), Some(9), "{why}: {}", cut.full_output());
    let run = cut.run_folder();
    let mut before = journals(run.path());
    if !before.get("events.jsonl").is_some_and(|journal| journal.contains(&b'\n')) {
        folder.legwork(RESUME).run().assert_code(2).assert_stdout("").assert_stderr_contains("start a new run");
        return true;
    }
    if let Some(again) = again {
        why = format!("{why} and then {again}");
        let cut = folder.legwork(RESUME).env(order, again.to_string()).run();
        assert!(cut.signal() == Some(9) || cut.stderr.contains("completed"), "{why}: {}", cut.full_output());
        assert_journals_kept(&before, run.path(), &why);
        before = journals(run.path());
        if cut.signal().is_none() {
            work.assert_complete(&cut, &folder, &why);
            folder
                .legwork(RESUME)
                .run()
                .assert_code(0)
                .assert_stdout("")
                .assert_stderr_contains("has ended: completed");
            return true;
        }
    }
    let ended = folder.legwork(RESUME).run();
    if run.has("result.json") && ended.stdout.is_empty() {
        // The run was killed after its last operation.
        ended.assert_code(0).assert_stderr_contains("has ended: completed");
        return true;
    }
    assert_journals_kept(&before, run.path(), &why);
    work.assert_complete(&ended, &folder, &why);
    true
}

/// A reproducible pseudo-random number, at least 1.
fn pseudo_random(number: u64, end: u64) -> u64 {
    number.wrapping_mul(2_654_435_761) % end + 1
}

/// The number of file operations of a run, found by killing it.
fn operations(work: &Workload) -> u64 {
    let dies = |at: u64| {
        let ended = work.folder().legwork(RUN).env("LEGWORK_KILL_AT", at.to_string()).run();
        ended.signal() == Some(9)
    };
    let (mut least, mut most) = (1, 2);
    while dies(most) {
        (least, most) = (most, most * 2);
    }
    while least + 1 < most {
        let middle = (least + most) / 2;
        if dies(middle) { least = middle } else { most = middle }
    }
    least
}

#[test]
fn a_run_killed_after_an_event_resumes() {
    let work = Workload::short();
    let events = work.events();
    assert!(events > 60, "{events}");
    for_each_parallel((1..events).step_by(3), |number| {
        let again = (number % 2 == 0).then(|| pseudo_random(number, events - number));
        assert!(cut_and_resume(&work, "LEGWORK_KILL_AFTER", number, again), "{number} of {events}");
    });
}

/// The kills are before, during and between checks, and after their output has been sent back.
#[test]
fn a_run_killed_during_its_checks_resumes() {
    let work = Workload::checked();
    let events = work.events();
    assert!(events > 20, "{events}");
    for_each_parallel(1..events, |number| {
        let again = (number % 3 == 0).then(|| pseudo_random(number, events - number));
        assert!(cut_and_resume(&work, "LEGWORK_KILL_AFTER", number, again), "{number} of {events}");
    });
}

#[test]
fn a_run_killed_during_an_operation_resumes() {
    let work = Workload::short();
    for_each_parallel((1..120).step_by(7), |number| {
        let again = (number % 2 == 0).then(|| pseudo_random(number, 60));
        cut_and_resume(&work, "LEGWORK_KILL_AT", number, again);
    });
}

/// The job deletes journals at the end of the run, and writes result.json.
#[test]
fn a_run_killed_at_its_very_end_resumes() {
    let work = Workload::tiny().keep("never");
    let all = operations(&work);
    for_each_parallel(all - 10..=all, |number| {
        assert!(cut_and_resume(&work, "LEGWORK_KILL_AT", number, None), "{number} of {all}");
    });
    assert!(!cut_and_resume(&work, "LEGWORK_KILL_AT", all + 1, None));
}

#[test]
fn a_resumed_run_can_be_interrupted_repeatedly() {
    let work = Workload::short();
    let folder = work.folder();
    let mut next: &[&str] = RUN;
    for cut in 0..200 {
        let ended = folder.legwork(next).env("LEGWORK_KILL_AFTER", "4").run();
        if ended.signal().is_none() {
            assert!(cut > 10, "it was cut off {cut} times");
            return work.assert_complete(&ended, &folder, "cut off after every fourth event");
        }
        next = RESUME;
    }
    panic!("it never ends");
}

#[test]
#[ignore = "takes a minute: fifty turns, killed after some events and again while it runs; LEGWORK_TEST_POINTS=all after each"]
fn a_long_run_killed_after_any_event_resumes() {
    let work = Workload::long();
    let events = work.events();
    assert!(events > 400, "{events}");
    for_each_parallel(sample(1..events, MOST_POINTS), |number| {
        assert!(cut_and_resume(&work, "LEGWORK_KILL_AFTER", number, Some(pseudo_random(number, events - number))));
    });
}

#[test]
#[ignore = "takes a minute: fifty turns, killed amid some operations and again while it runs; LEGWORK_TEST_POINTS=all amid each"]
fn a_long_run_killed_during_any_operation_resumes() {
    let work = Workload::long();
    let all = operations(&work);
    for_each_parallel(sample(1..=all, MOST_POINTS), |number| {
        assert!(cut_and_resume(&work, "LEGWORK_KILL_AT", number, Some(pseudo_random(number, all))));
    });
}
