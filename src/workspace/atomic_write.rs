//! Writes a file as a new inode that replaces the old one, in a folder that was opened without following links.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;

use super::Workspace;
use super::new_file::{self, NewFile};
use super::open_beneath::{FileId, file_id};
use super::path_resolver::ResolvedPath;
use super::write_protection::could_form_git_dir;
use crate::message::ToolError;
use crate::text::bounded::read_at_most;

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
        let content =
            read_at_most(file, MAX_FILE_BYTES).map_err(|error| self.workspace.io_error(&self.path, &error))?;
        content
            .ok_or_else(|| ToolError(format!("`{shown}` is too large to edit (more than {} MB)", MAX_FILE_BYTES >> 20)))
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
        let mode = before.as_ref().map_or(0o666, |before| before.st_mode & 0o777);
        let id = CompleteFile::write(folder, content, before.as_ref(), mode)
            .and_then(|file| file.persist(&self.name))
            .map_err(explain)?;
        // The file system may treat the name as equal to a protected one that didn't exist before.
        protection.check_file_ids(root, &self.path, [id]).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(folder, &self.name, AtFlags::empty());
        })
    }
}

/// A file with its content, which replaces another one or is new.
#[derive(Debug)]
pub(crate) struct CompleteFile(NewFile);

impl CompleteFile {
    /// Writes the content of a file in an open folder. It gets the owner of the file before it, if possible, and the `mode`; for
    /// a new file, the umask applies to the mode.
    pub(crate) fn write(
        folder: BorrowedFd<'_>,
        content: &[u8],
        before: Option<&Stat>,
        mode: rustix::fs::RawMode,
    ) -> io::Result<Self> {
        let new = NewFile::create(
            folder,
            new_file::PREFIX,
            Mode::from_raw_mode(if before.is_some() { 0o600 } else { mode }),
        )?;
        let mut file = new.file();
        file.write_all(content)?;
        if let Some(before) = before {
            let now = rustix::fs::fstat(file)?;
            let (user, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
            if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid) {
                // Only root may change the owner. Others may still set a group that they belong to.
                let _ = rustix::fs::fchown(file, Some(user), Some(group))
                    .or_else(|_| rustix::fs::fchown(file, None, Some(group)));
            }
            rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
        }
        Ok(Self(new))
    }

    /// The file, which has no name yet.
    pub(crate) fn file(&self) -> &File {
        self.0.file()
    }

    /// Gives the file its name. What had the name is replaced, unless it is a folder. Returns the file's id.
    pub(crate) fn persist(self, name: &OsStr) -> io::Result<FileId> {
        self.0.persist(name)
    }
}
