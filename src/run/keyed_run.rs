//! Runs whose records have a path that is known before: `run --key`, and the rows of a map. Such a run is started, resumed, or
//! only read, so the same command can be repeated at any time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::checked_job::{CheckedJob, RunIdentity, run_date};
use super::obstacles::{changed_secrets, copied, other_commit};
use super::plan_differences::{RecordedRun, plan_differences};
use super::resume_state::ResumeState;
use super::secrets::RunSecrets;
use super::session::OpenRecord;
use crate::error::{ContinuedBy, Error, Obstacle};
use crate::event::JournalEntry;
use crate::journal::RecordKey;
use crate::plan::{InputValues, Plan};
use crate::record::{
    Mismatch, NOT_STARTED, OpenedRecord, PreviousAttempt, Record, RecordOpenOptions, RecordState, ResumedRecord,
    StartedRecord,
};
use crate::reports::record_files::write_reports;

/// Which run it is, and where it is recorded.
#[derive(Clone)]
pub struct KeyedTarget<'a> {
    /// The record, absolute and below the folder of all runs. Its last part is the run's id.
    pub folder: &'a Path,
    /// The folder that the tools work in, absolute.
    pub workspace: &'a Path,
    /// Makes the workspace of a run that is new, before its plan: inputs can name files in it.
    pub make_workspace: &'a dyn Fn() -> Result<(), Error>,
    /// Whether `latest` in the job's folder links to the run when it is new.
    pub links_latest: bool,
    /// Whether it is a row of a map, so that it continues after a limit of the map.
    pub is_row: bool,
    /// Which run is set aside if it has started, so that a new one begins.
    pub set_aside: Option<PreviousAttempt>,
    /// When the run starts if it is new.
    pub now: Timestamp,
    /// The key that signs the record.
    pub key: Option<RecordKey>,
}

impl KeyedTarget<'_> {
    fn by(&self) -> ContinuedBy {
        if self.is_row { ContinuedBy::Row } else { ContinuedBy::Key }
    }

    fn obstacle(&self, obstacle: Obstacle) -> Error {
        Error::CannotContinue { record: self.folder.to_owned(), obstacle, by: self.by() }
    }

    /// An error of the record, with what was to continue it.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::CannotContinue { record, obstacle, .. } => Error::CannotContinue { record, obstacle, by: self.by() },
            error => error,
        }
    }
}

/// What is to be done for a run.
pub enum KeyedRun {
    /// Nothing: it is final. The record has a result.
    Ended(Box<Record>),
    /// It starts or continues. Its record is locked.
    Open(Box<OpenRun>),
}

/// A run that is about to start or to continue.
pub struct OpenRun {
    /// Its plan.
    pub plan: Plan,
    /// Its record.
    pub record: OpenRecord,
}

/// Opens the record of a run and decides what is to be done. This blocks for up to ten seconds if a process on another machine
/// had the record last and may be alive.
///
/// # Errors
/// Another process executes the run ([`Error::KeyInUse`]), the record may not continue ([`Error::CannotContinue`]), or it can't be
/// used.
pub fn open_keyed_run(
    job: &CheckedJob,
    inputs: &InputValues,
    secrets: &RunSecrets,
    target: &KeyedTarget<'_>,
) -> Result<KeyedRun, Error> {
    let key = target.key.clone().ok_or_else(|| {
        let message = "a run with a key needs a signed record, or it couldn't be recognized later";
        Error::usage(message, "Set LEGWORK_RECORD_KEY to at least 16 random characters.")
    })?;
    let path = RecordOpenOptions {
        out: &job.out,
        folder: target.folder,
        links_latest: target.links_latest,
        raises_a_limit: !job.limits.is_empty() || target.is_row,
        set_aside: target.set_aside,
        key: Some(key),
        write_reports,
    };
    let opened = OpenedRecord::open(&path).map_err(|error| match error {
        Error::InUse { path } => Error::KeyInUse { path },
        error => target.named(error),
    })?;
    match opened {
        OpenedRecord::New(recorder) => {
            (target.make_workspace)()?;
            let date = run_date(target.now);
            let run = RunIdentity { workspace: target.workspace, run_id: &recorder.run_id, run_date: &date };
            let (plan, _) = job.plan(inputs, run)?;
            Ok(KeyedRun::Open(Box::new(OpenRun { plan, record: OpenRecord { recorder: *recorder, before: None } })))
        }
        OpenedRecord::Started(started) => continue_run(job, inputs, secrets, target, *started),
    }
}

