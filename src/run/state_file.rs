//! The file with a job's state. While a run has it, no other one does: next to the file is a folder with a lock and a lease, and in
//! it the name of the run. The run writes the file after the last line of its journal, so a run that was killed in between has
//! completed without having saved its state. Whoever has the file next finds its name, and saves the state for it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, fstat, lstat, unlinkat};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::ResumeState;
use crate::error::{Error, Obstacle};
use crate::event::{Event, Outcome, PARENT, StateRead};
use crate::job::MAX_STATE_BYTES;
use crate::journal::{FaultInjection, RecordKey};
use crate::plan::{Plan, PlannedState};
use crate::record::{
    FolderLease, RESULT_FILE, Record, Recorder, ResultSource, open_file_in, read_file, remove_abandoned_files,
    replace_private_file, replace_shared_file,
};
use crate::reports::record_files::write_reports;
use crate::text::bounded::read_expected;
use crate::text::hex;
use crate::tools::set_state::value_mistake;
use crate::workspace::open_beneath::{FileId, file_id};

/// The version of the file.
const STATE_FORMAT: u32 = 1;
/// The largest file that is read, in bytes: people may have added line breaks.
const MAX_FILE_BYTES: u64 = 4 * MAX_STATE_BYTES;
/// The file in the lock's folder that names the run.
const NOTE: &str = "run";
/// The largest of these files, in bytes.
const MAX_NOTE_BYTES: u64 = 64 << 10;

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    job: String,
    value: Value,
}

/// Which run has the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Its record, absolute.
    record: PathBuf,
    run_id: String,
}

/// The state of a job, and the file that it is in, which belongs to this process until this is dropped.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    name: String,
    /// The folder of the file, which stays the same whatever happens to its path.
    folder: File,
    folder_id: FileId,
    /// That folder's path.
    folder_path: PathBuf,
    lease: FolderLease,
    job: String,
    value: Option<Value>,
    /// SHA-256 of the file as it must be when it is replaced; `None` if there must be none.
    sha256: Option<String>,
    initial: Value,
    /// Whether the note names the run of this process.
    has_begun: bool,
    /// Whether the run has completed and its state isn't saved.
    is_pending: bool,
}

/// Where a run has its state from.
#[derive(Debug)]
pub enum StateSource {
    /// From its file, which gets the state of a run that completes.
    File(Box<StateFile>),
    /// From a test case. It isn't saved.
    Given(StateRead),
}

impl StateSource {
    /// What a run begins with.
    pub fn start(&self) -> StateRead {
        match self {
            Self::File(file) => file.start(),
            Self::Given(state) => state.clone(),
        }
    }

    /// The folder that says which run has the file.
    pub fn lock(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file.lease.path()),
            Self::Given(_) => None,
        }
    }

    /// The file, if the state is from one.
    pub fn file(&mut self) -> Option<&mut StateFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Given(_) => None,
        }
    }
}

/// What became of the state of a run that had completed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was saved already, or the run has set none.
    Nothing,
    /// It is saved now.
    Saved,
    /// It isn't saved, because the file has changed since that run has read it.
    Changed,
    /// It isn't saved, because the record was made elsewhere.
    Foreign,
}

