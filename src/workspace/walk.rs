//! The walk that `glob` and `grep` share: it respects ignore files, opens each folder beneath the workspace's descriptor,
//! and follows no links.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::{AtFlags, FileType, Stat};

use super::ignore_files::{IgnoreFiles, IgnoreRules, match_path};
use super::path_resolver::{MAX_DEPTH, ResolvedPath};
use super::{Workspace, open_beneath};
use crate::message::ToolError;

/// The most folder entries that one walk visits.
const MAX_ENTRIES: usize = 1_000_000;
/// How many nested folders stay open. Those further up are reopened on the way back.
const OPEN_FOLDERS: usize = 16;

/// What to walk.
pub(crate) struct FileWalk<'a> {
    pub(crate) workspace: &'a Workspace,
    /// Why the walk must stop now, if it must.
    pub(crate) stop_reason: &'a (dyn Fn() -> Option<&'static str> + 'a),
    /// An existing folder or file.
    pub(crate) base: ResolvedPath,
    /// Whether to visit hidden files.
    pub(crate) include_hidden: bool,
    /// Visits only files that this allows.
    pub(crate) filter: Option<Override>,
}

/// A file or folder below the base.
pub(crate) struct WalkEntry<'a> {
    /// Path from the root.
    pub(crate) path: PathBuf,
    pub(crate) is_folder: bool,
    pub(crate) is_file: bool,
    folder: &'a OwnedFd,
    name: &'a OsStr,
}

impl WalkEntry<'_> {
    /// Its metadata now. Links aren't followed.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens it, if it is still a regular file.
    pub(crate) fn open(&self) -> Option<File> {
        open_beneath::open_regular_file(self.folder.as_fd(), self.name).ok()?
    }
}

/// Returned by a visitor to end the walk.
pub(crate) struct StopWalk;

/// A folder that is being walked, and its remaining entries.
struct DirLevel {
    path: PathBuf,
    folder: Option<OwnedFd>,
    entries: std::vec::IntoIter<(OsString, FileType)>,
}

impl FileWalk<'_> {
    /// Visits everything below the base, sorted by name. Returns the reason if the walk was cut short.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&WalkEntry<'_>) -> Result<(), StopWalk>,
    ) -> Result<Option<&'static str>, ToolError> {
        let base = &self.base.path;
        if self.workspace.is_excluded(base) {
            return Err(ToolError(format!("`{}` is excluded from searches", base.display())));
        }
        let failed = |error: io::Error| self.workspace.io_error(base, &error);
        let folder = self.base.folder().try_clone_to_owned().map_err(failed)?;
        if let Some(name) = self.base.name() {
            let is_file = self.base.kind() == Some(FileType::RegularFile);
            let _ = visit(&WalkEntry { path: base.clone(), is_folder: false, is_file, folder: &folder, name });
            return Ok(None);
        }
        if open_beneath::is_pseudo_filesystem(folder.as_fd()) {
            return Err(ToolError(format!(
                "`{}` is in a pseudo file system and excluded from searches",
                base.display()
            )));
        }
        let path = if base == Path::new(".") { PathBuf::new() } else { base.clone() };
        WalkState::new(self, &path).run(path, folder, &mut visit).map_err(failed)
    }
}

struct WalkState<'a> {
    walk: &'a FileWalk<'a>,
    /// The ignore rules of the open folders, preceded by those above the workspace.
    rules: Vec<IgnoreRules>,
    /// How many of the rules are from above the workspace.
    above: usize,
    /// How many entries were seen.
    entries: usize,
    levels: Vec<DirLevel>,
}