fn continue_run(
    job: &CheckedJob,
    inputs: &InputValues,
    secrets: &RunSecrets,
    target: &KeyedTarget<'_>,
    run: StartedRecord,
) -> Result<KeyedRun, Error> {
    let folder = target.folder;
    if let Some(obstacle) = foreign(&run.record.state, run.has_ended()) {
        return Err(target.obstacle(obstacle));
    }
    let Some(start) = &run.record.start else {
        return Err(Error::NotARecord { path: folder.to_owned(), why: NOT_STARTED.to_owned() });
    };
    let recorded = RecordedRun {
        plan: &run.record.plan,
        run_id: &start.run_id,
        job_file: Some(&start.job_file),
        started_at: start.at,
    };
    let changes = plan_differences(job, inputs, &secrets.redactor, &recorded)?;
    if !changes.is_empty() {
        return Err(target.obstacle(Obstacle::OtherPlan { changes }));
    }
    if run.has_ended() {
        return Ok(KeyedRun::Ended(Box::new(run.record)));
    }
    let ResumedRecord { recorder, record, journals, last_seen, .. } =
        run.resume().map_err(|error| target.named(error))?;
    let mut state = load_resume_state(journals, folder)?;
    if let Some(obstacle) = copied(&state, &recorder) {
        return Err(target.obstacle(obstacle));
    }
    state.last_seen = last_seen;
    state.is_row = target.is_row;
    let result = record.result().filter(|_| !(target.is_row && state.reached_map_limit()));
    let used = result.map_or(Ok(None), |result| state.used_limit(result))?;
    let mut plan = record.plan.clone();
    let limits = changed_limits(&state, &plan, &job.limits)?;
    state.replace_limits(&mut plan, limits)?;
    if used.is_some_and(|used| !used.leaves_more(&plan.limits, plan.parent.max_turns)) {
        return Ok(KeyedRun::Ended(Box::new(record)));
    }
    // A row's own workspace changes by the row only. A copy may be below a repository in which the user continues.
    let is_shared = !target.is_row || target.workspace == job.workspace;
    let commit = || other_commit(&state, target.workspace).filter(|_| is_shared);
    if let Some(obstacle) = commit().or_else(|| changed_secrets(&state, &recorder, secrets)) {
        return Err(target.obstacle(obstacle));
    }
    plan.workspace = target.workspace.to_string_lossy().into_owned();
    for model in plan.models_mut() {
        model.server = job.user_config.servers.server_info(&model.provider);
    }
    Ok(KeyedRun::Open(Box::new(OpenRun { plan, record: OpenRecord { recorder, before: Some(state) } })))
}

/// Why a record isn't that of this run, if it isn't.
fn foreign(state: &RecordState, has_ended: bool) -> Option<Obstacle> {
    Some(match state {
        RecordState::PreviousAttempt(run_id, _) => Obstacle::PreviousAttempt { run_id: run_id.clone() },
        RecordState::Foreign(Mismatch::OtherRun(run_id), _) => Obstacle::OtherRun { run_id: run_id.clone() },
        RecordState::Foreign(..) => Obstacle::Foreign { has_ended },
        _ => return None,
    })
}

/// The state that the journals of a run lead to.
///
/// # Errors
/// The run was interrupted before it started.
pub fn load_resume_state(journals: BTreeMap<String, Vec<JournalEntry>>, folder: &Path) -> Result<ResumeState, Error> {
    ResumeState::new(journals).ok_or_else(|| Error::NotARecord { path: folder.to_owned(), why: NOT_STARTED.to_owned() })
}

/// The limits of `--limit` that differ from those with which the run has run so far.
fn changed_limits(
    state: &ResumeState,
    plan: &Plan,
    limits: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Error> {
    let effective = state.effective_plan(plan)?;
    let mut changed = BTreeMap::new();
    for (name, value) in limits {
        let one = BTreeMap::from([(name.clone(), value.clone())]);
        let mut replaced = effective.clone();
        replaced.set_limits(&one)?;
        if !effective.changes_to(&replaced).is_empty() {
            changed.extend(one);
        }
    }
    Ok(changed)
}

/// The folder of the record of a run with a key.
pub fn keyed_folder(job: &CheckedJob, key: &str) -> PathBuf {
    job.job_dir.join(key)
}
