//! Reads the record of one row into a row of a table: from `result.json`, or else from the journal.

use std::fs;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use super::tables::{MapRow, ProblemKind, RowState, TableProblem};
use crate::error::{other_format, previous_attempt_of};
use crate::event::{ErrorInfo, Event, JournalEntry, Outcome, PARENT, RunUse};
use crate::pricing::{Prices, round_usd};
use crate::record::{Depth, REPORT_FILE, RecordQuery, RecordReading, RecordState, read_versioned};

/// The most entries of a record's folder that are looked at.
const MAX_LISTED: usize = 100;

/// What was found in a row's folder.
#[derive(Debug)]
pub(super) enum RowReading {
    /// A record of the row, and what is wrong with it, if anything.
    Row(Box<MapRow>, Option<(ProblemKind, String)>),
    /// An earlier attempt of the row with this id, which was kept under a number.
    PreviousAttempt(String),
    /// Something else, and why it isn't a record of the row.
    Foreign(String),
    /// Nothing.
    Absent,
}

impl RowReading {
    /// The row for a table, and what is wrong with its record at this path.
    pub(super) fn into_row(self, id: &str, path: &str) -> (Option<MapRow>, Option<TableProblem>) {
        let problem = |kind, message| {
            let (id, path) = (Some(id.to_owned()), Some(path.to_owned()));
            Some(TableProblem { kind, id, path, message })
        };
        match self {
            Self::Row(row, defect) => (Some(*row), defect.and_then(|(kind, message)| problem(kind, message))),
            Self::Foreign(why) => (None, problem(ProblemKind::Foreign, why)),
            Self::PreviousAttempt(run_id) => (None, problem(ProblemKind::Foreign, previous_attempt_of(&run_id))),
            Self::Absent => (None, None),
        }
    }
}

/// The report in the record of a row, if there is one.
pub(super) fn report_in(record: &Path) -> Option<PathBuf> {
    let report = record.join(REPORT_FILE);
    fs::symlink_metadata(&report).is_ok_and(|found| found.is_file()).then_some(report)
}

/// Reads the record of a row. `job` is the name of the map's job, if it is known. `prices` are for the cost of a run that hasn't
/// ended.
pub(super) fn read_row(record: &Path, id: &str, job: Option<&str>, prices: &Prices) -> RowReading {
    let (mut used, mut turns) = (RunUse::priced(prices), 0);
    let query = RecordQuery { run_id: Some(id), job, ..RecordQuery::new(record, Depth::Full) };
    let visit = &mut |entry: &JournalEntry| {
        used.apply(entry);
        if let (PARENT, Event::ReplyReceived(received)) = (entry.agent.as_str(), &entry.event) {
            turns = received.turn;
        }
    };
    let reading = match query.read(visit) {
        Ok(reading) => reading,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            return damaged(id, format!("{error}{cause}"));
        }
    };
    let RecordReading { state, defect, start, plan, is_torn } = reading;
    match state {
        RecordState::Absent if !record.exists() => RowReading::Absent,
        // The job and the plan are written before the journal.
        RecordState::Absent | RecordState::NotStarted if is_fresh(record) => {
            RowReading::Row(Box::new(MapRow::new(id, RowState::Unfinished)), None)
        }
        RecordState::Absent | RecordState::NotStarted => {
            RowReading::Foreign("it isn't a run's record: it has no journal".to_owned())
        }
        RecordState::PreviousAttempt(run_id, _) => RowReading::PreviousAttempt(run_id),
        RecordState::Foreign(mismatch, _) => RowReading::Foreign(mismatch.to_string()),
        RecordState::OtherFormat { format, .. } => RowReading::Foreign(other_format(format)),
        RecordState::Damaged(damage) => damaged(id, damage.to_string()),
        RecordState::Ended { result, .. } if result.exit_code != exit_code(result.outcome, result.exit_code) => {
            let (outcome, code) = (result.outcome, result.exit_code);
            damaged(id, format!("result.json says `{outcome}` with the exit code {code}"))
        }
        RecordState::Ended { result, .. } => {
            let lost = |defect| (ProblemKind::Torn, defect);
            let (inputs, problem) = match plan.map_or_else(|| planned_inputs(record), |plan| Ok(plan.inputs)) {
                Ok(inputs) => (inputs, defect.map(lost)),
                Err(why) => (IndexMap::new(), Some(lost(format!("{why}, so its inputs aren't known")))),
            };
            RowReading::Row(Box::new(MapRow::ended(id, inputs, *result)), problem)
        }
        RecordState::Running | RecordState::Interrupted => {
            used.count_open_requests();
            let row = MapRow {
                inputs: plan.map(|plan| plan.inputs).unwrap_or_default(),
                turns,
                tool_calls: used.agent(PARENT).map_or(0, |parent| parent.calls),
                usage: used.total.usage,
                cost_usd: used.total.cost_usd.map(round_usd),
                cut_off_requests: used.cut_off,
                started_at: start.map(|start| start.at),
                ..MapRow::new(id, RowState::Unfinished)
            };
            let torn = is_torn.then(|| {
                "the last line of its journal is incomplete, because the run was killed; it can be resumed".to_owned()
            });
            RowReading::Row(Box::new(row), defect.or(torn).map(|why| (ProblemKind::Torn, why)))
        }
    }
}

/// What a run that hasn't ended has used so far, as a row; `None` if it has ended, or its record tells nothing.
pub fn read_unfinished_run(record: &Path, run_id: &str, prices: &Prices) -> Option<MapRow> {
    match read_row(record, run_id, None, prices) {
        RowReading::Row(row, _) if row.state == RowState::Unfinished && row.started_at.is_some() => Some(*row),
        _ => None,
    }
}

/// The exit code that belongs to an outcome. That of an interrupted run depends on the signal.
fn exit_code(outcome: Outcome, recorded: u8) -> u8 {
    match outcome {
        Outcome::Interrupted if matches!(recorded, 129 | 130 | 143) => recorded,
        outcome => outcome.exit_code(None),
    }
}

fn damaged(id: &str, why: String) -> RowReading {
    let error = ErrorInfo { code: RowState::Damaged.name().to_owned(), message: why.clone(), hint: None };
    let row = MapRow { error: Some(error), ..MapRow::new(id, RowState::Damaged) };
    RowReading::Row(Box::new(row), Some((ProblemKind::Damaged, why)))
}

/// Whether a folder has at most what a run leaves that was killed before its first event.
fn is_fresh(record: &Path) -> bool {
    let is_ours = |name: &str| {
        matches!(name, "job.yaml" | "plan.json" | "events.jsonl" | "subagents" | "attachments" | "workspace.start")
            || name.starts_with("lease")
            || name.starts_with('.')
    };
    let listing = fs::read_dir(record).into_iter().flatten().flatten().take(MAX_LISTED);
    listing.into_iter().all(|entry| is_ours(&entry.file_name().to_string_lossy()))
}

/// The values of the inputs in `plan.json`, of a run whose journal has no start.
fn planned_inputs(record: &Path) -> Result<IndexMap<String, Value>, String> {
    #[derive(Deserialize)]
    struct PlanInputs {
        inputs: IndexMap<String, Value>,
    }
    match read_versioned::<PlanInputs>(record, "plan.json") {
        Ok(Some(plan)) => Ok(plan.inputs),
        Ok(None) => Err("plan.json is missing".to_owned()),
        Err(defect) => Err(format!("plan.json {defect}")),
    }
}
