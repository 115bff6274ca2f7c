//! Reads a record.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::PLAN_FILE;
use super::journal_files::{JournalFile, journal_reader, open_error, open_journal, read_entries};
use super::state::{Depth, FileDefect, RecordQuery, RecordReading, RecordState, RunStart, read_versioned};
use crate::conversation::Conversation;
use crate::error::Error;
use crate::event::{FORMAT, JournalEntry, PARENT, RunModel, RunResult, is_agent_id};
use crate::journal::{RecordKey, RunDigests, is_same_mac, journal_file};
use crate::plan::Plan;

/// A record that was opened for reading.
#[derive(Debug)]
pub struct Record {
    /// The run's folder.
    pub folder: PathBuf,
    /// The plan of the run.
    pub plan: Plan,
    /// How the run started, if its journal says it.
    pub start: Option<RunStart>,
    /// What the record says about the run.
    pub state: RecordState,
    /// What every command says about the record because a part of it is lost or missing.
    pub defect: Option<String>,
}

impl Record {
    /// Opens a run's folder. The plan is read from the journal, or from `plan.json` if the run was interrupted before its first
    /// event. Lines after the first that are damaged aren't an error: who reads them finds them.
    ///
    /// # Errors
    /// If there is no plan, another version wrote the record ([`Error::OtherFormat`]), or a file is invalid.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::read(&RecordQuery::new(folder, Depth::Summary))
    }

    /// Opens the record that is asked for, as [`Self::open`] does.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn read(query: &RecordQuery<'_>) -> Result<Self, Error> {
        Self::from_reading(query.folder, query.read(&mut |_| {})?, false)
    }

    /// Opens a run's folder for showing what can be read of it. The plan is that of `plan.json` if the start of the journal
    /// is damaged.
    ///
    /// # Errors
    /// If there is no plan, or another version wrote the record ([`Error::OtherFormat`]).
    pub fn open_damaged(folder: &Path) -> Result<Self, Error> {
        let reading = RecordQuery::new(folder, Depth::Summary).read(&mut |_| {})?;
        Self::from_reading(folder, reading, true)
    }

    /// The record of which this was read. Without `accepts_damage`, a start that is damaged is an error.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn from_reading(folder: &Path, reading: RecordReading, accepts_damage: bool) -> Result<Self, Error> {
        let RecordReading { state, defect, start, plan, .. } = reading;
        let damage = match state.unqualified() {
            RecordState::OtherFormat { .. } => return Err(state.error(folder)),
            RecordState::Damaged(damage) if plan.is_some() || accepts_damage => Some(damage),
            RecordState::Damaged(_) => return Err(state.error(folder)),
            _ => None,
        };
        // The line of a journal is named by who reads the journal.
        let defect = defect.filter(|_| damage.is_none_or(|damage| damage.file.is_empty()));
        let plan = match plan {
            Some(plan) => plan,
            None => match read_versioned::<Plan>(folder, PLAN_FILE) {
                Ok(Some(plan)) => plan,
                Err(_) if damage.is_some() => return Err(state.error(folder)),
                Ok(None) => return Err(state.error(folder)),
                Err(FileDefect::OtherFormat(format)) => {
                    return Err(Error::OtherFormat { path: folder.join(PLAN_FILE), format, version: None });
                }
                Err(FileDefect::Unreadable(why)) => {
                    return Err(Error::NotARecord { path: folder.join(PLAN_FILE), why: format!("it {why}") });
                }
            },
        };
        if plan.format != FORMAT {
            let (path, format) = (folder.join(PLAN_FILE), plan.format.into());
            return Err(Error::OtherFormat { path, format, version: None });
        }
        Ok(Self { folder: folder.to_owned(), plan, start, state, defect })
    }

    /// How the run ended, if it has.
    pub fn result(&self) -> Option<&RunResult> {
        self.state.result()
    }

    /// The record, if nothing that was read of it is damaged.
    ///
    /// # Errors
    /// Something is.
    pub fn undamaged(self) -> Result<Self, Error> {
        match self.state.unqualified() {
            RecordState::Damaged(_) => Err(self.state.error(&self.folder)),
            _ => Ok(self),
        }
    }

    /// An agent's entries, oldest first. The journal is verified while it is read.
    ///
    /// # Errors
    /// If the agent has no journal, or it can't be opened.
    pub fn entries(&self, agent: &str) -> Result<JournalFile, Error> {
        let failed = |source| open_error(self.folder.join(journal_file(agent)), source);
        journal_reader(&self.folder, agent).map_err(failed)
    }

    /// Whether the record was made with a key, so that the permissions in its plan are those that the run had.
    ///
    /// # Errors
    /// If the journal can't be read.
    pub fn is_signed_by(&self, key: &RecordKey) -> Result<bool, Error> {
        let mut entries = self.entries(PARENT)?;
        while let Some(Ok(_)) = entries.next() {}
        Ok(entries.is_sealed_by(key))
    }

    /// The checksum of the last line of the parent's journal.
    ///
    /// # Errors
    /// If the journal can't be read, or was modified.
    pub fn journal_head(&self) -> Result<String, Error> {
        let mut entries = self.entries(PARENT)?;
        read_entries(&self.folder, PARENT, &mut entries)?;
        Ok(entries.position().1.to_owned())
    }

    /// Whether the seal with which the run ended was made with a key, and nothing in the journals has changed since; `None` if
    /// there is no seal.
    ///
    /// # Errors
    /// If a journal can't be read, or was modified.
    pub fn is_sealed_by(&self, key: &RecordKey) -> Result<Option<bool>, Error> {
        let (mut digests, mut seal) = (RunDigests::default(), None);
        for agent in self.agents()? {
            let mut entries = self.entries(&agent)?;
            read_entries(&self.folder, &agent, &mut entries)?;
            match (agent.as_str(), entries.run_seal()) {
                (PARENT, Some(found)) => {
                    seal = Some((found.line.clone(), found.seal.clone()));
                    digests.add(PARENT, &found.before);
                }
                _ => digests.add(&agent, entries.digest()),
            }
        }
        Ok(seal.map(|(line, seal)| is_same_mac(&seal, &key.run_mac(&digests, &line))))
    }

    /// All journals by agent id, without incomplete last lines.
    ///
    /// # Errors
    /// If one can't be read, was modified, or was written by another version.
    pub fn journals(&self) -> Result<BTreeMap<String, Vec<JournalEntry>>, Error> {
        let mut journals = BTreeMap::new();
        for agent in self.agents()? {
            let entries = read_entries(&self.folder, &agent, &mut self.entries(&agent)?)?;
            journals.insert(agent, entries);
        }
        Ok(journals)
    }

    /// What has happened in the run. Journals that can be read only in part count with that part.
    pub fn model(&self) -> RunModel {
        let mut model = RunModel::default();
        for agent in self.agents().unwrap_or_default() {
            let Ok(entries) = self.entries(&agent) else { continue };
            for entry in entries.map_while(Result::ok).filter(|entry| entry.agent == agent) {
                model.apply(&entry.agent, &entry.event, entry.at);
            }
        }
        model
    }

    /// The conversation of the run: of each text the first `max_chars` characters, or all. What can't be read is named in it.
    pub fn conversation(&self, max_chars: Option<usize>) -> Conversation {
        read_conversation(&self.folder, &self.plan, self.result().cloned(), max_chars)
    }

    /// The ids of the parent and the subagents that have journals.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn agents(&self) -> Result<Vec<String>, Error> {
        agents(&self.folder)
    }
}

