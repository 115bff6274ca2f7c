//! Records at a path that is known before the run: that of a run with a key, and that of a row of a map. The same path stands
//! for the same run, so it is created, continued or read again.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FileType, Mode, RenameFlags, mkdirat, renameat, renameat_with};
use rustix::io::Errno;

use super::artifacts::WriteReports;
use super::files::{
    BASELINE_FILE, JOB_FILE, PATCH_FILE, PLAN_FILE, REPORT_FILE, RESULT_FILE, TEMP_PREFIX, TRANSCRIPT_FILE,
    is_of_file_system, remove_temporary_files,
};
use super::lock::RecordLock;
use super::read::Record;
use super::recorder::{Recorder, check_latest, create_job_dir, record_error, reserve_disk_space};
use super::resume::{ResumedRecord, lines_lost};
use super::state::{Depth, LOST_START, RecordQuery, RecordReading, RecordState, ResultSource};
use crate::error::Error;
use crate::event::{Outcome, PARENT};
use crate::journal::{RecordKey, journal_file};
use crate::workspace::open_root::OpenRoot;

/// How often other processes may create, remove or move the folder while this one opens it.
const MAX_ATTEMPTS: usize = 100;
/// The file that makes a folder that of a map.
pub const MAP_FILE: &str = "map.json";

/// A record at a given path.
#[derive(Debug)]
pub enum OpenedRecord {
    /// No run has started in it yet.
    New(Box<Recorder>),
    /// A run has started in it.
    Started(Box<StartedRecord>),
}

/// A record in which a run has started.
#[derive(Debug)]
pub struct StartedRecord {
    /// The record. It was asked whether it is that of this run and was made with our key.
    pub record: Record,
    /// `None` if the run is final.
    lock: Option<RecordLock>,
    key: Option<RecordKey>,
}

/// A run that is to start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousAttempt {
    /// Whatever has run.
    Any,
    /// The run that ended at this time, and not one that another process has started since.
    EndedAt(Timestamp),
}

/// How to open a record at a given path.
#[derive(Debug, Clone)]
pub struct RecordOpenOptions<'a> {
    /// The canonical path of the folder of all runs. If it doesn't exist yet, it gets a `.gitignore` for everything.
    pub out: &'a Path,
    /// The canonical path of the record below that folder. Its last part is the run's id.
    pub folder: &'a Path,
    /// Whether `latest` next to the record links to it when it is created.
    pub links_latest: bool,
    /// Whether a limit may be raised, so that a run that ended at one can continue.
    pub raises_a_limit: bool,
    /// Which run is set aside if it has started: its record gets the next free number at the end of its name.
    pub set_aside: Option<PreviousAttempt>,
    /// Seals the record.
    pub key: Option<RecordKey>,
    /// Completes the record of a run whose process was killed at its end.
    pub write_reports: WriteReports,
}

impl OpenedRecord {
    /// Opens the record, and creates it if there is none. It is locked, unless its run is final.
    ///
    /// # Errors
    /// If another process uses it ([`Error::InUse`]), something else is at its path, or it can't be read or created.
    pub fn open(path: &RecordOpenOptions<'_>) -> Result<Self, Error> {
        let folder = path.folder;
        for _ in 0..MAX_ATTEMPTS {
            match fs::symlink_metadata(folder) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(not_a_record(folder, "it isn't a folder")),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if !path.create()? {
                        continue;
                    }
                }
                Err(error) => return Err(record_error(folder)(error)),
            }
            // This needs no lock: the result is written last, and then nothing changes any more.
            if fs::symlink_metadata(folder.join(RESULT_FILE)).is_ok() {
                let reading = path.read(false)?;
                if !path.sets_aside(&reading.state) && path.is_final(&reading.state) {
                    return path.started(reading, None);
                }
            }
            let lock = match RecordLock::take(folder) {
                Ok(lock) if lock.is_of(folder) => lock,
                Err(Error::Record { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
                // It was moved or removed in the meantime.
                Ok(_) => continue,
            };
            let reading = path.read(true)?;
            let sets_aside = path.sets_aside(&reading.state);
            match reading.state.unqualified() {
                RecordState::Absent | RecordState::NotStarted => {
                    match lock.lease.flushed().into_iter().find(|(_, flushed)| *flushed > 0) {
                        Some(_) if sets_aside => drop(set_aside(folder, lock)?),
                        None => return path.start(lock).map(Box::new).map(Self::New),
                        Some((agent, flushed)) => {
                            return Err(lines_lost(folder.to_owned(), journal_file(&agent), 0, flushed));
                        }
                    }
                }
                // Also a record that can't be read.
                _ if sets_aside => drop(set_aside(folder, lock)?),
                RecordState::Ended { result, source: ResultSource::JournalForMissingFile }
                    if !result.outcome.can_be_resumed() =>
                {
                    Recorder::complete_ended(folder, lock, path.write_reports)?;
                }
                // It has ended in the meantime.
                state if path.is_final(state) => {
                    lock.lease.release();
                    return path.started(reading, None);
                }
                _ => return path.started(reading, Some(lock)),
            }
        }
        Err(path.vanished())
    }
}

