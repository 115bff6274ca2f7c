//! The folder of all runs: which records there are, and what `latest` links to.
//!
//! Other runs and maps may start there at any time. Their records are recognized by the lock that each run holds on its folder,
//! and by their seal; the folder of a map by the lock of its process, or by the records of its rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, flock, fstat, readlinkat, symlinkat};
use rustix::io::Errno;

use super::super::policy::RecordVerifier;
use super::super::tamper_error::TamperError;
use super::dir_fd::{Listing, is_held, is_locked, kind, list, list_path, open_dir, open_parent};
use super::rollback::{remove_all, rename_aside};
use crate::isolation::WORKSPACES_FOLDER;
use crate::job::STATE_FILE;
use crate::workspace::open_beneath::{FileId, file_id};

/// The link to the newest run of a job.
const LATEST: &str = "latest";
/// The beginning of the names of files that aren't complete yet.
const TEMP_PREFIX: &[u8] = b".tmp-legwork-";
/// Added to the name of something that no run made.
pub(super) const QUARANTINE_SUFFIX: &str = ".not-a-record";
/// The files of its record that a run writes while commands may run; it writes the others after the last command.
const FILES_WRITTEN_DURING_RUN: [&str; 5] = ["events.jsonl", "lease", "job.yaml", "plan.json", "workspace.start"];
/// The folder in a record with what the steps before the agent leave.
pub(super) const FILES_FOLDER: &str = "files";
/// The other folders in a record.
pub(super) const RECORD_FOLDERS: [&str; 2] = ["subagents", "attachments"];
/// The folders in that of a map: one that its processes hold, and one with the records of its rows.
const MAP_LEDGER: &str = "ledger";
const MAP_ROWS: &str = "rows";
/// How many rows of a map are looked at, to find one with a record.
const MAX_ROWS: usize = 1_000;
/// How long a run that has just started may take to lock its folder.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);
/// How long to wait for a process that removes a record.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct RunsDir {
    pub(super) root: Arc<OwnedFd>,
    /// From the root.
    pub(super) relative: PathBuf,
    pub(super) path: PathBuf,
    /// The run's own record, relative to the folder of all runs: job and run, or only the run if that folder is the job's.
    pub(super) own_record: Option<PathBuf>,
    /// Device and inode of that record: its lock must not make it look like another run's if a command moves it.
    pub(super) own_record_id: Option<FileId>,
    /// The names of the files and folders in it.
    pub(super) own_entries: BTreeSet<OsString>,
    /// The jobs and their records that were there.
    pub(super) jobs: BTreeMap<OsString, WatchedJobDir>,
    /// Distinguishes records of other runs, including ended ones, from planted ones.
    pub(super) verifier: Option<RecordVerifier>,
    /// Keeps `runs prune` from removing records, which would look like the work of a command.
    #[expect(dead_code, reason = "holds the lock")]
    pub(super) lock: Option<SharedLock>,
}

/// A folder that is locked together with others until this is dropped, also where a process that was starting has a copy of the
/// descriptor.
#[derive(Debug)]
pub(super) struct SharedLock(OwnedFd);

impl Drop for SharedLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct WatchedJobDir {
    pub(super) entries: BTreeSet<OsString>,
    pub(super) latest: Option<OsString>,
}

impl RunsDir {
    pub(super) fn new(
        root: Arc<OwnedFd>,
        relative: PathBuf,
        path: &Path,
        record: &Path,
        verifier: Option<RecordVerifier>,
    ) -> Self {
        // A record in no folder of runs is watched alone, and is locked by its run.
        let lock = if path == record { None } else { lock_shared(&root, &relative) };
        let mut runs = Self {
            lock,
            root,
            relative,
            path: path.to_owned(),
            own_record: record.strip_prefix(path).ok().map(Path::to_owned),
            own_record_id: rustix::fs::stat(record).ok().map(|record| file_id(&record)),
            own_entries: BTreeSet::new(),
            jobs: BTreeMap::new(),
            verifier,
        };
        runs.rebaseline();
        runs
    }