impl<'a> WalkState<'a> {
    fn new(walk: &'a FileWalk<'a>, base: &Path) -> Self {
        let mut rules = IgnoreRules::read_above(walk.workspace.root());
        let above = rules.len();
        let mut folders: Vec<&Path> = base.ancestors().skip(1).collect();
        while let Some(path) = folders.pop() {
            let folder = open_beneath::open_dir(walk.workspace.folder(), path);
            let read = folder.map(|folder| IgnoreRules::read_in(folder.as_fd(), path, &rules)).unwrap_or_default();
            rules.push(read);
        }
        Self { walk, rules, above, entries: 0, levels: Vec::new() }
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
                && let Some(why) = (self.walk.stop_reason)()
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
            // An unreadable folder counts as empty.
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

    /// The innermost folder, reopened if necessary.
    fn folder(&mut self) -> Option<&OwnedFd> {
        let root = self.walk.workspace.folder();
        let level = self.levels.last_mut()?;
        if level.folder.is_none() {
            level.folder = open_beneath::open_dir(root, &level.path).ok();
        }
        level.folder.as_ref()
    }

    /// Opens a folder in the innermost one, unless it is a pseudo file system.
    fn open(&mut self, name: &OsStr) -> Option<OwnedFd> {
        let folder = self.folder()?;
        let opened = rustix::fs::openat(folder, name, open_beneath::DIR_FLAGS, rustix::fs::Mode::empty()).ok()?;
        Some(opened).filter(|folder| !open_beneath::is_pseudo_filesystem(folder.as_fd()))
    }

    fn enter(&mut self, path: PathBuf, folder: OwnedFd) -> io::Result<()> {
        let entries = open_beneath::list_dir(&folder, |count| self.entries + count < MAX_ENTRIES)?;
        self.entries += entries.len();
        let files = IgnoreFiles::read_listed(folder.as_fd(), &entries);
        self.rules.push(IgnoreRules::new(&path, &files, &self.rules));
        if let Some(outer) = self.levels.len().checked_sub(OPEN_FOLDERS) {
            self.levels[outer].folder = None;
        }
        self.levels.push(DirLevel { path, folder: Some(folder), entries: entries.into_iter() });
        Ok(())
    }

    fn is_excluded(&self, path: &Path, name: &OsStr, is_folder: bool) -> bool {
        if self.walk.workspace.is_excluded(path) {
            return true;
        }
        let mut matched = match &self.walk.filter {
            Some(filter) => filter.matched(path, is_folder).map(|_| ()),
            None => Match::None,
        };
        if matched.is_none() {
            let absolute = if self.above > 0 { self.walk.workspace.root().join(path) } else { PathBuf::new() };
            matched = match_path(&self.rules, self.above, path, &absolute, is_folder);
        }
        match matched {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => !self.walk.include_hidden && name.as_bytes().first() == Some(&b'.'),
        }
    }
}

/// A pattern whose brackets match themselves, if it has any that don't: frameworks have folders such as `[slug]`.
pub(crate) fn literal_brackets(pattern: &str) -> Option<String> {
    let (mut literal, mut has_bracket, mut letters) =
        (String::with_capacity(pattern.len() + 8), false, pattern.chars());
    while let Some(letter) = letters.next() {
        if matches!(letter, '[' | ']') {
            has_bracket = true;
            literal.push('\\');
        }
        literal.push(letter);
        if letter == '\\' {
            literal.extend(letters.next());
        }
    }
    has_bracket.then_some(literal)
}

/// Compiles a glob with the syntax of ignore files: `*.rs` at any depth, `!*.rs` for all others.
pub(crate) fn file_filter(glob: &str, workspace: &Workspace) -> Result<Override, ToolError> {
    let build = |globs: &[&str]| {
        let mut builder = OverrideBuilder::new(workspace.root());
        globs.iter().try_fold(&mut builder, |builder, glob| builder.add(glob)).and_then(|builder| builder.build())
    };
    let built = match literal_brackets(glob) {
        // Valid or not with brackets that have a meaning.
        Some(literal) => build(&[glob, &literal]).or_else(|_| build(&[&literal])),
        None => build(&[glob]),
    };
    built.map_err(|error| ToolError(format!("bad glob: {error}")))
}
