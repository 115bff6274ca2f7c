//! Walks all files of the workspace. As in `glob`, ignore files apply, links aren't followed, and each folder is opened
//! beneath the workspace's descriptor. Unlike there, hidden files are included.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, openat};

use super::ChangeTracker;
use super::baseline_file::{Baseline, IgnoreSnapshot};
use super::deadline::Deadline;
use super::file_stat::FileStat;
use crate::workspace::ignore_files::{IgnoreFiles, IgnoreRules, match_path};
use crate::workspace::open_beneath;

/// The most files that are visited.
pub(super) const MAX_FILES: usize = 200_000;
/// The most ignored files and folders that are remembered.
const MAX_IGNORED: usize = 10_000;
/// How deep folders may be nested.
pub(super) const MAX_DEPTH: usize = 200;

/// A file or a link that was visited.
pub(super) struct WalkedFile<'a> {
    /// From the workspace's root.
    pub(super) path: PathBuf,
    pub(super) stat: FileStat,
    pub(super) folder: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
}

/// One walk, in path order.
pub(super) struct WorkspaceWalk<'a> {
    tracker: &'a ChangeTracker,
    deadline: &'a Deadline,
    /// The baseline, if this is a comparison. Its ignore files apply; later changes to them affect new files only.
    baseline: Option<&'a Baseline>,
    rules: Vec<IgnoreRules>,
    /// The rules of the current ignore files, in a comparison.
    current_rules: Vec<IgnoreRules>,
    /// How many of the rules are from above the workspace.
    above: usize,
    /// For each open folder, whether its ignore files have changed.
    rules_differ: Vec<bool>,
    files: usize,
    /// Entries of any kind that were seen.
    entries: usize,
    /// The ignore files that were found.
    pub(super) found: IgnoreSnapshot,
    /// The files and folders that ignore files exclude, in a comparison that reports them.
    pub(super) ignored: Option<Vec<PathBuf>>,
    /// Files and folders that only the current ignore files exclude.
    pub(super) newly_ignored: Vec<PathBuf>,
    /// The last path that was visited, if the walk was cut short.
    pub(super) last_path: Option<PathBuf>,
    /// Whether some folders were nested too deep to visit.
    pub(super) too_deep: bool,
    /// Files that were skipped, because legwork's own output goes there.
    pub(super) found_outputs: Vec<PathBuf>,
}

impl<'a> WorkspaceWalk<'a> {
    /// A walk that takes the baseline, or compares with one.
    pub(super) fn new(tracker: &'a ChangeTracker, deadline: &'a Deadline, baseline: Option<&'a Baseline>) -> Self {
        let mut found = IgnoreSnapshot::default();
        if baseline.is_none() {
            found.above = IgnoreFiles::read_above(tracker.workspace.root());
        }
        let rules = || IgnoreRules::from_nested(&baseline.map_or(&found, |baseline| &baseline.ignore_files).above);
        let (rules, current_rules) = (rules(), rules());
        Self {
            tracker,
            deadline,
            baseline,
            above: rules.len(),
            rules,
            current_rules,
            rules_differ: Vec::new(),
            files: 0,
            entries: 0,
            found,
            ignored: None,
            newly_ignored: Vec::new(),
            last_path: None,
            too_deep: false,
            found_outputs: Vec::new(),
        }
    }

    /// Visits every file and link.
    pub(super) fn run(&mut self, visit: &mut dyn FnMut(WalkedFile<'_>)) {
        let Ok(folder) = open_beneath::open_dir(self.tracker.workspace.folder(), Path::new(".")) else { return };
        let _ = self.folder(&folder, Path::new(""), visit);
    }

    /// Visits the files of a folder; breaks at the end of the walk.
    fn folder(&mut self, folder: &OwnedFd, path: &Path, visit: &mut dyn FnMut(WalkedFile<'_>)) -> ControlFlow<()> {
        let has_time = |count: usize| !count.is_multiple_of(1024) || !self.deadline.is_expired();
        let wants_more = |count| count <= MAX_FILES && has_time(count);
        let entries = open_beneath::list_dir(folder, wants_more).unwrap_or_default();
        self.enter(folder, path, &entries);
        let result =
            entries.into_iter().try_for_each(|(name, kind)| self.entry(folder, path.join(&name), &name, kind, visit));
        self.rules.pop();
        self.current_rules.pop();
        self.rules_differ.pop();
        result
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        path: PathBuf,
        name: &OsStr,
        kind: FileType,
        visit: &mut dyn FnMut(WalkedFile<'_>),
    ) -> ControlFlow<()> {
        self.entries += 1;
        if self.entries.is_multiple_of(64) && self.deadline.is_expired() {
            self.last_path = Some(path);
            return ControlFlow::Break(());
        }
        let is_folder = kind == FileType::Directory;
        let last_path = self.baseline.and_then(|baseline| baseline.last_path.as_deref()).map(Path::new);
        if last_path.is_some_and(|last| path.as_path() > last && !last.starts_with(&path)) {
            return ControlFlow::Break(());
        }
        if self.tracker.workspace.is_excluded(&path) {
            return ControlFlow::Continue(());
        }
        if self.is_excluded(&path, is_folder) {
            if let Some(ignored) = self.ignored.as_mut().filter(|ignored| ignored.len() < MAX_IGNORED) {
                ignored.push(path);
            }
            return ControlFlow::Continue(());
        }
        if is_folder {
            if self.rules.len() - self.above > MAX_DEPTH {
                self.too_deep = true;
                return ControlFlow::Continue(());
            }
            return match openat(folder, name, open_beneath::DIR_FLAGS, Mode::empty()) {
                Ok(inner) if !open_beneath::is_pseudo_filesystem(inner.as_fd()) => self.folder(&inner, &path, visit),
                _ => ControlFlow::Continue(()),
            };
        }
        match self.tracker.stat(folder, name) {
            (_, true) => self.found_outputs.push(path),
            (None, false) => {}
            (Some(stat), false) => {
                self.files += 1;
                let is_last = self.files > MAX_FILES;
                self.last_path = is_last.then(|| path.clone());
                visit(WalkedFile { path, stat, folder: folder.as_fd(), name });
                if is_last {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn enter(&mut self, folder: &OwnedFd, path: &Path, entries: &[(OsString, FileType)]) {
        let files = IgnoreFiles::read_listed(folder.as_fd(), entries);
        let Some(baseline) = self.baseline else {
            self.rules.push(IgnoreRules::new(path, &files, &self.rules));
            if !files.is_empty() {
                self.found.folders.insert(path.to_owned(), files);
            }
            return;
        };
        let none = IgnoreFiles::default();
        let before = baseline.ignore_files.folders.get(path).unwrap_or(&none);
        self.rules_differ.push(*before != files);
        self.rules.push(IgnoreRules::new(path, before, &self.rules));
        self.current_rules.push(IgnoreRules::new(path, &files, &self.current_rules));
    }

    fn is_excluded(&mut self, path: &Path, is_folder: bool) -> bool {
        let absolute = if self.above > 0 { self.tracker.workspace.root().join(path) } else { PathBuf::new() };
        let is_ignored = |rules: &[IgnoreRules]| match_path(rules, self.above, path, &absolute, is_folder).is_ignore();
        if is_ignored(&self.rules) {
            return true;
        }
        let is_new = self.rules_differ.contains(&true) && is_ignored(&self.current_rules);
        if is_new {
            self.newly_ignored.push(path.to_owned());
        }
        is_new
    }
}
