//! Detects and reverts changes of protected files that the kernel can't prevent.
//!
//! Landlock has no exceptions below a writable folder, and bubblewrap can't bind what doesn't exist yet, so protected
//! files are compared after each command and restored. Everything here works with directory descriptors and follows no
//! link, because an attacker may have made what it looks at.

mod dir_fd;
mod file_state;
mod finished_records;
mod git_content;
mod git_index;
mod rollback;
mod runs_dir;
mod snapshot;
#[cfg(test)]
mod tests;
mod tree_check;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use self::dir_fd::{open_parent, open_parent_or};
use self::file_state::{FileState, SnapshotBudget};
use self::finished_records::FinishedRecord;
use self::runs_dir::RunsDir;
use self::tree_check::{Location, TreeCheck};
use super::allowed_changes::AllowedChanges;
use super::policy::{RecordVerifier, SandboxPolicy};
use super::tamper_error::TamperError;

/// Compares protected files with what they were, and restores them.
#[derive(Debug)]
pub struct TamperGuard {
    paths: Mutex<Vec<GuardedPath>>,
    records: Mutex<Vec<FinishedRecord>>,
    runs: Option<Mutex<RunsDir>>,
    allowed_changes: AllowedChanges,
    /// A protected path that is too large to be compared.
    too_large: Option<PathBuf>,
}

/// A protected path and its recorded state.
#[derive(Debug)]
struct GuardedPath {
    /// The writable folder that the path is in.
    root: Arc<OwnedFd>,
    /// The path from that folder.
    relative: PathBuf,
    path: PathBuf,
    state: FileState,
}

impl TamperGuard {
    /// Records every protected path that is in a writable folder. The content of files up to 1 MB, 32 MB in all, is kept;
    /// changes of other files are detected but can't be reverted. With more than 200,000 entries, every check fails.
    pub fn new(policy: &SandboxPolicy) -> Self {
        Self::for_paths(policy, &policy.protected)
    }

    /// The same for other paths. In git folders and folders in which the job allows some changes, files up to 32 MB, 64 MB
    /// in all, are kept.
    pub fn for_paths(policy: &SandboxPolicy, paths: &[PathBuf]) -> Self {
        let rules = policy.allowed_changes.clone();
        let (mut budget, mut partly_budget) = (SnapshotBudget::default(), SnapshotBudget::for_partly_protected());
        let mut too_large = None;
        let roots = open_roots(policy);
        let guarded = paths.iter().filter_map(|path| {
            let is_partly_protected = rules.concerns(path);
            let (root, relative) = locate(&roots, path, is_partly_protected)?;
            let budget = if is_partly_protected { &mut partly_budget } else { &mut budget };
            let state = open_parent(&root, &relative).map_or(FileState::Missing, |(folder, name)| {
                tree_check::capture(Location::new(&folder, name, &rules.policy_for_protected(path)), budget)
            });
            if budget.exceeded {
                too_large.get_or_insert_with(|| path.clone());
            }
            Some(GuardedPath { root, relative, path: path.clone(), state })
        });
        let paths = Mutex::new(guarded.collect());
        Self { paths, records: Mutex::default(), runs: None, allowed_changes: rules, too_large }
    }

    /// Also guards `runs`, the folder of all runs: which records there are, what `latest` links to, and up to 500 files in
    /// the records of ended runs, newest first. Changes of those files are detected but not reverted. `record` is this
    /// run's own record; `verifier` decides whether a record that appears was made by a run.
    #[must_use]
    pub fn with_records(
        mut self,
        policy: &SandboxPolicy,
        runs: &Path,
        record: &Path,
        verifier: Option<RecordVerifier>,
    ) -> Self {
        if let Some((root, relative)) = locate(&open_roots(policy), runs, false) {
            self.records = Mutex::new(FinishedRecord::find(&root, &relative));
            self.runs = Some(Mutex::new(RunsDir::new(root, relative, runs, record, verifier)));
        }
        self
    }

    /// Accepts the current state as the one that must not change. Called when no command runs, so that the user's own
    /// changes aren't blamed on a command.
    pub fn rebaseline(&self) {
        lock(&self.paths).iter_mut().for_each(|guarded| guarded.rebaseline(&self.allowed_changes));
        lock(&self.records).iter_mut().for_each(FinishedRecord::rebaseline);
        if let Some(runs) = &self.runs {
            lock(runs).rebaseline();
        }
    }

