//! Detects and reverts changes of protected files that the kernel can't prevent.
//!
//! Landlock has no exceptions below a writable folder, and bubblewrap can't bind what doesn't exist yet, so protected
//! files are compared after each command and restored. Everything here works with directory descriptors and follows no
//! link, because an attacker may have made what it looks at.

mod dir_fd;
mod file_state;
mod finished_records;
mod git_content;
mod object_store;
mod references;
mod rollback;
mod runs_dir;
mod snapshot;
mod spellings;
#[cfg(test)]
mod tests;
mod tree_check;
mod worktree_notes;
mod writable_roots;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;

use self::dir_fd::{open_parent, open_parent_or};
use self::file_state::{FileState, SnapshotBudget};
use self::finished_records::FinishedRecord;
use self::object_store::ObjectStore;
use self::runs_dir::RunsDir;
use self::spellings::Spellings;
use self::tree_check::{CheckMode, Findings, Location, TreeCheck};
use self::writable_roots::{NestedRoot, locate, open_roots};
use super::allowed_changes::AllowedChanges;
use super::object_stage::has_sha256_objects;
use super::policy::{RecordVerifier, SandboxPolicy};
use super::tamper_error::{TamperError, UndoneChanges};

/// Compares protected files with what they were, and restores them.
#[derive(Debug)]
pub struct TamperGuard {
    nested_roots: Vec<NestedRoot>,
    paths: Vec<GuardedPath>,
    spellings: Spellings,
    records: Vec<FinishedRecord>,
    runs: Option<RunsDir>,
    /// The object folders of git that commands could change.
    objects: Vec<ObjectStore>,
    allowed_changes: AllowedChanges,
    /// The stashes of the user: entries of the log in each git folder.
    user_stashes: BTreeMap<PathBuf, Vec<String>>,
    /// The commits of stashes that commands have made.
    made_stashes: BTreeSet<String>,
    /// The workspace, to which paths in notes are relative.
    workspace: PathBuf,
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
        let paths = guarded.collect();
        let mut guard = Self::of(paths, rules);
        guard.nested_roots = NestedRoot::find(&roots, &policy.protected);
        guard.workspace = policy.workspace.clone();
        let is_in_git_dir = |path: &PathBuf| policy.allowed_changes.policy_for(path).path_in_git_dir.is_some();
        let spelled = policy.protected.iter().filter(|path| !path.ends_with(".git") && !is_in_git_dir(path));
        guard.spellings = Spellings::new(spelled.filter_map(|path| {
            let (root, relative) = locate(&roots, path, false)?;
            Some((root, relative, path.clone()))
        }));
        guard.too_large = too_large;
        guard.find_user_stashes();
        guard
    }

    fn of(paths: Vec<GuardedPath>, allowed_changes: AllowedChanges) -> Self {
        Self {
            nested_roots: Vec::new(),
            paths,
            spellings: Spellings::default(),
            records: Vec::new(),
            runs: None,
            objects: Vec::new(),
            allowed_changes,
            user_stashes: BTreeMap::new(),
            made_stashes: BTreeSet::new(),
            workspace: PathBuf::new(),
            too_large: None,
        }
    }

    /// Also guards the objects of git: those that commands see in a stage, and with `links` all others. `git` examines what
    /// commands add.
    ///
    /// # Errors
    /// They can't be kept.
    pub fn with_objects(
        policy: &SandboxPolicy,
        paths: &[PathBuf],
        git: Option<&Path>,
        links: bool,
    ) -> io::Result<Self> {
        let roots = open_roots(policy);
        let mut stores = Vec::new();
        let stages = policy.object_stages.all();
        for path in policy.object_folders() {
            let Some(place) = locate(&roots, &path, true) else { continue };
            let (git, sha256) = (git.map(Path::to_owned), has_sha256_objects(&path));
            if let Some(stage) = stages.iter().find(|stage| stage.objects == path) {
                stores.push(ObjectStore::staged(place, &path, &stage.folder, git, sha256)?);
            } else if links {
                stores.extend(ObjectStore::linked(place, &path, git, sha256, policy.guarded_files.clone())?);
            }
        }
        let mut policy = policy.clone();
        policy.allowed_changes.guarded_objects = stores.iter().map(|store| store.path.clone()).collect();
        Ok(Self { objects: stores, ..Self::new(&policy, paths) })
    }

    /// Allows commands to create other spellings of a path's last name.
    #[must_use]
    pub fn allowing_spellings_of(mut self, path: &Path) -> Self {
        self.spellings.allow(path);
        self
    }

    /// Also guards `runs`, the folder of all runs: which records there are, what `latest` links to, and up to 500 files in
    /// the records of runs that aren't running, newest first. Changes of those files are detected but not reverted; what is added
    /// there is renamed. `record` is this run's own record; `verifier` decides whether a record that appears was made by a run.
    #[must_use]
    pub fn with_records(
        mut self,
        policy: &SandboxPolicy,
        runs: &Path,
        record: &Path,
        verifier: Option<RecordVerifier>,
    ) -> Self {
        if let Some((root, relative)) = locate(&open_roots(policy), runs, false) {
            self.records = FinishedRecord::find(&root, &relative, runs, verifier.is_some());
            self.runs = Some(RunsDir::new(root, relative, runs, record, verifier));
        }
        self
    }

    /// Accepts the current state as the one that must not change. Called when no command runs, so that the user's own
    /// changes aren't blamed on a command.
    ///
    /// # Errors
    /// The objects of git can't be kept.
    pub fn rebaseline(&mut self) -> io::Result<()> {
        for store in &mut self.objects {
            store.rebaseline()?;
        }
        for guarded in &mut self.paths {
            let mut budget = SnapshotBudget::new(self.allowed_changes.concerns(&guarded.path));
            guarded.capture(&self.allowed_changes, &mut budget);
        }
        self.find_user_stashes();
        self.spellings.rebaseline();
        self.records.iter_mut().for_each(FinishedRecord::rebaseline);
        self.runs.iter_mut().for_each(RunsDir::rebaseline);
        Ok(())
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
    /// What is in git folders is restored together: references without the packed ones, or without the objects, would be worth nothing.
    /// Returns what was undone, if the run can continue: there, and where files were only removed.
    ///
    /// # Errors
    /// Names what was changed.
    pub fn check(&mut self, busy: bool) -> Result<Option<UndoneChanges>, TamperError> {
        let mut report = TamperError { too_large: self.too_large.clone(), ..TamperError::default() };
        if report.too_large.is_some() {
            return Err(report);
        }
        self.nested_roots.iter().for_each(|root| root.check(&mut report));
        let undone = self.check_git(busy, &mut report);
        // Its new owner writes there. This run ends as soon as it would do so, too.
        let lost = self.runs.as_ref().and_then(RunsDir::lost_record);
        let is_lost = |path: &Path| lost.as_ref().is_some_and(|lost| path.starts_with(lost));
        let mut removed = Vec::new();
        for guarded in self.paths.iter_mut().filter(|guarded| !is_lost(&guarded.path)) {
            if !guarded.is_in_git_dir(&self.allowed_changes) {
                let mut found = TamperError::default();
                let findings = guarded.check(&self.allowed_changes, CheckMode::Enforce, busy, &mut found);
                // `git clean` and `git stash -u` remove what they don't know, but not a record alone.
                let is_in_runs = self.runs.as_ref().is_some_and(|runs| guarded.path.starts_with(&runs.path));
                if findings.has_replaced || is_in_runs || !found.not_restored.is_empty() {
                    report.changed.append(&mut found.changed);
                    report.not_restored.append(&mut found.not_restored);
                } else {
                    removed.append(&mut found.changed);
                }
            }
        }
        self.spellings.check(&mut report);
        let verifier = self.runs.as_ref().and_then(|runs| runs.verifier.as_ref());
        self.records.iter().for_each(|record| record.check(verifier, &mut report));
        if let Some(runs) = self.runs.as_ref().filter(|_| lost.is_none()) {
            runs.check(&mut report);
        }
        if report.changed.iter().any(|path| self.allowed_changes.policy_for(path).path_in_git_dir.is_some()) {
            report.git = Some(self.allowed_changes.git);
        }
        if !report.changed.is_empty() {
            report.changed.append(&mut removed);
            return Err(report);
        }
        if removed.is_empty() {
            return Ok(undone);
        }
        let undone =
            undone.unwrap_or_else(|| UndoneChanges { git: self.allowed_changes.git, ..UndoneChanges::default() });
        let removed = removed.into_iter().map(|path| self.relative(path)).collect();
        Ok(Some(UndoneChanges { removed, ..undone }))
    }

    /// A path as the model knows it.
    fn relative(&self, path: PathBuf) -> PathBuf {
        path.strip_prefix(&self.workspace).map(Path::to_owned).unwrap_or(path)
    }

    fn check_git(&mut self, busy: bool, report: &mut TamperError) -> Option<UndoneChanges> {
        let mut undone = UndoneChanges { git: self.allowed_changes.git, ..UndoneChanges::default() };
        let mut detected = TamperError::default();
        let mut lost = self.check_objects(busy, &mut undone, &mut detected);
        let rules = &self.allowed_changes;
        let mut findings = Findings { ends_run: !detected.changed.is_empty(), ..Findings::default() };
        for guarded in self.paths.iter_mut().filter(|guarded| guarded.is_in_git_dir(rules)) {
            let found = guarded.check(rules, CheckMode::Detect, busy, &mut detected);
            findings.ends_run |= found.ends_run;
            findings.has_allowed_changes |= found.has_allowed_changes;
            findings.changed_references.extend(found.changed_references);
            findings.changed_logs.extend(found.changed_logs);
        }
        for folder in &findings.changed_references {
            detected.changed.extend(self.wrong_references(folder));
        }
        if detected.changed.is_empty() && lost.is_empty() {
            if findings.has_allowed_changes {
                undone.user_stashes = self.restore_user_stashes();
                self.restore_logs(&findings.changed_logs, &findings.changed_references);
                if busy {
                    self.accept_allowed();
                }
            }
            return (undone.objects || undone.user_stashes).then_some(undone);
        }
        let (stashes, commits) = (self.new_stashes(), self.undone_commits());
        let mut restored = TamperError::default();
        let rules = &self.allowed_changes;
        for guarded in self.paths.iter_mut().filter(|guarded| guarded.is_in_git_dir(rules)) {
            guarded.check(rules, CheckMode::Restore, false, &mut restored);
        }
        if detected.changed.is_empty() {
            detected.changed.extend(lost.iter().cloned());
        }
        if !lost.is_empty() {
            // The folders around them may be accessible again.
            lost = self.check_objects(busy, &mut undone, &mut TamperError::default());
            report.changed.extend(lost.iter().cloned());
            report.not_restored.append(&mut lost);
        }
        undone.stashes = self.keep_stashes(&stashes);
        undone.commits = self.keep_commits(&commits);
        detected.changed.dedup();
        if findings.ends_run || !restored.not_restored.is_empty() {
            report.changed.append(&mut detected.changed);
            report.not_restored.append(&mut restored.not_restored);
            return None;
        }
        undone.changed = detected.changed.into_iter().map(|path| self.relative(path)).collect();
        Some(undone)
    }

    /// Restores the objects of git, and reports links among them. Returns the folders in which they couldn't be restored.
    fn check_objects(&mut self, busy: bool, undone: &mut UndoneChanges, report: &mut TamperError) -> Vec<PathBuf> {
        let mut lost = Vec::new();
        for store in &mut self.objects {
            let changes = store.check(busy);
            undone.objects |= changes.restored;
            report.changed.extend(changes.links);
            if changes.lost {
                lost.push(store.path.clone());
            }
        }
        lost
    }

    /// Accepts changes that are allowed while other commands are still running: a later check must not undo them.
    fn accept_allowed(&mut self) {
        for guarded in self.paths.iter_mut().filter(|guarded| guarded.is_in_git_dir(&self.allowed_changes)) {
            if let Ok((folder, name)) = open_parent(&guarded.root, &guarded.relative) {
                let policy = self.allowed_changes.policy_for_protected(&guarded.path);
                let before = std::mem::replace(&mut guarded.state, FileState::Missing);
                let at = Location::new(&folder, name, &policy);
                guarded.state = tree_check::accept(at, before, &mut SnapshotBudget::new(true));
            }
        }
    }

    /// Removes what was made to keep objects, in a process that has inherited it.
    pub(in crate::sandbox) fn discard_object_copies(&self) {
        self.objects.iter().for_each(ObjectStore::discard);
    }
}

