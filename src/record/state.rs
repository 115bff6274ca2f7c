//! The state of a record: what its files say about its run. Every command asks here, at the depth that it needs, so that one
//! record has one verdict: a `result.json` that can't be used is replaced by what the journal says, and damage, another format
//! and a record of another run are found, and put into words, once.

use std::fs;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::files::{PLAN_FILE, RESULT_FILE, has_run_files, read_file};
use super::journal_files::{JournalFile, first_entry, journal_error, open_journal};
use super::lock::{has_lease, is_locked};
use crate::error::{Error, OTHER_KEY, other_format, reader_of, record_of};
use crate::event::{Event, FORMAT, JournalEntry, PARENT, RunModel, RunResult, is_agent_id};
use crate::journal::{JournalError, RecordKey, journal_file};
use crate::plan::Plan;

/// The largest `result.json` or `plan.json` that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Why a file of a record can't be used.
#[derive(Debug)]
pub enum FileDefect {
    /// Another version wrote it, in this format.
    OtherFormat(u64),
    /// It can't be read. A predicate without the name of the file, such as "ends in the middle".
    Unreadable(String),
}

impl std::fmt::Display for FileDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherFormat(format) => write!(f, "has the format {format}"),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// The verdict on a record without an event.
pub const NOT_STARTED: &str = "no event of its run is recorded; if no process is starting it, start a new run";
/// The verdict on a record that has a result, and whose journal has no first line.
pub const LOST_START: &str = "its run has ended, but the first line of its journal is lost, so nobody can tell who made it; \
                              `legwork show` shows what is left";

/// How much of a record is read to tell its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// For lists of many records: `result.json` and the checksum of the journal's first line, or else the parent's journal.
    Glance,
    /// Also the first event, which has the plan and who made the record.
    Summary,
    /// Also, if the run hasn't ended, the journals of its subagents.
    Full,
}

/// What a record says about its run.
#[derive(Debug)]
pub enum RecordState {
    /// There is no record.
    Absent,
    /// No event of its run is recorded.
    NotStarted,
    /// A process of this machine executes its run.
    Running,
    /// Its run has started and not ended, and no process of this machine executes it.
    Interrupted,
    /// Its run has ended.
    Ended {
        /// How.
        result: Box<RunResult>,
        /// What says it.
        source: ResultSource,
    },
    /// It can't be trusted, or can't be read.
    Damaged(Damage),
    /// Another version wrote it, in another format.
    OtherFormat {
        /// The file that has the other format.
        file: String,
        /// The format.
        format: u64,
        /// The version that wrote it, if known.
        version: Option<String>,
    },
    /// It isn't the record that was asked for. The second value is its state as what it is.
    Foreign(Mismatch, Box<Self>),
    /// It is an earlier attempt of a run that was started again, with this id. The second value is its state.
    PreviousAttempt(String, Box<Self>),
}

/// Where the result of a run was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultSource {
    /// In `result.json`.
    File,
    /// In the journal, because `result.json` can't be used.
    JournalForDamagedFile,
    /// In the journal, because there is no `result.json`: the process was killed just before it wrote that.
    JournalForMissingFile,
}

/// What is damaged in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file, relative to the record; empty if `why` names it.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.file.as_str() {
            "" => f.write_str(&self.why),
            file => write!(f, "{file}: {}", self.why),
        }
    }
}

/// Why a record isn't the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// It was made on another machine or with another key.
    OtherKey,
    /// It is the record of the run with this id.
    OtherRun(String),
    /// It is of another job: its name, and the one that was asked for.
    OtherJob(String, String),
    /// It isn't a folder; what it is.
    NotAFolder(&'static str),
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherKey => f.write_str(OTHER_KEY),
            Self::OtherRun(run_id) => f.write_str(&record_of(run_id)),
            Self::OtherJob(found, wanted) => write!(f, "it is a record of the job `{found}` instead of `{wanted}`"),
            Self::NotAFolder(what) => write!(f, "it is {what}"),
        }
    }
}