impl RecordOpenOptions<'_> {
    /// Whether the run that the record has now is set aside.
    fn sets_aside(&self, state: &RecordState) -> bool {
        match self.set_aside {
            None => false,
            Some(PreviousAttempt::Any) => true,
            Some(PreviousAttempt::EndedAt(at)) => state.result().is_some_and(|result| result.finished_at == at),
        }
    }

    /// Whether the run is final, and `result.json` is complete or damaged.
    fn is_final(&self, state: &RecordState) -> bool {
        let can_continue = |outcome: Outcome| outcome.can_be_resumed() || (self.raises_a_limit && outcome.is_a_limit());
        state.source().is_some_and(|source| source != ResultSource::JournalForMissingFile)
            && state.result().is_some_and(|result| !can_continue(result.outcome))
    }

    /// Creates the folder. Returns false if another process was faster.
    fn create(&self) -> Result<bool, Error> {
        let parent = self.folder.parent().unwrap_or(self.out);
        if self.links_latest {
            check_latest(parent)?;
        }
        let parent = create_job_dir(self.out, parent)?;
        match mkdirat(parent.folder(), self.folder.file_name().unwrap_or_default(), Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(record_error(self.folder)(error.into())),
        }
    }

    /// Begins a record in a locked folder in which no run has started. What a killed process has left there is removed.
    fn start(&self, lock: RecordLock) -> Result<Recorder, Error> {
        let folder = self.folder;
        remove_leftovers(folder, &lock)?;
        let run_id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reserve = reserve_disk_space(lock.root.folder());
        let mut recorder = Recorder::new(folder.to_owned(), run_id, lock, reserve, HashMap::new(), self.key.clone());
        recorder.remove_if_unstarted();
        if let Some(parent) = folder.parent().filter(|_| self.links_latest) {
            check_latest(parent)?;
            recorder.link_latest(parent)?;
        }
        Ok(recorder)
    }

    fn read(&self, holds_lock: bool) -> Result<RecordReading, Error> {
        let run_id = self.folder.file_name().and_then(OsStr::to_str);
        let (key, query) = (self.key.as_ref(), RecordQuery::new(self.folder, Depth::Summary));
        RecordQuery { run_id, key, holds_lock, ..query }.read(&mut |_| {})
    }

    /// The record of a run that has started. Without a lock, the run is final.
    fn started(&self, reading: RecordReading, lock: Option<RecordLock>) -> Result<OpenedRecord, Error> {
        if reading.start.is_none() && reading.state.result().is_some() {
            return Err(not_a_record(self.folder, format!("{LOST_START}, and --fresh starts again")));
        }
        let record = Record::from_reading(self.folder, reading, false)?.undamaged()?;
        Ok(OpenedRecord::Started(Box::new(StartedRecord { record, lock, key: self.key.clone() })))
    }

    fn vanished(&self) -> Error {
        let why = "other processes keep creating, moving or removing it";
        record_error(self.folder)(std::io::Error::other(why))
    }
}

impl StartedRecord {
    /// Whether the run is final.
    pub fn has_ended(&self) -> bool {
        self.lock.is_none()
    }

    /// Continues the run.
    ///
    /// # Errors
    /// The run is final ([`Error::RunEnded`]), or its record is damaged.
    pub fn resume(self) -> Result<ResumedRecord, Error> {
        let Some(lock) = self.lock else {
            let outcome = self.record.result().map(|result| result.outcome).unwrap_or_default();
            let exit_code = outcome.exit_code(None);
            let run_id = self.record.start.map(|start| start.run_id).unwrap_or_default();
            return Err(Error::RunEnded { run_id, outcome, exit_code });
        };
        let folder = self.record.folder.canonicalize().map_err(record_error(&self.record.folder))?;
        remove_temporary_files(&lock.root);
        Recorder::resume_locked(folder, lock, self.record, false, self.key)
    }
}

