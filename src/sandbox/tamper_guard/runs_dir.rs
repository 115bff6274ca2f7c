//! The folder of all runs: which records there are, and what `latest` leads to.
//!
//! Other runs may begin there at any time. Theirs are known by the lock that each holds on its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, flock, openat, readlinkat, renameat, statat, symlinkat,
};
use rustix::io::Errno;

use super::super::RecordVerifier;
use super::open_parent;
use super::rollback::remove_all;
use super::tree_check::list;

/// The link to the newest run of a job.
const LATEST: &str = "latest";
/// What is added to the name of something that no run made.
const QUARANTINE_SUFFIX: &str = ".not-a-record";
/// What a run makes of its record while commands may run; the rest it makes when they are over.
const FILES_WRITTEN_DURING_RUN: [&str; 5] = ["events.jsonl", "heartbeat", "job.yaml", "plan.json", "workspace.start"];
/// How long a run that was just begun may take to lock its folder.
const LOCKED_WITHIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct RunsDir {
    pub(super) root: Arc<OwnedFd>,
    /// From the root.
    pub(super) relative: PathBuf,
    pub(super) path: PathBuf,
    /// The run's own record, from the folder of all runs: job and run, or the run alone where that folder is the job's.
    pub(super) own_record: Option<PathBuf>,
    /// Device and inode of that record: wherever commands move it, its lock doesn't make it another run's.
    pub(super) own_record_id: Option<(u64, u64)>,
    /// The names of what was in it.
    pub(super) own_entries: BTreeSet<OsString>,
    /// What was there: the jobs with their records.
    pub(super) jobs: BTreeMap<OsString, JobDir>,
    /// Tells records of other runs, those that have ended included, from planted ones.
    pub(super) verifier: Option<RecordVerifier>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct JobDir {
    pub(super) entries: BTreeSet<OsString>,
    pub(super) latest: Option<OsString>,
}

impl RunsDir {
    pub(super) fn new(
        root: Arc<OwnedFd>,
        way: PathBuf,
        path: &Path,
        record: &Path,
        judge: Option<RecordVerifier>,
    ) -> Self {
        let own = record.strip_prefix(path).ok().map(Path::to_owned);
        let own_folder = File::open(record).ok().and_then(|record| identity(&record.into()));
        let mut runs = Self {
            root,
            relative: way,
            path: path.to_owned(),
            own_record: own,
            own_record_id: own_folder,
            own_entries: BTreeSet::new(),
            jobs: BTreeMap::new(),
            verifier: judge,
        };
        runs.rebaseline();
        runs
    }

    /// Takes what is there now as how it must be.
    pub(super) fn rebaseline(&mut self) {
        let mut jobs = BTreeMap::new();
        if let Ok((folder, listed)) = self.open(&self.relative) {
            if self.is_job_dir() {
                jobs.insert(OsString::new(), JobDir::of(&folder, &listed));
            } else {
                for (name, kind) in listed {
                    let job = match list(&folder, &name) {
                        Ok((opened, listed)) if kind == FileType::Directory => JobDir::of(&opened, &listed),
                        _ => JobDir::default(),
                    };
                    jobs.insert(name, job);
                }
            }
        }
        self.jobs = jobs;
        let own = self.own_record.as_ref().and_then(|own| self.open(&self.relative.join(own)).ok());
        self.own_entries = own.into_iter().flat_map(|(_, listed)| listed).map(|(name, _)| name).collect();
    }

    /// Looks whether commands added something, and puts it aside: nothing is removed but links, since another run could
    /// have made it after all.
    pub(super) fn check(&self, changed: &mut Vec<PathBuf>, left: &mut Vec<PathBuf>) {
        let Ok((folder, listed)) = self.open(&self.relative) else {
            changed.push(self.path.clone());
            left.push(self.path.clone());
            return;
        };
        let mut report = RunsCheck {
            changed,
            left,
            own_record_id: self.own_record_id,
            verifier: self.verifier.as_ref(),
            locked_by: Instant::now() + LOCKED_WITHIN,
        };
        if self.is_job_dir() {
            if let Some(known) = self.jobs.get(OsStr::new("")) {
                known.check(&folder, &listed, &self.path, &mut report);
            }
        } else {
            for name in self.jobs.keys().filter(|name| !listed.iter().any(|(listed, _)| listed == *name)) {
                // A file that is to stay is put back by whoever keeps its content.
                if *name != OsStr::new(".gitignore") {
                    report.lost(self.path.join(name));
                }
            }
            for (name, kind) in &listed {
                let path = self.path.join(name);
                let is_folder = kind_of(&folder, name, *kind) == Some(FileType::Directory);
                match (self.jobs.get(name), list(&folder, name)) {
                    (Some(known), Ok((opened, inside))) if is_folder => {
                        known.check(&opened, &inside, &path, &mut report);
                    }
                    (None, Ok((opened, inside)))
                        if is_folder && inside.iter().any(|(run, _)| report.is_a_run(&opened, run, &path)) =>
                    {
                        JobDir::default().check(&opened, &inside, &path, &mut report);
                    }
                    (Some(_), _) if !is_folder && self.jobs.get(name) == Some(&JobDir::default()) => {}
                    _ => report.quarantine(&folder, name, path),
                }
            }
        }
        if let Some(own) = &self.own_record {
            self.check_own_record(own, &mut report);
        }
    }

    /// In the run's own record there are only files, and one folder of files. What a run leaves at its end isn't there yet.
    fn check_own_record(&self, own: &Path, report: &mut RunsCheck<'_>) {
        for (within, has_folders) in [(own.to_owned(), true), (own.join("subagents"), false)] {
            let Ok((folder, listed)) = self.open(&self.relative.join(&within)) else { continue };
            for (name, kind) in listed {
                let is_fine = match kind_of(&folder, &name, kind) {
                    Some(FileType::Directory) => has_folders && name == "subagents",
                    Some(FileType::RegularFile) => !has_folders || self.is_expected(&name),
                    None => true,
                    Some(_) => false,
                };
                if !is_fine {
                    report.quarantine(&folder, &name, self.path.join(&within).join(&name));
                }
            }
        }
    }

    /// Whether a file of the run's own record was there, or the run may have made it meanwhile.
    fn is_expected(&self, name: &OsStr) -> bool {
        self.own_entries.contains(name)
            || FILES_WRITTEN_DURING_RUN.iter().any(|known| name == *known)
            || name.as_bytes().starts_with(b".")
    }

    fn is_job_dir(&self) -> bool {
        self.own_record.as_ref().is_some_and(|own| own.iter().count() == 1)
    }

    fn open(&self, way: &Path) -> Result<(OwnedFd, Vec<(OsString, FileType)>), Errno> {
        let (folder, name) = open_parent(&self.root, way, |_, _| Err(Errno::NOENT))?;
        list(&folder, name)
    }
}

impl JobDir {
    fn of(folder: &OwnedFd, listed: &[(OsString, FileType)]) -> Self {
        Self { entries: listed.iter().map(|(name, _)| name.clone()).collect(), latest: latest(folder) }
    }

    fn check(&self, folder: &OwnedFd, listed: &[(OsString, FileType)], path: &Path, report: &mut RunsCheck<'_>) {
        for name in self.entries.iter().filter(|name| !listed.iter().any(|(listed, _)| listed == *name)) {
            if *name != LATEST && !name.as_bytes().starts_with(b".latest-") {
                report.lost(path.join(name));
            }
        }
        for (name, kind) in listed.iter().filter(|(name, _)| *name != LATEST && !self.entries.contains(name)) {
            // A link that is about to become `latest` names the run that makes it.
            let run = name.as_bytes().strip_prefix(b".latest-").map_or(name.as_os_str(), OsStr::from_bytes);
            let kind = kind_of(folder, name, *kind);
            let is_theirs =
                matches!(kind, Some(FileType::Directory | FileType::Symlink)) && report.is_a_run(folder, run, path);
            if kind.is_some() && !is_theirs {
                report.quarantine(folder, name, path.join(name));
            }
        }
        let now = latest(folder);
        let is_fine =
            now == self.latest || now.as_ref().is_some_and(|run| is_name(run) && report.is_a_run(folder, run, path));
        if !is_fine {
            report.changed.push(path.join(LATEST));
            let put = remove_all(folder, OsStr::new(LATEST), 0).and_then(|()| {
                self.latest.as_ref().map_or(Ok(()), |target| symlinkat(target.as_os_str(), folder, LATEST))
            });
            if put.is_err() {
                report.left.push(path.join(LATEST));
            }
        }
    }
}

struct RunsCheck<'a> {
    changed: &'a mut Vec<PathBuf>,
    left: &'a mut Vec<PathBuf>,
    /// See [`RunsDir`].
    own_record_id: Option<(u64, u64)>,
    verifier: Option<&'a RecordVerifier>,
    /// When runs that were just begun have locked their folders: all of them, or many planted ones would take long.
    locked_by: Instant,
}

