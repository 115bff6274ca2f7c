//! The walk through the workspace's files: what ignore files say holds, as it does for `glob`, hidden files are files,
//! no link is followed, and each folder is opened beneath the workspace's descriptor.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, openat, statat};

use super::deadline::Deadline;
use super::file_stat::{FileStat, id};
use super::{ChangeTracker, FileId};
use crate::sandbox::protected_paths::is_dot_git;
use crate::workspace::ignore_files::{IgnoreFiles, IgnoreRules, match_path};
use crate::workspace::{ExcludedPaths, open_beneath};

/// The most files that are looked at.
pub(super) const MOST_FILES: usize = 200_000;
/// How deep folders are looked into.
pub(super) const MAX_DEPTH: usize = 200;

/// A file or a link.
pub(super) struct WalkedFile<'a> {
    /// From the workspace's root.
    pub(super) path: PathBuf,
    pub(super) stat: FileStat,
    pub(super) folder: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
}

/// What ignore files said at the start of the run, by their folders; those above the workspace apart, outermost first.
#[derive(Debug, Default)]
pub(super) struct IgnoreSnapshot {
    pub(super) above: Vec<(PathBuf, IgnoreFiles)>,
    pub(super) folders: HashMap<PathBuf, IgnoreFiles>,
}

/// One walk, in the order of the paths' parts.
pub(super) struct WorkspaceWalk<'a> {
    root: &'a Path,
    hidden: ExcludedPaths,
    deadline: &'a Deadline,
    /// What holds, where this isn't the first look; what ignore files say by now holds for new files only.
    baseline_ignores: Option<&'a IgnoreSnapshot>,
    /// Where an earlier look was cut short.
    baseline_last_path: Option<&'a Path>,
    rules: Vec<IgnoreRules>,
    /// By what ignore files say now, where that is something else.
    current_rules: Vec<IgnoreRules>,
    above: usize,
    /// Whether the ignore files are others than they were, for each folder of the way.
    rules_differ: Vec<bool>,
    files: usize,
    /// Files, folders and whatever else was come by.
    entries: usize,
    /// What was found of ignore files.
    pub(super) found: IgnoreSnapshot,
    /// Files and folders that only ignore files of now leave out.
    pub(super) newly_ignored: Vec<PathBuf>,
    /// The last path that was looked at, where the walk was cut short there.
    pub(super) last_path: Option<PathBuf>,
    /// Whether there were folders too deep to look into.
    pub(super) too_deep: bool,
    /// Files that aren't visited.
    outputs: &'a [FileId],
    /// Those of them that were come by.
    pub(super) found_outputs: Vec<PathBuf>,
}

/// The walk has ended.
struct WalkEnded;

impl<'a> WorkspaceWalk<'a> {
    pub(super) fn for_baseline(looker: &'a ChangeTracker, pace: &'a Deadline) -> Self {
        let found = IgnoreSnapshot { above: IgnoreFiles::read_above(looker.workspace.root()), folders: HashMap::new() };
        Self::new(looker, pace, None, None, found)
    }

    /// A later look, by the rules of the first one.
    pub(super) fn for_comparison(
        looker: &'a ChangeTracker,
        pace: &'a Deadline,
        then: &'a IgnoreSnapshot,
        last: Option<&'a Path>,
    ) -> Self {
        Self::new(looker, pace, Some(then), last, IgnoreSnapshot::default())
    }

    fn new(
        looker: &'a ChangeTracker,
        pace: &'a Deadline,
        then: Option<&'a IgnoreSnapshot>,
        last: Option<&'a Path>,
        found: IgnoreSnapshot,
    ) -> Self {
        let workspace = &looker.workspace;
        let above = &then.unwrap_or(&found).above;
        let read = || IgnoreRules::from_nested(above);
        Self {
            root: workspace.root(),
            hidden: workspace.excluded(),
            deadline: pace,
            baseline_ignores: then,
            baseline_last_path: last,
            rules: read(),
            current_rules: if then.is_some() { read() } else { Vec::new() },
            above: above.len(),
            rules_differ: Vec::new(),
            files: 0,
            entries: 0,
            found,
            newly_ignored: Vec::new(),
            last_path: None,
            too_deep: false,
            outputs: &looker.outputs,
            found_outputs: Vec::new(),
        }
    }

    /// Visits every file and every link.
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
        let names = names(folder, self.deadline);
        self.enter(folder, path, &names);
        let mut ended = Ok(());
        for (name, kind) in names {
            ended = self.entry(folder, path.join(&name), &name, kind, depth, visit);
            if ended.is_err() {
                break;
            }
        }
        self.leave();
        ended
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
        if is_dot_git(name) || self.hidden.contains(&path) {
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
        if stat.as_ref().is_some_and(|stat| self.outputs.contains(&id(stat))) {
            self.found_outputs.push(path);
            return Ok(());
        }
        let Some(marks) = stat.as_ref().and_then(FileStat::of) else { return Ok(()) };
        self.files += 1;
        let reached = (self.files > MOST_FILES).then(|| path.clone());
        visit(WalkedFile { path, stat: marks, folder: folder.as_fd(), name });
        match reached {
            Some(path) => {
                self.last_path = Some(path);
                Err(WalkEnded)
            }
            None => Ok(()),
        }
    }

    fn enter(&mut self, folder: &OwnedFd, path: &Path, names: &[(OsString, FileType)]) {
        let telling = |(name, _): &(OsString, FileType)| name == ".gitignore" || name == ".ignore" || name == ".git";
        let texts =
            if names.iter().any(telling) { IgnoreFiles::read_in(folder.as_fd()) } else { IgnoreFiles::default() };
        match self.baseline_ignores {
            None => {
                self.rules.push(IgnoreRules::new(path, &texts, &self.rules));
                if !texts.is_empty() {
                    self.found.folders.insert(path.to_owned(), texts);
                }
            }
            Some(then) => {
                let none = IgnoreFiles::default();
                let before = then.folders.get(path).unwrap_or(&none);
                self.rules_differ.push(*before != texts);
                self.rules.push(IgnoreRules::new(path, before, &self.rules));
                self.current_rules.push(IgnoreRules::new(path, &texts, &self.current_rules));
            }
        }
    }

    fn leave(&mut self) {
        self.rules.pop();
        self.current_rules.pop();
        self.rules_differ.pop();
    }

    fn is_excluded(&mut self, path: &Path, is_folder: bool) -> bool {
        let absolute = if self.above > 0 { self.root.join(path) } else { PathBuf::new() };
        let ignored = |rules: &[IgnoreRules]| match_path(rules, self.above, path, &absolute, is_folder).is_ignore();
        if ignored(&self.rules) {
            return true;
        }
        if self.rules_differ.contains(&true) && ignored(&self.current_rules) {
            self.newly_ignored.push(path.to_owned());
            return true;
        }
        false
    }
}

/// What is in a folder, sorted.
fn names(folder: &OwnedFd, pace: &Deadline) -> Vec<(OsString, FileType)> {
    let Ok(listing) = Dir::read_from(folder) else { return Vec::new() };
    let mut names = Vec::new();
    for entry in listing.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems don't say.
            FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        names.push((name.to_owned(), kind));
        if names.len() > MOST_FILES || (names.len().is_multiple_of(1024) && pace.is_expired()) {
            break;
        }
    }
    names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    names
}
