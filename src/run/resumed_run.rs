//! A recorded run that continues by `resume`: what keeps it from that, and what it continues with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::keyed_run::load_resume_state;
use super::obstacles::{changed_secrets, copied, other_commit, reached_limit};
use super::resume_state::ResumeState;
use super::secrets::RunSecrets;
use super::session::OpenRecord;
use super::used_limit::UsedLimit;
use crate::error::{ContinuedBy, Error, Obstacle};
use crate::event::{RunOptions, RunResult};
use crate::plan::Plan;
use crate::providers::user_servers::UserServers;
use crate::record::{ROWS, Record, Recorder, ResumedRecord, is_previous_attempt};

/// A recorded run whose record is locked. Each of its checks refuses what would make the rest of the run another run.
#[derive(Debug)]
pub struct ResumedRun {
    /// The plan that it continues with.
    pub plan: Plan,
    /// What it has done.
    pub state: ResumeState,
    /// The options of its command line. Privileges that only a command line can grant aren't taken from a record that was made
    /// elsewhere.
    pub options: RunOptions,
    /// Whether its record was made with our key.
    pub has_our_key: bool,
    recorder: Recorder,
    /// The record, as messages name it.
    folder: PathBuf,
    result: Option<RunResult>,
}

impl ResumedRun {
    /// Reads what the run has done. `folder` is its record, as messages name it.
    ///
    /// # Errors
    /// It was interrupted before it started.
    pub fn new(resumed: ResumedRecord, folder: &Path, servers: &UserServers) -> Result<Self, Error> {
        let ResumedRecord { recorder, record, journals, last_seen, has_our_key } = resumed;
        let Record { mut plan, state, .. } = record;
        let result = state.into_result();
        for model in plan.models_mut() {
            model.server = servers.server_info(&model.provider);
        }
        let mut state = load_resume_state(journals, folder)?;
        state.last_seen = last_seen;
        let options = match has_our_key {
            true => state.options().clone(),
            false => RunOptions { untrusted: state.options().untrusted, ..RunOptions::default() },
        };
        Ok(Self { plan, state, options, has_our_key, recorder, folder: folder.to_owned(), result })
    }

    /// Refuses a record that was made elsewhere unless the user trusts it, and the copy of one that still exists unless the user
    /// insists.
    ///
    /// # Errors
    /// Says which of the two it is.
    pub fn check_origin(&self, is_trusted: bool, is_forced: bool) -> Result<(), Error> {
        if !self.has_our_key && !is_trusted {
            return Err(self.obstacle(Obstacle::Foreign { has_ended: false }));
        }
        let obstacle = copied(&self.state, &self.recorder).filter(|_| !is_forced);
        obstacle.map_or(Ok(()), |obstacle| Err(self.obstacle(obstacle)))
    }

    /// Replaces limits of the plan. A run that ended at one needs a higher one.
    ///
    /// # Errors
    /// A limit is invalid or too low.
    pub fn replace_limits(&mut self, limits: BTreeMap<String, String>) -> Result<(), Error> {
        let used = self.result.as_ref().map_or(Ok(None), |result| self.state.used_limit(result))?;
        self.state.replace_limits(&mut self.plan, limits)?;
        let is_reached = |used: &UsedLimit| !used.leaves_more(&self.plan.limits, self.plan.parent.max_turns);
        used.filter(is_reached).map_or(Ok(()), |used| Err(self.obstacle(reached_limit(&used))))
    }

    /// Continues in this workspace. With another commit than at the start only if the user insists.
    ///
    /// # Errors
    /// Names the commits.
    pub fn work_in(&mut self, workspace: &Path, is_forced: bool) -> Result<(), Error> {
        if let Some(obstacle) = other_commit(&self.state, workspace).filter(|_| !is_forced) {
            return Err(self.obstacle(obstacle));
        }
        self.plan.workspace = workspace.to_string_lossy().into_owned();
        Ok(())
    }

    /// Compares the secrets with those of the run. Returns the names of those that differ, if the user insists.
    ///
    /// # Errors
    /// Names them, if the user doesn't.
    pub fn check_secrets(&mut self, secrets: &RunSecrets, is_forced: bool) -> Result<Vec<String>, Error> {
        match changed_secrets(&self.state, &self.recorder, secrets).filter(|_| self.has_our_key) {
            Some(Obstacle::ChangedSecrets { names }) if is_forced => {
                self.state.has_new_secrets = true;
                Ok(names)
            }
            Some(obstacle) => Err(self.obstacle(obstacle)),
            None => Ok(Vec::new()),
        }
    }

    /// The folder of its record, absolute.
    pub fn folder(&self) -> &Path {
        &self.recorder.folder
    }

    /// The folder of all runs that has the record.
    pub fn runs_folder(&self) -> PathBuf {
        runs_folder(&self.recorder.folder, &self.state.started.run_id, &self.plan.job)
    }

    /// The plan, and the record that continues.
    pub fn into_parts(self) -> (Plan, OpenRecord) {
        (self.plan, OpenRecord { recorder: self.recorder, before: Some(self.state) })
    }

    fn obstacle(&self, obstacle: Obstacle) -> Error {
        cannot_resume(&self.folder, obstacle)
    }
}

/// The error for a record that can't be resumed.
pub fn cannot_resume(record: &Path, obstacle: Obstacle) -> Error {
    Error::CannotContinue { record: record.to_owned(), obstacle, by: ContinuedBy::Resume }
}

/// The folder of all runs that contains a run folder: `JOB/RUN`, also if `--fresh` has added a number, or the record of a row,
/// `JOB/MAP/rows/ROW`. For a record that was moved elsewhere, only the record itself: tools may use what is around it.
pub fn runs_folder(folder: &Path, run_id: &str, job: &str) -> PathBuf {
    let is_named = folder.ends_with(run_id) || is_previous_attempt(&folder.with_file_name(run_id), folder);
    let of_job = folder.parent().filter(|_| is_named).and_then(|parent| match parent.ends_with(job) {
        true => Some(parent),
        false => parent.parent().filter(|_| parent.ends_with(ROWS))?.parent().filter(|of_job| of_job.ends_with(job)),
    });
    of_job.and_then(Path::parent).unwrap_or(folder).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_all_runs_is_found_from_each_kind_of_record() {
        let of = |folder: &str, run_id: &str| runs_folder(Path::new(folder), run_id, "job").display().to_string();
        assert_eq!(of("/runs/job/20260101-000000-aaaaaa", "20260101-000000-aaaaaa"), "/runs");
        assert_eq!(of("/runs/job/k", "k"), "/runs");
        assert_eq!(of("/runs/job/k.2", "k"), "/runs", "it was set aside");
        assert_eq!(of("/runs/job/map/rows/7", "7"), "/runs");
        assert_eq!(of("/runs/job/map/rows/7.1", "7"), "/runs");
        for moved in ["/home/k", "/runs/job/other", "/runs/job/k.x", "/runs/job/map/7", "/runs/other/map/rows/7"] {
            let run_id = if moved.ends_with('7') { "7" } else { "k" };
            assert_eq!(of(moved, run_id), moved);
        }
    }
}