    /// Accepts the current state as the one that must not change.
    pub(super) fn rebaseline(&mut self) {
        let mut jobs = BTreeMap::new();
        if let Ok((folder, listing)) = list_path(&self.root, &self.relative) {
            if self.is_job_dir() {
                jobs.insert(OsString::new(), WatchedJobDir::of(&folder, &listing));
            } else {
                // Other runs and maps make and remove the workspaces of subagents and rows. Nothing follows links there.
                for (name, kind) in listing.into_iter().filter(|(name, _)| name != WORKSPACES_FOLDER) {
                    let job = match list(&folder, &name) {
                        Ok((opened, listing)) if kind == FileType::Directory => WatchedJobDir::of(&opened, &listing),
                        _ => WatchedJobDir::default(),
                    };
                    jobs.insert(name, job);
                }
            }
        }
        self.jobs = jobs;
        let record =
            self.own_record.as_ref().and_then(|record| list_path(&self.root, &self.relative.join(record)).ok());
        self.own_entries = record.into_iter().flat_map(|(_, listing)| listing).map(|(name, _)| name).collect();
    }

    /// Whether this process has lost its record to another one, whose files a command hasn't made.
    pub(super) fn lost_record(&self) -> Option<PathBuf> {
        let lost = self.verifier.as_ref().is_some_and(|verifier| !verifier.1());
        self.own_record.as_ref().filter(|_| lost).map(|record| self.path.join(record))
    }

    /// Checks whether commands added something, and renames it if so. Only links are removed, since another run could have
    /// made the rest after all.
    pub(super) fn check(&self, report: &mut TamperError) {
        let mut check = RunsCheck {
            report,
            own_record_id: self.own_record_id,
            verifier: self.verifier.as_ref(),
            locked_by: Instant::now() + LOCK_TIMEOUT,
        };
        let (folder, listing) = match list_path(&self.root, &self.relative) {
            Ok(found) => found,
            // Nothing is recorded there, such as for `mcp lock`, and nothing was.
            Err(Errno::NOENT) if self.own_record.is_none() && self.jobs.is_empty() => return,
            Err(_) => {
                check.lost(self.path.clone());
                return;
            }
        };
        if self.is_job_dir() {
            if let Some(known) = self.jobs.get(OsStr::new("")) {
                known.check(&folder, &listing, &self.path, &mut check);
            }
        } else {
            for name in self.jobs.keys().filter(|name| !contains(&listing, name)) {
                // The guard of this file's content restores it.
                if *name != OsStr::new(".gitignore") {
                    check.lost(self.path.join(name));
                }
            }
            for (name, kind) in &listing {
                let path = self.path.join(name);
                let is_folder = *kind == FileType::Directory;
                match (self.jobs.get(name), list(&folder, name)) {
                    (Some(known), Ok((opened, inside))) if is_folder => {
                        known.check(&opened, &inside, &path, &mut check);
                    }
                    (_, Ok(_)) if is_folder && name == WORKSPACES_FOLDER => {}
                    // Another run has just made it.
                    (None, Ok((_, inside))) if is_folder && inside.is_empty() => {}
                    (None, Ok((opened, inside)))
                        if is_folder && inside.iter().any(|(run, _)| check.is_another_run(&opened, run, &path)) =>
                    {
                        WatchedJobDir::default().check(&opened, &inside, &path, &mut check);
                    }
                    (Some(known), _) if !is_folder && *known == WatchedJobDir::default() => {}
                    _ => check.quarantine(&folder, name, path),
                }
            }
        }
        if let Some(record) = &self.own_record {
            self.check_own_record(record, &mut check);
        }
    }

