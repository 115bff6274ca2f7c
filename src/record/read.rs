//! Reads a record.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::layout::{PLAN_FILE, RESULT_FILE};
use crate::error::Error;
use crate::event::{Event, FORMAT, JournalEntry, PARENT, RunResult, RunStarted, is_agent_id};
use crate::journal::{JournalError, JournalReader, journal_file, record_files};
use crate::plan::Plan;

/// The largest file that is read, except journals, in bytes.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// A record that was opened for reading.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    /// The plan of the run.
    pub plan: Plan,
    /// How the run ended, if it has.
    pub result: Option<RunResult>,
}

impl Record {
    /// Opens a run's folder. The plan is read from the journal, or from `plan.json` if the run was interrupted before its first
    /// event.
    ///
    /// # Errors
    /// If there is no plan, another version wrote the record ([`Error::OtherFormat`]), or a file is invalid.
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
            None => read_json::<Plan>(folder, PLAN_FILE)?.ok_or_else(|| Error::NotARecord {
                path: folder.to_owned(),
                why: "it has no plan.json, and the run was interrupted before anything happened; start a new run"
                    .to_owned(),
            })?,
        };
        check(PLAN_FILE, plan.format)?;
        let result = read_json::<RunResult>(folder, RESULT_FILE)?;
        if let Some(result) = &result {
            check(RESULT_FILE, result.format)?;
        }
        Ok(Self { folder: folder.to_owned(), plan, result })
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// An agent's entries, oldest first. The journal is verified while it is read.
    ///
    /// # Errors
    /// If the agent has no journal, or it can't be opened.
    pub fn entries(&self, agent: &str) -> Result<JournalReader<BufReader<fs::File>>, Error> {
        let failed = |source| open_error(self.folder.join(journal_file(agent)), source);
        JournalReader::open(&self.folder, agent).map_err(failed)
    }

    /// All journals by agent id, without incomplete last lines.
    ///
    /// # Errors
    /// If one can't be read, was modified, or was written by another version.
    pub fn journals(&self) -> Result<BTreeMap<String, Vec<JournalEntry>>, Error> {
        let mut journals = BTreeMap::new();
        for agent in std::iter::once(PARENT.to_owned()).chain(self.subagents()?) {
            let entries = read_entries(&self.folder, &agent, &mut self.entries(&agent)?)?;
            journals.insert(agent, entries);
        }
        Ok(journals)
    }

    /// The ids of the subagents that have journals.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn subagents(&self) -> Result<Vec<String>, Error> {
        subagents(&self.folder)
    }
}

/// The ids of the subagents that have journals in a run's folder, sorted.
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

/// The first event of the run; `None` if it was interrupted before that.
fn started(folder: &Path) -> Result<Option<RunStarted>, Error> {
    let path = folder.join(journal_file(PARENT));
    let mut entries = match JournalReader::open(folder, PARENT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(open_error(path, source)),
    };
    match entries.next() {
        None | Some(Err(JournalError::Torn { .. })) => Ok(None),
        Some(Ok(entry)) => match entry.event {
            Event::RunStarted(started) => Ok(Some(started)),
            other => {
                let why = format!("its journal starts with `{}` instead of `run_started`", other.kind());
                Err(Error::NotARecord { path: folder.to_owned(), why })
            }
        },
        Some(Err(error)) => Err(journal_error(path, error)),
    }
}

/// Reads an agent's entries up to the end or an incomplete last line.
pub(super) fn read_entries(
    folder: &Path,
    agent: &str,
    reader: &mut JournalReader<impl io::BufRead>,
) -> Result<Vec<JournalEntry>, Error> {
    let path = || folder.join(journal_file(agent));
    let mut entries = Vec::new();
    for entry in reader {
        match entry {
            Ok(entry) if entry.agent != agent => {
                return Err(Error::NotARecord { path: path(), why: "it contains another agent's events".to_owned() });
            }
            Ok(entry) => entries.push(entry),
            Err(JournalError::Torn { .. }) => break,
            Err(error) => return Err(journal_error(path(), error)),
        }
    }
    Ok(entries)
}

/// The error to report for an invalid journal.
pub(super) fn journal_error(path: PathBuf, error: JournalError) -> Error {
    match error {
        JournalError::OtherFormat { format, version } => Error::OtherFormat { path, format, version },
        JournalError::Io(source) => Error::Record { path, source },
        error => Error::NotARecord { path, why: error.to_string() },
    }
}

/// The error to report for a file that can't be opened.
pub(super) fn open_error(path: PathBuf, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidData => Error::NotARecord { path, why: source.to_string() },
        _ => Error::Record { path, source },
    }
}

/// Reads a file of the record.
pub(super) fn read_file(folder: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    record_files::open(folder, name, MAX_FILE_BYTES)?.take(MAX_FILE_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

/// Parses a file of the record; `None` if it doesn't exist.
fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, Error> {
    let path = folder.join(name);
    let bytes = match read_file(folder, name) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(open_error(path, source)),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Error::NotARecord { path, why: format!("it can't be read: {error}") }),
    }
}
