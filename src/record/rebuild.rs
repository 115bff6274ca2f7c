//! Everything that is derived from the journals, made again.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use super::disk_reserve::DiskReserve;
use super::fault_injection::FaultInjection;
use super::lock::RecordLock;
use super::read::{journal_error, subagents};
use super::temp_files::clean;
use super::{ExistingFile, JournalError, JournalReader, Recorder, files, journal_file};
use crate::error::Error;
use crate::event::{PARENT, RunResult, RunSummary};

/// What came of making a record's files again.
#[derive(Debug)]
pub struct Rebuilt {
    /// The files, relative to the run's folder, and what stood in their places.
    pub files: Vec<(String, ExistingFile)>,
    /// The journals that end amid a line, relative to the run's folder, and where.
    pub torn: Vec<(String, JournalError)>,
    /// Whether the journal has the run's end, and so its result.
    pub has_ended: bool,
}

impl Recorder {
    /// Locks a run's folder, checks all its journals, and writes what follows from them: `job.yaml`, `plan.json`, the
    /// summaries, the patch, the transcript, the report and, where the run has ended, `result.json`. Each appears whole or not at
    /// all. The journals stay as they are, and where one was changed, everything does.
    ///
    /// # Errors
    /// Where another process has the folder, there is no journal or no whole line in it, one was changed, another
    /// version wrote it, or a file can't be written.
    pub fn rebuild(folder: &Path) -> Result<Rebuilt, Error> {
        let folder = folder.canonicalize().map_err(|source| Error::Record { path: folder.to_owned(), source })?;
        let lock = RecordLock::take(&folder)?;
        clean(&folder);
        let (course, torn) = verify_journals(&folder)?;
        let Some((started, _)) = course.started() else {
            let why = "it was cut off before anything happened; start the job anew".to_owned();
            return Err(Error::NotARecord { path: folder, why });
        };
        let recorder = Self {
            run_id: started.run_id.clone(),
            folder,
            journals: Mutex::default(),
            reserve: DiskReserve::none(),
            lock,
            unstarted: Mutex::default(),
            heartbeat: Mutex::default(),
            key: None,
            faults: FaultInjection::default(),
        };
        let failed = |source| Error::Record { path: recorder.folder.clone(), source };
        let mut files: Vec<_> = recorder.make_source(&started.job_file, &started.plan).map_err(failed)?.into();
        for finished in course.summaries() {
            files.push(recorder.make_summary(finished).map_err(failed)?);
        }
        files.extend(recorder.make_patch(course.changed()).map_err(failed)?);
        let result = course.result();
        // A run whose last line couldn't be written has its result all the same, and only there.
        let left = || serde_json::from_slice::<RunResult>(&files::read(&recorder.folder, "result.json").ok()?).ok();
        let shown = result.clone().or_else(left);
        files.extend(recorder.make_readable(&started.plan, shown.as_ref()).map_err(failed)?);
        if let Some(result) = &result {
            files.push(recorder.make_result(result).map_err(failed)?);
        }
        Ok(Rebuilt { files, torn, has_ended: result.is_some() })
    }
}

/// What the parent's journal comes to, and which journals are torn. Reads them all, so that nothing is made from a
/// record that somebody changed.
fn verify_journals(folder: &Path) -> Result<(RunSummary, Vec<(String, JournalError)>), Error> {
    let mut course = RunSummary::default();
    let mut torn = Vec::new();
    for agent in std::iter::once(PARENT.to_owned()).chain(subagents(folder)?) {
        let name = journal_file(&agent);
        let path = folder.join(&name);
        let entries = JournalReader::open(folder, &agent).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                Error::NotARecord { path: folder.to_owned(), why: format!("it has no journal, {name}") }
            }
            _ => files::read_error(path.clone(), source),
        })?;
        for entry in entries {
            match entry {
                Ok(entry) if agent == PARENT => course.apply(&entry.event, entry.at),
                Ok(_) => {}
                Err(flaw @ JournalError::Torn { .. }) => torn.push((name.clone(), flaw)),
                Err(flaw) => return Err(journal_error(path, flaw)),
            }
        }
    }
    Ok((course, torn))
}