    /// Compares everything and restores what was changed. Files with the same metadata count as unchanged, since no program
    /// can set the time of the last change (ctime). With `busy`, other commands are still running.
    ///
    /// # Errors
    /// Names what was changed.
    pub fn check(&self, busy: bool) -> Result<(), TamperError> {
        let mut report =
            TamperError { changed: Vec::new(), not_restored: Vec::new(), git: None, too_large: self.too_large.clone() };
        if report.too_large.is_some() {
            return Err(report);
        }
        for guarded in lock(&self.paths).iter_mut() {
            guarded.check(&self.allowed_changes, busy, &mut report);
        }
        for record in lock(&self.records).iter().filter(|record| !record.is_unchanged() && !record.is_active()) {
            report.changed.push(record.path.clone());
            report.not_restored.push(record.path.clone());
        }
        if let Some(runs) = &self.runs {
            lock(runs).check(&mut report);
        }
        if report.changed.iter().any(|path| self.allowed_changes.policy_for(path).path_in_git_dir.is_some()) {
            report.git = Some(self.allowed_changes.git);
        }
        if report.changed.is_empty() { Ok(()) } else { Err(report) }
    }
}

impl GuardedPath {
    fn rebaseline(&mut self, rules: &AllowedChanges) {
        let Ok((folder, name)) = open_parent(&self.root, &self.relative) else {
            self.state = FileState::Missing;
            return;
        };
        let mut budget = match rules.concerns(&self.path) {
            true => SnapshotBudget::for_partly_protected(),
            false => SnapshotBudget::default(),
        };
        let policy = rules.policy_for_protected(&self.path);
        tree_check::rebaseline(&mut self.state, Location::new(&folder, name, &policy), &mut budget);
    }

    fn check(&mut self, rules: &AllowedChanges, busy: bool, report: &mut TamperError) {
        let policy = rules.policy_for_protected(&self.path);
        let is_missing = matches!(self.state, FileState::Missing);
        match open_parent(&self.root, &self.relative) {
            Ok((folder, name)) => {
                TreeCheck::new(busy, report).check(Location::new(&folder, name, &policy), Some(&mut self.state));
            }
            Err(Errno::NOENT) if is_missing => {}
            Err(_) => {
                report.changed.push(self.path.clone());
                match self.open_or_create_parent() {
                    Ok((folder, name)) => {
                        TreeCheck::new(busy, report)
                            .check(Location::new(&folder, &name, &policy), Some(&mut self.state));
                    }
                    Err(Errno::NOENT) if is_missing => {}
                    Err(_) => report.not_restored.push(self.path.clone()),
                }
                report.changed.dedup();
            }
        }
    }

    /// Opens the folder that holds the path, creating it if something has to be restored in it.
    fn open_or_create_parent(&self) -> Result<(OwnedFd, OsString), Errno> {
        let is_missing = matches!(self.state, FileState::Missing);
        // A link or file that replaced a parent folder is removed. A folder is created if one is needed.
        let opened = open_parent_or(&self.root, &self.relative, |folder, name| {
            rollback::remove_all(folder, name, 0)?;
            if is_missing { Err(Errno::NOENT) } else { mkdirat(folder, name, Mode::from_raw_mode(0o755)) }
        });
        opened.map(|(folder, name)| (folder, name.to_owned()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the folders that commands may change.
fn open_roots(policy: &SandboxPolicy) -> Vec<(PathBuf, Arc<OwnedFd>)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let roots = policy.writable_roots().filter_map(|root| {
        let root = root.canonicalize().ok()?;
        let file = openat(CWD, &root, flags, Mode::empty()).ok()?;
        Some((root, Arc::new(file)))
    });
    roots.collect()
}

/// Finds the root that a path is in, and the path from there. That is empty for a root itself, which counts only with
/// `allow_root`.
fn locate(roots: &[(PathBuf, Arc<OwnedFd>)], path: &Path, allow_root: bool) -> Option<(Arc<OwnedFd>, PathBuf)> {
    roots.iter().find_map(|(root, file)| {
        let relative = path.strip_prefix(root).ok()?;
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        (is_plain && (relative.file_name().is_some() || allow_root)).then(|| (Arc::clone(file), relative.to_owned()))
    })
}
