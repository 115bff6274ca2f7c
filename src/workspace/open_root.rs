//! A folder that is opened once. What is below it is reached through the open folder, without links, so that a folder or a link
//! that is swapped in meanwhile can't lead elsewhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, renameat, unlinkat};

use super::open_beneath::{self, escapes_root_error};
use super::remove_folder;
use crate::text::bounded::read_at_most;

/// An open folder, and the path that it had when it was opened.
#[derive(Debug, Clone)]
pub struct OpenRoot {
    path: PathBuf,
    /// The path that it was opened by.
    given: PathBuf,
    folder: Arc<OwnedFd>,
}

impl OpenRoot {
    /// Opens a folder. Links in its path are followed.
    ///
    /// # Errors
    /// If it can't be opened, or isn't a folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { given: path.to_owned(), ..Self::open_canonical(&path.canonicalize()?)? })
    }

    /// Opens a folder by its canonical path. A link in the path is an error: it wasn't there when the path was resolved.
    ///
    /// # Errors
    /// If it can't be opened, or isn't a folder.
    pub(crate) fn open_canonical(path: &Path) -> io::Result<Self> {
        let top = open_beneath::open_root(Path::new("/"))?;
        let folder = open_beneath::open_dir(top.as_fd(), path.strip_prefix("/").map_err(|_| escapes_root_error())?)?;
        Ok(Self::of(folder, path))
    }

    /// A folder that is open, with its canonical path.
    pub(crate) fn of(folder: OwnedFd, path: &Path) -> Self {
        Self { path: path.to_owned(), given: path.to_owned(), folder: Arc::new(folder) }
    }

    /// The same folder under another path.
    #[must_use]
    pub(crate) fn at(&self, path: &Path) -> Self {
        Self { path: path.to_owned(), given: path.to_owned(), folder: Arc::clone(&self.folder) }
    }

    /// Opens a folder below this one.
    ///
    /// # Errors
    /// If it isn't below this one, doesn't exist, or a link is in the way.
    pub fn subfolder(&self, path: &Path) -> io::Result<Self> {
        Ok(Self::of(self.open_dir(path)?, &self.path.join(self.relative(path)?)))
    }

    /// The canonical path that the folder had.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open folder.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// A path from the root. An absolute one must begin with the root's.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        if path.is_relative() {
            return Ok(path);
        }
        let beneath = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(&self.given));
        beneath.map_err(|_| escapes_root_error())
    }

    /// Opens a folder.
    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        open_beneath::open_dir(self.folder(), self.relative(path)?)
    }

    /// Opens a folder, and creates it and those above it that are missing.
    pub(crate) fn create_dir(&self, path: &Path, mode: u32) -> io::Result<OwnedFd> {
        #[allow(clippy::useless_conversion, reason = "the type differs between systems")]
        let mode = Mode::from_raw_mode(mode.try_into().unwrap_or_default());
        open_beneath::create_dir(self.folder(), self.relative(path)?, mode)
    }

    /// The metadata of a path.
    pub(crate) fn stat(&self, path: &Path) -> io::Result<Stat> {
        open_beneath::stat(self.folder(), self.relative(path)?)
    }

    /// Whether there is a folder at a path.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        self.stat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }

    /// Opens a regular file for reading.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<File> {
        let (folder, name) = open_beneath::open_parent(self.folder(), self.relative(path)?)?;
        let opened = open_beneath::open_regular_file(folder.as_fd(), name)?;
        opened.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it isn't a regular file"))
    }

    /// The content of a regular file of at most `max_bytes`.
    pub(crate) fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        let content = read_at_most(self.open_file(path)?, max_bytes)?;
        content.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is too large"))
    }

    /// The target of a link.
    pub(crate) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let (folder, name) = open_beneath::open_parent(self.folder(), self.relative(path)?)?;
        let target = rustix::fs::readlinkat(&folder, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// The names in a folder.
    pub(crate) fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let folder = self.open_dir(path)?;
        let names = open_beneath::entries(&folder)?.map(|entry| entry.map(|(name, _)| name));
        Ok(names.collect::<Result<_, _>>()?)
    }

    /// Creates a file, which must not exist yet. The umask applies to its mode.
    pub(crate) fn create_file(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        let (folder, name) = open_beneath::open_parent(self.folder(), self.relative(path)?)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        #[allow(clippy::useless_conversion, reason = "the type differs between systems")]
        let mode = Mode::from_raw_mode(mode.try_into().unwrap_or_default());
        File::from(rustix::fs::openat(&folder, name, flags, mode)?).write_all(content)
    }

    /// Renames a file or folder. What has the new name is replaced.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_folder, from) = open_beneath::open_parent(self.folder(), self.relative(from)?)?;
        let (to_folder, to) = open_beneath::open_parent(self.folder(), self.relative(to)?)?;
        Ok(renameat(&from_folder, from, &to_folder, to)?)
    }

    /// Removes a file.
    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = open_beneath::open_parent(self.folder(), self.relative(path)?)?;
        Ok(unlinkat(&folder, name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub(crate) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = open_beneath::open_parent(self.folder(), self.relative(path)?)?;
        Ok(unlinkat(&folder, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes whatever is at a path, with everything in it. Nothing there isn't an error.
    pub(crate) fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match open_beneath::open_parent(self.folder(), self.relative(path)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => {
                let (folder, name) = opened?;
                remove_folder::remove_tree(folder.as_fd(), name)
            }
        }
    }
}