impl RecordState {
    /// The state without regard to which record was asked for.
    pub fn unqualified(&self) -> &Self {
        match self {
            Self::Foreign(_, state) | Self::PreviousAttempt(_, state) => state.unqualified(),
            state => state,
        }
    }

    /// How the run has ended, if it has.
    pub fn result(&self) -> Option<&RunResult> {
        match self.unqualified() {
            Self::Ended { result, .. } => Some(result),
            _ => None,
        }
    }

    /// How the run has ended, if it has.
    pub fn into_result(self) -> Option<RunResult> {
        match self {
            Self::Ended { result, .. } => Some(*result),
            Self::Foreign(_, state) | Self::PreviousAttempt(_, state) => state.into_result(),
            _ => None,
        }
    }

    /// Where the result was read.
    pub fn source(&self) -> Option<ResultSource> {
        match self.unqualified() {
            Self::Ended { source, .. } => Some(*source),
            _ => None,
        }
    }

    /// Why nothing can be done with the record, in the words of every command. `None` if something can.
    pub fn defect(&self) -> Option<String> {
        match self.unqualified() {
            Self::Damaged(damage) => Some(damage.to_string()),
            Self::OtherFormat { format, version, .. } => {
                Some(format!("{}. {}", other_format(*format), reader_of(version.as_deref())))
            }
            _ => None,
        }
    }

    /// The error for a record in this state of which nothing can be used.
    pub(super) fn error(&self, folder: &Path) -> Error {
        let at = |file: &str| if file.is_empty() { folder.to_owned() } else { folder.join(file) };
        match self.unqualified() {
            Self::OtherFormat { file, format, version } => {
                Error::OtherFormat { path: at(file), format: *format, version: version.clone() }
            }
            Self::Damaged(damage) => Error::NotARecord { path: at(&damage.file), why: damage.why.clone() },
            _ => {
                Error::NotARecord { path: folder.to_owned(), why: format!("it has no {PLAN_FILE}, and {NOT_STARTED}") }
            }
        }
    }
}

/// What is asked about a record.
#[derive(Debug, Clone, Copy)]
pub struct RecordQuery<'a> {
    /// Its folder.
    pub folder: &'a Path,
    /// How much of it is read.
    pub depth: Depth,
    /// The id that its run must have.
    pub run_id: Option<&'a str>,
    /// The job that it must be of.
    pub job: Option<&'a str>,
    /// The key with which it must be made. A glance doesn't check it.
    pub key: Option<&'a RecordKey>,
    /// Whether this process itself holds the folder's lock.
    pub holds_lock: bool,
}

/// How a run started.
#[derive(Debug)]
pub struct RunStart {
    /// When.
    pub at: Timestamp,
    /// Its id.
    pub run_id: String,
    /// Its job.
    pub job: String,
    /// The text of the job file.
    pub job_file: String,
    /// How tools were confined in its first part.
    pub sandbox: String,
    /// Whether the record was made with the key that was asked for.
    pub has_our_key: bool,
}

/// What was read of a record.
#[derive(Debug)]
pub struct RecordReading {
    /// Its state.
    pub state: RecordState,
    /// What every command says about the record because a part of it is lost, missing or damaged.
    pub defect: Option<String>,
    /// How its run started. At a glance, it isn't read if the run has ended.
    pub start: Option<RunStart>,
    /// The plan in the start of the journal.
    pub plan: Option<Plan>,
    /// Whether a journal that was read has an incomplete last line.
    pub is_torn: bool,
}

/// What became of `result.json`.
enum ResultFile {
    Usable(Box<RunResult>),
    Missing,
    Unusable(String),
    OtherFormat(u64),
}

/// The beginning of a journal.
enum Beginning {
    /// There is no journal, or no whole first line in it.
    Lost,
    /// Its first line is whole. Only its checksum was read.
    Whole,
    /// The first event, and the rest.
    Started(Box<JournalEntry>, Box<JournalFile>),
}

