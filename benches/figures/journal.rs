//! Measures the cost of the journal: writing an event and flushing it to disk, compared with plain writes of the same
//! size.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use futures_util::FutureExt;
use jiff::Timestamp;
use legwork::event::{CallFinished, Event, PARENT};
use legwork::message::ToolResult;
use legwork::record::{Recorder, new_run_id};

use crate::median;

/// The number of events that a run writes.
const EVENTS: usize = 500;

/// Lengths of a result's text, in characters.
const LENGTHS: [usize; 2] = [100, 10_000];

/// Prints the table of results.
pub(crate) fn compare(runs: usize) {
    // The folder is next to the executable: a temporary folder can be in memory, where a flush costs nothing.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    println!(
        "\nthe journal: microseconds per event, {EVENTS} events per run; plain: write(2) and fdatasync(2) of as many bytes\n"
    );
    println!("| {:<44} | {:<28} | {:<28} |", "", "legwork", "plain");
    println!("|{0:-<46}|{0:-<30}|{0:-<30}|", "");
    for (is_flushed, title) in [(false, "written"), (true, "written and flushed")] {
        for length in LENGTHS {
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            for run in 0..=runs {
                let (each, bytes) = journal(&folder.path().join(format!("runs-{run}")), length, is_flushed);
                ours.push(each);
                plain.push(write(&folder.path().join("plain"), bytes / EVENTS, is_flushed));
            }
            let [ours, plain] = [ours, plain].map(|figures| spread(&figures[1..]));
            println!("| {:<44} | {ours:<28} | {plain:<28} |", format!("{title}, a result of {length} characters"));
        }
    }
}

/// Returns microseconds per event and the number of bytes written.
fn journal(out: &Path, length: usize, is_flushed: bool) -> (f64, usize) {
    let job_dir = out.join("bench");
    let run_id = new_run_id(&job_dir, Timestamp::now());
    let recorder = Recorder::create(out, &job_dir, &run_id, None).expect("a run's folder");
    let result = ToolResult { call_id: "toolu_1".into(), text: "word ".repeat(length / 5), ..ToolResult::default() };
    let event: Event = CallFinished {
        tool: "bash".into(),
        result,
        duration_ms: 3,
        file_version: None,
        no_result: None,
        merged: None,
        proposal: None,
    }
    .into();
    let append = || {
        recorder.append(PARENT, event.clone(), Timestamp::now()).expect("an event");
        if is_flushed {
            recorder.flush(PARENT).now_or_never().expect("it doesn't wait").expect("a flush");
        }
    };
    // The first event creates the file.
    append();
    let begun = Instant::now();
    for _ in 0..EVENTS {
        append();
    }
    let each = begun.elapsed().as_secs_f64() * 1e6 / EVENTS as f64;
    let size = std::fs::metadata(recorder.folder.join("events.jsonl")).expect("the journal").len();
    (each, usize::try_from(size).expect("a size"))
}

/// Writes the same number of bytes without a journal. Returns microseconds per write.
fn write(path: &Path, bytes: usize, is_flushed: bool) -> f64 {
    let mut file = File::create(path).expect("a file");
    let line = vec![b'x'; bytes];
    let begun = Instant::now();
    for _ in 0..EVENTS {
        file.write_all(&line).expect("a line");
        if is_flushed {
            file.sync_data().expect("a flush");
        }
    }
    begun.elapsed().as_secs_f64() * 1e6 / EVENTS as f64
}

fn spread(figures: &[f64]) -> String {
    let (least, greatest) = figures.iter().fold((f64::MAX, 0.0_f64), |(a, b), value| (a.min(*value), b.max(*value)));
    format!("{:.1} ({least:.1} to {greatest:.1})", median(figures.iter().copied()))
}
