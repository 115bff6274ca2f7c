//! Opens the record of an interrupted run so that the run can be resumed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::files::{BASELINE_FILE, PATCH_FILE, RESULT_FILE, open_for_appending};
use super::journal_files::{open_journal, read_entries};
use super::lock::RecordLock;
use super::read::Record;
use super::recorder::{Recorder, reserve_disk_space, take};
use super::state::{Depth, RecordQuery, ResultSource};
use crate::error::{ContinuedBy, Error, Obstacle};
use crate::event::{Event, JournalEntry, Outcome, PARENT};
use crate::journal::{JournalEnd, RecordKey, journal_file};
use crate::workspace::open_root::OpenRoot;

/// A record that was opened for resuming, and its content.
#[derive(Debug)]
pub struct ResumedRecord {
    /// Continues the record.
    pub recorder: Recorder,
    /// The record so far.
    pub record: Record,
    /// The journals by agent id, oldest entries first.
    pub journals: BTreeMap<String, Vec<JournalEntry>>,
    /// When the run was last alive, if it was killed.
    pub last_seen: Option<Timestamp>,
    /// Whether the record was made with our key.
    pub has_our_key: bool,
}

impl Recorder {
    /// Locks a run's folder, verifies its journals and cuts off incomplete lines. A run that ended because of a limit can only
    /// be resumed if `raises_a_limit`.
    ///
    /// # Errors
    /// If another process uses the folder, the run can't be resumed ([`Error::RunEnded`]), or its record is damaged; without
    /// `accepts_loss` also if a journal has lost lines at its end ([`Obstacle::LinesLost`]).
    pub fn resume(
        folder: &Path,
        raises_a_limit: bool,
        accepts_loss: bool,
        key: Option<RecordKey>,
    ) -> Result<ResumedRecord, Error> {
        let (folder, lock) = take(folder)?;
        let query = RecordQuery { holds_lock: true, ..RecordQuery::new(&folder, Depth::Summary) };
        let record = Record::read(&query)?.undamaged()?;
        let is_resumable = |outcome: Outcome| outcome.can_be_resumed() || (raises_a_limit && outcome.is_a_limit());
        if let Some(result) = record.result().filter(|result| !is_resumable(result.outcome)) {
            if !result.outcome.is_a_limit() {
                // The process was killed just after the run had ended.
                let _ = lock.root.remove_file(Path::new(BASELINE_FILE));
            }
            lock.lease.release();
            return Err(Error::RunEnded {
                run_id: result.run_id.clone(),
                outcome: result.outcome,
                exit_code: result.exit_code,
            });
        }
        Self::resume_locked(folder, lock, record, accepts_loss, key)
    }

    /// Continues a record whose folder is locked. `folder` is its canonical path.
    pub(super) fn resume_locked(
        folder: PathBuf,
        lock: RecordLock,
        record: Record,
        accepts_loss: bool,
        key: Option<RecordKey>,
    ) -> Result<ResumedRecord, Error> {
        let flushed: HashMap<String, u64> = lock.lease.flushed().into_iter().collect();
        let mut journals = BTreeMap::new();
        let mut has_our_key = false;
        let mut ends = HashMap::new();
        for agent in record.agents()? {
            let Some(mut reader) = open_journal(&folder, &agent)? else { continue };
            let entries = read_entries(&folder, &agent, &mut reader)?;
            let lines = entries.last().map_or(0, |entry| entry.seq);
            if let Some(flushed) = flushed.get(&agent).copied().filter(|flushed| *flushed > lines && !accepts_loss) {
                return Err(lines_lost(folder, journal_file(&agent), lines, flushed));
            }
            let (whole_bytes, sum) = reader.position();
            let path = folder.join(journal_file(&agent));
            cut_off(&lock.root, &agent, whole_bytes).map_err(|source| Error::Record { path, source })?;
            has_our_key |= agent == PARENT && key.as_ref().is_some_and(|key| reader.is_sealed_by(key));
            let end = JournalEnd { lines, sum: sum.to_owned(), digest: reader.digest().clone() };
            ends.insert(agent.clone(), end);
            journals.insert(agent, entries);
        }
        if let Some((agent, lines)) = cut_journal(&record, &journals).filter(|_| !accepts_loss) {
            return Err(lines_lost(folder, journal_file(&agent), lines, lines + 1));
        }
        check_consistency(&folder, &journals)?;
        record.check_attachments(&journals)?;
        let run_id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reserve = reserve_disk_space(lock.root.folder());
        let last_seen = lock.lease.last_seen();
        let recorder = Self::new(folder, run_id, lock, reserve, ends, key);
        Ok(ResumedRecord { recorder, record, journals, last_seen, has_our_key })
    }

