//! One row of a map: what its record says, and its run.

use std::path::Path;

use clap::ValueEnum;

use crate::error::{Error, Obstacle};
use crate::event::{Event, Outcome, PARENT, RunResult};
use crate::exit_code::{EXIT_FAILED, EXIT_LIMIT};
use crate::journal::RecordKey;
use crate::plan::{InputValues, Plan, SecretInputs};
use crate::record::{Record, is_set_aside};
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
pub enum RowState {
    /// No run has started in it.
    New,
    /// Its run can continue, or continues in another process.
    GoesOn,
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
pub enum Retry {
    /// Those that ended with exit code 1 or 4
    Failed,
}

impl Retry {
    /// Whether rows with this exit code run again.
    pub fn applies(exit_code: u8) -> bool {
        matches!(exit_code, EXIT_FAILED | EXIT_LIMIT)
    }
}

/// Reads the record of a row without locking it.
///
/// # Errors
/// If it can't be read.
pub fn row_state(
    job: &CheckedJob,
    inputs: &InputValues,
    id: &str,
    folder: &Path,
    redactor: &Redactor,
    key: Option<&RecordKey>,
) -> Result<RowState, Error> {
    let record = match Record::open(folder) {
        Ok(record) => record,
        // A process was killed before its run started, or a power failure has taken the start away.
        Err(Error::NotARecord { .. }) if !Record::has_started(folder) => return Ok(RowState::New),
        Err(error) => return Err(error),
    };
    let first = record.entries(PARENT).ok().and_then(|mut entries| Some((entries.next()?.ok()?, entries)));
    let started = match &first {
        Some((first, _)) => match &first.event {
            Event::RunStarted(started) => Some((started, first.at)),
            _ => return Err(not_a_record(folder, "its journal doesn't start with the start of a run".to_owned())),
        },
        None => None,
    };
    let recorded = match (started, &record.result) {
        (Some((started, at)), _) => RecordedRun {
            plan: &record.plan,
            run_id: &started.run_id,
            job_file: Some(&started.job_file),
            started_at: at,
        },
        // The start of its journal is lost, but the run has ended.
        (None, Some(result)) => {
            RecordedRun { plan: &record.plan, run_id: &result.run_id, job_file: None, started_at: result.started_at }
        }
        (None, None) => return Ok(RowState::New),
    };
    let run_id = recorded.run_id;
    if run_id != id {
        return Err(not_a_record(
            folder,
            match is_set_aside(&folder.with_file_name(run_id), folder) {
                true => format!("it is an earlier record of the row `{run_id}`"),
                false => format!("it is the record of the run `{run_id}`"),
            },
        ));
    }
    let changes = plan_differences(job, inputs, redactor, &recorded)?;
    let has_ended = record.result.as_ref().is_some_and(|result| has_ended(&record, result));
    if !changes.is_empty() {
        return Ok(RowState::CannotContinue(Obstacle::OtherPlan { changes }));
    }
    Ok(match record.result {
        Some(result) if has_ended => {
            let is_sealed_by = |key| first.as_ref().is_some_and(|(_, entries)| entries.is_sealed_by(key));
            let is_foreign = key.is_some_and(|key| !is_sealed_by(key));
            RowState::Ended { result: Box::new(result), is_foreign, defect: record.defect }
        }
        _ => RowState::GoesOn,
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
    record.result.clone().filter(|result| has_ended(&record, result))
}
