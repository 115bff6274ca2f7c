//! What a list of many records needs of one: from `result.json`, or else from the first and the last line of the journal.
//! Nothing is verified here, and no more is read than that.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::files::{PLAN_FILE, open_file};
use super::lease::{LEASE_FILE, SeenLease};
use super::lock::is_locked;
use super::lookup::is_timestamp;
use super::run_row::{RowKind, RunRow, RunStatus};
use super::state::{LOST_START, MAX_FIRST_LINE_BYTES, RecordedEnd, has_lost_start, read_end};
use crate::error::{other_format, reader_of};
use crate::event::{FORMAT, Outcome, PARENT, Resumed, running_time};
use crate::journal::journal_file;

/// The largest journal that is read for the running time, in bytes.
const MAX_TIMED_BYTES: u64 = 64 << 20;
/// How much of the journal's end is searched for its last line, in bytes.
const MAX_TAIL_BYTES: u64 = 64 << 10;
/// The largest journal that is opened, in bytes.
const MAX_JOURNAL_BYTES: u64 = 1 << 40;

/// What is known about one record.
#[derive(Debug)]
pub struct Overview {
    /// Its line in a table. The job, the name and the path aren't set.
    pub row: RunRow,
    /// The lease that a process on another machine has or had. If it keeps counting, the run is still running.
    pub remote: Option<SeenLease>,
    /// How commands are confined, of a run that is running.
    pub sandbox: Option<String>,
}

/// A line of the journal.
#[derive(Deserialize)]
struct Line<'a> {
    at: Timestamp,
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The fields of a run's first event that a table shows.
#[derive(Deserialize)]
struct StartFields {
    format: u64,
    version: Option<String>,
    #[serde(default)]
    run_id: String,
    #[serde(default)]
    sandbox: String,
}

/// The fields of a run's last event.
#[derive(Deserialize)]
struct EndFields {
    outcome: Outcome,
    exit_code: u8,
}

/// The first line of a journal.
enum FirstLine {
    /// There is none, or it is incomplete.
    Missing,
    Started(Timestamp, StartFields),
    Invalid(String),
}

/// Reads what a table shows of a record. `None` if the folder isn't one. With `is_own`, this process itself holds the folder's
/// lock.
pub fn read_overview(folder: &Path, is_own: bool) -> Option<Overview> {
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let end = match read_end(folder) {
        Ok(end) => end,
        Err(format) => return Some(Overview::of(in_other_format(format, None))),
    };
    let defect = match &end {
        RecordedEnd::Journal(_, why) | RecordedEnd::Open(Some(why)) => Some(why.clone()),
        RecordedEnd::Result(_) => has_lost_start(folder).then(|| LOST_START.to_owned()),
        RecordedEnd::Open(None) => None,
    };
    let ended = ended_row(end, defect.clone());
    let has_lease = fs::symlink_metadata(folder.join(LEASE_FILE)).is_ok();
    if let Some(row) = ended.as_ref().filter(|_| !has_lease) {
        return Some(Overview::of(row.clone()));
    }
    let lease = SeenLease::of(folder);
    let is_running = !is_own && is_locked(folder);
    let first = first_line(folder);
    let mut row = match (&ended, &first) {
        (Some(_), _) => RunRow::new(RowKind::Run, RunStatus::Interrupted),
        (_, FirstLine::Started(_, start)) if start.format != u64::from(FORMAT) => {
            return Some(Overview::of(in_other_format(start.format, start.version.as_deref())));
        }
        (_, FirstLine::Invalid(why)) => return Some(Overview::of(damaged(why.clone()))),
        (_, FirstLine::Missing) if defect.is_some() => {
            return Some(Overview::of(damaged(defect.unwrap_or_default())));
        }
        (_, FirstLine::Missing) if has_traces(folder) || is_timestamp(&name) || is_running => {
            RunRow::new(RowKind::Run, RunStatus::NotStarted)
        }
        (_, FirstLine::Missing) => return None,
        (_, FirstLine::Started(..)) => RunRow::new(RowKind::Run, RunStatus::Interrupted),
    };
    let mut sandbox = None;
    if let FirstLine::Started(at, start) = first {
        row.started_at = Some(at);
        row.run_id = start.run_id;
        sandbox = Some(start.sandbox);
    }
    if is_running {
        row.status = RunStatus::Running;
        (row.ended_at, row.duration_ms) = running_time_of(folder, None).unzip();
        return Some(Overview { row, remote: None, sandbox });
    }
    // A process that ended its run may just have been killed before it removed the lease.
    if let Some(row) = ended {
        let remote = lease.filter(|lease| !lease.is_local());
        return Some(Overview { row, remote, sandbox });
    }
    if row.status == RunStatus::Interrupted {
        let last = last_line(folder);
        match last.as_ref().and_then(|(_, end)| end.as_ref()) {
            Some(end) => {
                row.status = RunStatus::Ended(end.outcome);
                row.exit_code = Some(end.exit_code);
                row.defect = Some("result.json is missing; `legwork show RUN --rebuild` writes it again".to_owned());
            }
            None => {
                row.is_resumable = true;
                row.defect = defect;
            }
        }
        row.error.clone_from(&row.defect);
        let last_alive = lease.as_ref().and_then(SeenLease::last_alive);
        row.ended_at = last.as_ref().map(|(at, _)| *at).or(last_alive);
        let last_alive = last_alive.filter(|_| row.exit_code.is_none());
        row.duration_ms = running_time_of(folder, last_alive).map(|(_, duration)| duration);
    }
    Some(Overview { row, remote: lease.filter(|lease| !lease.is_local()), sandbox })
}