    /// Removes the result and the patch of the earlier part of the run, because the run hasn't ended any more.
    ///
    /// # Errors
    /// If the result can't be removed.
    pub fn remove_result(&self) -> io::Result<()> {
        self.faults.operation()?;
        let _ = self.open_folder().remove_file(Path::new(PATCH_FILE));
        match self.open_folder().remove_file(Path::new(RESULT_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Cuts off an incomplete line after the complete ones.
fn cut_off(record: &OpenRoot, agent: &str, whole_bytes: u64) -> io::Result<()> {
    let file = open_for_appending(record.folder(), &journal_file(agent))?;
    if file.metadata()?.len() > whole_bytes { file.set_len(whole_bytes) } else { Ok(()) }
}

/// The error for a journal with fewer lines than were on the disk.
pub(super) fn lines_lost(record: PathBuf, journal: String, lines: u64, flushed: u64) -> Error {
    let obstacle = Obstacle::LinesLost { journal, lines, flushed };
    Error::CannotContinue { record, obstacle, by: ContinuedBy::Resume }
}

/// The journal of a stopped run that lacks its last line, and how many lines it has. `result.json` is written after all journals
/// are on the disk, so each of them must end as that of a run or an agent that has ended. Where the disk failed, there may be a
/// result without that. Without the file, they needn't be on the disk.
fn cut_journal(record: &Record, journals: &BTreeMap<String, Vec<JournalEntry>>) -> Option<(String, u64)> {
    let was_flushed = record.state.source() != Some(ResultSource::JournalForMissingFile);
    let result = record.result().filter(|result| was_flushed && result.outcome != Outcome::EnvironmentFailed)?;
    let parent = journals.get(PARENT)?;
    let lines = |entries: &[JournalEntry]| entries.last().map_or(0, |entry| entry.seq);
    let is_end = |entry: &JournalEntry| matches!(entry.event, Event::RunFinished(_));
    if !parent.last().is_some_and(is_end) {
        // A process that was to continue the run may have been killed before it removed the result.
        let has_end = parent.iter().any(|entry| is_end(entry) && entry.at == result.finished_at);
        return (!has_end).then(|| (PARENT.to_owned(), lines(parent)));
    }
    parent.iter().rev().find_map(|entry| match &entry.event {
        Event::AgentFinished(finished) if finished.id != PARENT && finished.outcome.was_cut_off() => {
            let entries = journals.get(&finished.id)?;
            let is_whole = entries.last().is_some_and(|entry| matches!(entry.event, Event::AgentFinished(_)));
            (!is_whole).then(|| (finished.id.clone(), lines(entries)))
        }
        _ => None,
    })
}

/// Checks that journals, each of which is valid, belong to the same run.
fn check_consistency(folder: &Path, journals: &BTreeMap<String, Vec<JournalEntry>>) -> Result<(), Error> {
    let inconsistent =
        |agent: &str, why: &str| Err(Error::NotARecord { path: folder.join(journal_file(agent)), why: why.to_owned() });
    let (mut started_agents, mut ended) = (HashSet::new(), HashSet::new());
    for entry in journals.get(PARENT).into_iter().flatten() {
        match &entry.event {
            Event::CallStarted(started) => started_agents.extend(&started.child),
            Event::AgentFinished(finished) if !finished.outcome.was_cut_off() => drop(ended.insert(&finished.id)),
            _ => {}
        }
    }
    for (agent, entries) in journals {
        // An empty journal was created just before the run was interrupted.
        if agent != PARENT && !started_agents.contains(agent) && !entries.is_empty() {
            return inconsistent(agent, "the parent's journal doesn't mention this subagent");
        }
    }
    match started_agents.into_iter().find(|id| !ended.contains(id) && !journals.contains_key(*id)) {
        Some(missing) => inconsistent(missing, "it is missing, although the subagent had started"),
        None => Ok(()),
    }
}
