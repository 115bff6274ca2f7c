//! A run folder that is read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{JournalError, JournalReader, files, journal_file};
use crate::error::Error;
use crate::event::{Event, FORMAT, JournalEntry, PARENT, RunResult, RunStarted, is_agent_id};
use crate::plan::Plan;

/// A run folder that is read.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    /// What was planned.
    pub plan: Plan,
    /// How it ended; `None` where it didn't.
    pub result: Option<RunResult>,
}

impl Record {
    /// Opens a run's folder. The plan is the journal's; only a run that was cut off before its first event has none
    /// there, and then it is `plan.json`'s.
    ///
    /// # Errors
    /// Where it holds no plan, another version wrote it ([`Error::OtherFormat`]), or its files aren't what this version
    /// writes.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let started = started(folder)?;
        let version = started.as_ref().map(|started| started.version.clone());
        let check = |name: &str, format: u32| {
            let path = folder.join(name);
            let version = version.clone();
            if format == FORMAT { Ok(()) } else { Err(Error::OtherFormat { path, format: format.into(), version }) }
        };
        let plan = match started {
            Some(started) => *started.plan,
            None => read_json::<Plan>(folder, "plan.json")?.ok_or_else(|| Error::NotARecord {
                path: folder.to_owned(),
                why: "it has no plan.json and was cut off before anything happened; start the job anew".to_owned(),
            })?,
        };
        check("plan.json", plan.format)?;
        let result = read_json::<RunResult>(folder, "result.json")?;
        if let Some(result) = &result {
            check("result.json", result.format)?;
        }
        Ok(Self { folder: folder.to_owned(), plan, result })
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// An agent's events, oldest first, from a journal that is verified while it is read.
    ///
    /// # Errors
    /// Where the agent has no journal, or it can't be opened.
    pub fn entries(&self, agent: &str) -> Result<JournalReader<BufReader<fs::File>>, Error> {
        let failed = |source| files::read_error(self.folder.join(journal_file(agent)), source);
        JournalReader::open(&self.folder, agent).map_err(failed)
    }

    /// All journals, by the agents' ids, as far as they go: a torn last line is left out.
    ///
    /// # Errors
    /// Where one can't be read, was changed, or was written by another version.
    pub fn journals(&self) -> Result<BTreeMap<String, Vec<JournalEntry>>, Error> {
        let mut journals = BTreeMap::new();
        for agent in std::iter::once(PARENT.to_owned()).chain(self.subagents()?) {
            let mut entries = Vec::new();
            for entry in self.entries(&agent)? {
                match entry {
                    Ok(entry) if entry.agent != agent => {
                        let path = self.folder.join(journal_file(&agent));
                        return Err(Error::NotARecord { path, why: "it holds another agent's events".to_owned() });
                    }
                    Ok(entry) => entries.push(entry),
                    Err(JournalError::Torn { .. }) => break,
                    Err(flaw) => return Err(journal_error(self.folder.join(journal_file(&agent)), flaw)),
                }
            }
            journals.insert(agent, entries);
        }
        Ok(journals)
    }

    /// The ids of the subagents whose journals are there.
    ///
    /// # Errors
    /// Where the folder can't be read.
    pub fn subagents(&self) -> Result<Vec<String>, Error> {
        subagents(&self.folder)
    }
}

/// The ids of the subagents whose journals are in a run's folder, sorted.
pub(super) fn subagents(folder: &Path) -> Result<Vec<String>, Error> {
    let path = folder.join("subagents");
    let listing = match fs::read_dir(&path) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::Record { path, source }),
    };
    let mut ids: Vec<String> = listing
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".events.jsonl").map(str::to_owned))
        .filter(|id| is_agent_id(id))
        .collect();
    ids.sort();
    Ok(ids)
}

/// The first event of the run; `None` where it was cut off before that.
fn started(folder: &Path) -> Result<Option<RunStarted>, Error> {
    let path = folder.join(journal_file(PARENT));
    let mut entries = match JournalReader::open(folder, PARENT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(files::read_error(path, source)),
    };
    match entries.next() {
        None | Some(Err(JournalError::Torn { .. })) => Ok(None),
        Some(Ok(entry)) => match entry.event {
            Event::RunStarted(started) => Ok(Some(started)),
            other => {
                let why = format!("its journal begins with `{}`", other.kind());
                Err(Error::NotARecord { path: folder.to_owned(), why })
            }
        },
        Some(Err(flaw)) => Err(journal_error(path, flaw)),
    }
}

/// What the operator is told of a journal with a flaw.
pub(super) fn journal_error(path: PathBuf, flaw: JournalError) -> Error {
    match flaw {
        JournalError::OtherFormat { format, version } => Error::OtherFormat { path, format, version },
        JournalError::Io(source) => Error::Record { path, source },
        flaw => Error::NotARecord { path, why: flaw.to_string() },
    }
}

/// A file of the folder; `None` where it isn't there.
fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, Error> {
    let path = folder.join(name);
    let bytes = match files::read(folder, name) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(files::read_error(path, source)),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Error::NotARecord { path, why: format!("it can't be read: {error}") }),
    }
}