impl Overview {
    fn of(row: RunRow) -> Self {
        Self { row, remote: None, sandbox: None }
    }
}

/// Whether a folder has a file that a run writes before its first event.
fn has_traces(folder: &Path) -> bool {
    [PLAN_FILE, "events.jsonl"].iter().any(|name| folder.join(name).is_file())
}

/// The line of a run that has ended.
fn ended_row(end: RecordedEnd, defect: Option<String>) -> Option<RunRow> {
    let (RecordedEnd::Result(result) | RecordedEnd::Journal(result, _)) = end else { return None };
    let fields = *result;
    Some(RunRow {
        run_id: fields.run_id,
        exit_code: Some(fields.exit_code),
        error: defect.clone().or_else(|| fields.error.map(|error| error.message)),
        defect,
        started_at: Some(fields.started_at),
        ended_at: Some(fields.finished_at),
        duration_ms: Some(fields.duration_ms),
        turns: Some(u64::from(fields.turns)),
        tool_calls: Some(fields.tool_calls),
        usage: Some(fields.usage),
        cost_usd: fields.cost_usd,
        model: Some(fields.model),
        is_resumable: fields.outcome.can_be_resumed(),
        ..RunRow::new(RowKind::Run, RunStatus::Ended(fields.outcome))
    })
}

fn damaged(why: String) -> RunRow {
    RunRow { error: Some(why.clone()), defect: Some(why), ..RunRow::new(RowKind::Run, RunStatus::Damaged) }
}

fn in_other_format(format: u64, version: Option<&str>) -> RunRow {
    let why = format!("{}. {}", other_format(format), reader_of(version));
    RunRow { status: RunStatus::OtherFormat, ..damaged(why) }
}

/// When the last event happened, and the running time up to then in milliseconds, without pauses. A run that was killed ran
/// until it was last alive. `None` if its journal is too long for a list.
fn running_time_of(folder: &Path, last_alive: Option<Timestamp>) -> Option<(Timestamp, u64)> {
    let file = open_file(folder, &journal_file(PARENT), MAX_TIMED_BYTES).ok()?;
    let (mut times, mut resumed) = (Vec::new(), Vec::new());
    for line in BufReader::with_capacity(64 << 10, file.take(MAX_TIMED_BYTES)).split(b'\n') {
        // An incomplete last line hasn't happened.
        let line = line.ok()?;
        let Ok(line) = serde_json::from_slice::<Line<'_>>(&line) else { break };
        if line.kind == "resumed" {
            resumed.push(line.at);
            let data = serde_json::from_str::<Resumed>(line.data.get()).ok();
            times.extend(data.and_then(|data| data.last_seen));
        }
        times.push(line.at);
    }
    let last = *times.last()?;
    times.extend(last_alive);
    u64::try_from(running_time(times, &resumed).as_millis()).ok().map(|duration| (last, duration))
}

fn open_journal(folder: &Path) -> io::Result<File> {
    open_file(folder, &journal_file(PARENT), MAX_JOURNAL_BYTES)
}

fn first_line(folder: &Path) -> FirstLine {
    let mut line = Vec::new();
    let read = open_journal(folder).and_then(|file| {
        BufReader::with_capacity(64 << 10, file.take(MAX_FIRST_LINE_BYTES)).read_until(b'\n', &mut line)
    });
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return FirstLine::Missing,
        Err(error) => return FirstLine::Invalid(format!("its journal can't be read: {error}")),
        Ok(read) if read as u64 >= MAX_FIRST_LINE_BYTES => {
            return FirstLine::Invalid("the first line of its journal is too long".to_owned());
        }
        Ok(_) => {}
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        return FirstLine::Missing;
    }
    let parsed = serde_json::from_slice::<Line<'_>>(&line).and_then(|line| {
        let fields = serde_json::from_str::<StartFields>(line.data.get())?;
        Ok((line.at, line.kind, fields))
    });
    match parsed {
        Ok((at, kind, fields)) if kind == "run_started" => FirstLine::Started(at, fields),
        Ok((_, kind, _)) => FirstLine::Invalid(format!("its journal starts with `{kind}` instead of `run_started`")),
        Err(error) => FirstLine::Invalid(format!("the first line of its journal is damaged: {error}")),
    }
}

/// The time of the journal's last complete line, and how the run ended if the line says so. `None` if the line is too long.
fn last_line(folder: &Path) -> Option<(Timestamp, Option<EndFields>)> {
    let mut file = open_journal(folder).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    file.take(MAX_TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let end = tail.iter().rposition(|byte| *byte == b'\n')?;
    let start = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if start == 0 && length > MAX_TAIL_BYTES {
        return None;
    }
    let line: Line<'_> = serde_json::from_slice(&tail[start..end]).ok()?;
    let end = (line.kind == "run_finished").then(|| serde_json::from_str(line.data.get()).ok()).flatten();
    Some((line.at, end))
}
