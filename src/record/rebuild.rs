//! Writes again everything that is derived from the journals.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::artifacts::{WriteReports, WrittenFile};
use super::files::remove_temporary_files;
use super::journal_files::{journal_error, open_journal};
use super::lock::RecordLock;
use super::read::agents;
use super::recorder::{Recorder, record_error, take};
use super::state::{LOST_START, NOT_STARTED, read_result};
use crate::error::Error;
use crate::event::{PARENT, RunModel};
use crate::journal::{JournalError, journal_file};

/// The result of rebuilding a record.
#[derive(Debug)]
pub struct Rebuilt {
    /// The files, relative to the run's folder, and the previous states of their paths.
    pub files: Vec<WrittenFile>,
    /// The journals, relative to the run's folder, whose last line is incomplete.
    pub torn: Vec<(String, JournalError)>,
    /// Whether the journal contains the run's end, and so its result.
    pub has_ended: bool,
}

impl Recorder {
    /// Locks a run's folder, verifies all its journals, and writes the files derived from them: `job.yaml`, `plan.json`, the
    /// summaries, the patch, the transcript, the report and, if the run has ended, `result.json`. Each appears completely or
    /// not at all. The journals aren't changed. If one was modified, nothing is written.
    ///
    /// # Errors
    /// If another process uses the folder, there is no journal or no complete line in it, a journal was modified or written
    /// by another version, or a file can't be written.
    pub fn rebuild(folder: &Path, write_reports: WriteReports) -> Result<Rebuilt, Error> {
        let (folder, lock) = take(folder)?;
        Self::rebuild_locked(folder, lock, write_reports)
    }

    /// Completes the record of a run that ended just before its process was killed: its journal has the end, and
    /// there is no `result.json` yet.
    ///
    /// # Errors
    /// As for [`Self::rebuild`].
    pub(super) fn complete_ended(folder: &Path, lock: RecordLock, write_reports: WriteReports) -> Result<(), Error> {
        let folder = folder.canonicalize().map_err(record_error(folder))?;
        remove_temporary_files(&lock.root);
        Self::rebuild_locked(folder, lock, write_reports).map(drop)
    }

    fn rebuild_locked(folder: PathBuf, lock: RecordLock, write_reports: WriteReports) -> Result<Rebuilt, Error> {
        let (summary, torn) = verify_journals(&folder)?;
        let Some((_, started)) = &summary.started else {
            let why = if matches!(read_result(&folder), Ok(Some(_))) { LOST_START } else { NOT_STARTED }.to_owned();
            return Err(Error::NotARecord { path: folder, why });
        };
        let run_id = started.run_id.clone();
        let recorder = Self::new(folder, run_id, lock, None, HashMap::new(), None);
        let failed = |source| Error::Record { path: recorder.folder.clone(), source };
        let mut files: Vec<_> = recorder.write_source(&started.job_file, &started.plan).map_err(failed)?.into();
        files.extend(recorder.make_patch(summary.changed.as_ref()).map_err(failed)?);
        let result = summary.result();
        // If the last line couldn't be written, the result exists only in this file.
        let from_file = || read_result(&recorder.folder).ok().flatten();
        let shown = result.clone().or_else(from_file);
        files.extend(write_reports(&recorder, &started.plan, shown.as_ref()).map_err(failed)?);
        if let Some(result) = &result {
            files.extend(recorder.make_outputs(&summary).map_err(failed)?);
            files.push(recorder.make_result(result).map_err(failed)?);
            recorder.remove_run_files(result);
        }
        Ok(Rebuilt { files, torn, has_ended: result.is_some() })
    }
}

/// Summarizes the parent's journal, and lists the incomplete journals. Reads all of them, so that nothing is derived from a
/// modified record.
fn verify_journals(folder: &Path) -> Result<(RunModel, Vec<(String, JournalError)>), Error> {
    let mut summary = RunModel::default();
    let mut torn = Vec::new();
    for agent in agents(folder)? {
        let name = journal_file(&agent);
        let missing = || Error::NotARecord { path: folder.to_owned(), why: format!("it has no journal, {name}") };
        let entries = open_journal(folder, &agent)?.ok_or_else(missing)?;
        for entry in entries {
            match entry {
                Ok(entry) if entry.agent != agent => {
                    let why = "it contains another agent's events".to_owned();
                    return Err(Error::NotARecord { path: folder.join(&name), why });
                }
                Ok(entry) if agent == PARENT => summary.apply(&entry.agent, &entry.event, entry.at),
                Ok(_) => {}
                Err(error @ JournalError::Torn { .. }) => torn.push((name.clone(), error)),
                Err(error) => return Err(journal_error(folder.join(&name), error)),
            }
        }
    }
    Ok((summary, torn))
}
