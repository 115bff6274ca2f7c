//! What a list of many records shows of one.

use std::path::Path;

use jiff::Timestamp;

use super::lease::ObservedLease;
use super::lock::has_lease;
use super::lookup::is_timestamp;
use super::run_row::{RowKind, RunRow, RunStatus};
use super::state::{Damage, Depth, RecordQuery, RecordReading, RecordState};
use crate::error::Error;
use crate::event::{Event, JournalEntry, RunResult, running_time};

/// What is known about one record.
#[derive(Debug)]
pub struct Overview {
    /// Its line in a table. The job, the name and the path aren't set.
    pub row: RunRow,
    /// The lease that a process on another machine has or had. If it keeps counting, the run is still running.
    pub remote: Option<ObservedLease>,
    /// How commands are confined, of a run that is running.
    pub sandbox: Option<String>,
    /// The run of which this is an earlier attempt.
    pub previous_attempt_of: Option<String>,
}

/// When a run was alive, as its journal tells.
#[derive(Default)]
struct RunTimes {
    /// When each event happened, with how long its part of the run couldn't run before, and when parts that were killed were last
    /// alive.
    times: Vec<(Timestamp, Option<u64>)>,
    /// When the run was resumed.
    resumed: Vec<Timestamp>,
}

/// Reads what a table shows of a record. `None` if the folder isn't one. With `holds_lock`, this process itself holds the
/// folder's lock.
pub fn read_overview(folder: &Path, holds_lock: bool) -> Option<Overview> {
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let lease = if has_lease(folder) { ObservedLease::of(folder) } else { None };
    let mut times = RunTimes::default();
    let query = RecordQuery { holds_lock, ..RecordQuery::new(folder, Depth::Glance) };
    let reading = query.read(&mut |entry| times.add(entry)).unwrap_or_else(unreadable);
    let RecordReading { state, defect, start, .. } = reading;
    let status = match RunStatus::of(&state) {
        Some(status) => status,
        None if is_timestamp(&name) => RunStatus::NotStarted,
        None => return None,
    };
    let previous_attempt_of = match &state {
        RecordState::PreviousAttempt(run_id, _) => Some(run_id.clone()),
        _ => None,
    };
    let mut row = match state.into_result() {
        Some(result) => ended_row(result),
        None => RunRow::new(RowKind::Run, status),
    };
    let mut sandbox = None;
    if let Some(start) = start {
        (row.started_at, row.run_id) = (Some(start.at), start.run_id);
        sandbox = Some(start.sandbox);
    }
    let last_alive = lease.as_ref().and_then(ObservedLease::last_alive);
    let mut remote = lease.filter(|lease| !lease.is_local());
    match status {
        RunStatus::Running => {
            // Its process says every second that it is alive.
            (row.ended_at, row.duration_ms) = (times.last_at(), times.running_ms(last_alive));
            remote = None;
        }
        RunStatus::Interrupted => {
            row.is_resumable = true;
            row.defect = defect;
            row.ended_at = times.last_at().or(last_alive);
            row.duration_ms = times.running_ms(last_alive);
        }
        RunStatus::NotStarted => {}
        RunStatus::Damaged | RunStatus::OtherFormat => (row.defect, remote) = (defect, None),
        RunStatus::Ended(_) | RunStatus::Mixed => row.defect = defect,
    }
    row.error = row.defect.clone().or(row.error);
    Some(Overview { row, remote, sandbox, previous_attempt_of })
}

/// A record that can't be read now.
fn unreadable(error: Error) -> RecordReading {
    let why = match error {
        Error::Record { source, .. } => format!("its journal can't be read: {source}"),
        error => error.to_string(),
    };
    let state = RecordState::Damaged(Damage { file: String::new(), why: why.clone() });
    RecordReading { state, defect: Some(why), start: None, plan: None, is_torn: false }
}

/// The line of a run that has ended.
fn ended_row(result: RunResult) -> RunRow {
    RunRow {
        run_id: result.run_id,
        exit_code: Some(result.exit_code),
        error: result.error.map(|error| error.message),
        started_at: Some(result.started_at),
        ended_at: Some(result.finished_at),
        duration_ms: Some(result.duration_ms),
        turns: Some(u64::from(result.turns)),
        tool_calls: Some(result.tool_calls),
        usage: Some(result.usage),
        cost_usd: result.cost_usd,
        cut_off_requests: result.cut_off_requests,
        model: Some(result.model),
        is_resumable: result.outcome.can_be_resumed(),
        ..RunRow::new(RowKind::Run, RunStatus::Ended(result.outcome))
    }
}

impl RunTimes {
    fn add(&mut self, entry: &JournalEntry) {
        self.times.push((entry.at, Some(entry.suspended_ms)));
        if let Event::Resumed(resumed) = &entry.event {
            self.resumed.push(entry.at);
            self.times.extend(resumed.last_seen.map(|at| (at, None)));
        }
    }

    /// When the last event happened.
    fn last_at(&self) -> Option<Timestamp> {
        self.times.iter().map(|(at, _)| *at).max()
    }

    /// The running time in milliseconds, without pauses. A run that was killed ran until it was last alive.
    fn running_ms(&self, last_alive: Option<Timestamp>) -> Option<u64> {
        let times = self.times.iter().copied().chain(last_alive.map(|at| (at, None))).collect();
        u64::try_from(running_time(times, &self.resumed).as_millis()).ok()
    }
}