/// Reads the conversation of a run from its journals.
pub fn read_conversation(
    folder: &Path,
    plan: &Plan,
    result: Option<RunResult>,
    max_chars: Option<usize>,
) -> Conversation {
    let listed = agents(folder);
    let ids = listed.as_deref().unwrap_or_default();
    let mut conversation = Conversation::read(plan, result, ids, |agent| open_journal(folder, agent), max_chars);
    if let Err(error) = &listed {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        conversation.missing.push(format!("The folder of the subagents can't be read: {error}{cause}."));
    }
    conversation
}

/// The ids of the parent and of the subagents that have journals in a run's folder, sorted.
pub(super) fn agents(folder: &Path) -> Result<Vec<String>, Error> {
    let path = folder.join("subagents");
    // A link would lead out of the record.
    let listing = fs::symlink_metadata(&path).and_then(|found| match found.is_dir() {
        true => fs::read_dir(&path),
        false => Err(io::Error::new(io::ErrorKind::NotADirectory, format!("`{}` is not a folder", path.display()))),
    });
    let listing = match listing {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![PARENT.to_owned()]),
        Err(source) => return Err(Error::Record { path, source }),
    };
    let mut ids: Vec<String> = listing
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".events.jsonl").map(str::to_owned))
        .filter(|id| is_agent_id(id))
        .collect();
    ids.sort();
    ids.insert(0, PARENT.to_owned());
    Ok(ids)
}
