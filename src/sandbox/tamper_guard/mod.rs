//! What must stay as it is and isn't held by the kernel: looked at after each call, and put back.
//!
//! Landlock can't make exceptions below a writable folder, and bubblewrap can't bind what isn't there. Everything here
//! goes by descriptors and follows no link, for what it looks at was made by whoever attacks.

mod file_state;
mod finished_records;
mod fresh_repository;
mod git_index;
mod rollback;
mod runs_dir;
mod snapshot;
#[cfg(test)]
mod tests;
mod tree_check;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use self::file_state::{FileState, SnapshotBudget};
use self::finished_records::FinishedRecord;
use self::runs_dir::RunsDir;
use self::tree_check::TreeCheck;
use super::allowed_changes::AllowedChanges;
use super::{RecordVerifier, SandboxPolicy};
use crate::job::GitAccess;

/// Compares what must stay as it is with what it was.
#[derive(Debug)]
pub struct TamperGuard {
    paths: Mutex<Vec<GuardedPath>>,
    records: Mutex<Vec<FinishedRecord>>,
    runs: Option<Mutex<RunsDir>>,
    rules: Arc<AllowedChanges>,
    /// What holds too much to be looked at as a whole.
    too_large: Option<PathBuf>,
}

/// That something was changed which must stay as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TamperReport {
    /// What was changed: absolute, but records of runs, which are named from the folder that holds them all.
    pub changed: Vec<PathBuf>,
    /// Those of it that couldn't be put back.
    pub left: Vec<PathBuf>,
    /// What the job lets commands change in git folders, where something in one was changed.
    pub git: Option<GitAccess>,
    /// What holds too much to be looked at: nothing is known to be changed, but nobody would see it.
    pub too_large: Option<PathBuf>,
}

