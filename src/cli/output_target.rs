//! A file outside of the record that is written at the end, and where agents may work until then: its folder is opened at the
//! start, and links in place of the file aren't followed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::arguments::reject_escaping_symlinks;
use super::read_files::parent_folder;
use crate::error::Error;
use crate::workspace::atomic_write::CompleteFile;

#[cfg(target_os = "linux")]
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A file to write later.
#[derive(Debug)]
pub(super) struct OutputTarget {
    /// The path as the user wrote it.
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
}

impl OutputTarget {
    /// Opens the file's folder, and creates it if it doesn't exist.
    ///
    /// # Errors
    /// The folder isn't writable, or the path is of something that isn't a regular file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        is_file(path)?;
        let name = path.file_name().ok_or_else(|| unusable("not the path of a file"))?.to_owned();
        let parent = parent_folder(path);
        let folder = open_writable(parent)
            .map_err(|error| io::Error::new(error.kind(), format!("can't write to {}: {error}", parent.display())))?;
        Ok(Self { path: path.to_owned(), folder, name })
    }

    /// The same for the file that a command line option names.
    ///
    /// # Errors
    /// As above, or a link leads out of the current folder.
    pub(super) fn of_option(option: &str, path: &Path) -> Result<Self, Error> {
        let hint = format!("Remove the link, or name the file of {option} by the path that it leads to.");
        reject_escaping_symlinks(Path::new("."), parent_folder(path), &hint)?;
        Self::open(path).map_err(|error| usage_error(option, path, &error.to_string()))
    }

    /// Writes the file, atomically. The umask decides who may read it. What has the name of the file by now is replaced.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn write(&self, content: &str) -> Result<(), Error> {
        self.replace(content.as_bytes()).map_err(self.failed())
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> Error {
        Error::environment(format!("can't write {}", self.path.display()))
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        CompleteFile::write(self.folder.as_fd(), content, None, 0o666)?.persist(&self.name).map(drop)
    }

    /// Removes the file, if there is one.
    ///
    /// # Errors
    /// If it can't be removed.
    pub(super) fn remove(&self) -> Result<(), Error> {
        match unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed()(error.into())),
        }
    }
}

/// Opens a folder, creates it if it doesn't exist, and checks that files can be created in it.
fn open_writable(folder: &Path) -> io::Result<OwnedFd> {
    fs::create_dir_all(folder)?;
    let folder = openat(rustix::fs::CWD, folder, FOLDER, Mode::empty())?;
    // The file is removed at once.
    CompleteFile::write(folder.as_fd(), b"", None, 0o600)?;
    Ok(folder)
}

/// Whether there is a file at a path.
///
/// # Errors
/// There is something else, such as a device, which must not be replaced, or a link, which could lead anywhere.
pub(super) fn is_file(path: &Path) -> io::Result<bool> {
    match statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok(true),
            FileType::Symlink => Err(unusable("it is a link")),
            _ => Err(unusable("not a regular file")),
        },
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn usage_error(option: &str, path: &Path, why: &str) -> Error {
    Error::usage(format!("{option} {}: {why}", path.display()), "Name a file in a folder that you can write to.")
}

fn unusable(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}
