//! Walks all files of the workspace. As in `glob`, ignore files apply, links aren't followed, and each folder is opened
//! beneath the workspace's descriptor. Unlike there, hidden files are included.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, openat, statat};

use super::deadline::Deadline;
use super::file_stat::FileStat;
use super::tracker::ChangeTracker;
use crate::workspace::Workspace;
use crate::workspace::ignore_files::{IgnoreFiles, IgnoreRules, match_path};
use crate::workspace::open_beneath::{self, FileId, file_id};

/// The most files that are visited.
pub(super) const MAX_FILES: usize = 200_000;
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

/// The ignore files at the start of the run.
#[derive(Debug, Default)]
pub(super) struct IgnoreSnapshot {
    /// Those above the workspace, outermost folder first.
    pub(super) above: Vec<(PathBuf, IgnoreFiles)>,
    /// Those in the workspace, by folder.
    pub(super) folders: HashMap<PathBuf, IgnoreFiles>,
}

/// One walk, in path order.
pub(super) struct WorkspaceWalk<'a> {
    workspace: &'a Workspace,
    deadline: &'a Deadline,
    /// The ignore files of the baseline, if this is a comparison. Later changes to ignore files affect new files only.
    baseline_ignores: Option<&'a IgnoreSnapshot>,
    /// The last path of the baseline, if that walk was cut short.
    baseline_last_path: Option<&'a Path>,
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
    /// Files and folders that only the current ignore files exclude.
    pub(super) newly_ignored: Vec<PathBuf>,
    /// The last path that was visited, if the walk was cut short.
    pub(super) last_path: Option<PathBuf>,
    /// Whether some folders were nested too deep to visit.
    pub(super) too_deep: bool,
    /// Files to skip, because legwork's own output goes there.
    outputs: &'a [FileId],
    /// Those of them that were found.
    pub(super) found_outputs: Vec<PathBuf>,
}

/// Ends the walk.
struct WalkEnded;

impl<'a> WorkspaceWalk<'a> {
    pub(super) fn for_baseline(tracker: &'a ChangeTracker, deadline: &'a Deadline) -> Self {
        let found =
            IgnoreSnapshot { above: IgnoreFiles::read_above(tracker.workspace.root()), folders: HashMap::new() };
        Self::new(tracker, deadline, None, None, found)
    }

    /// A walk by the ignore files of the baseline.
    pub(super) fn for_comparison(
        tracker: &'a ChangeTracker,
        deadline: &'a Deadline,
        baseline_ignores: &'a IgnoreSnapshot,
        baseline_last_path: Option<&'a Path>,
    ) -> Self {
        Self::new(tracker, deadline, Some(baseline_ignores), baseline_last_path, IgnoreSnapshot::default())
    }

    fn new(
        tracker: &'a ChangeTracker,
        deadline: &'a Deadline,
        baseline_ignores: Option<&'a IgnoreSnapshot>,
        baseline_last_path: Option<&'a Path>,
        found: IgnoreSnapshot,
    ) -> Self {
        let workspace = &tracker.workspace;
        let above = &baseline_ignores.unwrap_or(&found).above;
        let compile = || IgnoreRules::from_nested(above);
        Self {
            workspace,
            deadline,
            baseline_ignores,
            baseline_last_path,
            rules: compile(),
            current_rules: if baseline_ignores.is_some() { compile() } else { Vec::new() },
            above: above.len(),
            rules_differ: Vec::new(),
            files: 0,
            entries: 0,
            found,
            newly_ignored: Vec::new(),
            last_path: None,
            too_deep: false,
            outputs: &tracker.outputs,
            found_outputs: Vec::new(),
        }
    }

