//! Detects and reverts changes of protected files that the kernel can't prevent.
//!
//! Landlock has no exceptions below a writable folder, and bubblewrap can't bind what doesn't exist yet, so protected
//! files are compared after each command and restored. Everything here works with directory descriptors and follows no
//! link, because an attacker may have made what it looks at.

mod dir_fd;
mod file_state;
mod finished_records;
mod git_content;
mod rollback;
mod runs_dir;
mod snapshot;
#[cfg(test)]
mod tests;
mod tree_check;
mod worktree_notes;

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, mkdirat, openat};
use rustix::io::Errno;

use self::dir_fd::{PATH_FLAGS, open_parent, open_parent_or};
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
    paths: Vec<GuardedPath>,
    records: Vec<FinishedRecord>,
    runs: Option<RunsDir>,
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
    /// Records the protected paths that are in a writable folder. The content of files up to 1 MB, 32 MB in all, is kept; in
    /// git folders and folders in which the job allows some changes, that of files up to 32 MB, 64 MB in all. Changes of other
    /// files are detected but can't be reverted. With more than 200,000 entries, every check fails.
    pub fn new(policy: &SandboxPolicy, paths: &[PathBuf]) -> Self {
        let rules = policy.allowed_changes.clone();
        let mut budgets = [false, true].map(SnapshotBudget::new);
        let mut too_large = None;
        let roots = open_roots(policy);
        let guarded = paths.iter().filter_map(|path| {
            let is_partly_protected = rules.concerns(path);
            let (root, relative) = locate(&roots, path, is_partly_protected)?;
            let mut guarded = GuardedPath { root, relative, path: path.clone(), state: FileState::Missing };
            let budget = &mut budgets[usize::from(is_partly_protected)];
            guarded.capture(&rules, budget);
            if budget.exceeded {
                too_large.get_or_insert_with(|| path.clone());
            }
            Some(guarded)
        });
        Self { paths: guarded.collect(), records: Vec::new(), runs: None, allowed_changes: rules, too_large }
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
            self.records = FinishedRecord::find(&root, &relative);
            self.runs = Some(RunsDir::new(root, relative, runs, record, verifier));
        }
        self
    }

    /// Accepts the current state as the one that must not change. Called when no command runs, so that the user's own
    /// changes aren't blamed on a command.
    pub fn rebaseline(&mut self) {
        for guarded in &mut self.paths {
            let mut budget = SnapshotBudget::new(self.allowed_changes.concerns(&guarded.path));
            guarded.capture(&self.allowed_changes, &mut budget);
        }
        self.records.iter_mut().for_each(FinishedRecord::rebaseline);
        self.runs.iter_mut().for_each(RunsDir::rebaseline);
    }

    /// Accepts the current state of these paths, which this program itself has changed.
    pub fn accept(&mut self, paths: &[PathBuf]) {
        for guarded in self.paths.iter_mut().filter(|guarded| paths.contains(&guarded.path)) {
            let mut budget = SnapshotBudget::new(self.allowed_changes.concerns(&guarded.path));
            guarded.capture(&self.allowed_changes, &mut budget);
        }
    }

    /// Compares everything and restores what was changed. Files with the same metadata count as unchanged, since no program
    /// can set the time of the last change (ctime). With `busy`, other commands are still running.
    ///
    /// # Errors
    /// Names what was changed.
    pub fn check(&mut self, busy: bool) -> Result<(), TamperError> {
        let mut report = TamperError { too_large: self.too_large.clone(), ..TamperError::default() };
        if report.too_large.is_some() {
            return Err(report);
        }
        // Its new owner writes there. This run ends as soon as it would do so, too.
        let lost = self.runs.as_ref().and_then(RunsDir::lost_record);
        let is_lost = |path: &Path| lost.as_ref().is_some_and(|lost| path.starts_with(lost));
        for guarded in self.paths.iter_mut().filter(|guarded| !is_lost(&guarded.path)) {
            guarded.check(&self.allowed_changes, busy, &mut report);
        }
        for record in self.records.iter().filter(|record| !record.is_unchanged() && !record.is_active()) {
            report.changed.push(record.path.clone());
            report.not_restored.push(record.path.clone());
        }
        if let Some(runs) = self.runs.as_ref().filter(|_| lost.is_none()) {
            runs.check(&mut report);
        }
        if report.changed.iter().any(|path| self.allowed_changes.policy_for(path).path_in_git_dir.is_some()) {
            report.git = Some(self.allowed_changes.git);
        }
        if report.changed.is_empty() { Ok(()) } else { Err(report) }
    }
}

impl GuardedPath {
    fn capture(&mut self, rules: &AllowedChanges, budget: &mut SnapshotBudget) {
        let before = std::mem::replace(&mut self.state, FileState::Missing);
        if let Ok((folder, name)) = open_parent(&self.root, &self.relative) {
            let policy = rules.policy_for_protected(&self.path);
            self.state = tree_check::capture(Location::new(&folder, name, &policy), before, budget);
        }
    }

    fn check(&mut self, rules: &AllowedChanges, busy: bool, report: &mut TamperError) {
        let is_missing = matches!(self.state, FileState::Missing);
        let mut opened = open_parent(&self.root, &self.relative);
        if opened.is_err() && !(is_missing && matches!(opened, Err(Errno::NOENT))) {
            report.changed.push(self.path.clone());
            // A link or file that replaced a parent folder is removed. A folder is created if one is needed.
            opened = open_parent_or(&self.root, &self.relative, |folder, name| {
                rollback::remove_all(folder, name, 0)?;
                if is_missing { Err(Errno::NOENT) } else { mkdirat(folder, name, Mode::from_raw_mode(0o755)) }
            });
        }
        match opened {
            Ok((folder, name)) => {
                let policy = rules.policy_for_protected(&self.path);
                TreeCheck::new(busy, report).check(Location::new(&folder, name, &policy), Some(&mut self.state));
            }
            Err(Errno::NOENT) if is_missing => {}
            Err(_) => report.not_restored.push(self.path.clone()),
        }
        report.changed.dedup();
    }
}

/// Opens the folders that commands may change.
fn open_roots(policy: &SandboxPolicy) -> Vec<(PathBuf, Arc<OwnedFd>)> {
    let roots = policy.writable_roots().filter_map(|root| {
        let root = root.canonicalize().ok()?;
        let file = openat(CWD, &root, PATH_FLAGS, Mode::empty()).ok()?;
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
