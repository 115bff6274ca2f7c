//! A run's folder, taken up again after the run was cut off.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Mutex;

use jiff::Timestamp;

use super::disk_reserve::DiskReserve;
use super::fault_injection::FaultInjection;
use super::heartbeat::Heartbeat;
use super::journal::{JournalError, JournalReader};
use super::journal_set::JournalSet;
use super::lock::RecordLock;
use super::read::journal_error;
use super::seal::RecordKey;
use super::temp_files::clean;
use super::{BASELINE_FILE, PATCH_FILE, Record, Recorder, files, journal_file, private_file_options};
use crate::error::Error;
use crate::event::{Event, JournalEntry, Outcome, PARENT};

/// A folder that can be written again, and what it holds.
#[derive(Debug)]
pub struct ResumedRecord {
    /// Writes on.
    pub recorder: Recorder,
    /// What was recorded.
    pub record: Record,
    /// The journals' events, oldest first, by the agents' ids.
    pub journals: BTreeMap<String, Vec<JournalEntry>>,
    /// When the run was last seen to go on, where it was killed.
    pub last_seen: Option<Timestamp>,
    /// Whether it was made with the same key, and so here.
    pub has_our_key: bool,
}

impl Recorder {
    /// Locks a run's folder, checks its journals and cuts off lines that were torn.
    ///
    /// # Errors
    /// Where another process has it, the run has ended for good ([`Error::Ended`]), or its record is damaged. A run that a
    /// limit ended has ended for good unless `raises_a_limit`.
    pub fn resume(folder: &Path, raises_a_limit: bool, key: Option<RecordKey>) -> Result<ResumedRecord, Error> {
        let folder = folder.canonicalize().map_err(|source| Error::Record { path: folder.to_owned(), source })?;
        let lock = RecordLock::take(&folder)?;
        clean(&folder);
        let record = Record::open(&folder)?;
        let goes_on = |outcome: Outcome| outcome.can_be_resumed() || (raises_a_limit && outcome.is_a_limit());
        if let Some(result) = record.result.as_ref().filter(|result| !goes_on(result.outcome)) {
            if !result.outcome.is_a_limit() {
                // It was killed just after it had ended.
                let _ = fs::remove_file(folder.join(BASELINE_FILE));
            }
            Heartbeat::forget(&folder);
            return Err(Error::RunEnded {
                run_id: result.run_id.clone(),
                outcome: result.outcome,
                exit_code: result.exit_code,
            });
        }
        let mut journals = BTreeMap::new();
        let mut is_ours = false;
        let mut there = HashMap::new();
        for agent in std::iter::once(PARENT.to_owned()).chain(record.subagents()?) {
            let Some(OpenedJournal { entries, sum, is_sealed }) = reopen_journal(&folder, &agent, key.as_ref())? else {
                continue;
            };
            is_ours |= agent == PARENT && is_sealed;
            there.insert(agent.clone(), (entries.last().map_or(0, |entry| entry.seq), sum));
            journals.insert(agent, entries);
        }
        check_consistency(&folder, &journals)?;
        let run_id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reserve = DiskReserve::allocate(&folder);
        let journals_of = Mutex::new(JournalSet::from_ends(there));
        let last_seen = Heartbeat::last(&folder);
        let recorder = Self {
            folder,
            run_id,
            journals: journals_of,
            reserve,
            lock,
            unstarted: Mutex::default(),
            heartbeat: Mutex::default(),
            key,
            faults: FaultInjection::default(),
        };
        Ok(ResumedRecord { recorder, record, journals, last_seen, has_our_key: is_ours })
    }

    /// Takes the result and the patch of an earlier part of the run away: until this part has ended, there are none.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn remove_result(&self) -> io::Result<()> {
        self.faults.operation()?;
        let _ = fs::remove_file(self.folder.join(PATCH_FILE));
        match fs::remove_file(self.folder.join("result.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A journal that is written on.
struct OpenedJournal {
    entries: Vec<JournalEntry>,
    /// The checksum of its last line.
    sum: String,
    /// Whether it was written with the key.
    is_sealed: bool,
}

/// Reads a journal, and cuts a torn line off; `None` where there is none.
fn reopen_journal(folder: &Path, agent: &str, key: Option<&RecordKey>) -> Result<Option<OpenedJournal>, Error> {
    let path = folder.join(journal_file(agent));
    let failed = |source| Error::Record { path: path.clone(), source };
    let mut read = match JournalReader::open(folder, agent) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(files::read_error(path, source)),
    };
    let mut entries = Vec::new();
    for entry in &mut read {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(JournalError::Torn { .. }) => break,
            Err(flaw) => return Err(journal_error(path, flaw)),
        }
    }
    let (whole, sum) = read.position();
    let file: File = private_file_options().append(true).open(&path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > whole {
        file.set_len(whole).map_err(failed)?;
    }
    Ok(Some(OpenedJournal { entries, sum: sum.to_owned(), is_sealed: key.is_some_and(|key| read.is_sealed_by(key)) }))
}

/// Whether journals, each whole in itself, are those of one run: so that what one of them begins, the others know.
fn check_consistency(folder: &Path, journals: &BTreeMap<String, Vec<JournalEntry>>) -> Result<(), Error> {
    let misfit =
        |agent: &str, why: &str| Err(Error::NotARecord { path: folder.join(journal_file(agent)), why: why.to_owned() });
    let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
    for entry in journals.get(PARENT).into_iter().flatten() {
        match &entry.event {
            Event::CallStarted(started) => begun.extend(&started.child),
            Event::AgentFinished(finished) if !finished.outcome.was_cut_off() => drop(ended.insert(&finished.id)),
            _ => {}
        }
    }
    for (agent, entries) in journals {
        if entries.iter().any(|entry| entry.agent != *agent) {
            return misfit(agent, "it holds another agent's events");
        }
        // One that is empty was made just before the run was cut off.
        if agent != PARENT && !begun.contains(agent) && !entries.is_empty() {
            return misfit(agent, "the parent's journal knows nothing of this subagent");
        }
    }
    match begun.into_iter().find(|id| !ended.contains(id) && !journals.contains_key(*id)) {
        Some(missing) => misfit(missing, "it isn't there, and the subagent was under way"),
        None => Ok(()),
    }
}
