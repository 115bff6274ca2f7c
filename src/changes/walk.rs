//! The walk through the workspace's files: what ignore files say holds, as it does for `glob`, hidden files are files,
//! no link is followed, and each folder is opened beneath the workspace's descriptor.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, openat, statat};

use super::marks::{Marks, id};
use super::pace::Pace;
use super::{FileId, Looker};
use crate::sandbox::protected::is_dot_git;
use crate::tools::beneath;
use crate::tools::ignored::{Rules, Texts, verdict};
use crate::tools::workspace::PassedOver;

/// The most files that are looked at.
pub(super) const MOST_FILES: usize = 200_000;
/// How deep folders are looked into.
pub(super) const DEEPEST: usize = 200;

/// A file or a link.
pub(super) struct Seen<'a> {
    /// From the workspace's root.
    pub(super) path: PathBuf,
    pub(super) marks: Marks,
    pub(super) folder: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
}

/// What ignore files said at the start of the run, by their folders; those above the workspace apart, outermost first.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    pub(super) above: Vec<(PathBuf, Texts)>,
    pub(super) folders: HashMap<PathBuf, Texts>,
}

/// One walk, in the order of the paths' parts.
pub(super) struct Walk<'a> {
    root: &'a Path,
    hidden: PassedOver,
    pace: &'a Pace,
    /// What holds, where this isn't the first look; what ignore files say by now holds for new files only.
    then: Option<&'a Ignored>,
    /// Where an earlier look was cut short.
    last: Option<&'a Path>,
    rules: Vec<Rules>,
    /// By what ignore files say now, where that is something else.
    now: Vec<Rules>,
    above: usize,
    /// Whether the ignore files are others than they were, for each folder of the way.
    differing: Vec<bool>,
    files: usize,
    /// Files, folders and whatever else was come by.
    entries: usize,
    /// What was found of ignore files.
    pub(super) found: Ignored,
    /// Files and folders that only ignore files of now leave out.
    pub(super) newly_ignored: Vec<PathBuf>,
    /// The last path that was looked at, where the walk was cut short there.
    pub(super) cut: Option<PathBuf>,
    /// Whether there were folders too deep to look into.
    pub(super) too_deep: bool,
    /// Files that aren't visited.
    outputs: &'a [FileId],
    /// Those of them that were come by.
    pub(super) passed: Vec<PathBuf>,
}

/// The walk has ended.
struct Over;

impl<'a> Walk<'a> {
    pub(super) fn first(looker: &'a Looker, pace: &'a Pace) -> Self {
        let found = Ignored { above: Texts::above(looker.workspace.root()), folders: HashMap::new() };
        Self::new(looker, pace, None, None, found)
    }

    /// A later look, by the rules of the first one.
    pub(super) fn later(looker: &'a Looker, pace: &'a Pace, then: &'a Ignored, last: Option<&'a Path>) -> Self {
        Self::new(looker, pace, Some(then), last, Ignored::default())
    }

    fn new(
        looker: &'a Looker,
        pace: &'a Pace,
        then: Option<&'a Ignored>,
        last: Option<&'a Path>,
        found: Ignored,
    ) -> Self {
        let workspace = &looker.workspace;
        let above = &then.unwrap_or(&found).above;
        let read = || Rules::all(above);
        Self {
            root: workspace.root(),
            hidden: workspace.passed_over(),
            pace,
            then,
            last,
            rules: read(),
            now: if then.is_some() { read() } else { Vec::new() },
            above: above.len(),
            differing: Vec::new(),
            files: 0,
            entries: 0,
            found,
            newly_ignored: Vec::new(),
            cut: None,
            too_deep: false,
            outputs: &looker.outputs,
            passed: Vec::new(),
        }
    }

    /// Visits every file and every link.
    pub(super) fn run(&mut self, folder: BorrowedFd<'_>, visit: &mut dyn FnMut(Seen<'_>)) {
        let Ok(folder) = beneath::folder(folder, Path::new(".")) else { return };
        let _ = self.folder(&folder, Path::new(""), 0, visit);
    }

    fn folder(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        depth: usize,
        visit: &mut dyn FnMut(Seen<'_>),
    ) -> Result<(), Over> {
        let names = names(folder, self.pace);
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
        visit: &mut dyn FnMut(Seen<'_>),
    ) -> Result<(), Over> {
        self.entries += 1;
        if self.entries.is_multiple_of(64) && self.pace.is_over() {
            self.cut = Some(path);
            return Err(Over);
        }
        if is_dot_git(name) || self.hidden.holds(&path) {
            return Ok(());
        }
        let is_folder = kind == FileType::Directory;
        if self.last.is_some_and(|last| path.as_path() > last && !last.starts_with(&path)) {
            return Err(Over);
        }
        if self.is_left_out(&path, is_folder) {
            return Ok(());
        }
        if is_folder {
            if depth >= DEEPEST {
                self.too_deep = true;
                return Ok(());
            }
            let Ok(inner) = openat(folder, name, beneath::FOLDER, Mode::empty()) else { return Ok(()) };
            if beneath::made_up(inner.as_fd()) {
                return Ok(());
            }
            return self.folder(&inner, &path, depth + 1, visit);
        }
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if stat.as_ref().is_some_and(|stat| self.outputs.contains(&id(stat))) {
            self.passed.push(path);
            return Ok(());
        }
        let Some(marks) = stat.as_ref().and_then(Marks::of) else { return Ok(()) };
        self.files += 1;
        let reached = (self.files > MOST_FILES).then(|| path.clone());
        visit(Seen { path, marks, folder: folder.as_fd(), name });
        match reached {
            Some(path) => {
                self.cut = Some(path);
                Err(Over)
            }
            None => Ok(()),
        }
    }

    fn enter(&mut self, folder: &OwnedFd, path: &Path, names: &[(OsString, FileType)]) {
        let telling = |(name, _): &(OsString, FileType)| name == ".gitignore" || name == ".ignore" || name == ".git";
        let texts = if names.iter().any(telling) { Texts::of(folder.as_fd()) } else { Texts::default() };
        match self.then {
            None => {
                self.rules.push(Rules::new(path, &texts, &self.rules));
                if !texts.is_empty() {
                    self.found.folders.insert(path.to_owned(), texts);
                }
            }
            Some(then) => {
                let none = Texts::default();
                let before = then.folders.get(path).unwrap_or(&none);
                self.differing.push(*before != texts);
                self.rules.push(Rules::new(path, before, &self.rules));
                self.now.push(Rules::new(path, &texts, &self.now));
            }
        }
    }

    fn leave(&mut self) {
        self.rules.pop();
        self.now.pop();
        self.differing.pop();
    }

    fn is_left_out(&mut self, path: &Path, is_folder: bool) -> bool {
        let absolute = if self.above > 0 { self.root.join(path) } else { PathBuf::new() };
        let ignored = |rules: &[Rules]| verdict(rules, self.above, path, &absolute, is_folder).is_ignore();
        if ignored(&self.rules) {
            return true;
        }
        if self.differing.contains(&true) && ignored(&self.now) {
            self.newly_ignored.push(path.to_owned());
            return true;
        }
        false
    }
}

/// What is in a folder, sorted.
fn names(folder: &OwnedFd, pace: &Pace) -> Vec<(OsString, FileType)> {
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
        if names.len() > MOST_FILES || (names.len().is_multiple_of(1024) && pace.is_over()) {
            break;
        }
    }
    names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    names
}