    /// Visits every file and link.
    pub(super) fn run(&mut self, folder: BorrowedFd<'_>, visit: &mut dyn FnMut(WalkedFile<'_>)) {
        let Ok(folder) = open_beneath::open_dir(folder, Path::new(".")) else { return };
        let _ = self.folder(&folder, Path::new(""), 0, visit);
    }

    fn folder(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        depth: usize,
        visit: &mut dyn FnMut(WalkedFile<'_>),
    ) -> Result<(), WalkEnded> {
        let entries = entries(folder, self.deadline);
        self.enter(folder, path, &entries);
        let mut result = Ok(());
        for (name, kind) in entries {
            result = self.entry(folder, path.join(&name), &name, kind, depth, visit);
            if result.is_err() {
                break;
            }
        }
        self.leave();
        result
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        path: PathBuf,
        name: &OsStr,
        kind: FileType,
        depth: usize,
        visit: &mut dyn FnMut(WalkedFile<'_>),
    ) -> Result<(), WalkEnded> {
        self.entries += 1;
        if self.entries.is_multiple_of(64) && self.deadline.is_expired() {
            self.last_path = Some(path);
            return Err(WalkEnded);
        }
        if self.workspace.is_excluded(&path) {
            return Ok(());
        }
        let is_folder = kind == FileType::Directory;
        if self.baseline_last_path.is_some_and(|last| path.as_path() > last && !last.starts_with(&path)) {
            return Err(WalkEnded);
        }
        if self.is_excluded(&path, is_folder) {
            return Ok(());
        }
        if is_folder {
            if depth >= MAX_DEPTH {
                self.too_deep = true;
                return Ok(());
            }
            let Ok(inner) = openat(folder, name, open_beneath::DIR_FLAGS, Mode::empty()) else { return Ok(()) };
            if open_beneath::is_pseudo_filesystem(inner.as_fd()) {
                return Ok(());
            }
            return self.folder(&inner, &path, depth + 1, visit);
        }
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if stat.as_ref().is_some_and(|stat| self.outputs.contains(&file_id(stat))) {
            self.found_outputs.push(path);
            return Ok(());
        }
        let Some(stat) = stat.as_ref().and_then(FileStat::of) else { return Ok(()) };
        self.files += 1;
        let limit_reached_at = (self.files > MAX_FILES).then(|| path.clone());
        visit(WalkedFile { path, stat, folder: folder.as_fd(), name });
        match limit_reached_at {
            Some(path) => {
                self.last_path = Some(path);
                Err(WalkEnded)
            }
            None => Ok(()),
        }
    }

    fn enter(&mut self, folder: &OwnedFd, path: &Path, entries: &[(OsString, FileType)]) {
        let is_relevant =
            |(name, _): &(OsString, FileType)| name == ".gitignore" || name == ".ignore" || name == ".git";
        let files =
            if entries.iter().any(is_relevant) { IgnoreFiles::read_in(folder.as_fd()) } else { IgnoreFiles::default() };
        match self.baseline_ignores {
            None => {
                self.rules.push(IgnoreRules::new(path, &files, &self.rules));
                if !files.is_empty() {
                    self.found.folders.insert(path.to_owned(), files);
                }
            }
            Some(baseline) => {
                let none = IgnoreFiles::default();
                let before = baseline.folders.get(path).unwrap_or(&none);
                self.rules_differ.push(*before != files);
                self.rules.push(IgnoreRules::new(path, before, &self.rules));
                self.current_rules.push(IgnoreRules::new(path, &files, &self.current_rules));
            }
        }
    }

    fn leave(&mut self) {
        self.rules.pop();
        self.current_rules.pop();
        self.rules_differ.pop();
    }

    fn is_excluded(&mut self, path: &Path, is_folder: bool) -> bool {
        let absolute = if self.above > 0 { self.workspace.root().join(path) } else { PathBuf::new() };
        let is_ignored = |rules: &[IgnoreRules]| match_path(rules, self.above, path, &absolute, is_folder).is_ignore();
        if is_ignored(&self.rules) {
            return true;
        }
        if self.rules_differ.contains(&true) && is_ignored(&self.current_rules) {
            self.newly_ignored.push(path.to_owned());
            return true;
        }
        false
    }
}

/// The entries of a folder, sorted by name.
fn entries(folder: &OwnedFd, deadline: &Deadline) -> Vec<(OsString, FileType)> {
    let Ok(listing) = Dir::read_from(folder) else { return Vec::new() };
    let mut entries = Vec::new();
    for entry in listing.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems don't report the type.
            FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
        if entries.len() > MAX_FILES || (entries.len().is_multiple_of(1024) && deadline.is_expired()) {
            break;
        }
    }
    entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    entries
}
