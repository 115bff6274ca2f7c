//! The files that are made from the journals, and can be made from them again.

use std::cell::Cell;
use std::{fs, io};

use super::heartbeat::Heartbeat;
use super::{BASELINE_FILE, ExistingFile, JournalError, JournalReader, PATCH_FILE, Recorder, journal_file};
use crate::event::{AgentFinished, Durability, PARENT, RunResult, WorkspaceChanged, summary_file};
use crate::formats::{self, Transcript, markdown};
use crate::plan::Plan;

/// What people read, and the format that writes it.
const READABLE_FILES: [(&str, &str); 2] = [("transcript.md", "markdown"), ("report.html", "html")];

/// A file that was made, and what stood in its place.
pub(super) type WrittenFile = (String, ExistingFile);

impl Recorder {
    /// Writes what the run was made from: the job file and the plan.
    ///
    /// # Errors
    /// Where a file couldn't be written.
    pub fn write_source(&self, job_file: &str, plan: &Plan) -> io::Result<()> {
        self.make_source(job_file, plan).map(drop)
    }

    pub(super) fn make_source(&self, job_file: &str, plan: &Plan) -> io::Result<[WrittenFile; 2]> {
        let plan = serde_json::to_vec_pretty(plan)?;
        let job_file = self.write("job.yaml", job_file.as_bytes(), Durability::Written)?;
        let plan = self.write("plan.json", &plan, Durability::Written)?;
        Ok([("job.yaml".to_owned(), job_file), ("plan.json".to_owned(), plan)])
    }

    /// Writes a subagent's summary.
    ///
    /// # Errors
    /// Where the file couldn't be written.
    pub fn write_summary(&self, finished: &AgentFinished) -> io::Result<()> {
        self.make_summary(finished).map(drop)
    }

    pub(super) fn make_summary(&self, finished: &AgentFinished) -> io::Result<WrittenFile> {
        let name = summary_file(&finished.id);
        let found = self.write(&name, markdown::subagent_summary(finished).as_bytes(), Durability::Written)?;
        Ok((name, found))
    }

    /// Writes what people read, from the parent's journal.
    pub(super) fn make_readable(&self, plan: &Plan, result: Option<&RunResult>) -> io::Result<Vec<WrittenFile>> {
        let mut made = Vec::new();
        for (name, format) in READABLE_FILES {
            let Some(format) = formats::find(format) else { continue };
            let flaw = Cell::new(None);
            let journal = JournalReader::open(&self.folder, PARENT)?;
            let entries = journal.filter_map(|entry| entry.map_err(|found| flaw.set(Some(found))).ok());
            let mut story = Transcript::new(plan, result, entries);
            let found = self.write_with(name, Durability::Written, |out| {
                format.transcript(&mut story, out).unwrap_or(Ok(()))?;
                match flaw.take() {
                    // A journal that can't be written any more may end so; what it has is shown.
                    None | Some(JournalError::Torn { .. }) => Ok(()),
                    Some(flaw) => Err(io::Error::other(format!("the journal can't be used: {flaw}"))),
                }
            })?;
            made.push((name.to_owned(), found));
        }
        Ok(made)
    }

    /// Writes what the run has changed, where it has changed anything that can be shown.
    pub(super) fn make_patch(&self, changed: Option<&WorkspaceChanged>) -> io::Result<Option<WrittenFile>> {
        let Some(changed) = changed.filter(|changed| !changed.patch.is_empty()) else { return Ok(None) };
        let found = self.write(PATCH_FILE, changed.patch.as_bytes(), Durability::Written)?;
        Ok(Some((PATCH_FILE.to_owned(), found)))
    }

    /// Writes what is derived from the journal, and `result.json` last of all; drops the subagents' journals that
    /// aren't to be kept. After it go the heartbeat, and the start of the workspace where the run can't go on.
    ///
    /// # Errors
    /// Where a file couldn't be written; the journal is whole all the same.
    pub fn finish(
        &self,
        plan: &Plan,
        result: &RunResult,
        changed: Option<&WorkspaceChanged>,
        keep_journals: bool,
    ) -> io::Result<()> {
        self.journals.lock().unwrap_or_else(std::sync::PoisonError::into_inner).close_all();
        self.reserve.release();
        self.make_patch(changed)?;
        self.make_readable(plan, Some(result))?;
        if !keep_journals {
            for subagent in &result.subagents {
                self.faults.operation()?;
                match fs::remove_file(self.folder.join(journal_file(&subagent.id))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        self.make_result(result)?;
        self.remove_run_files(result);
        Ok(())
    }

    /// Takes away what only a run needs that goes on or can go on.
    fn remove_run_files(&self, result: &RunResult) {
        drop(super::lock(&self.heartbeat).take());
        Heartbeat::forget(&self.folder);
        if !result.outcome.can_be_resumed() && !result.outcome.is_a_limit() {
            let _ = fs::remove_file(self.folder.join(BASELINE_FILE));
        }
    }

    /// Writes `result.json` and nothing else. Where there is no room for it, what is derived from the journal makes way.
    ///
    /// # Errors
    /// Where it couldn't be written.
    pub fn write_result(&self, result: &RunResult) -> io::Result<()> {
        self.reserve.release();
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
        let mut json = serde_json::to_vec_pretty(result)?;
        json.push(b'\n');
        // It says that the run has ended, so it must not be there half after the machine's own end.
        let found = self.write("result.json", &json, Durability::Flushed)?;
        Ok(("result.json".to_owned(), found))
    }
}
