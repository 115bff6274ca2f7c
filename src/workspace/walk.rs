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

use crate::tools::ToolError;
use crate::tools::toolbox::CallLimits;
use crate::workspace::ignore_files::{IgnoreRules, match_path};
use crate::workspace::path_resolver::{MAX_DEPTH, ResolvedPath};
use crate::workspace::{Workspace, open_beneath};

/// The most entries of folders that one search looks at.
const MAX_ENTRIES: usize = 1_000_000;
/// How many folders of the way stay open; those above are opened anew on the way back.
const OPEN_FOLDERS: usize = 16;

/// Where to look.
pub(crate) struct FileWalk<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) limits: &'a CallLimits,
    /// A folder, or one file, that exists.
    pub(crate) base: ResolvedPath,
    /// Whether hidden files are looked at.
    pub(crate) include_hidden: bool,
    /// Looks only at files that this allows.
    pub(crate) filter: Option<Override>,
}

/// Something beneath the base.
pub(crate) struct WalkEntry<'a> {
    /// Path from the root.
    pub(crate) path: PathBuf,
    pub(crate) is_folder: bool,
    pub(crate) is_file: bool,
    folder: &'a OwnedFd,
    name: &'a OsStr,
}

impl WalkEntry<'_> {
    /// What is there now, a link not followed.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens what is still a regular file.
    pub(crate) fn open(&self) -> Option<File> {
        open_beneath::open_regular_file(self.folder.as_fd(), self.name).ok()?
    }
}

/// A visitor's wish to end the walk.
pub(crate) struct StopWalk;

/// A folder on the way, and what is yet to be visited in it.
struct DirLevel {
    path: PathBuf,
    folder: Option<OwnedFd>,
    entries: std::vec::IntoIter<(OsString, FileType)>,
}

impl FileWalk<'_> {
    /// Visits everything beneath the base in the order of the names. Gives the reason if it was cut short.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&WalkEntry<'_>) -> Result<(), StopWalk>,
    ) -> Result<Option<&'static str>, ToolError> {
        let base = &self.base.path;
        if self.workspace.excluded().contains(base) {
            return Err(ToolError(format!("`{}` is left out of searches", base.display())));
        }
        let failed = |error: io::Error| self.workspace.io_error(base, &error);
        let folder = self.base.folder().try_clone_to_owned().map_err(failed)?;
        if let Some(name) = self.base.name() {
            let is_file = self.base.kind() == Some(FileType::RegularFile);
            let _ = visit(&WalkEntry { path: base.clone(), is_folder: false, is_file, folder: &folder, name });
            return Ok(None);
        }
        if open_beneath::is_pseudo_filesystem(folder.as_fd()) {
            return Err(ToolError(format!("`{}` is made up by the system, and left out of searches", base.display())));
        }
        let path = if base == Path::new(".") { PathBuf::new() } else { base.clone() };
        WalkState::new(self, &path).run(path, folder, &mut visit).map_err(failed)
    }
}

struct WalkState<'a> {
    search: &'a FileWalk<'a>,
    /// Of each folder on the way, those above the workspace first.
    rules: Vec<IgnoreRules>,
    /// How many of them lie above the workspace.
    above: usize,
    /// Entries that were looked at.
    entries: usize,
    levels: Vec<DirLevel>,
}

impl<'a> WalkState<'a> {
    fn new(search: &'a FileWalk<'a>, base: &Path) -> Self {
        let mut rules = IgnoreRules::read_above(search.workspace.root());
        let above = rules.len();
        let mut folders: Vec<&Path> = base.ancestors().skip(1).collect();
        while let Some(path) = folders.pop() {
            let folder = open_beneath::open_dir(search.workspace.folder(), path);
            let read = folder.map(|folder| IgnoreRules::read_in(folder.as_fd(), path, &rules)).unwrap_or_default();
            rules.push(read);
        }
        Self { search, rules, above, entries: 0, levels: Vec::new() }
    }

    fn run(
        mut self,
        base: PathBuf,
        folder: OwnedFd,
        visit: &mut impl FnMut(&WalkEntry<'_>) -> Result<(), StopWalk>,
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
                && let Some(why) = self.search.limits.stop_reason()
            {
                return Ok(Some(why));
            }
            let path = level.path.join(&name);
            let is_folder = kind == FileType::Directory;
            if self.is_excluded(&path, &name, is_folder) {
                continue;
            }
            let Some(folder) = self.folder() else { continue };
            let is_file = kind == FileType::RegularFile;
            if visit(&WalkEntry { path: path.clone(), is_folder, is_file, folder, name: &name }).is_err() {
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
            level.folder = open_beneath::open_dir(root, &level.path).ok();
        }
        level.folder.as_ref()
    }

    /// Opens a folder of the innermost one, unless the system makes up what is in it.
    fn open(&mut self, name: &OsStr) -> Option<OwnedFd> {
        let folder = self.folder()?;
        let opened = rustix::fs::openat(folder, name, open_beneath::DIR_FLAGS, rustix::fs::Mode::empty()).ok()?;
        Some(opened).filter(|folder| !open_beneath::is_pseudo_filesystem(folder.as_fd()))
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
        self.rules.push(IgnoreRules::read_in(folder.as_fd(), &path, &self.rules));
        if let Some(outer) = self.levels.len().checked_sub(OPEN_FOLDERS) {
            self.levels[outer].folder = None;
        }
        self.levels.push(DirLevel { path, folder: Some(folder), entries: entries.into_iter() });
        Ok(())
    }

    fn is_excluded(&self, path: &Path, name: &OsStr, is_folder: bool) -> bool {
        if self.search.workspace.excluded().contains(path) {
            return true;
        }
        let mut verdict = match &self.search.filter {
            Some(only) => only.matched(path, is_folder).map(|_| ()),
            None => Match::None,
        };
        if verdict.is_none() {
            let absolute = if self.above > 0 { self.search.workspace.root().join(path) } else { PathBuf::new() };
            verdict = self::match_path(&self.rules, self.above, path, &absolute, is_folder);
        }
        match verdict {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => !self.search.include_hidden && name.as_bytes().first() == Some(&b'.'),
        }
    }
}

/// Reads a glob in the manner of ignore files: `*.rs` at any depth, `!*.rs` for all others.
pub(crate) fn file_filter(glob: &str, workspace: &Workspace) -> Result<Override, ToolError> {
    let mut builder = OverrideBuilder::new(workspace.root());
    let built = builder.add(glob).and_then(|builder| builder.build());
    built.map_err(|error| ToolError(format!("bad glob: {error}")))
}
