//! Writing a file: a new inode, then a rename, in a folder that was reached without following a link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::tools::ToolError;
use crate::workspace::Workspace;
use crate::workspace::path_resolver::{ResolvedPath, inode};
use crate::workspace::write_protection::could_form_git_dir;

/// The largest file that is read in one piece to be changed, in bytes.
pub(crate) const MAX_FILE: u64 = 16 << 20;

/// A place for a file, found and allowed.
pub(crate) struct WriteTarget<'a> {
    workspace: &'a Workspace,
    found: ResolvedPath,
    /// Its canonical path from the root.
    pub(crate) path: PathBuf,
    /// Its name in its folder.
    name: OsString,
}

impl Workspace {
    /// Finds the place for a file.
    ///
    /// # Errors
    /// Refuses what lies outside, what is protected, and what is there already but no regular file.
    pub(crate) fn target(&self, path: &str) -> Result<WriteTarget<'_>, ToolError> {
        if path.ends_with('/') || path.ends_with("/.") {
            return Err(ToolError(format!("`{path}` names a folder")));
        }
        let found = self.find(path)?;
        let path = found.path.clone();
        let shown = path.display();
        self.protection().check_path(&path)?;
        self.protection().check_repositories(self.folder(), &path)?;
        self.protection().check_inodes(self.folder(), &path, found.inodes())?;
        match (found.kind(), found.name()) {
            (None, Some(_)) => {}
            (Some(FileType::RegularFile), Some(name)) => {
                // The superuser may write to any file, but a file that nobody may write to is meant to stay as it is.
                let nobody = found.stat.as_ref().is_some_and(|stat| stat.st_mode & 0o222 == 0);
                let access = rustix::fs::accessat(found.folder(), name, Access::WRITE_OK, AtFlags::EACCESS);
                if nobody || access == Err(Errno::ACCESS) {
                    return Err(ToolError(format!("`{shown}` is read-only")));
                }
            }
            (Some(FileType::Directory), _) => return Err(ToolError(format!("`{shown}` is a folder"))),
            _ => return Err(ToolError(format!("`{shown}` is not a regular file"))),
        }
        Ok(WriteTarget { workspace: self, path, name: found.name().unwrap_or_default().to_owned(), found })
    }
}

