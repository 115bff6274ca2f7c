//! One row of a map: what its record says, and its run.

use std::path::Path;

use super::{MapRunner, Retry, shown};
use crate::cli::execute::Execution;
use crate::cli::keyed_run::{KeyedRun, KeyedTarget, open_keyed_run, run_date};
use crate::cli::prepared_job::{PreparedJob, RunIdentity, RunParts};
use crate::error::Error;
use crate::event::{PARENT, RunResult};
use crate::plan::{InputValues, Plan, SecretInputs};
use crate::record::Record;
use crate::redaction::Redactor;

/// A plan with the values of its secret inputs.
pub(super) struct RowPlan {
    pub(super) plan: Plan,
    pub(super) secrets: SecretInputs,
}

/// What the record of a row says.
pub(super) enum RowState {
    /// No run has started in it.
    New,
    /// Its run can go on, or goes on in another process.
    GoesOn,
    /// Its run has ended for good.
    Ended(Box<RunResult>),
    /// It belongs to another plan. Says what differs first.
    OtherPlan(String),
}

/// A row whose record was opened.
pub(super) enum OpenedRow<'a> {
    Ended(Box<RunResult>),
    Execution(Box<Execution<'a>>),
}

/// Reads the record of a row without locking it.
///
/// # Errors
/// If it can't be read.
pub(super) fn row_state(
    job: &PreparedJob<'_>,
    inputs: &InputValues,
    id: &str,
    folder: &Path,
    redactor: &Redactor,
) -> Result<RowState, Error> {
    let record = match Record::open(folder) {
        Ok(record) => record,
        Err(error @ Error::OtherFormat { .. }) => return Err(error),
        // A process was killed before its run started.
        Err(Error::NotARecord { .. }) if !folder.join("events.jsonl").exists() => return Ok(RowState::New),
        Err(error) => return Err(error),
    };
    let Some(first) = record.entries(PARENT).ok().and_then(|mut entries| entries.next()?.ok()) else {
        return Ok(RowState::New);
    };
    // The day was read shortly before the run started.
    let before = first.at.checked_sub(jiff::SignedDuration::from_hours(24)).unwrap_or(first.at);
    let mut difference = None;
    for day in [first.at, before].map(run_date) {
        let run = |workspace| RunIdentity { workspace, run_id: id, run_date: &day };
        let planned =
            job.plan(inputs, run(Path::new(&record.plan.workspace))).or_else(|_| job.plan(inputs, run(&job.workspace)));
        let mut planned = planned?.0.redacted(redactor);
        planned.workspace.clone_from(&record.plan.workspace);
        difference = record.plan.changes_to(&planned).first().map(ToString::to_string);
        if difference.is_none() {
            break;
        }
    }
    Ok(match (difference, record.result) {
        (Some(difference), _) => RowState::OtherPlan(difference),
        (None, Some(result)) if !result.outcome.can_be_resumed() => RowState::Ended(Box::new(result)),
        (None, _) => RowState::GoesOn,
    })
}

/// Whether the run of a record has ended for good, so that its workspace isn't needed any more.
pub(super) fn has_ended(folder: &Path) -> bool {
    Record::open(folder).is_ok_and(|record| record.result.is_some_and(|result| !result.outcome.can_be_resumed()))
}

impl MapRunner<'_> {
    /// Opens the record of a row, and makes its workspace if it starts.
    ///
    /// # Errors
    /// If the row can't run here.
    pub(super) fn open_row(&self, id: &str, inputs: &InputValues) -> Result<OpenedRow<'_>, Error> {
        let folder = self.folder.row(id);
        let prepared = &self.job.prepared;
        // Another process may have run the row anew since all rows were checked.
        let is_fresh = self.options.retry.is_some()
            && Record::open(&folder)
                .is_ok_and(|record| record.result.is_some_and(|result| Retry::applies(result.exit_code)));
        let workspace = self.workspaces.path(id);
        let target = KeyedTarget {
            folder: &folder,
            workspace: &workspace,
            links_latest: false,
            is_fresh,
            now: (self.env.clock)(),
        };
        let open = match open_keyed_run(prepared, inputs, &self.job.secrets, &target)? {
            KeyedRun::Open(open) => *open,
            KeyedRun::Ended(record) => {
                // Its process may have been killed before it removed the workspace.
                self.remove_workspace(id);
                let gone = || Error::NotARecord { path: folder.clone(), why: "its result is gone".to_owned() };
                return record.result.map(|result| OpenedRow::Ended(Box::new(result))).ok_or_else(gone);
            }
        };
        match &open.resume_state {
            None => drop(self.workspaces.make(id).map_err(super::isolation_error)?),
            Some(_) if workspace.is_dir() => {}
            Some(_) => {
                return Err(Error::usage(
                    "its workspace was removed, so it can't go on",
                    format!("Remove its record, and the row starts anew: {}", shown(&folder)),
                ));
            }
        }
        let providers = self.job.providers(&open.plan)?;
        let sandbox = self.job.sandbox(&open.plan)?;
        let parts = RunParts {
            providers,
            sandbox,
            plan: open.plan,
            recorder: open.recorder,
            options: prepared.args.to_run_options(self.env, None),
            resume_state: open.resume_state,
            signals: self.signals.clone(),
        };
        self.job.execution(parts).map(|execution| OpenedRow::Execution(Box::new(execution)))
    }

    /// Removes the workspace of a row that has ended for good.
    pub(super) fn remove_workspace(&self, id: &str) {
        if let Err(error) = self.workspaces.remove(id) {
            self.progress.warning(id, &format!("its workspace can't be removed: {error}"));
        }
    }
}
