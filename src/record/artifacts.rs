//! Writes the files that are derived from the journals.

use std::cell::Cell;
use std::sync::Arc;
use std::{fs, io};

use super::files::{BASELINE_FILE, JOB_FILE, PATCH_FILE, PLAN_FILE, REPORT_FILE, RESULT_FILE, TRANSCRIPT_FILE};
use super::read::journal_reader;
use super::recorder::{ExistingFile, Recorder};
use crate::event::{AgentFinished, PARENT, RunResult, WorkspaceChanged, summary_file};
use crate::formats::{Transcript, html, markdown};
use crate::journal::{JournalError, journal_file};
use crate::plan::Plan;

/// The files for people, and the formats that write them.
const READABLE_FILES: [(&str, WriteTranscript); 2] =
    [(TRANSCRIPT_FILE, markdown::transcript), (REPORT_FILE, html::transcript)];
type WriteTranscript = fn(&mut Transcript<'_>, &mut dyn io::Write) -> io::Result<()>;

/// A file that was written, and the previous state of its path.
pub(super) type WrittenFile = (String, ExistingFile);

impl Recorder {
    /// Writes the job file and the plan.
    ///
    /// # Errors
    /// If a file couldn't be written.
    pub fn write_source(&self, job_file: &str, plan: &Plan) -> io::Result<[WrittenFile; 2]> {
        let plan = serde_json::to_vec_pretty(plan)?;
        let job_file = self.write(JOB_FILE, job_file.as_bytes())?;
        let plan = self.write(PLAN_FILE, &plan)?;
        Ok([(JOB_FILE.to_owned(), job_file), (PLAN_FILE.to_owned(), plan)])
    }

    /// Writes a subagent's summary.
    ///
    /// # Errors
    /// If the file couldn't be written.
    pub fn write_summary(&self, finished: &AgentFinished) -> io::Result<WrittenFile> {
        let name = summary_file(&finished.id);
        let existing = self.write(&name, markdown::subagent_summary(finished).as_bytes())?;
        Ok((name, existing))
    }

    /// Writes the transcript and the report from the parent's journal.
    pub(super) fn make_readable(&self, plan: &Plan, result: Option<&RunResult>) -> io::Result<Vec<WrittenFile>> {
        let mut made = Vec::new();
        for (name, write) in READABLE_FILES {
            let journal_error = Cell::new(None);
            let journal = journal_reader(&self.folder, PARENT)?;
            let entries = journal.filter_map(|entry| entry.map_err(|error| journal_error.set(Some(error))).ok());
            let mut transcript = Transcript::new(plan, result, entries);
            let existing = self.write_with(name, |out| {
                write(&mut transcript, out)?;
                match journal_error.take() {
                    // A journal that couldn't be written any more may end like this.
                    None | Some(JournalError::Torn { .. }) => Ok(()),
                    Some(error) => Err(io::Error::other(format!("the journal can't be used: {error}"))),
                }
            })?;
            made.push((name.to_owned(), existing));
        }
        Ok(made)
    }

    /// Writes what the run has changed, if there is anything to show.
    pub(super) fn make_patch(&self, changed: Option<&WorkspaceChanged>) -> io::Result<Option<WrittenFile>> {
        let Some(changed) = changed.filter(|changed| !changed.patch.is_empty()) else { return Ok(None) };
        let existing = self.write(PATCH_FILE, changed.patch.as_bytes())?;
        Ok(Some((PATCH_FILE.to_owned(), existing)))
    }

    /// Writes the files derived from the journal, and flushes the journal. Then the subagents' journals are removed unless they
    /// should be kept, `result.json` gets its name, and the lease and, if the run can't be resumed, the workspace baseline are
    /// removed.
    ///
    /// # Errors
    /// If a file couldn't be written. The journal is complete all the same, unless it couldn't be flushed.
    pub async fn finish(
        &self,
        plan: &Plan,
        result: &RunResult,
        changed: Option<&WorkspaceChanged>,
        keep_journals: bool,
    ) -> io::Result<()> {
        let write_files = || {
            self.make_patch(changed)?;
            self.make_readable(plan, Some(result))?;
            self.write_temporary(RESULT_FILE, |out| write_result_json(result, out))
        };
        let (file, _) = write_files().or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.release_disk_space();
                write_files()
            }
            _ => Err(error),
        })?;
        let mut request = self.take_unflushed(PARENT);
        // It says that the run has ended, so it must not be incomplete after a crash of the machine.
        request.files.push(Arc::new(file.as_file().try_clone()?));
        self.flush_with_journal(PARENT, request).await?;
        if !keep_journals {
            for subagent in &result.subagents {
                self.faults.operation()?;
                match fs::remove_file(self.folder.join(journal_file(&subagent.id))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        self.persist(file, RESULT_FILE)?;
        self.remove_run_files(result);
        self.return_disk_space();
        Ok(())
    }

    /// Removes the files that only a running or resumable run needs.
    pub(super) fn remove_run_files(&self, result: &RunResult) {
        self.lock.lease.release();
        if !result.outcome.can_be_resumed() && !result.outcome.is_a_limit() {
            let _ = fs::remove_file(self.folder.join(BASELINE_FILE));
        }
    }

    /// Writes only `result.json`. If the disk is full, files that can be derived from the journal are removed for it.
    ///
    /// # Errors
    /// If it couldn't be written.
    pub fn write_result(&self, result: &RunResult) -> io::Result<()> {
        self.release_disk_space();
        self.make_result(result).map(drop).or_else(|_| {
            for (name, _) in READABLE_FILES {
                let _ = fs::remove_file(self.folder.join(name));
            }
            self.make_result(result).map(drop)
        })?;
        self.remove_run_files(result);
        Ok(())
    }

    pub(super) fn make_result(&self, result: &RunResult) -> io::Result<WrittenFile> {
        let (file, existing) = self.write_temporary(RESULT_FILE, |out| write_result_json(result, out))?;
        if existing == ExistingFile::Identical {
            file.close()?;
        } else {
            self.faults.operation()?;
            file.as_file().sync_data()?;
            self.persist(file, RESULT_FILE)?;
        }
        Ok((RESULT_FILE.to_owned(), existing))
    }
}

fn write_result_json(result: &RunResult, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, result)?;
    out.write_all(b"\n")
}