impl WriteTarget<'_> {
    /// Whether a file was there when the place was looked up.
    pub(crate) fn exists(&self) -> bool {
        self.found.stat.is_some()
    }

    /// What the file holds now.
    pub(crate) fn read(&self) -> Result<Vec<u8>, ToolError> {
        let shown = self.path.display();
        if !self.exists() {
            return Err(self.workspace.io_error(&self.path, &io::ErrorKind::NotFound.into()));
        }
        let file = self.workspace.open_found(&self.found)?;
        let mut content = Vec::new();
        let read = file.take(MAX_FILE + 1).read_to_end(&mut content);
        read.map_err(|error| self.workspace.io_error(&self.path, &error))?;
        if content.len() as u64 > MAX_FILE {
            return Err(ToolError(format!("`{shown}` is too large to be edited (more than {} MB)", MAX_FILE >> 20)));
        }
        Ok(content)
    }

    /// Puts a new file in its place, whole or not at all, making missing folders. It keeps the permissions of the one
    /// before, and its owner where that is allowed.
    ///
    /// # Errors
    /// What [`Workspace::target`] refuses is refused again: it may have come to be so since.
    pub(crate) fn write(&mut self, content: &[u8]) -> Result<(), ToolError> {
        if could_form_git_dir(&self.path) {
            // One agent must not make a part while another makes the other.
            self.workspace.with_path_lock(Path::new(".git"), || self.write_now(content))
        } else {
            self.write_now(content)
        }
    }

    fn write_now(&mut self, content: &[u8]) -> Result<(), ToolError> {
        let (workspace, root) = (self.workspace, self.workspace.folder());
        let explain = |error: io::Error| workspace.io_error(&self.path, &error);
        let kept = workspace.protection();
        kept.check_repositories(root, &self.path)?;
        self.found.make_folders().map_err(explain)?;
        let folder = self.found.folder();
        let before = match rustix::fs::statat(folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(ToolError(format!("`{}` is not a regular file", self.path.display())));
            }
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(explain(error.into())),
        };
        kept.check_inodes(root, &self.path, self.found.inodes().chain(before.as_ref().map(inode)))?;
        let file = self.write_and_rename(content, before.as_ref()).map_err(explain)?;
        // A name that is none of the protected ones, and yet names one of them now: the file system says that they are the same.
        let own = rustix::fs::fstat(&file).map(|stat| inode(&stat)).map_err(|error| explain(error.into()))?;
        kept.check_inodes(root, &self.path, [own]).inspect_err(|_| {
            // There was none before, or it would have been found above.
            let _ = rustix::fs::unlinkat(folder, &self.name, AtFlags::empty());
        })
    }

    /// Makes the file and gives it its name when it is whole.
    fn write_and_rename(&self, content: &[u8], before: Option<&Stat>) -> io::Result<File> {
        let folder = self.found.folder();
        let mode = Mode::from_raw_mode(if before.is_some() { 0o600 } else { 0o666 });
        if let Some(file) = open_unnamed(folder, mode) {
            let file = fill(file?, content, before)?;
            if before.is_none() && link_unnamed(&file, folder, &self.name).is_ok() {
                return Ok(file);
            }
            // A name of its own for one moment, for only a rename replaces a file.
            let temporary = temporary_name();
            if link_unnamed(&file, folder, temporary.as_ref()).is_ok() {
                self.rename(&temporary)?;
                return Ok(file);
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (temporary, file) = loop {
            let name = temporary_name();
            match rustix::fs::openat(folder, name.as_str(), flags, mode) {
                Ok(file) => break (name, File::from(file)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        };
        match fill(file, content, before) {
            Ok(file) => self.rename(&temporary).map(|()| file),
            Err(error) => {
                // The first error is the one to tell.
                let _ = rustix::fs::unlinkat(folder, temporary.as_str(), AtFlags::empty());
                Err(error)
            }
        }
    }

    fn rename(&self, temporary: &str) -> io::Result<()> {
        let folder = self.found.folder();
        rustix::fs::renameat(folder, temporary, folder, &self.name).map_err(|error| {
            let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
            error.into()
        })
    }
}

/// Writes the content and gives the file the permissions of the one before.
fn fill(mut file: File, content: &[u8], before: Option<&Stat>) -> io::Result<File> {
    file.write_all(content)?;
    if let Some(before) = before {
        let now = rustix::fs::fstat(&file)?;
        let (user, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
        if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid) {
            // Only the superuser may give a file away; others may give it to a group of theirs.
            let _ = rustix::fs::fchown(&file, Some(user), Some(group))
                .or_else(|_| rustix::fs::fchown(&file, None, Some(group)));
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o777))?;
    }
    Ok(file)
}

/// A file in a folder that has no name yet, so that nothing is left of it should we be killed; `None` where there is no
/// such thing.
#[cfg(target_os = "linux")]
fn open_unnamed(folder: impl AsFd, mode: Mode) -> Option<io::Result<File>> {
    match rustix::fs::openat(folder, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
        Ok(file) => Some(Ok(File::from(file))),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => None,
        Err(error) => Some(Err(error.into())),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: impl AsFd, _: Mode) -> Option<io::Result<File>> {
    None
}

/// Gives a file without a name one that nothing has.
#[cfg(target_os = "linux")]
fn link_unnamed(file: &File, folder: impl AsFd, name: &OsStr) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    // Older kernels want a privilege for the first way; the second needs procfs.
    if rustix::fs::linkat(file, "", &folder, name, AtFlags::EMPTY_PATH).is_ok() {
        return Ok(());
    }
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(rustix::fs::CWD, by_number, &folder, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: impl AsFd, _: &OsStr) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A name that no other write of this or another process uses at the moment.
fn temporary_name() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(".legwork-{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
