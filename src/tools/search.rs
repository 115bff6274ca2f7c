//! The walk that `glob` and `grep` share: what ignore files say holds, each folder is opened beneath the workspace's
//! descriptor, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::ignored::{Rules, verdict};
use super::resolve::{MAX_DEPTH, Resolved};
use super::{CallLimits, Refusal, Workspace, beneath};

/// The most entries of folders that one search looks at.
const MAX_ENTRIES: usize = 1_000_000;
/// How many folders of the way stay open; those above are opened anew on the way back.
const OPEN_FOLDERS: usize = 16;

/// Where to look.
pub(super) struct Search<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) limits: &'a CallLimits,
    /// A folder, or one file, that exists.
    pub(super) base: Resolved,
    /// Whether hidden files are looked at.
    pub(super) hidden: bool,
    /// Looks only at files that this allows.
    pub(super) only: Option<Override>,
}

/// Something beneath the base.
pub(super) struct Entry<'a> {
    /// Path from the root.
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
    pub(super) is_file: bool,
    folder: &'a OwnedFd,
    name: &'a OsStr,
}

impl Entry<'_> {
    /// What is there now, a link not followed.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens what is still a regular file.
    pub(super) fn open(&self) -> Option<File> {
        beneath::regular(self.folder.as_fd(), self.name).ok()?
    }
}

/// A visitor's wish to end the walk.
pub(super) struct Enough;

/// A folder on the way, and what is yet to be visited in it.
struct Level {
    path: PathBuf,
    folder: Option<OwnedFd>,
    entries: std::vec::IntoIter<(OsString, FileType)>,
}

impl Search<'_> {
    /// Visits everything beneath the base in the order of the names. Gives the reason if it was cut short.
    pub(super) fn walk(
        &self,
        mut visit: impl FnMut(&Entry<'_>) -> Result<(), Enough>,
    ) -> Result<Option<&'static str>, Refusal> {
        let base = &self.base.path;
        if self.workspace.passed_over().holds(base) {
            return Err(Refusal(format!("`{}` is left out of searches", base.display())));
        }
        let failed = |error: io::Error| self.workspace.explain(base, &error);
        let folder = self.base.folder().try_clone_to_owned().map_err(failed)?;
        if let Some(name) = self.base.name() {
            let is_file = self.base.kind() == Some(FileType::RegularFile);
            let _ = visit(&Entry { path: base.clone(), is_folder: false, is_file, folder: &folder, name });
            return Ok(None);
        }
        if beneath::made_up(folder.as_fd()) {
            return Err(Refusal(format!("`{}` is made up by the system, and left out of searches", base.display())));
        }
        let path = if base == Path::new(".") { PathBuf::new() } else { base.clone() };
        Walk::new(self, &path).run(path, folder, &mut visit).map_err(failed)
    }
}

struct Walk<'a> {
    search: &'a Search<'a>,
    /// Of each folder on the way, those above the workspace first.
    rules: Vec<Rules>,
    /// How many of them lie above the workspace.
    above: usize,
    /// Entries that were looked at.
    entries: usize,
    levels: Vec<Level>,
}

impl<'a> Walk<'a> {
    fn new(search: &'a Search<'a>, base: &Path) -> Self {
        let mut rules = Rules::above(search.workspace.root());
        let above = rules.len();
        let mut folders: Vec<&Path> = base.ancestors().skip(1).collect();
        while let Some(path) = folders.pop() {
            let folder = beneath::folder(search.workspace.folder(), path);
            let read = folder.map(|folder| Rules::of(folder.as_fd(), path, &rules)).unwrap_or_default();
            rules.push(read);
        }
        Self { search, rules, above, entries: 0, levels: Vec::new() }
    }

    fn run(
        mut self,
        base: PathBuf,
        folder: OwnedFd,
        visit: &mut impl FnMut(&Entry<'_>) -> Result<(), Enough>,
    ) -> io::Result<Option<&'static str>> {
        self.enter(base, folder)?;
        let mut count = 0_usize;
        while let Some(level) = self.levels.last_mut() {
            let Some((name, kind)) = level.entries.next() else {
                self.levels.pop();
                self.rules.pop();
                continue;
            };
            count += 1;
            if count % 256 == 255
                && let Some(why) = self.search.limits.over()
            {
                return Ok(Some(why));
            }
            let path = level.path.join(&name);
            let is_folder = kind == FileType::Directory;
            if self.is_left_out(&path, &name, is_folder) {
                continue;
            }
            let Some(folder) = self.folder() else { continue };
            let is_file = kind == FileType::RegularFile;
            if visit(&Entry { path: path.clone(), is_folder, is_file, folder, name: &name }).is_err() {
                return Ok(None);
            }
            // What can't be read is no match.
            if is_folder
                && self.levels.len() < MAX_DEPTH
                && let Some(folder) = self.open(&name)
            {
                let _ = self.enter(path, folder);
            }
            if self.entries >= MAX_ENTRIES {
                return Ok(Some("there are more than a million files and folders"));
            }
        }
        Ok(None)
    }

    /// The innermost folder, opened anew if need be.
    fn folder(&mut self) -> Option<&OwnedFd> {
        let root = self.search.workspace.folder();
        let level = self.levels.last_mut()?;
        if level.folder.is_none() {
            level.folder = beneath::folder(root, &level.path).ok();
        }
        level.folder.as_ref()
    }

    /// Opens a folder of the innermost one, unless the system makes up what is in it.
    fn open(&mut self, name: &OsStr) -> Option<OwnedFd> {
        let folder = self.folder()?;
        let opened = rustix::fs::openat(folder, name, beneath::FOLDER, rustix::fs::Mode::empty()).ok()?;
        Some(opened).filter(|folder| !beneath::made_up(folder.as_fd()))
    }

    fn enter(&mut self, path: PathBuf, folder: OwnedFd) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let Ok(entry) = entry else { break };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems don't say.
                FileType::Unknown => rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            entries.push((name.to_owned(), kind));
            self.entries += 1;
            if self.entries >= MAX_ENTRIES {
                break;
            }
        }
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.rules.push(Rules::of(folder.as_fd(), &path, &self.rules));
        if let Some(outer) = self.levels.len().checked_sub(OPEN_FOLDERS) {
            self.levels[outer].folder = None;
        }
        self.levels.push(Level { path, folder: Some(folder), entries: entries.into_iter() });
        Ok(())
    }

    fn is_left_out(&self, path: &Path, name: &OsStr, is_folder: bool) -> bool {
        if self.search.workspace.passed_over().holds(path) {
            return true;
        }
        let mut verdict = match &self.search.only {
            Some(only) => only.matched(path, is_folder).map(|_| ()),
            None => Match::None,
        };
        if verdict.is_none() {
            let absolute = if self.above > 0 { self.search.workspace.root().join(path) } else { PathBuf::new() };
            verdict = self::verdict(&self.rules, self.above, path, &absolute, is_folder);
        }
        match verdict {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => !self.search.hidden && name.as_bytes().first() == Some(&b'.'),
        }
    }
}

/// Reads a glob in the manner of ignore files: `*.rs` at any depth, `!*.rs` for all others.
pub(super) fn only(glob: &str, workspace: &Workspace) -> Result<Override, Refusal> {
    let mut builder = OverrideBuilder::new(workspace.root());
    let built = builder.add(glob).and_then(|builder| builder.build());
    built.map_err(|error| Refusal(format!("bad glob: {error}")))
}
