//! One row of a map: what its record says, and its run.

use std::path::Path;

use clap::ValueEnum;

use crate::error::{Error, Obstacle, previous_attempt_of};
use crate::event::{Outcome, RunResult};
use crate::exit_code::{EXIT_FAILED, EXIT_LIMIT};
use crate::journal::RecordKey;
use crate::plan::{InputValues, Plan, SecretInputs};
use crate::record::{Depth, Mismatch, Record, RecordQuery, RecordState, ResultSource};
use crate::redaction::Redactor;
use crate::run::{CheckedJob, RecordedRun, ResumeState, plan_differences};

/// A plan with the values of its secret inputs.
pub struct RowPlan {
    /// The plan.
    pub plan: Plan,
    /// The secret inputs.
    pub secrets: SecretInputs,
}

/// What the record of a row says.
pub enum RecordedRow {
    /// No run has started in it.
    New,
    /// Its run can continue, or continues in another process.
    Unfinished,
    /// Its run is final.
    Ended {
        /// How it ended.
        result: Box<RunResult>,
        /// Whether the record was made on another machine or with another key.
        is_foreign: bool,
        /// Why `result.json` can't be used; the result is that of the journal then.
        defect: Option<String>,
    },
    /// It may not continue.
    CannotContinue(Obstacle),
}

/// Which rows `--retry` runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RetryRows {
    /// Those that ended with exit code 1 or 4
    Failed,
}

impl RetryRows {
    /// Whether rows with this exit code run again.
    pub fn applies(exit_code: u8) -> bool {
        matches!(exit_code, EXIT_FAILED | EXIT_LIMIT)
    }
}

/// Reads the record of a row without locking it.
///
/// # Errors
/// If it can't be read.
pub fn recorded_row(
    job: &CheckedJob,
    inputs: &InputValues,
    id: &str,
    folder: &Path,
    redactor: &Redactor,
    key: Option<&RecordKey>,
) -> Result<RecordedRow, Error> {
    let query = RecordQuery { run_id: Some(id), key, ..RecordQuery::new(folder, Depth::Summary) };
    let reading = query.read(&mut |_| {})?;
    let is_foreign = match &reading.state {
        // A process was killed before its run started, or a power failure has taken the start away.
        RecordState::Absent | RecordState::NotStarted => return Ok(RecordedRow::New),
        // A process is just starting it; opening the record finds out whether that succeeds.
        RecordState::Running if reading.start.is_none() => return Ok(RecordedRow::New),
        RecordState::PreviousAttempt(run_id, _) => return Err(not_a_record(folder, previous_attempt_of(run_id))),
        // Its answer is used, and a warning says so.
        RecordState::Foreign(Mismatch::OtherKey, _) => true,
        RecordState::Foreign(mismatch, _) => return Err(not_a_record(folder, mismatch.to_string())),
        _ => false,
    };
    let record = Record::from_reading(folder, reading, false)?.undamaged()?;
    let recorded = match (&record.start, record.result()) {
        (Some(start), _) => RecordedRun {
            plan: &record.plan,
            run_id: &start.run_id,
            job_file: Some(&start.job_file),
            started_at: start.at,
        },
        // The start of its journal is lost, but the run has ended.
        (None, Some(result)) => {
            RecordedRun { plan: &record.plan, run_id: &result.run_id, job_file: None, started_at: result.started_at }
        }
        (None, None) => return Ok(RecordedRow::New),
    };
    let changes = plan_differences(job, inputs, redactor, &recorded)?;
    // Without its `result.json`, the run is opened again, which writes the file.
    let has_ended = record.state.source().is_some_and(|source| source != ResultSource::JournalForMissingFile)
        && record.result().is_some_and(|result| has_ended(&record, result));
    if !changes.is_empty() {
        return Ok(RecordedRow::CannotContinue(Obstacle::OtherPlan { changes }));
    }
    Ok(match record.state.into_result() {
        Some(result) if has_ended => RecordedRow::Ended { result: Box::new(result), is_foreign, defect: record.defect },
        _ => RecordedRow::Unfinished,
    })
}

fn not_a_record(folder: &Path, why: String) -> Error {
    Error::NotARecord { path: folder.to_owned(), why }
}

/// Whether the run of a row is final. A row that reached a limit of the map continues when that is higher.
pub fn has_ended(record: &Record, result: &RunResult) -> bool {
    let reached_map_limit =
        || record.journals().ok().and_then(ResumeState::new).is_some_and(|state| state.reached_map_limit());
    match result.outcome {
        Outcome::BudgetExceeded => !reached_map_limit(),
        outcome => !outcome.can_be_resumed(),
    }
}

/// Whether the run of the record in a folder is final.
pub fn has_ended_in(folder: &Path) -> bool {
    ended_result(folder).is_some()
}

/// Whether the workspace of a row isn't needed any more: its run is final, and its patch has all changes.
pub fn needs_no_workspace(folder: &Path) -> bool {
    ended_result(folder).is_some_and(|result| result.changes_incomplete.is_none())
}

fn ended_result(folder: &Path) -> Option<RunResult> {
    let record = Record::open(folder).ok()?;
    record.result().filter(|result| has_ended(&record, result)).cloned()
}