impl RunsCheck<'_> {
    /// Whether a folder is another run's: one that goes on, or that has ended meanwhile.
    fn is_a_run(&self, folder: &OwnedFd, name: &OsStr, job: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = openat(folder, name, flags, Mode::empty()) else { return false };
        if self.own_record_id.is_some() && identity(&opened) == self.own_record_id {
            return false;
        }
        if is_locked(&opened) || self.verifier.is_some_and(|judge| judge.0(&opened, &job.join(name))) {
            return true;
        }
        std::thread::sleep(self.locked_by.saturating_duration_since(Instant::now()));
        is_locked(&opened)
    }

    /// Something is there that no run made: a link goes, everything else gets a name that no record has.
    fn quarantine(&mut self, folder: &OwnedFd, name: &OsStr, path: PathBuf) {
        let is_link = kind_of(folder, name, FileType::Unknown) == Some(FileType::Symlink);
        let done = if is_link { remove_all(folder, name, 0) } else { rename_to_quarantine(folder, name) };
        if done.is_err() {
            self.left.push(path.clone());
        }
        self.changed.push(path);
    }

    fn lost(&mut self, path: PathBuf) {
        self.left.push(path.clone());
        self.changed.push(path);
    }
}

fn rename_to_quarantine(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    for number in 0..100 {
        let mut aside = OsString::from(".");
        aside.push(name);
        aside.push(QUARANTINE_SUFFIX);
        if number > 0 {
            aside.push(format!("-{number}"));
        }
        if statat(folder, &aside, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return renameat(folder, name, folder, &aside);
        }
    }
    Err(Errno::EXIST)
}

