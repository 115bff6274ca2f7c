//! A run's folder, taken up again after the run was cut off.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Mutex;

use jiff::Timestamp;

use super::heartbeat::Heartbeat;
use super::journal::{Entries, Flaw};
use super::journals::Journals;
use super::lock::Lock;
use super::read::unusable;
use super::reserve::Reserve;
use super::seal::RecordKey;
use super::temporary::clean;
use super::trial::Trial;
use super::{PATCH, Record, Recorder, START, files, journal_file, private};
use crate::error::Error;
use crate::event::{Entry, Event, Outcome, PARENT};

/// A folder that can be written again, and what it holds.
#[derive(Debug)]
pub struct Reopened {
    /// Writes on.
    pub recorder: Recorder,
    /// What was recorded.
    pub record: Record,
    /// The journals' events, oldest first, by the agents' ids.
    pub journals: BTreeMap<String, Vec<Entry>>,
    /// When the run was last seen to go on, where it was killed.
    pub last_seen: Option<Timestamp>,
    /// Whether it was made with the same key, and so here.
    pub is_ours: bool,
}

impl Recorder {
    /// Locks a run's folder, checks its journals and cuts off lines that were torn.
    ///
    /// # Errors
    /// Where another process has it, the run has ended for good ([`Error::Ended`]), or its record is damaged. A run that a
    /// limit ended has ended for good unless `raises_a_limit`.
    pub fn reopen(folder: &Path, raises_a_limit: bool, key: Option<RecordKey>) -> Result<Reopened, Error> {
        let folder = folder.canonicalize().map_err(|source| Error::Record { path: folder.to_owned(), source })?;
        let lock = Lock::take(&folder)?;
        clean(&folder);
        let record = Record::open(&folder)?;
        let goes_on = |outcome: Outcome| outcome.can_be_resumed() || (raises_a_limit && outcome.is_a_limit());
        if let Some(result) = record.result.as_ref().filter(|result| !goes_on(result.outcome)) {
            if !result.outcome.is_a_limit() {
                // It was killed just after it had ended.
                let _ = fs::remove_file(folder.join(START));
            }
            Heartbeat::forget(&folder);
            return Err(Error::Ended {
                run_id: result.run_id.clone(),
                outcome: result.outcome,
                exit_code: result.exit_code,
            });
        }
        let mut journals = BTreeMap::new();
        let mut is_ours = false;
        let mut there = HashMap::new();
        for agent in std::iter::once(PARENT.to_owned()).chain(record.subagents()?) {
            let Some(Taken { entries, sum, is_sealed }) = take_up(&folder, &agent, key.as_ref())? else { continue };
            is_ours |= agent == PARENT && is_sealed;
            there.insert(agent.clone(), (entries.last().map_or(0, |entry| entry.seq), sum));
            journals.insert(agent, entries);
        }
        fitting(&folder, &journals)?;
        let run_id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reserve = Reserve::hold(&folder);
        let journals_of = Mutex::new(Journals::earlier(there));
        let last_seen = Heartbeat::last(&folder);
        let recorder = Self {
            folder,
            run_id,
            journals: journals_of,
            reserve,
            lock,
            unbegun: Mutex::default(),
            heartbeat: Mutex::default(),
            key,
            trial: Trial::default(),
        };
        Ok(Reopened { recorder, record, journals, last_seen, is_ours })
    }

    /// Takes the result and the patch of an earlier part of the run away: until this part has ended, there are none.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn forget_result(&self) -> io::Result<()> {
        self.trial.operation()?;
        let _ = fs::remove_file(self.folder.join(PATCH));
        match fs::remove_file(self.folder.join("result.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A journal that is written on.
struct Taken {
    entries: Vec<Entry>,
    /// The checksum of its last line.
    sum: String,
    /// Whether it was written with the key.
    is_sealed: bool,
}

/// Reads a journal, and cuts a torn line off; `None` where there is none.
fn take_up(folder: &Path, agent: &str, key: Option<&RecordKey>) -> Result<Option<Taken>, Error> {
    let path = folder.join(journal_file(agent));
    let failed = |source| Error::Record { path: path.clone(), source };
    let mut read = match Entries::open(folder, agent) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(files::unreadable(path, source)),
    };
    let mut entries = Vec::new();
    for entry in &mut read {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(Flaw::Torn { .. }) => break,
            Err(flaw) => return Err(unusable(path, flaw)),
        }
    }
    let (whole, sum) = read.end();
    let file: File = private().append(true).open(&path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > whole {
        file.set_len(whole).map_err(failed)?;
    }
    Ok(Some(Taken { entries, sum: sum.to_owned(), is_sealed: key.is_some_and(|key| read.is_sealed_by(key)) }))
}

/// Whether journals, each whole in itself, are those of one run: so that what one of them begins, the others know.
fn fitting(folder: &Path, journals: &BTreeMap<String, Vec<Entry>>) -> Result<(), Error> {
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