impl<'a> RecordQuery<'a> {
    /// Asks about whatever is in a folder.
    pub fn new(folder: &'a Path, depth: Depth) -> Self {
        Self { folder, depth, run_id: None, job: None, key: None, holds_lock: false }
    }

    /// Reads the record. `visit` gets each entry of a journal that is read. Without
    /// need, the journal isn't read beyond its beginning.
    ///
    /// # Errors
    /// A file can't be read now, which says nothing about the record.
    pub fn read(&self, visit: &mut dyn FnMut(&JournalEntry)) -> Result<RecordReading, Error> {
        let mut reading =
            RecordReading { state: RecordState::Absent, defect: None, start: None, plan: None, is_torn: false };
        match fs::symlink_metadata(self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(reading),
            Err(source) => return Err(Error::Record { path: self.folder.to_owned(), source }),
            // The name of a row isn't another name of another record.
            Ok(found) if self.run_id.is_some() && !found.is_dir() => {
                let what = if found.is_symlink() { "a symbolic link" } else { "not a folder" };
                reading.state = RecordState::Foreign(Mismatch::NotAFolder(what), Box::new(RecordState::Absent));
                return Ok(reading);
            }
            Ok(_) => {}
        }
        let exists = |name: &str| fs::symlink_metadata(self.folder.join(name)).is_ok();
        // A run that has ended may be about to continue, or its process is about to end. Only lists say so.
        let may_continue = self.depth == Depth::Glance && has_lease(self.folder);
        let is_running = !self.holds_lock && (may_continue || !exists(RESULT_FILE)) && is_locked(self.folder);
        reading.state = match self.read_state(&mut reading, is_running, visit) {
            Ok(state) => state,
            // Its process will find it.
            Err(Unusable::State(RecordState::Damaged(_))) if is_running => RecordState::Running,
            Err(Unusable::State(state)) => state,
            Err(Unusable::Error(error)) => return Err(error),
        };
        reading.defect = reading.state.defect().or(reading.defect);
        self.identify(&mut reading);
        Ok(reading)
    }

    fn read_state(
        &self,
        reading: &mut RecordReading,
        is_running: bool,
        visit: &mut dyn FnMut(&JournalEntry),
    ) -> Result<RecordState, Unusable> {
        let folder = self.folder;
        let file = match read_result(folder) {
            Ok(Some(result)) => ResultFile::Usable(Box::new(result)),
            Ok(None) => ResultFile::Missing,
            Err(FileDefect::OtherFormat(format)) => ResultFile::OtherFormat(format),
            Err(FileDefect::Unreadable(why)) => ResultFile::Unusable(format!("{RESULT_FILE} {why}")),
        };
        let is_usable = matches!(file, ResultFile::Usable(_));
        let beginning = self.read_beginning(is_usable && !is_running && self.depth == Depth::Glance)?;
        let mut model = RunModel::default();
        let (is_lost, mut journal) = match beginning {
            Beginning::Lost => (true, None),
            Beginning::Whole => (false, None),
            Beginning::Started(first, journal) => {
                model.apply(&first.agent, &first.event, first.at);
                visit(&first);
                reading.set_start(*first, self.key.is_some_and(|key| journal.is_sealed_by(key)));
                (false, Some(journal))
            }
        };
        let version = || model.started.as_ref().map(|(_, started)| started.version.clone());
        match file {
            ResultFile::OtherFormat(format) => {
                let file = RESULT_FILE.to_owned();
                return Ok(RecordState::OtherFormat { file, format, version: version() });
            }
            ResultFile::Unusable(why) if is_lost => {
                return Err(Unusable::State(RecordState::Damaged(Damage { file: String::new(), why })));
            }
            ResultFile::Missing if is_lost && is_running => return Ok(RecordState::Running),
            ResultFile::Missing if is_lost => {
                reading.defect = Some(NOT_STARTED.to_owned());
                return Ok(if has_run_files(folder) { RecordState::NotStarted } else { RecordState::Absent });
            }
            ResultFile::Usable(result) if !is_running => {
                reading.defect = is_lost.then(|| LOST_START.to_owned());
                return Ok(RecordState::Ended { result, source: ResultSource::File });
            }
            _ => {}
        }
        let mut children = Vec::new();
        if let Some(journal) = &mut journal {
            reading.is_torn = fold(folder, PARENT, journal, &mut model, &mut children, visit)?;
        }
        if is_running {
            return Ok(RecordState::Running);
        }
        let is_missing = matches!(file, ResultFile::Missing);
        let why = match file {
            ResultFile::Unusable(why) => Some(why),
            _ => None,
        };
        if let Some(result) = model.result() {
            let source = match is_missing {
                true => ResultSource::JournalForMissingFile,
                false => ResultSource::JournalForDamagedFile,
            };
            reading.defect = Some(used_instead(why.as_deref().unwrap_or("result.json is missing")));
            return Ok(RecordState::Ended { result: Box::new(result), source });
        }
        if self.depth == Depth::Full {
            for child in children {
                let opened = open_journal(folder, &child).map_err(|error| Unusable::of_journal(&child, error))?;
                let Some(mut journal) = opened else { continue };
                reading.is_torn |= fold(folder, &child, &mut journal, &mut model, &mut Vec::new(), visit)?;
            }
        }
        reading.defect = why.map(|why| format!("{why}, and its journal has no end"));
        Ok(RecordState::Interrupted)
    }