impl StateFile {
    /// Takes the file, which needn't exist.
    ///
    /// # Errors
    /// Another run has it ([`Error::StateInUse`]), or it isn't a state of this job.
    pub fn open(path: &Path, job: &str, planned: &PlannedState) -> Result<Self, Error> {
        let failed = |why: String| {
            state_error(path, why, "Check the file and its folder, or name another one with --state FILE.")
        };
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| failed("it isn't the name of a file".to_owned()))?;
        let above = path.parent().unwrap_or(Path::new("/"));
        let cannot_open = |error: io::Error| failed(format!("its folder can't be opened: {error}"));
        let folder_path = above.canonicalize().map_err(cannot_open)?;
        let folder = File::open(&folder_path).map_err(cannot_open)?;
        let folder_id = file_id(&fstat(&folder).map_err(|error| cannot_open(error.into()))?);
        let lock = folder_path.join(lock_name(name));
        let lease = FolderLease::take(&lock).map_err(|error| match error {
            Error::InUse { .. } => Error::StateInUse { path: path.to_owned() },
            Error::Record { source, .. } => {
                let why = format!("{} can't be used as its lock: {source}", lock.display());
                state_error(
                    path,
                    why,
                    "If no run uses the state, remove the lock; or name another file with --state FILE.",
                )
            }
            other => other,
        })?;
        remove_abandoned_files(folder.as_fd());
        let mut file = Self {
            path: path.to_owned(),
            name: name.to_owned(),
            folder,
            folder_id,
            folder_path,
            lease,
            job: job.to_owned(),
            value: None,
            sha256: None,
            initial: planned.initial.clone(),
            has_begun: false,
            is_pending: false,
        };
        file.read(planned.max_bytes)?;
        Ok(file)
    }

    /// Takes the file for a run of a plan, and saves what the run before it has left to save. `None` if the plan keeps no state.
    ///
    /// # Errors
    /// As for [`Self::open`], or what the run before has left can't be saved.
    pub fn for_plan(
        plan: &Plan,
        path: &Path,
        key: Option<&RecordKey>,
        warn: &dyn Fn(&str),
    ) -> Result<Option<Self>, Error> {
        let Some(planned) = &plan.state else { return Ok(None) };
        let mut file = Self::open(path, &plan.job, planned)?;
        file.settle_last(key, warn)?;
        Ok(Some(file))
    }

    /// What keeps a run that continues from replacing the state: the file has changed since the run has read it.
    pub fn obstacle(&self, before: &ResumeState) -> Option<Obstacle> {
        let entries = before.entries();
        let is_unchanged = self.is_unchanged_since(entries.iter().map(|entry| &entry.event));
        (!is_unchanged).then(|| Obstacle::StateChanged { file: self.path.clone() })
    }

    fn read(&mut self, max_bytes: u64) -> Result<(), Error> {
        let read = read_content(self.folder.as_fd(), &self.name, &self.path, &self.job, max_bytes)?;
        (self.value, self.sha256) = read.unzip();
        Ok(())
    }

    /// The file, and the folder that says which run has it: neither is a part of the workspace.
    pub fn paths(&self) -> [&Path; 2] {
        [&self.path, self.lease.path()]
    }

    /// What a run begins with.
    pub fn start(&self) -> StateRead {
        let value = self.value.clone().unwrap_or_else(|| self.initial.clone());
        StateRead { value, sha256: self.sha256.clone() }
    }

    /// Notes which run has the file, on the disk before this returns.
    ///
    /// # Errors
    /// It can't be written.
    pub fn begin(&mut self, record: &Path, run_id: &str) -> io::Result<()> {
        let note = Note { record: record.to_owned(), run_id: run_id.to_owned() };
        replace_private_file(self.lease.folder(), NOTE, &serde_json::to_vec(&note)?, true)?;
        self.has_begun = true;
        Ok(())
    }

    /// The run has completed, and its journal will say so: from now on its state must not be lost.
    pub fn set_pending(&mut self) {
        self.is_pending = true;
    }

    /// The run hasn't completed after all.
    pub fn unset_pending(&mut self) {
        self.is_pending = false;
    }

    /// Saves a value, on the disk before this returns.
    ///
    /// # Errors
    /// It can't be written, or the file has changed since it was read. The file is as it was then.
    pub fn save(&mut self, value: &Value, faults: &FaultInjection) -> io::Result<()> {
        self.lease.check()?;
        if !lstat(&self.folder_path).is_ok_and(|found| file_id(&found) == self.folder_id) {
            return Err(io::Error::other("its folder was moved or replaced"));
        }
        let content = content(&self.job, value)?;
        let now = self.sha256_now()?;
        let sha256 = sha256_of(&content);
        if now.as_ref() != Some(&sha256) {
            if now != self.sha256 {
                return Err(io::Error::other("it has changed since the run has read it"));
            }
            replace_shared_file(self.folder.as_fd(), &self.name, true, &mut |out| {
                faults.write(|| out.write_all(&content[..content.len() / 2]))?;
                out.write_all(&content)
            })?;
            self.folder.sync_all()?;
        }
        (self.value, self.sha256, self.is_pending) = (Some(value.clone()), Some(sha256), false);
        Ok(())
    }

    /// The error for a run with this record whose state can't be saved.
    pub fn not_saved(&self, record: &Path, source: io::Error) -> Error {
        Error::StateNotSaved { path: self.path.clone(), record: record.to_owned(), source }
    }

    /// No run has anything left to save.
    fn remove_note(&self) {
        let _ = unlinkat(self.lease.folder(), NOTE, AtFlags::empty());
    }

    /// The digest of the file as it is now.
    fn sha256_now(&self) -> io::Result<Option<String>> {
        match read_bytes(self.folder.as_fd(), &self.name) {
            Ok(bytes) => Ok(Some(sha256_of(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file still has what a run has read or has itself saved. The run is the one with these events.
    fn is_unchanged_since<'e>(&self, events: impl Iterator<Item = &'e Event>) -> bool {
        let (mut read, mut set) = (None, None);
        for event in events {
            match event {
                Event::StateRead(state) => read = Some(state.sha256.clone()),
                Event::StateSet(state) => {
                    set = content(&self.job, &state.value).ok().map(|content| sha256_of(&content));
                }
                _ => {}
            }
        }
        // A run that hasn't read it yet reads it now.
        read.is_none_or(|read| read == self.sha256) || set.is_some_and(|set| Some(set) == self.sha256)
    }

    /// Saves the state of the run that had the file last, if it has completed without.
    ///
    /// # Errors
    /// It can't be saved.
    fn settle_last(&mut self, key: Option<&RecordKey>, warn: &dyn Fn(&str)) -> Result<(), Error> {
        let Some(Note { record, run_id }) = read_note(self.lease.path()) else { return Ok(()) };
        let shown = record.display();
        let (path, remedy) = (self.path.display().to_string(), format!("`legwork resume {shown}`"));
        match self.settle(&record, &run_id, key)? {
            Settled::Nothing => {}
            Settled::Saved => warn(&format!("{shown} was killed before it could save its state; it is in {path} now")),
            Settled::Changed => warn(&format!(
                "{shown} was killed before it could save its state, and {path} has changed since: it stays as it is; {remedy} \
                 --force replaces it"
            )),
            Settled::Foreign => warn(&format!(
                "{shown} was killed before it could save its state, and its record was made elsewhere: {remedy} --trust-record \
                 saves it"
            )),
        }
        Ok(())
    }

    /// The same for a run whose record must be made with our key.
    ///
    /// # Errors
    /// It can't be saved.
    pub fn settle(&mut self, folder: &Path, run_id: &str, key: Option<&RecordKey>) -> Result<Settled, Error> {
        let record = Record::open(folder);
        let is_ours = |record: &Record| key.is_some_and(|key| record.is_signed_by(key).unwrap_or(false));
        self.settle_trusted(folder, run_id, record.as_ref().is_ok_and(is_ours), false)
    }

    /// Saves the state of a run that has completed without saving it, and completes its record. With `is_forced`, even if the
    /// file has changed since.
    ///
    /// # Errors
    /// It can't be saved.
    pub fn settle_trusted(
        &mut self,
        folder: &Path,
        run_id: &str,
        is_trusted: bool,
        is_forced: bool,
    ) -> Result<Settled, Error> {
        let settled = self.settle_noted(folder, run_id, is_trusted, is_forced)?;
        if matches!(settled, Settled::Nothing | Settled::Saved) && is_noted(&self.path, folder, run_id) {
            self.remove_note();
        }
        Ok(settled)
    }

    fn settle_noted(
        &mut self,
        folder: &Path,
        run_id: &str,
        is_trusted: bool,
        is_forced: bool,
    ) -> Result<Settled, Error> {
        let Ok(record) = Record::open(folder) else { return Ok(Settled::Nothing) };
        let is_it = record.start.as_ref().is_some_and(|start| start.run_id == run_id && start.job == self.job);
        let has_result = record.state.source() != Some(ResultSource::JournalForMissingFile);
        // A completed run without a note has saved it before it wrote its result.
        if !is_it || has_result && !is_noted(&self.path, folder, run_id) {
            return Ok(Settled::Nothing);
        }
        let Some(PendingState { value, read }) = pending_state(&record)? else { return Ok(Settled::Nothing) };
        if !is_trusted {
            return Ok(Settled::Foreign);
        }
        self.save_pending(folder, &value, read.as_ref(), is_forced, has_result)
    }

    fn save_pending(
        &mut self,
        folder: &Path,
        value: &Value,
        read: Option<&String>,
        is_forced: bool,
        has_result: bool,
    ) -> Result<Settled, Error> {
        let content = content(&self.job, value).map_err(|source| self.not_saved(folder, source))?;
        let sha256 = sha256_of(&content);
        let is_saved = self.sha256.as_ref() == Some(&sha256);
        if !is_saved && self.sha256.as_ref() != read && !is_forced {
            return Ok(Settled::Changed);
        }
        if !is_saved {
            self.save(value, &FaultInjection::default()).map_err(|source| self.not_saved(folder, source))?;
        }
        if !has_result {
            Recorder::rebuild(folder, write_reports)?;
        }
        Ok(if is_saved { Settled::Nothing } else { Settled::Saved })
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        // Another process may have taken it over.
        if self.has_begun && !self.is_pending && self.lease.check().is_ok() {
            self.remove_note();
        }
    }
}

/// What a completed run has left to save.
struct PendingState {
    value: Value,
    /// SHA-256 of the file that it has read.
    read: Option<String>,
}

/// The state that a run has set, if it has completed.
fn pending_state(record: &Record) -> Result<Option<PendingState>, Error> {
    let (mut read, mut set, mut has_completed) = (None, None, false);
    for entry in record.entries(PARENT)?.flatten() {
        match entry.event {
            Event::StateRead(state) => read = state.sha256,
            Event::Resumed(_) => (set, has_completed) = (None, false),
            Event::StateSet(state) => set = Some(state.value),
            Event::RunFinished(finished) => has_completed = finished.outcome == Outcome::Completed,
            _ => {}
        }
    }
    Ok(set.filter(|_| has_completed).map(|value| PendingState { value, read }))
}

/// Whether a run may have completed without saving its state in this file: it has no result yet, or had the file last.
pub fn may_be_unsaved(path: &Path, folder: &Path, run_id: &str) -> bool {
    let has_result = std::fs::symlink_metadata(folder.join(RESULT_FILE)).is_ok();
    folder.is_dir() && (!has_result || is_noted(path, folder, run_id))
}

/// Whether a run had the file last, and hasn't given it back.
fn is_noted(path: &Path, folder: &Path, run_id: &str) -> bool {
    let lock = path.file_name().and_then(|name| name.to_str()).map(|name| path.with_file_name(lock_name(name)));
    let canonical = |path: &Path| path.canonicalize().ok();
    lock.and_then(|lock| read_note(&lock)).is_some_and(|note| {
        note.run_id == run_id && (note.record == folder || canonical(&note.record) == canonical(folder))
    })
}

/// The value in a file that may belong to another process, and its size as JSON in bytes; `None` if there is no file.
///
/// # Errors
/// It isn't a state of this job.
pub fn read_state(path: &Path, job: &str, max_bytes: u64) -> Result<Option<StateRead>, Error> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let Ok(folder) = File::open(path.parent().unwrap_or(Path::new("/"))) else { return Ok(None) };
    let read = read_content(folder.as_fd(), name, path, job, max_bytes)?;
    Ok(read.map(|(value, sha256)| StateRead { value, sha256: Some(sha256) }))
}

/// The content of a file with the state of a job.
pub fn state_content(job: &str, value: &Value) -> Vec<u8> {
    // A JSON value can be written.
    content(job, value).unwrap_or_default()
}

fn read_content(
    folder: BorrowedFd<'_>,
    name: &str,
    path: &Path,
    job: &str,
    max_bytes: u64,
) -> Result<Option<(Value, String)>, Error> {
    let bytes = match read_bytes(folder, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(state_error(path, format!("the state can't be read: {error}"), BROKEN_HINT)),
        Ok(bytes) => bytes,
    };
    let found: Content = serde_json::from_slice(&bytes)
        .map_err(|error| state_error(path, format!("this isn't the state of a job: {error}"), BROKEN_HINT))?;
    if found.format != STATE_FORMAT {
        let why = format!("the format of the state is {}, and this legwork reads {STATE_FORMAT}", found.format);
        return Err(state_error(path, why, "The legwork that wrote it can read it."));
    }
    if found.job != job {
        let why = format!("this is the state of the job `{}`, not of `{job}`", found.job);
        return Err(state_error(path, why, "Name another file with --state FILE."));
    }
    if let Some(why) = value_mistake(&found.value, max_bytes) {
        let why = format!("the state can't be used: {why}");
        return Err(state_error(path, why, "Raise `max` of the job's `state`, or shorten the value."));
    }
    Ok(Some((found.value, sha256_of(&bytes))))
}

const BROKEN_HINT: &str =
    "Restore the file, or move it away: then the state begins with `initial` again. Nothing has changed it.";

fn state_error(path: &Path, why: String, hint: &str) -> Error {
    Error::StateFile { path: path.to_owned(), why, hint: hint.to_owned() }
}

fn read_bytes(folder: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let file = open_file_in(folder, name, MAX_FILE_BYTES)?;
    let size = file.metadata().map_or(0, |found| found.len());
    read_expected(file, size, MAX_FILE_BYTES)
}

fn content(job: &str, value: &Value) -> io::Result<Vec<u8>> {
    let content = Content { format: STATE_FORMAT, job: job.to_owned(), value: value.clone() };
    let mut bytes = serde_json::to_vec(&content)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn sha256_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The name of the lock's folder. It begins with a dot, so that it isn't taken for a record.
fn lock_name(name: &str) -> String {
    format!(".{name}.lock")
}

fn read_note(lock: &Path) -> Option<Note> {
    let bytes = read_file(lock, NOTE, MAX_NOTE_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok().filter(|note: &Note| note.record.is_absolute())
}
