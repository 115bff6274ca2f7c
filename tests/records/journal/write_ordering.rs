//! The start of an effect is on disk before the effect, and its end is written after the effect, for the parent and for
//! subagents.

use serde_json::Value;

use super::{JOB, RUN, journals, latest, prepared};
use crate::support::journal::checked_lines;
use crate::support::test_folder::TestFolder;

/// Each agent with a side effect, and the command that has it.
const SIDE_EFFECTS: [(&str, &str, &str); 3] = [
    ("events.jsonl", "one", "echo one >> log"),
    ("subagents/worker-1.events.jsonl", "a", "echo a >> log"),
    ("subagents/worker-2.events.jsonl", "b", "echo b >> log"),
];

/// The observed failures around one command.
#[derive(Debug, Default)]
struct FailureCounts {
    /// The line before the effect was torn, and there was no effect.
    torn: usize,
    /// The line was complete, its flush failed, and there was no effect.
    unflushed: usize,
    /// The effect happened, and its end couldn't be written.
    without_end: usize,
}

/// The complete lines of a journal, and whether a torn one follows.
fn complete_lines(folder: &TestFolder, name: &str) -> (Vec<Value>, bool) {
    let record = latest(folder);
    if !record.has(name) {
        return (Vec::new(), false);
    }
    let text = record.file(name);
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    (checked_lines(name, &text[..end]), end < text.len())
}

fn count_failures(folder: &TestFolder, shown: &mut [FailureCounts; 3]) {
    let log = if folder.exists("log") { folder.read("log") } else { String::new() };
    for ((name, mark, command), shown) in SIDE_EFFECTS.into_iter().zip(shown) {
        let (lines, torn) = complete_lines(folder, name);
        let intent = lines.iter().find(|line| line["type"] == "call_started" && line["data"]["subject"] == command);
        let id = intent.map(|line| line["data"]["call_id"].clone());
        let has_ended = lines
            .iter()
            .any(|line| line["type"] == "call_finished" && Some(&line["data"]["result"]["call_id"]) == id.as_ref());
        let happened = log.lines().any(|line| line == mark);
        assert!(intent.is_some() || !happened, "{command} ran before it was written down");
        assert!(happened || !has_ended, "{command} was written down as ended before it ran");
        let last = lines.last().map(|line| line["type"].as_str().unwrap_or_default());
        let next = intent.is_none() && matches!(last, Some("reply_received" | "call_started"));
        shown.torn += usize::from(torn && next && !happened);
        shown.unflushed += usize::from(!torn && intent.is_some() && intent == lines.last() && !happened);
        shown.without_end += usize::from(happened && !has_ended);
    }
}

/// Runs with a disk that fails from this operation on. Returns the observed failures and the number of torn tails that
/// were cut off, or `None` if the run has fewer operations.
fn with_failure_at(operation: u64) -> Option<([FailureCounts; 3], usize)> {
    let mut shown: [FailureCounts; 3] = Default::default();
    let folder = prepared();
    // The subagents run one after the other, so the same operation is the same write in every run, and every write
    // fails in some run.
    folder.write("job.yaml", JOB.replace("limits: {", "limits: { parallel_subagents: 1,"));
    let failed = folder.legwork(RUN).env("LEGWORK_FAIL_AT", operation.to_string()).run();
    if failed.stderr.contains("\ncompleted: ") {
        return None;
    }
    failed.assert_code(5);
    if !folder.exists("runs/job/latest/events.jsonl") {
        return Some((shown, 0));
    }
    count_failures(&folder, &mut shown);
    let torn: Vec<String> =
        journals(&latest(&folder)).into_iter().filter(|name| complete_lines(&folder, name).1).collect();
    if torn.is_empty() || complete_lines(&folder, "events.jsonl").0.is_empty() || !operation.is_multiple_of(3) {
        return Some((shown, 0));
    }
    folder.legwork(&["resume", "latest"]).run().assert_code(0);
    for name in &torn {
        assert!(!complete_lines(&folder, name).1, "{name} is still torn after a failure at {operation}");
    }
    Some((shown, torn.len()))
}

#[test]
fn call_starts_are_flushed_before_the_call_and_its_end_is_written_after_it() {
    let threads: Vec<_> = (1..=4)
        .map(|first| std::thread::spawn(move || (first..300).step_by(4).map_while(with_failure_at).collect::<Vec<_>>()))
        .collect();
    let seen: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert!((60..290).contains(&seen.len()), "{} operations", seen.len());
    for (at, (name, ..)) in SIDE_EFFECTS.iter().enumerate() {
        let sum = |count: fn(&FailureCounts) -> usize| seen.iter().map(|(shown, _)| count(&shown[at])).sum::<usize>();
        let sums = [sum(|shown| shown.torn), sum(|shown| shown.unflushed), sum(|shown| shown.without_end)];
        assert!(!sums.contains(&0), "{name}: {sums:?}");
    }
    assert!(seen.iter().map(|(_, torn)| torn).sum::<usize>() > 5);
}
