//! What a list of many records needs of one: from `result.json`, or else from the journal. Nothing is verified here.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::files::{PLAN_FILE, open_file};
use super::lease::{LEASE_FILE, SeenLease};
use super::lock::is_locked;
use super::lookup::is_timestamp;
use super::run_row::{RowKind, RunRow, RunStatus};
use super::state::{LOST_START, MAX_JOURNAL_BYTES, RecordedEnd, has_lost_start, read_end};
use crate::error::{other_format, reader_of};
use crate::event::{FORMAT, Outcome, PARENT, Resumed, running_time};
use crate::journal::journal_file;

/// The longest line that is read, in bytes.
const MAX_LINE_BYTES: u64 = 256 << 20;

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

/// What the journal of a run that has no usable `result.json` says.
struct Scan {
    first: FirstLine,
    /// When each event happened, and when parts that were killed were last alive.
    times: Vec<Timestamp>,
    /// When the run was resumed.
    resumed: Vec<Timestamp>,
    /// How it ended, if the last line says it.
    end: Option<EndFields>,
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
    let scan = scan_journal(folder);
    let mut row = match (&ended, &scan.first) {
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
    if let FirstLine::Started(at, start) = &scan.first {
        row.started_at = Some(*at);
        row.run_id.clone_from(&start.run_id);
        sandbox = Some(start.sandbox.clone());
    }
    if is_running {
        row.status = RunStatus::Running;
        (row.ended_at, row.duration_ms) = (scan.last_at(), scan.running_ms(None));
        return Some(Overview { row, remote: None, sandbox });
    }
    // A process that ended its run may just have been killed before it removed the lease.
    if let Some(row) = ended {
        let remote = lease.filter(|lease| !lease.is_local());
        return Some(Overview { row, remote, sandbox });
    }
    if row.status == RunStatus::Interrupted {
        match &scan.end {
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
        row.ended_at = scan.last_at().or(last_alive);
        row.duration_ms = scan.running_ms(last_alive.filter(|_| scan.end.is_none()));
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
        cut_off_requests: fields.cut_off_requests,
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

/// Reads a journal to its end, or to the first line that isn't an event.
fn scan_journal(folder: &Path) -> Scan {
    let mut scan = Scan { first: FirstLine::Missing, times: Vec::new(), resumed: Vec::new(), end: None };
    let file = match open_file(folder, &journal_file(PARENT), MAX_JOURNAL_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return scan,
        Err(error) => {
            scan.first = FirstLine::Invalid(format!("its journal can't be read: {error}"));
            return scan;
        }
        Ok(file) => file,
    };
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::new();
    // An incomplete last line hasn't happened.
    while matches!(reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line), Ok(1..)) && line.ends_with(b"\n")
    {
        let parsed = serde_json::from_slice::<Line<'_>>(&line);
        if scan.times.is_empty() {
            let first = parsed.as_ref().map_err(ToString::to_string).and_then(|line| {
                let fields = serde_json::from_str(line.data.get()).map_err(|error| error.to_string())?;
                Ok((line.at, line.kind.as_str(), fields))
            });
            scan.first = match first {
                Ok((at, "run_started", fields)) => FirstLine::Started(at, fields),
                Ok((_, kind, _)) => {
                    FirstLine::Invalid(format!("its journal starts with `{kind}` instead of `run_started`"))
                }
                Err(error) => FirstLine::Invalid(format!("the first line of its journal is damaged: {error}")),
            };
        }
        let Ok(entry) = parsed else { break };
        scan.times.push(entry.at);
        scan.end = match entry.kind.as_str() {
            "run_finished" => serde_json::from_str(entry.data.get()).ok(),
            _ => None,
        };
        if entry.kind == "resumed" {
            scan.resumed.push(entry.at);
            let resumed = serde_json::from_str::<Resumed>(entry.data.get()).ok();
            scan.times.extend(resumed.and_then(|resumed| resumed.last_seen));
        }
        line.clear();
    }
    scan
}

impl Scan {
    /// When the last event happened.
    fn last_at(&self) -> Option<Timestamp> {
        self.times.iter().max().copied()
    }

    /// The running time in milliseconds, without pauses. A run that was killed ran until it was last alive.
    fn running_ms(&self, last_alive: Option<Timestamp>) -> Option<u64> {
        let times = self.times.iter().copied().chain(last_alive).collect();
        u64::try_from(running_time(times, &self.resumed).as_millis()).ok()
    }
}