/// Whether a path is that of a file which legwork itself keeps in a record or in the folder of a map that exists.
pub fn is_record_file(path: &Path) -> bool {
    let journal = journal_file(PARENT);
    let kept = [
        &journal,
        JOB_FILE,
        PLAN_FILE,
        RESULT_FILE,
        TRANSCRIPT_FILE,
        REPORT_FILE,
        PATCH_FILE,
        BASELINE_FILE,
        MAP_FILE,
        "results.jsonl",
        "results.csv",
    ];
    path.file_name().is_some_and(|name| kept.iter().any(|kept| name == *kept))
        && [&journal, MAP_FILE].iter().any(|kept| path.with_file_name(kept).exists())
}

fn not_a_record(folder: &Path, why: impl Into<String>) -> Error {
    Error::NotARecord { path: folder.to_owned(), why: why.into() }
}

/// Removes what a process that was killed before its run started has left in a folder, and what a power failure has left of a
/// run whose journal wasn't flushed. Nothing is removed if anything else is there.
fn remove_leftovers(folder: &Path, lock: &RecordLock) -> Result<(), Error> {
    let failed = || record_error(folder);
    if folder.join(MAP_FILE).exists() {
        return Err(not_a_record(folder, "it is the folder of a map; move it away, or choose another name"));
    }
    let journal = journal_file(PARENT);
    // Files at the end of a run are written after its journal was created.
    let mut at_end: &[&str] = &[PATCH_FILE, TRANSCRIPT_FILE, REPORT_FILE];
    let root = &lock.root;
    let kind = |name: &OsStr| root.stat(name.as_ref()).map(|found| FileType::from_raw_mode(found.st_mode));
    if !matches!(kind(journal.as_ref()), Ok(FileType::RegularFile)) {
        at_end = &[];
    }
    let mut leftovers = Vec::new();
    for entry in root.names("".as_ref()).map_err(failed())? {
        let name = entry.to_string_lossy();
        if lock.lease.is_file(&name) || is_of_file_system(&entry) {
            continue;
        }
        let is_leftover = [JOB_FILE, PLAN_FILE, BASELINE_FILE, &journal].contains(&&*name)
            || at_end.contains(&&*name)
            || name.starts_with(TEMP_PREFIX);
        match kind(&entry) {
            Ok(FileType::RegularFile) if is_leftover => leftovers.push(entry),
            // Another process has used or removed its temporary file since the names were read.
            Err(error) if is_leftover && error.kind() == ErrorKind::NotFound => {}
            _ => {
                let why = format!(
                    "it contains `{name}`, and no run has started in it; move that away, or choose another name"
                );
                return Err(not_a_record(folder, why));
            }
        }
    }
    let remove = |leftover: &OsString| match root.remove_file(leftover.as_ref()) {
        // Another process has taken its temporary file away.
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    leftovers.iter().try_for_each(remove).map_err(failed())
}

/// Moves a locked record to its name and the next free number.
fn set_aside(folder: &Path, mut lock: RecordLock) -> Result<PathBuf, Error> {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    for number in 1_u32.. {
        let mut numbered = name.clone();
        numbered.push(number.to_string());
        let target = folder.with_file_name(numbered);
        match rename_to_free(folder, &target) {
            Ok(()) => {
                lock.lease.follow(&target);
                return Ok(target);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(record_error(&target)(error)),
        }
    }
    Err(not_a_record(folder, "it can't be set aside, as all numbers are taken"))
}

/// Renames a folder to a path at which nothing is.
fn rename_to_free(folder: &Path, target: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(target).is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let (Some(above), Some(from), Some(to)) = (folder.parent(), folder.file_name(), target.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let above = OpenRoot::open_canonical(above)?;
    let above = above.folder();
    let renamed = match renameat_with(above, from, above, to, RenameFlags::NOREPLACE) {
        // Not every file system supports it. The lock on the folder keeps others from doing the same.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(above, from, above, to),
        renamed => renamed,
    };
    renamed.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn temporary_files_of_other_processes_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let lock = RecordLock::take(&path).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let file = path.join(format!("{TEMP_PREFIX}1-0.tmp"));
                    std::fs::write(&file, "").unwrap();
                    let _ = std::fs::remove_file(&file);
                }
            });
            let found: Vec<_> = (0..2_000).map(|_| remove_leftovers(&path, &lock)).collect();
            done.store(true, Ordering::Relaxed);
            for found in found {
                found.unwrap();
            }
        });
        std::fs::write(path.join("mine"), "").unwrap();
        assert!(remove_leftovers(&path, &lock).is_err());
    }
}
