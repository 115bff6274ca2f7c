//! Reads a record.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::files::{PLAN_FILE, RESULT_FILE, open_file};
use super::state::{
    FileDefect, LOST_START, MAX_JOURNAL_BYTES, NOT_STARTED, RecordedEnd, read_end, read_result, read_versioned,
};
use crate::conversation::Conversation;
use crate::error::Error;
use crate::event::{Event, FORMAT, JournalEntry, PARENT, RunResult, RunStarted, is_agent_id};
use crate::journal::{JournalError, JournalReader, RecordKey, journal_file};
use crate::plan::Plan;

/// A journal that is read from its file.
type JournalFile = JournalReader<BufReader<File>>;

/// A record that was opened for reading.
#[derive(Debug)]
pub struct Record {
    /// The run's folder.
    pub folder: PathBuf,
    /// The plan of the run.
    pub plan: Plan,
    /// How the run ended, if it has.
    pub result: Option<RunResult>,
    /// What every command says about the record because a part of it is lost or missing.
    pub defect: Option<String>,
}

impl Record {
    /// Opens a run's folder. The plan is read from the journal, or from `plan.json` if the run was interrupted before its first
    /// event.
    ///
    /// # Errors
    /// If there is no plan, another version wrote the record ([`Error::OtherFormat`]), or a file is invalid.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let started = started(folder)?;
        let has_started = started.is_some();
        let version = started.as_ref().map(|started| started.version.clone());
        let check = |name: &str, format: u32| {
            let path = folder.join(name);
            let version = version.clone();
            if format == FORMAT { Ok(()) } else { Err(Error::OtherFormat { path, format: format.into(), version }) }
        };
        let plan = match started {
            Some(started) => *started.plan,
            None => match read_versioned::<Plan>(folder, PLAN_FILE) {
                Ok(Some(plan)) => plan,
                Ok(None) => {
                    let why = format!("it has no plan.json, and {NOT_STARTED}");
                    return Err(Error::NotARecord { path: folder.to_owned(), why });
                }
                Err(FileDefect::OtherFormat(format)) => {
                    return Err(Error::OtherFormat { path: folder.join(PLAN_FILE), format, version: None });
                }
                Err(FileDefect::Unreadable(why)) => {
                    return Err(Error::NotARecord { path: folder.join(PLAN_FILE), why: format!("it {why}") });
                }
            },
        };
        check(PLAN_FILE, plan.format)?;
        let end = read_end(folder).map_err(|format| {
            let path = folder.join(RESULT_FILE);
            Error::OtherFormat { path, format, version: version.clone() }
        })?;
        let (result, defect) = match end {
            RecordedEnd::Result(result) => (Some(*result), (!has_started).then(|| LOST_START.to_owned())),
            RecordedEnd::Journal(result, why) => (Some(*result), Some(why)),
            RecordedEnd::Open(why) => (None, why.or_else(|| (!has_started).then(|| NOT_STARTED.to_owned()))),
        };
        Ok(Self { folder: folder.to_owned(), plan, result, defect })
    }

    /// Whether a run has started in a folder: its journal has a first event, or one that can't be read.
    pub fn has_started(folder: &Path) -> bool {
        !matches!(first_event(folder), Ok(None))
    }

    /// Opens a run's folder for showing it: as far as it can be read. The second value names what can't be read, a sentence
    /// each. The plan is that of `plan.json` if the journal is damaged.
    ///
    /// # Errors
    /// If there is no plan, or another version wrote the record ([`Error::OtherFormat`]).
    pub fn open_damaged(folder: &Path) -> Result<(Self, Vec<String>), Error> {
        let error = match Self::open(folder) {
            Ok(record) => {
                let missing = record.defect.iter().map(|why| format!("{why}.")).collect();
                return Ok((record, missing));
            }
            Err(error @ Error::OtherFormat { .. }) => return Err(error),
            Err(error) => error,
        };
        let mut missing = Vec::new();
        let started = started(folder).unwrap_or_default().map(|started| *started.plan);
        let plan = match started {
            Some(plan) => Some(plan),
            None => read_versioned::<Plan>(folder, PLAN_FILE).unwrap_or_default(),
        };
        let Some(plan) = plan.filter(|plan| plan.format == FORMAT) else { return Err(error) };
        let result = read_result(folder).unwrap_or_else(|defect| {
            missing.push(format!("{RESULT_FILE} {defect}."));
            None
        });
        Ok((Self { folder: folder.to_owned(), plan, result, defect: None }, missing))
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

    /// The conversation of the run: of each text the first `max_chars` characters, or all. What can't be read is named in it.
    pub fn conversation(&self, max_chars: Option<usize>) -> Conversation {
        read_conversation(&self.folder, &self.plan, self.result.clone(), max_chars)
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

/// The first event of a run.
pub(super) struct FirstEvent {
    pub(super) started: RunStarted,
    pub(super) at: Timestamp,
    /// Has read nothing but this event.
    journal: JournalFile,
}

impl FirstEvent {
    /// Whether the run was started with this key.
    pub(super) fn is_sealed_by(&self, key: Option<&RecordKey>) -> bool {
        key.is_some_and(|key| self.journal.is_sealed_by(key))
    }
}

/// The first event of the run; `None` if it was interrupted before that.
fn started(folder: &Path) -> Result<Option<RunStarted>, Error> {
    Ok(first_event(folder)?.map(|first| first.started))
}

/// The first event of the run, with its time; `None` if it was interrupted before that.
pub(super) fn first_event(folder: &Path) -> Result<Option<FirstEvent>, Error> {
    let Some(mut journal) = open_journal(folder, PARENT)? else { return Ok(None) };
    match journal.next() {
        None | Some(Err(JournalError::Torn { .. })) => Ok(None),
        Some(Ok(entry)) => match entry.event {
            Event::RunStarted(started) => Ok(Some(FirstEvent { started, at: entry.at, journal })),
            other => {
                let why = format!("its journal starts with `{}` instead of `run_started`", other.kind());
                Err(Error::NotARecord { path: folder.to_owned(), why })
            }
        },
        Some(Err(error)) => Err(journal_error(folder.join(journal_file(PARENT)), error)),
    }
}

/// Reads an agent's entries up to the end or an incomplete last line.
pub(super) fn read_entries(folder: &Path, agent: &str, reader: &mut JournalFile) -> Result<Vec<JournalEntry>, Error> {
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
fn open_error(path: PathBuf, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidData => Error::NotARecord { path, why: source.to_string() },
        _ => Error::Record { path, source },
    }
}

/// Opens an agent's journal.
pub(super) fn journal_reader(folder: &Path, agent: &str) -> io::Result<JournalFile> {
    let file = open_file(folder, &journal_file(agent), MAX_JOURNAL_BYTES)?;
    Ok(JournalReader::new(BufReader::with_capacity(64 * 1024, file)))
}

/// Opens an agent's journal; `None` if it doesn't exist.
pub(super) fn open_journal(folder: &Path, agent: &str) -> Result<Option<JournalFile>, Error> {
    match journal_reader(folder, agent) {
        Ok(journal) => Ok(Some(journal)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(open_error(folder.join(journal_file(agent)), source)),
    }
}