    fn read_beginning(&self, only_checksum: bool) -> Result<Beginning, Unusable> {
        let failed = |error| Unusable::of_journal(PARENT, journal_error(self.folder.join(journal_file(PARENT)), error));
        let opened = open_journal(self.folder, PARENT).map_err(|error| Unusable::of_journal(PARENT, error))?;
        let Some(mut journal) = opened else { return Ok(Beginning::Lost) };
        if only_checksum {
            return match journal.verify_first_line() {
                Ok(()) => Ok(Beginning::Whole),
                Err(JournalError::Torn { .. }) => Ok(Beginning::Lost),
                Err(error) => Err(failed(error)),
            };
        }
        match first_entry(&mut journal) {
            Ok(None) => Ok(Beginning::Lost),
            Ok(Some(first)) if matches!(first.event, Event::RunStarted(_)) => {
                Ok(Beginning::Started(Box::new(first), Box::new(journal)))
            }
            Ok(Some(first)) => {
                let why = format!("its journal starts with `{}` instead of `run_started`", first.event.kind());
                Err(Unusable::State(RecordState::Damaged(Damage { file: String::new(), why })))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Finds out whether it is the record that was asked for: its journal and its result must say so.
    fn identify(&self, reading: &mut RecordReading) {
        let started = reading.start.as_ref().map(|start| (&start.run_id, &start.job));
        let ended = reading.state.result().map(|result| (&result.run_id, &result.job));
        let mut mismatch = None;
        for (run_id, job) in started.into_iter().chain(ended) {
            if is_previous_attempt(&self.folder.with_file_name(run_id), self.folder) {
                let run_id = run_id.clone();
                return reading.wrap(|state| RecordState::PreviousAttempt(run_id, state));
            }
            let other_job = self.job.filter(|wanted| *wanted != job.as_str());
            let other_job = other_job.map(|wanted| Mismatch::OtherJob(job.clone(), wanted.to_owned()));
            let is_other_run = self.run_id.is_some_and(|wanted| wanted != run_id.as_str());
            mismatch = mismatch.or(other_job).or(is_other_run.then(|| Mismatch::OtherRun(run_id.clone())));
        }
        let has_our_key = reading.start.as_ref().is_some_and(|start| start.has_our_key);
        let has_other_key = self.key.is_some() && !has_our_key && (started.is_some() || ended.is_some());
        if let Some(mismatch) = mismatch.or(has_other_key.then_some(Mismatch::OtherKey)) {
            reading.wrap(|state| RecordState::Foreign(mismatch, state));
        }
    }
}

impl RecordReading {
    fn wrap(&mut self, outer: impl FnOnce(Box<RecordState>) -> RecordState) {
        let state = std::mem::replace(&mut self.state, RecordState::Absent);
        self.state = outer(Box::new(state));
    }

    fn set_start(&mut self, first: JournalEntry, has_our_key: bool) {
        let Event::RunStarted(started) = first.event else { return };
        let (run_id, job, job_file, sandbox) = (started.run_id, started.job, started.job_file, started.sandbox);
        self.start = Some(RunStart { at: first.at, run_id, job, job_file, sandbox, has_our_key });
        self.plan = Some(*started.plan);
    }
}

/// Why the reading of a state ends early.
enum Unusable {
    State(RecordState),
    Error(Error),
}

impl Unusable {
    /// What an error of an agent's journal says about the record.
    fn of_journal(agent: &str, error: Error) -> Self {
        let file = journal_file(agent);
        match error {
            Error::OtherFormat { format, version, .. } => {
                Self::State(RecordState::OtherFormat { file, format, version })
            }
            Error::NotARecord { why, .. } => Self::State(RecordState::Damaged(Damage { file, why })),
            error => Self::Error(error),
        }
    }
}

/// Reads a journal to its end. Lists the subagents that the agent has started. Returns whether the last line is incomplete.
fn fold(
    folder: &Path,
    agent: &str,
    journal: &mut JournalFile,
    model: &mut RunModel,
    children: &mut Vec<String>,
    visit: &mut dyn FnMut(&JournalEntry),
) -> Result<bool, Unusable> {
    for entry in journal {
        let entry = match entry {
            Ok(entry) if entry.agent == agent => entry,
            Ok(_) => {
                let (file, why) = (journal_file(agent), "it contains another agent's events".to_owned());
                return Err(Unusable::State(RecordState::Damaged(Damage { file, why })));
            }
            Err(JournalError::Torn { .. }) => return Ok(true),
            Err(error) => {
                return Err(Unusable::of_journal(agent, journal_error(folder.join(journal_file(agent)), error)));
            }
        };
        if agent == PARENT {
            model.apply(&entry.agent, &entry.event, entry.at);
        }
        if let Event::CallStarted(started) = &entry.event {
            let child = started.child.as_ref().filter(|child| is_agent_id(child) && !children.contains(child));
            children.extend(child.cloned());
        }
        visit(&entry);
    }
    Ok(false)
}

/// Whether a path is one that `--fresh` moves a record to: that of the record and a number.
pub fn is_previous_attempt(record: &Path, path: &Path) -> bool {
    let names =
        record.file_name().zip(path.file_name()).and_then(|(name, moved)| Some((name.to_str()?, moved.to_str()?)));
    let number = names.and_then(|(name, moved)| moved.strip_prefix(name)?.strip_prefix('.'));
    record.parent() == path.parent()
        && number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Says that the journal replaces a file, which can't be used for this reason.
fn used_instead(why: &str) -> String {
    format!("{why}; its journal is used instead, and `legwork show RUN --rebuild` writes it again")
}

/// Reads `result.json`; `None` if there is none.
///
/// # Errors
/// It can't be used.
pub(super) fn read_result(folder: &Path) -> Result<Option<RunResult>, FileDefect> {
    read_versioned(folder, RESULT_FILE)
}

/// Parses a file of a record, `None` if there is none. Its format is checked first, because another version's file needn't fit
/// this version's type.
///
/// # Errors
/// It can't be used.
pub fn read_versioned<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, FileDefect> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u64,
    }
    let content = match read_file(folder, name, MAX_FILE_BYTES) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileDefect::Unreadable(format!("can't be read: {error}"))),
    };
    match serde_json::from_slice::<Versioned>(&content) {
        Ok(Versioned { format }) if format != u64::from(FORMAT) => return Err(FileDefect::OtherFormat(format)),
        _ => {}
    }
    serde_json::from_slice(&content).map(Some).map_err(|error| {
        FileDefect::Unreadable(match error.is_eof() {
            true => "ends in the middle".to_owned(),
            false => format!("can't be read: {error}"),
        })
    })
}
