//! Writes a file as a new inode that replaces the old one, in a folder that was opened without following links.

#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;

use super::Workspace;
#[cfg(target_os = "linux")]
use super::open_beneath::temporary_name;
use super::open_beneath::{create_temporary, file_id};
use super::path_resolver::ResolvedPath;
use super::write_protection::could_form_git_dir;
use crate::message::ToolError;

/// The largest file that is written, or read as a whole, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 16 << 20;

/// A path that may be written to.
pub(crate) struct WriteTarget<'a> {
    workspace: &'a Workspace,
    resolved: ResolvedPath,
    /// Its canonical path from the root.
    pub(crate) path: PathBuf,
    /// Its name in its folder.
    name: OsString,
}

impl Workspace {
    /// Resolves a path for writing.
    ///
    /// # Errors
    /// If the path is outside the workspace, protected, read-only, or not a regular file.
    pub(crate) fn write_target(&self, path: &str) -> Result<WriteTarget<'_>, ToolError> {
        if path.ends_with('/') || path.ends_with("/.") {
            return Err(ToolError(format!("`{path}` names a folder")));
        }
        let resolved = self.resolve(path)?;
        let path = resolved.path.clone();
        let shown = path.display();
        self.protection.check_path(&path)?;
        self.protection.check_repositories(self.folder(), &path)?;
        self.protection.check_file_ids(self.folder(), &path, resolved.file_ids())?;
        match (resolved.kind(), resolved.name()) {
            (None, Some(_)) => {}
            (Some(FileType::RegularFile), Some(name)) => {
                // Root may write to any file, but a file without any write permission is meant to stay as it is.
                let is_read_only = resolved.stat.as_ref().is_some_and(|stat| stat.st_mode & 0o222 == 0);
                let access = rustix::fs::accessat(resolved.folder(), name, Access::WRITE_OK, AtFlags::EACCESS);
                if is_read_only || access == Err(Errno::ACCESS) {
                    return Err(ToolError(format!("`{shown}` is read-only")));
                }
            }
            (Some(FileType::Directory), _) => return Err(ToolError(format!("`{shown}` is a folder"))),
            _ => return Err(ToolError(format!("`{shown}` is not a regular file"))),
        }
        Ok(WriteTarget { workspace: self, path, name: resolved.name().unwrap_or_default().to_owned(), resolved })
    }
}

impl WriteTarget<'_> {
    /// Whether the file existed when the path was resolved.
    pub(crate) fn exists(&self) -> bool {
        self.resolved.stat.is_some()
    }

    /// Reads the file.
    pub(crate) fn read(&self) -> Result<Vec<u8>, ToolError> {
        let shown = self.path.display();
        if !self.exists() {
            return Err(self.workspace.io_error(&self.path, &io::ErrorKind::NotFound.into()));
        }
        let file = self.workspace.open_resolved(&self.resolved)?;
        let mut content = Vec::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content);
        read.map_err(|error| self.workspace.io_error(&self.path, &error))?;
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(ToolError(format!("`{shown}` is too large to edit (more than {} MB)", MAX_FILE_BYTES >> 20)));
        }
        Ok(content)
    }

    /// Writes the file atomically and creates missing folders. An existing file's permissions are kept, and its owner if
    /// possible.
    ///
    /// # Errors
    /// If writing fails. The checks of [`Workspace::write_target`] are repeated, because the result may have changed.
    pub(crate) fn write(&mut self, content: &[u8]) -> Result<(), ToolError> {
        if could_form_git_dir(&self.path) {
            // Two agents must not create the parts of a git folder at the same time.
            self.workspace.with_path_lock(Path::new(".git"), || self.write_now(content))
        } else {
            self.write_now(content)
        }
    }

    fn write_now(&mut self, content: &[u8]) -> Result<(), ToolError> {
        let (workspace, root) = (self.workspace, self.workspace.folder());
        let explain = |error: io::Error| workspace.io_error(&self.path, &error);
        let protection = &workspace.protection;
        protection.check_repositories(root, &self.path)?;
        self.resolved.create_parents().map_err(explain)?;
        let folder = self.resolved.folder();
        let before = match rustix::fs::statat(folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(ToolError(format!("`{}` is not a regular file", self.path.display())));
            }
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(explain(error.into())),
        };
        protection.check_file_ids(root, &self.path, self.resolved.file_ids().chain(before.as_ref().map(file_id)))?;
        let file = self.write_and_rename(content, before.as_ref()).map_err(explain)?;
        // The file system may treat the name as equal to a protected one that didn't exist before.
        let id = rustix::fs::fstat(&file).map(|stat| file_id(&stat)).map_err(|error| explain(error.into()))?;
        protection.check_file_ids(root, &self.path, [id]).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(folder, &self.name, AtFlags::empty());
        })
    }

    /// Writes the content to a new file and then gives that file its name.
    fn write_and_rename(&self, content: &[u8], before: Option<&Stat>) -> io::Result<File> {
        let folder = self.resolved.folder();
        let mode = Mode::from_raw_mode(if before.is_some() { 0o600 } else { 0o666 });
        #[cfg(target_os = "linux")]
        if let Some(mut file) = open_unnamed(folder, mode) {
            fill(&mut file, content, before)?;
            if before.is_none() && link_unnamed(&file, folder, &self.name).is_ok() {
                return Ok(file);
            }
            // Only a rename can replace a file, so the new file needs a temporary name.
            let temporary = temporary_name();
            if link_unnamed(&file, folder, temporary.as_ref()).is_ok() {
                return self.rename(&temporary).map(|()| file);
            }
        }
        let (mut file, temporary) = create_temporary(folder, mode)?;
        fill(&mut file, content, before).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(folder, temporary.as_str(), AtFlags::empty());
        })?;
        self.rename(&temporary).map(|()| file)
    }

    fn rename(&self, temporary: &str) -> io::Result<()> {
        let folder = self.resolved.folder();
        rustix::fs::renameat(folder, temporary, folder, &self.name).map_err(|error| {
            let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
            error.into()
        })
    }
}

/// Writes the content, and copies the permissions and, if possible, the owner of the previous file.
fn fill(file: &mut File, content: &[u8], before: Option<&Stat>) -> io::Result<()> {
    file.write_all(content)?;
    let Some(before) = before else { return Ok(()) };
    let now = rustix::fs::fstat(&*file)?;
    let (user, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid) {
        // Only root may change the owner. Others may still set a group that they belong to.
        let _ = rustix::fs::fchown(&*file, Some(user), Some(group))
            .or_else(|_| rustix::fs::fchown(&*file, None, Some(group)));
    }
    Ok(rustix::fs::fchmod(&*file, Mode::from_raw_mode(before.st_mode & 0o777))?)
}

/// Opens a file without a name, of which nothing remains if this process is killed, if the file system has such files.
#[cfg(target_os = "linux")]
fn open_unnamed(folder: BorrowedFd<'_>, mode: Mode) -> Option<File> {
    use rustix::fs::OFlags;
    rustix::fs::openat(folder, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode).ok().map(File::from)
}

/// Gives an unnamed file a name that doesn't exist yet, see open(2).
#[cfg(target_os = "linux")]
fn link_unnamed(file: &File, folder: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    rustix::fs::linkat(rustix::fs::CWD, by_number, folder, name, AtFlags::SYMLINK_FOLLOW)
}