impl GuardedPath {
    fn is_in_git_dir(&self, rules: &AllowedChanges) -> bool {
        rules.policy_for(&self.path).path_in_git_dir.is_some()
    }

    fn capture(&mut self, rules: &AllowedChanges, budget: &mut SnapshotBudget) {
        let before = std::mem::replace(&mut self.state, FileState::Missing);
        if let Ok((folder, name)) = open_parent(&self.root, &self.relative) {
            let policy = rules.policy_for_protected(&self.path);
            self.state = tree_check::capture(Location::new(&folder, name, &policy), before, budget);
        }
    }

    fn check(&mut self, rules: &AllowedChanges, mode: CheckMode, busy: bool, report: &mut TamperError) -> Findings {
        let mut findings = Findings::default();
        let is_missing = matches!(self.state, FileState::Missing);
        let mut opened = open_parent(&self.root, &self.relative);
        if opened.is_err() && !(is_missing && matches!(opened, Err(Errno::NOENT))) {
            report.changed.push(self.path.clone());
            findings.has_replaced = !matches!(opened, Err(Errno::NOENT));
            if mode == CheckMode::Detect {
                return Findings { ends_run: true, ..findings };
            }
            // A link or file that replaced a parent folder is removed. A folder is created if one is needed.
            opened = open_parent_or(&self.root, &self.relative, |folder, name| {
                rollback::remove_all(folder, name, 0)?;
                if is_missing { Err(Errno::NOENT) } else { mkdirat(folder, name, Mode::from_raw_mode(0o755)) }
            });
        }
        match opened {
            Ok((folder, name)) => {
                let policy = rules.policy_for_protected(&self.path);
                let mut check = TreeCheck::new(mode, busy, report);
                check.check(Location::new(&folder, name, &policy), Some(&mut self.state));
                findings =
                    Findings { has_replaced: findings.has_replaced || check.findings.has_replaced, ..check.findings };
            }
            Err(Errno::NOENT) if is_missing => {}
            Err(_) => report.not_restored.push(self.path.clone()),
        }
        report.changed.dedup();
        findings
    }
}