/// What `latest` says.
fn latest(folder: &OwnedFd) -> Option<OsString> {
    match readlinkat(folder, LATEST, Vec::new()) {
        Ok(target) => Some(OsStr::from_bytes(target.as_bytes()).to_owned()),
        // Something else in its place is no link to any run.
        Err(_) => statat(folder, LATEST, AtFlags::SYMLINK_NOFOLLOW).is_ok().then(OsString::new),
    }
}

fn is_name(target: &OsStr) -> bool {
    !target.is_empty() && !target.as_bytes().contains(&b'/') && target != ".." && target != "."
}

/// Device and inode of an open folder.
fn identity(folder: &OwnedFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(folder).ok()?;
    // The types differ from one architecture to the next.
    #[allow(clippy::unnecessary_cast)]
    Some((stat.st_dev as u64, stat.st_ino as u64))
}

/// Whether a run holds its folder: it goes on now.
pub(super) fn is_locked(opened: &OwnedFd) -> bool {
    let taken = flock(opened, FlockOperation::NonBlockingLockShared);
    if taken.is_ok() {
        let _ = flock(opened, FlockOperation::Unlock);
    }
    taken == Err(Errno::WOULDBLOCK)
}

/// The kind of an entry; none where it is gone.
fn kind_of(folder: &OwnedFd, name: &OsStr, listed: FileType) -> Option<FileType> {
    if listed != FileType::Unknown {
        return Some(listed);
    }
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}
