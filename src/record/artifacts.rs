//! Writes the files that are derived from the journals.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::files::{BASELINE_FILE, JOB_FILE, PATCH_FILE, PLAN_FILE, REPORT_FILE, RESULT_FILE, TRANSCRIPT_FILE};
use super::recorder::{ExistingFile, Recorder};
use crate::event::{PARENT, RunModel, RunResult, WorkspaceChanged};
use crate::journal::journal_file;
use crate::plan::Plan;
use crate::workspace::new_file::NewFile;

/// A file that was written, and the previous state of its path.
pub type WrittenFile = (String, ExistingFile);

/// Writes what people read of a run, such as the transcript: from its journals, its plan and its result if there is one.
pub type WriteReports = fn(&Recorder, &Plan, Option<&RunResult>) -> io::Result<Vec<WrittenFile>>;

impl Recorder {
    /// Writes the job file and the plan.
    ///
    /// # Errors
    /// If a file couldn't be written.
    pub fn write_source(&self, job_file: &str, plan: &Plan) -> io::Result<[WrittenFile; 2]> {
        let plan = serde_json::to_vec_pretty(plan)?;
        let job_file = self.write_new(JOB_FILE, job_file.as_bytes())?;
        let plan = self.write_new(PLAN_FILE, &plan)?;
        Ok([(JOB_FILE.to_owned(), job_file), (PLAN_FILE.to_owned(), plan)])
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
    /// If a file couldn't be written. The journal is complete anyway, unless it couldn't be flushed.
    pub async fn finish(
        self: &Arc<Self>,
        plan: &Plan,
        result: &RunResult,
        model: &RunModel,
        keep_journals: bool,
        write_reports: WriteReports,
    ) -> io::Result<()> {
        let mut request = self.take_unflushed(PARENT);
        let file = match &self.slot {
            // Other rows of the map continue meanwhile.
            Some(_) => {
                let (recorder, plan, result) = (Arc::clone(self), plan.clone(), result.clone());
                let model = model.outside();
                let write = move || recorder.write_derived_files(&plan, &result, &model, write_reports);
                tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??
            }
            // The disk takes the journal meanwhile.
            None => {
                let flushed = self.flush_in_background(PARENT, std::mem::take(&mut request));
                let written = self.write_derived_files(plan, result, model, write_reports);
                flushed.await?;
                written?
            }
        };
        // It says that the run has ended, so it must not be incomplete after a crash of the machine.
        request.files.push(Arc::new(file.file().try_clone()?));
        // A failure may be one too many, so it is counted before another row begins.
        if let Some(slot) = self.slot.as_ref().filter(|_| result.exit_code == 0) {
            // Nothing is gained by sharing a flush if no row begins meanwhile.
            request.can_wait = slot.give_up();
        }
        self.flush_with_journal(PARENT, request).await?;
        self.lock.check(&self.folder)?;
        if !keep_journals {
            for subagent in &result.subagents {
                self.faults.operation()?;
                match self.open_folder().remove_file(Path::new(&journal_file(&subagent.id))) {
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

    /// Writes the files derived from the journal. Returns `result.json`, which hasn't got its name yet.
    fn write_derived_files(
        &self,
        plan: &Plan,
        result: &RunResult,
        model: &RunModel,
        write_reports: WriteReports,
    ) -> io::Result<NewFile> {
        let write_files = || {
            self.make_patch(model.changed.as_ref())?;
            self.make_outputs(model)?;
            write_reports(self, plan, Some(result))?;
            self.write_temporary(RESULT_FILE, |out| write_result_json(result, out))
        };
        let written = write_files().or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.release_disk_space();
                write_files()
            }
            _ => Err(error),
        });
        written.map(|(file, _)| file)
    }

    /// Removes the files that only a running or resumable run needs.
    pub(super) fn remove_run_files(&self, result: &RunResult) {
        if self.slot.is_some() && result.exit_code == 0 {
            self.lock.lease.leave_to_next_run();
        } else {
            self.lock.lease.release();
        }
        if !result.outcome.can_be_resumed() && !result.outcome.is_a_limit() {
            let _ = self.open_folder().remove_file(Path::new(BASELINE_FILE));
        }
    }

    /// Writes only `result.json`. If the disk is full, files that can be derived from the journal are removed for it.
    ///
    /// # Errors
    /// If it couldn't be written.
    pub fn write_result(&self, result: &RunResult) -> io::Result<()> {
        self.release_disk_space();
        self.make_result(result).map(drop).or_else(|_| {
            self.lock.check(&self.folder)?;
            for name in [TRANSCRIPT_FILE, REPORT_FILE] {
                let _ = self.open_folder().remove_file(Path::new(name));
            }
            self.make_result(result).map(drop)
        })?;
        self.remove_run_files(result);
        Ok(())
    }

    pub(super) fn make_result(&self, result: &RunResult) -> io::Result<WrittenFile> {
        let (file, existing) = self.write_temporary(RESULT_FILE, |out| write_result_json(result, out))?;
        if existing != ExistingFile::Identical {
            self.faults.operation()?;
            file.file().sync_data()?;
            self.persist(file, RESULT_FILE)?;
        }
        Ok((RESULT_FILE.to_owned(), existing))
    }
}

fn write_result_json(result: &RunResult, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, result)?;
    out.write_all(b"\n")
}