impl fmt::Display for TamperReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |paths: &[PathBuf]| {
            let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{}`", path.display())).collect();
            let more = if paths.len() > 5 { " and others" } else { "" };
            named.join(", ") + more
        };
        if let Some(path) = &self.too_large {
            return write!(
                f,
                "`{}` holds more than 200,000 files and folders, or folders that are too deep, so changes of it can't be \
                 seen after each command; bubblewrap would keep them from happening",
                path.display()
            );
        }
        write!(f, "a command changed what is protected: {}; ", names(&self.changed))?;
        match self.left.as_slice() {
            [] => f.write_str("it is as before again")?,
            left => write!(f, "this could not be put back: {}", names(left))?,
        }
        match self.git {
            Some(GitAccess::Read) => f.write_str(
                ". The job has `git: read`, the default: commands can't commit or change anything else in a git folder; \
                 `git: commit` lets them",
            ),
            Some(GitAccess::Commit) => f.write_str(
                ". With `git: commit`, commands can change objects, branches, tags, logs, the index and HEAD, and nothing \
                 else in a git folder",
            ),
            None => Ok(()),
        }
    }
}

/// A path and what was there.
#[derive(Debug)]
struct GuardedPath {
    /// The folder that commands may change, and the way from there.
    root: Arc<OwnedFd>,
    relative: PathBuf,
    path: PathBuf,
    state: FileState,
    /// What may change in it.
    rules: Option<Arc<AllowedChanges>>,
}

impl TamperGuard {
    /// Looks at every protected path that lies where commands may write. Of files up to 1 MB, all in all 32 MB, the
    /// content is kept; of others a change is seen but can't be put back. With more than 200,000 files and folders, every
    /// look finds a breach.
    pub fn new(boundary: &SandboxPolicy) -> Self {
        Self::for_paths(boundary, &boundary.protected)
    }

    /// The same for a list of paths of one's own. Of git folders, and of folders that the job opens something of, all is
    /// looked at, up to 200,000 entries.
    pub fn for_paths(boundary: &SandboxPolicy, paths: &[PathBuf]) -> Self {
        let rules = Arc::new(boundary.allowed_changes.clone());
        let (mut budget, mut budget_of_trees) = (SnapshotBudget::default(), SnapshotBudget::of_trees());
        let mut too_large = None;
        let roots = roots(boundary);
        let kept = paths.iter().filter_map(|path| {
            let is_tree = rules.concerns(path);
            let (root, way) = locate(&roots, path, is_tree)?;
            let state = match open_parent(&root, &way, |_, _| Err(Errno::NOENT)) {
                Ok((folder, name)) if is_tree => {
                    tree_check::capture(&folder, name, &rules.policy_for(path), &mut budget_of_trees, 0)
                }
                Ok((folder, name)) => FileState::capture(&folder, name, &mut budget),
                Err(_) => FileState::Missing,
            };
            if budget_of_trees.exceeded || budget.exceeded {
                too_large.get_or_insert_with(|| path.clone());
            }
            Some(GuardedPath {
                root,
                relative: way,
                path: path.clone(),
                state,
                rules: is_tree.then(|| Arc::clone(&rules)),
            })
        });
        let kept = Mutex::new(kept.collect());
        Self { paths: kept, records: Mutex::default(), runs: None, rules, too_large }
    }

    /// Looks at the folder of all runs as well, `runs`, of which `record` is this run's own: at which records there are,
    /// at what `latest` leads to, and at the records of runs that are over, those of the newest first, up to 500 files. What
    /// is changed within those is seen, not put back. `judge` says whether a record that appears is a run's.
    #[must_use]
    pub fn with_records(
        mut self,
        boundary: &SandboxPolicy,
        runs: &Path,
        record: &Path,
        judge: Option<RecordVerifier>,
    ) -> Self {
        if let Some((root, way)) = locate(&roots(boundary), runs, false) {
            self.records = Mutex::new(FinishedRecord::find(&root, &way));
            self.runs = Some(Mutex::new(RunsDir::new(root, way, runs, record, judge)));
        }
        self
    }

    /// Takes what was changed since as how it must be: for when no command runs, so that whoever works on the same files
    /// isn't taken for one.
    pub fn rebaseline(&self) {
        for kept in self.paths().iter_mut() {
            kept.rebaseline();
        }
        self.records().iter_mut().for_each(FinishedRecord::rebaseline);
        if let Some(runs) = &self.runs {
            runs.lock().unwrap_or_else(PoisonError::into_inner).rebaseline();
        }
    }

    /// Looks whether all is as it was, and puts back what isn't. Metadata decides where it is the same, for nothing can
    /// set the time of its last change. With `busy`, other commands still run.
    ///
    /// # Errors
    /// Names what was changed.
    pub fn check(&self, busy: bool) -> Result<(), TamperReport> {
        let mut breach =
            TamperReport { changed: Vec::new(), left: Vec::new(), git: None, too_large: self.too_large.clone() };
        if breach.too_large.is_some() {
            return Err(breach);
        }
        for kept in self.paths().iter_mut() {
            kept.check(busy, &mut breach);
        }
        for record in self.records().iter().filter(|record| !record.is_unchanged() && !record.is_active()) {
            breach.changed.push(record.path.clone());
            breach.left.push(record.path.clone());
        }
        if let Some(runs) = &self.runs {
            let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.check(&mut breach.changed, &mut breach.left);
        }
        if breach.changed.iter().any(|path| self.rules.policy_for(path).path_in_git_dir.is_some()) {
            breach.git = Some(self.rules.git);
        }
        if breach.changed.is_empty() { Ok(()) } else { Err(breach) }
    }

    fn records(&self) -> std::sync::MutexGuard<'_, Vec<FinishedRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paths(&self) -> std::sync::MutexGuard<'_, Vec<GuardedPath>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuardedPath {
    fn rebaseline(&mut self) {
        let found = open_parent(&self.root, &self.relative, |_, _| Err(Errno::NOENT));
        match (found, self.rules.clone()) {
            (Ok((folder, name)), Some(rules)) => {
                tree_check::rebaseline(
                    &mut self.state,
                    &folder,
                    name,
                    &rules.policy_for(&self.path),
                    &mut SnapshotBudget::of_trees(),
                    0,
                );
            }
            (Ok((folder, name)), None) => {
                if !self.state.is_unchanged(&folder, name) {
                    self.state = FileState::capture(&folder, name, &mut SnapshotBudget::default());
                }
            }
            (Err(_), _) => self.state = FileState::Missing,
        }
    }

    fn check(&mut self, busy: bool, breach: &mut TamperReport) {
        let Some(rules) = self.rules.clone() else {
            if !self.is_unchanged() {
                breach.changed.push(self.path.clone());
                if self.restore().is_err() {
                    breach.left.push(self.path.clone());
                }
            }
            return;
        };
        let mut inspection = TreeCheck::new(busy);
        let spot = rules.policy_for(&self.path);
        match open_parent(&self.root, &self.relative, |_, _| Err(Errno::NOENT)) {
            Ok((folder, name)) => inspection.check(&folder, name, &spot, Some(&mut self.state), 0),
            Err(Errno::NOENT) if matches!(self.state, FileState::Missing) => {}
            Err(_) => {
                inspection.changed.push(self.path.clone());
                match self.open_or_create_parent() {
                    Ok((folder, name)) => inspection.check(&folder, &name, &spot, Some(&mut self.state), 0),
                    Err(Errno::NOENT) if matches!(self.state, FileState::Missing) => {}
                    Err(_) => inspection.left.push(self.path.clone()),
                }
                inspection.changed.dedup();
            }
        }
        breach.changed.append(&mut inspection.changed);
        breach.left.append(&mut inspection.left);
    }

    fn is_unchanged(&mut self) -> bool {
        match open_parent(&self.root, &self.relative, |_, _| Err(Errno::NOENT)) {
            Ok((folder, name)) => self.state.is_unchanged(&folder, name),
            Err(Errno::NOENT) => matches!(self.state, FileState::Missing),
            Err(_) => false,
        }
    }

    fn restore(&mut self) -> Result<(), Errno> {
        let gone = matches!(self.state, FileState::Missing);
        match self.open_or_create_parent() {
            Ok((folder, name)) => rollback::restore(&folder, &name, &mut self.state),
            Err(Errno::NOENT) if gone => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The folder that holds it, made where it is missing and something has to be put back there.
    fn open_or_create_parent(&self) -> Result<(OwnedFd, OsString), Errno> {
        let gone = matches!(self.state, FileState::Missing);
        // A link or file in the place of a folder above it goes, and comes back as a folder where one was needed.
        let made = open_parent(&self.root, &self.relative, |folder, name| {
            rollback::remove_all(folder, name, 0)?;
            if gone { Err(Errno::NOENT) } else { mkdirat(folder, name, Mode::from_raw_mode(0o755)) }
        });
        made.map(|(folder, name)| (folder, name.to_owned()))
    }
}

/// The folders that commands may change, opened.
fn roots(boundary: &SandboxPolicy) -> Vec<(PathBuf, Arc<OwnedFd>)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let roots = std::iter::once(&boundary.workspace).chain(&boundary.writable).filter_map(|root| {
        let root = root.canonicalize().ok()?;
        let file = openat(CWD, &root, flags, Mode::empty()).ok()?;
        Some((root, Arc::new(file)))
    });
    roots.collect()
}

/// The one of them in which a path lies, and the way from there, which is empty where it is one of them itself and that
/// is wanted.
fn locate(roots: &[(PathBuf, Arc<OwnedFd>)], path: &Path, itself: bool) -> Option<(Arc<OwnedFd>, PathBuf)> {
    roots.iter().find_map(|(root, file)| {
        let way = path.strip_prefix(root).ok()?;
        let plain = way.components().all(|part| matches!(part, Component::Normal(_)));
        (plain && (way.file_name().is_some() || itself)).then(|| (Arc::clone(file), way.to_owned()))
    })
}

/// Goes from folder to folder without following a link, up to the one that holds the last name. `missing` is called where
/// there is no folder of that name; if it succeeds, there is one by then.
fn open_parent<'a>(
    root: &OwnedFd,
    way: &'a Path,
    missing: impl Fn(&OwnedFd, &OsStr) -> Result<(), Errno>,
) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The root is found in itself by this name.
    let name = way.file_name().unwrap_or(OsStr::new("."));
    let mut folder = openat(root, ".", flags, Mode::empty())?;
    for part in way.parent().into_iter().flat_map(Path::iter) {
        folder = match openat(&folder, part, flags, Mode::empty()) {
            Ok(next) => next,
            Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => match missing(&folder, part) {
                Ok(()) => openat(&folder, part, flags, Mode::empty())?,
                // Behind a file there is nothing, behind a link there may be.
                Err(Errno::NOENT) if error != Errno::NOENT && is_link(&folder, part) => return Err(Errno::LOOP),
                Err(other) => return Err(other),
            },
            Err(error) => return Err(error),
        };
    }
    Ok((folder, name))
}

fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}