    /// Checks the run's own record, which has only files and folders of files. The files that a run writes at its end
    /// aren't there yet.
    fn check_own_record(&self, record: &Path, check: &mut RunsCheck<'_>) {
        let folders = RECORD_FOLDERS.map(|name| (record.join(name), false));
        for (within, has_folders) in [(record.to_owned(), true)].into_iter().chain(folders) {
            let Ok((folder, listing)) = list_path(&self.root, &self.relative.join(&within)) else { continue };
            for (name, kind) in listing {
                let is_expected = match kind {
                    FileType::Directory => {
                        // What is in a folder that was there before is guarded elsewhere.
                        has_folders
                            && (RECORD_FOLDERS.iter().any(|known| name == *known) || self.own_entries.contains(&name))
                    }
                    FileType::RegularFile => !has_folders || self.is_expected(&name),
                    _ => false,
                };
                if !is_expected {
                    check.quarantine(&folder, &name, self.path.join(&within).join(&name));
                }
            }
        }
    }

    /// Whether a file of the run's own record was there before, or the run may have written it since.
    fn is_expected(&self, name: &OsStr) -> bool {
        self.own_entries.contains(name)
            || FILES_WRITTEN_DURING_RUN.iter().any(|known| name == *known)
            || name.as_bytes().starts_with(b".")
    }

    fn is_job_dir(&self) -> bool {
        self.own_record.as_ref().is_some_and(|record| record.iter().count() == 1)
    }
}

impl WatchedJobDir {
    fn of(folder: &OwnedFd, listing: &Listing) -> Self {
        Self { entries: listing.iter().map(|(name, _)| name.clone()).collect(), latest: latest(folder) }
    }

    fn check(&self, folder: &OwnedFd, listing: &Listing, path: &Path, check: &mut RunsCheck<'_>) {
        for name in self.entries.iter().filter(|name| !contains(listing, name) && !is_of_state(name)) {
            if *name != LATEST && !name.as_bytes().starts_with(b".latest-") {
                check.lost(path.join(name));
            }
        }
        let is_watched = |name: &OsString| *name != LATEST && !is_of_state(name);
        for (name, kind) in listing.iter().filter(|(name, _)| is_watched(name) && !self.entries.contains(name)) {
            // A link that is about to become `latest` has the name of the run that makes it.
            let run = name.as_bytes().strip_prefix(b".latest-").map_or(name.as_os_str(), OsStr::from_bytes);
            let is_another_run =
                matches!(*kind, FileType::Directory | FileType::Symlink) && check.is_another_run(folder, run, path);
            if !is_another_run {
                check.quarantine(folder, name, path.join(name));
            }
        }
        let now = latest(folder);
        let is_allowed = now == self.latest
            || now.as_ref().is_some_and(|run| is_name(run) && check.is_another_run(folder, run, path));
        if !is_allowed {
            check.report.changed.push(path.join(LATEST));
            let restored = remove_all(folder, OsStr::new(LATEST), 0).and_then(|()| {
                self.latest.as_ref().map_or(Ok(()), |target| symlinkat(target.as_os_str(), folder, LATEST))
            });
            if restored.is_err() {
                check.report.not_restored.push(path.join(LATEST));
            }
        }
    }
}

/// Whether a name in the folder of a job is that of the job's state, of its lock, or of a file that is about to become the state:
/// runs of other jobs write them at any time. The state of this run's own job is protected like any file.
fn is_of_state(name: &OsStr) -> bool {
    let lock = name.as_bytes().strip_prefix(b".").and_then(|name| name.strip_suffix(b".lock"));
    lock.is_some_and(|name| name == STATE_FILE.as_bytes())
        || name == STATE_FILE
        || name.as_bytes().starts_with(TEMP_PREFIX)
}

fn contains(listing: &Listing, name: &OsStr) -> bool {
    listing.iter().any(|(listed, _)| listed == name)
}

struct RunsCheck<'a> {
    report: &'a mut TamperError,
    /// See [`RunsDir`].
    own_record_id: Option<FileId>,
    verifier: Option<&'a RecordVerifier>,
    /// When runs that have just started must have locked their folders. One time for all: waiting for each of many planted
    /// folders would take long.
    locked_by: Instant,
}

