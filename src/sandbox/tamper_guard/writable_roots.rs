//! The folders that commands may change. One may be inside of another one, such as the workspace below a folder of `--allow-write`:
//! landlock can't keep a command from moving it away and making another one in its place, without the protected files.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, fstat, mkdirat, openat, renameat};
use rustix::io::Errno;

use super::super::policy::SandboxPolicy;
use super::super::tamper_error::TamperError;
use super::dir_fd::{PATH_FLAGS, folder_name, kind, open_parent_or, stat};
use super::rollback;
use crate::workspace::open_beneath::file_id;

/// Added to the name of what a command has put in place of a folder.
const REPLACEMENT_SUFFIX: &str = ".made-by-a-command";

/// A writable folder: its canonical path, and the open folder.
pub(super) type Root = (PathBuf, Arc<OwnedFd>);

/// Opens the folders that commands may change.
pub(super) fn open_roots(policy: &SandboxPolicy) -> Vec<Root> {
    let roots = policy.writable_roots().filter_map(|root| {
        let root = root.canonicalize().ok()?;
        let file = openat(CWD, &root, PATH_FLAGS, Mode::empty()).ok()?;
        Some((root, Arc::new(file)))
    });
    roots.collect()
}

/// Finds the outermost root that a path is in, and the path from there: an inner root can itself be moved away, by a command that
/// can change the folder around it. The path is empty for a root itself, which counts only with `allow_root`.
pub(super) fn locate(roots: &[Root], path: &Path, allow_root: bool) -> Option<(Arc<OwnedFd>, PathBuf)> {
    let found = roots.iter().filter_map(|(root, file)| {
        let relative = path.strip_prefix(root).ok()?;
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        (is_plain && (relative.file_name().is_some() || allow_root)).then(|| (Arc::clone(file), relative.to_owned()))
    });
    found.max_by_key(|(_, relative)| relative.components().count())
}

/// A writable folder in another one.
#[derive(Debug)]
pub(super) struct NestedRoot {
    /// The outermost writable folder around it.
    pub(super) outer: Arc<OwnedFd>,
    /// The path from that folder.
    pub(super) relative: PathBuf,
    pub(super) path: PathBuf,
    /// The folder itself.
    pub(super) folder: Arc<OwnedFd>,
}

impl NestedRoot {
    /// Finds those among the writable folders that have something protected in them.
    pub(super) fn find(roots: &[Root], protected: &[PathBuf]) -> Vec<Self> {
        let has_protected = |root: &PathBuf| protected.iter().any(|path| path.starts_with(root));
        let nested = roots.iter().filter(|(path, _)| has_protected(path)).filter_map(|(path, folder)| {
            let (outer, relative) = locate(roots, path, false)?;
            Some(Self { outer, relative, path: path.clone(), folder: Arc::clone(folder) })
        });
        nested.collect()
    }

    /// Moves the folder back to its path, if it isn't there. What is there instead is kept under another name.
    pub(super) fn check(&self, report: &mut TamperError) {
        match self.return_folder() {
            Ok(false) => {}
            Ok(true) => report.changed.push(self.path.clone()),
            Err(_) => {
                report.not_restored.push(self.path.clone());
                report.changed.push(self.path.clone());
            }
        }
    }

    /// Returns whether the folder was moved back.
    fn return_folder(&self) -> Result<bool, Errno> {
        let folder_id = file_id(&fstat(&*self.folder)?);
        let is_at =
            |folder: &OwnedFd, name: &OsStr| stat(folder, name).is_some_and(|found| file_id(&found) == folder_id);
        let (parent, name) = open_parent_or(&self.outer, &self.relative, |folder, name| {
            move_aside(folder, name)?;
            mkdirat(folder, name, Mode::from_raw_mode(0o755))
        })?;
        if is_at(&parent, name) {
            return Ok(false);
        }
        let open_around = || openat(&*self.folder, "..", PATH_FLAGS, Mode::empty());
        let around = open_around().or_else(|_| make_accessible(&self.folder).and_then(|()| open_around()))?;
        let find = || folder_name(&self.folder).ok_or(Errno::NOENT);
        let now = find().or_else(|_| make_accessible(&around).and_then(|()| find()))?;
        move_aside(&parent, name)?;
        let move_back = || renameat(&around, now.as_os_str(), &parent, name);
        // A command may have taken away permissions.
        let moved = move_back().or_else(|_| make_accessible(&around).and_then(|()| move_back()));
        let moved = moved.or_else(|_| make_accessible(&self.folder).and_then(|()| move_back()));
        moved.map(|()| true)
    }
}

/// Gives the owner all rights to a folder, which may be open only as a place.
fn make_accessible(folder: &OwnedFd) -> Result<(), Errno> {
    chmodat(CWD, format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU, AtFlags::empty())
}

/// Makes a name free. A link is removed, and everything else renamed.
fn move_aside(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match kind(folder, name) {
        None => Ok(()),
        Some(FileType::Symlink) => rollback::remove_all(folder, name, 0),
        Some(_) => rollback::rename_aside(folder, name, REPLACEMENT_SUFFIX),
    }
}
