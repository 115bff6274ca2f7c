//! Whether a recorded run has the plan that a job and its inputs have now. Every command that continues a run, or takes its
//! answer, asks here.

use std::path::Path;

use jiff::{Timestamp, ToSpan};

use super::checked_job::{CheckedJob, RunIdentity, run_date};
use crate::error::Error;
use crate::plan::diff::PlanChange;
use crate::plan::{InputValues, Plan};
use crate::redaction::Redactor;

/// A run that has started, as its record tells it.
pub struct RecordedRun<'a> {
    /// Its plan.
    pub plan: &'a Plan,
    /// Its id.
    pub run_id: &'a str,
    /// The text of its job file, if it is known.
    pub job_file: Option<&'a str>,
    /// When it started.
    pub started_at: Timestamp,
}

/// What differs between the plan of a recorded run and the one that the job has now with the same inputs. Not compared are
/// the workspace, what its tool servers offered, and the limits of `--limit`.
///
/// # Errors
/// The job has no plan with these inputs, or a limit is invalid.
pub fn plan_differences(
    job: &CheckedJob,
    inputs: &InputValues,
    redactor: &Redactor,
    run: &RecordedRun<'_>,
) -> Result<Vec<PlanChange>, Error> {
    let mut recorded = run.plan.clone().without_server_tools();
    recorded.set_limits(&job.limits)?;
    // The day was read shortly before the run started.
    let days = [run.started_at, run.started_at.checked_sub(24.hours()).unwrap_or(run.started_at)].map(run_date);
    let mut inputs = inputs.clone();
    // The workspace of a finished row is removed, and the images that the row looked at are in its record.
    if !Path::new(&recorded.workspace).is_dir() {
        inputs.use_recorded(&recorded.attachments);
    }
    let mut found = Vec::new();
    for day in days.iter().rev() {
        // Prompts name the workspace, so both plans have that of the record.
        let workspace = Path::new(&recorded.workspace);
        let (planned, _) = job.plan(&inputs, RunIdentity { workspace, run_id: run.run_id, run_date: day })?;
        let mut planned = planned.without_server_tools().redacted(redactor);
        planned.files.keep_recorded(&recorded.files);
        planned.workspace.clone_from(&recorded.workspace);
        // The same job can only have other limits because of an earlier `--limit`.
        if run.job_file == Some(job.source.text.as_str()) {
            planned.take_limits(&recorded);
        }
        found = recorded.changes_to(&planned);
        if found.is_empty() {
            break;
        }
    }
    Ok(found)
}
