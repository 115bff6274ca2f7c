//! The changes of a run, read from its record. A record can come from anywhere, so what it says is checked.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::patch_reader;
use crate::error::Error;
use crate::event::{Outcome, PARENT, RunModel, WorkspaceChanged};
use crate::journal::{JournalError, RecordKey};
use crate::plan::Plan;
use crate::record::{Record, read_file};

/// The file with the patch, which is also in the journal.
const PATCH_FILE: &str = "changes.patch";
/// The largest patch that is read, in bytes. Legwork writes smaller ones.
const MAX_PATCH_BYTES: u64 = 8 << 20;

/// The changes of one run.
#[derive(Debug)]
pub struct RunChanges {
    /// What ran.
    pub plan: Plan,
    /// The absolute paths of the job file and of what it includes, where the run was started.
    pub job_files: Vec<String>,
    /// The absolute path of the workspace, where the run was started.
    pub workspace: PathBuf,
    /// How the run ended; `None` if it hasn't.
    pub outcome: Option<Outcome>,
    /// The patch, or why it can't be applied.
    pub patch: Result<String, String>,
    record: Record,
}

impl RunChanges {
    /// Reads the changes from the run's journal, whose checksums are verified.
    ///
    /// # Errors
    /// If the folder isn't a readable record, or its journal was modified.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let record = Record::open(folder)?;
        let mut summary = RunModel::default();
        let refused = |why: String| Error::NotARecord { path: folder.to_owned(), why };
        for entry in record.entries(PARENT)? {
            match entry {
                Ok(entry) if entry.agent != PARENT => {
                    return Err(refused("its journal contains another agent's events".to_owned()));
                }
                Ok(entry) => summary.apply(&entry.agent, &entry.event, entry.at),
                Err(JournalError::Torn { .. }) => break,
                Err(error) => return Err(refused(format!("in its journal, {error}"))),
            }
        }
        // Nothing seals `result.json`, so the journal is asked as long as there is one.
        let recorded = record.result().filter(|_| summary.started.is_none()).map(|result| result.outcome);
        let outcome = summary.result().map(|result| result.outcome).or(recorded);
        let started = summary.started.map(|(_, started)| started);
        // Without its journal, nothing is known about the changes of a run.
        let lost = record.defect.clone().filter(|_| started.is_none());
        let (workspace, job_files) = started.map(|it| (it.workspace.into(), it.protected)).unwrap_or_default();
        let patch = match (outcome, summary.changed) {
            _ if lost.is_some() => Err(lost.unwrap_or_default()),
            (None, _) => Err("the run hasn't ended".to_owned()),
            (Some(_), None) if record.plan.changes_files() => Err("the changes of the run aren't known".to_owned()),
            (Some(_), None) => Ok(String::new()),
            (Some(_), Some(changed)) => usable_patch(folder, changed),
        };
        Ok(Self { plan: record.plan.clone(), job_files, workspace, outcome, patch, record })
    }

    /// What every command says about the record because a part of it is lost. `None` if it is why nothing is applied.
    pub fn defect(&self) -> Option<&str> {
        self.record.defect.as_deref().filter(|defect| self.patch.as_ref().err().is_none_or(|why| why != *defect))
    }

    /// Whether the record was made with a key, so that the permissions in its plan are those that the run had.
    ///
    /// # Errors
    /// If the journal can't be read any more.
    pub fn is_signed_by(&self, key: &RecordKey) -> Result<bool, Error> {
        self.record.is_signed_by(key)
    }
}

/// The patch, if it is complete and nothing else in the record contradicts it.
fn usable_patch(folder: &Path, changed: WorkspaceChanged) -> Result<String, String> {
    if let Some(why) = changed.incomplete {
        return Err(format!("its patch isn't complete: {why}"));
    }
    let sections = patch_reader::read(&changed.patch)
        .map_err(|error| format!("line {} of its patch: {}", error.line, error.why))?;
    let in_patch: BTreeSet<String> = sections.iter().map(|file| file.path.to_string_lossy().into_owned()).collect();
    let listed: BTreeSet<String> = changed.changes.into_iter().map(|change| change.path).collect();
    if let Some(path) = in_patch.symmetric_difference(&listed).next() {
        return Err(format!("its patch and its list of changed files disagree about `{path}`"));
    }
    match read_file(folder, PATCH_FILE, MAX_PATCH_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(changed.patch),
        Err(error) => Err(format!("its {PATCH_FILE} can't be read: {error}")),
        Ok(file) if file == changed.patch.as_bytes() => Ok(changed.patch),
        Ok(_) => Err(format!(
            "its {PATCH_FILE} differs from its journal; `legwork show --rebuild` restores it, and `git apply --3way` applies \
             the file as it is"
        )),
    }
}