impl RunsCheck<'_> {
    /// Whether a folder is the record of another run or the folder of a map, running or ended.
    fn is_another_run(&self, folder: &OwnedFd, name: &OsStr, job: &Path) -> bool {
        let Ok(opened) = open_dir(folder, name) else { return false };
        if fstat(&opened).is_ok_and(|opened| Some(file_id(&opened)) == self.own_record_id) {
            return false;
        }
        let path = job.join(name);
        if self.is_record(&opened, &path) || self.is_map(&opened, &path) {
            return true;
        }
        std::thread::sleep(self.locked_by.saturating_duration_since(Instant::now()));
        is_locked(&opened) || self.is_map(&opened, &path)
    }

    fn is_record(&self, folder: &OwnedFd, path: &Path) -> bool {
        is_locked(folder) || self.verifier.is_some_and(|verifier| verifier.0(folder, path))
    }

    /// Whether a process holds the folder of a map, or one of its rows has a record.
    fn is_map(&self, folder: &OwnedFd, path: &Path) -> bool {
        if open_dir(folder, MAP_LEDGER.as_ref()).is_ok_and(|ledger| is_held(&ledger)) {
            return true;
        }
        let Ok((rows, listing)) = list(folder, MAP_ROWS.as_ref()) else { return false };
        listing.iter().take(MAX_ROWS).any(|(name, _)| {
            open_dir(&rows, name).is_ok_and(|row| self.is_record(&row, &path.join(MAP_ROWS).join(name)))
        })
    }

    /// Removes a link that no run made, and renames anything else so that it can't be taken for a record.
    fn quarantine(&mut self, folder: &OwnedFd, name: &OsStr, path: PathBuf) {
        let is_link = kind(folder, name) == Some(FileType::Symlink);
        let done = if is_link { remove_all(folder, name, 0) } else { rename_aside(folder, name, QUARANTINE_SUFFIX) };
        if done.is_err() {
            self.report.not_restored.push(path.clone());
        }
        self.report.changed.push(path);
    }

    /// Reports something that can't be restored.
    fn lost(&mut self, path: PathBuf) {
        self.report.not_restored.push(path.clone());
        self.report.changed.push(path);
    }
}

/// Locks the folder together with other runs, when no process removes records any more. On a file system without locks, or if that
/// takes too long, nothing is locked.
fn lock_shared(root: &OwnedFd, relative: &Path) -> Option<SharedLock> {
    let (parent, name) = open_parent(root, relative).ok()?;
    let folder = open_dir(&parent, name).ok()?;
    let end = Instant::now() + PRUNE_TIMEOUT;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Some(SharedLock(folder)),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_POLL_INTERVAL),
            Err(_) => return None,
        }
    }
}

/// The target of `latest`.
fn latest(folder: &OwnedFd) -> Option<OsString> {
    match readlinkat(folder, LATEST, Vec::new()) {
        Ok(target) => Some(OsStr::from_bytes(target.as_bytes()).to_owned()),
        // Something else in its place doesn't link to any run.
        Err(_) => kind(folder, OsStr::new(LATEST)).is_some().then(OsString::new),
    }
}

fn is_name(target: &OsStr) -> bool {
    !target.is_empty() && !target.as_bytes().contains(&b'/') && target != ".." && target != "."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_in_no_folder_of_runs_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("archive");
        std::fs::create_dir(&record).unwrap();
        let of_the_run = std::fs::File::open(&record).unwrap();
        flock(&of_the_run, FlockOperation::NonBlockingLockExclusive).unwrap();
        let root = Arc::new(OwnedFd::from(std::fs::File::open(folder.path()).unwrap()));
        let start = Instant::now();
        let _runs = RunsDir::new(root, "archive".into(), &record, &record, None);
        assert!(start.elapsed() < PRUNE_TIMEOUT);
    }
}
