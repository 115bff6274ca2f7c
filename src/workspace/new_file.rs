//! A file that gets its name when it is complete, in a folder that was opened without following links.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;

use super::open_beneath::{FileId, file_id};

/// The beginning of the temporary names of files in the workspace.
pub(crate) const PREFIX: &str = ".legwork-";

/// Replaces a file by a new one with this mode, which the umask restricts.
pub(crate) fn replace_file(path: &Path, mode: RawMode, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)?;
    let new = NewFile::create(folder.as_fd(), PREFIX, Mode::from_raw_mode(mode))?;
    new.file().write_all(content)?;
    new.persist(path.file_name().ok_or(io::ErrorKind::InvalidInput)?).map(drop)
}

/// A new file without its name. Unless it gets one, it is removed.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    folder: OwnedFd,
    prefix: &'static str,
    /// The temporary name; `None` for a file without any, of which nothing remains if this process is killed.
    name: Option<String>,
}

impl NewFile {
    /// Creates a file in an open folder. Its temporary name, where it needs one, begins with `prefix`. The umask applies to the
    /// mode.
    pub(crate) fn create(folder: BorrowedFd<'_>, prefix: &'static str, mode: Mode) -> io::Result<Self> {
        let folder = folder.try_clone_to_owned()?;
        #[cfg(target_os = "linux")]
        if let Ok(file) = rustix::fs::openat(&folder, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            return Ok(Self { file: file.into(), folder, prefix, name: None });
        }
        let (file, name) = create_named(folder.as_fd(), prefix, mode)?;
        Ok(Self { file, folder, prefix, name: Some(name) })
    }

    /// The file, open for reading and writing.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name. What had the name is replaced, unless it is a folder. Returns the file's id.
    pub(crate) fn persist(mut self, name: &OsStr) -> io::Result<FileId> {
        if self.name.is_some() || !self.link(name)? {
            let temporary = self.name.as_deref().unwrap_or_default();
            rustix::fs::renameat(&self.folder, temporary, &self.folder, name)?;
            self.name = None;
        }
        Ok(file_id(&rustix::fs::fstat(&self.file)?))
    }

    /// The file without any name: it lasts until it is closed.
    pub(crate) fn into_unnamed(self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives a file without a name this one, if there is nothing of that name, or else a temporary one: only a rename can
    /// replace a file. Returns whether it has its name.
    #[cfg(target_os = "linux")]
    fn link(&mut self, name: &OsStr) -> io::Result<bool> {
        let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file));
        let link =
            |name: &OsStr| rustix::fs::linkat(rustix::fs::CWD, &by_number, &self.folder, name, AtFlags::SYMLINK_FOLLOW);
        if link(name).is_ok() {
            return Ok(true);
        }
        let temporary = temporary_name(self.prefix);
        if link(temporary.as_ref()).is_ok() {
            self.name = Some(temporary);
            return Ok(false);
        }
        // Without procfs, for example.
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.file)?.st_mode & 0o7777);
        let (mut named, temporary) = create_named(self.folder.as_fd(), self.prefix, Mode::RUSR | Mode::WUSR)?;
        self.name = Some(temporary);
        self.file.rewind()?;
        io::copy(&mut self.file, &mut named)?;
        rustix::fs::fchmod(&named, mode)?;
        self.file = named;
        Ok(false)
    }

    #[cfg(not(target_os = "linux"))]
    fn link(&mut self, _: &OsStr) -> io::Result<bool> {
        Ok(false)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(&self.folder, name.as_str(), AtFlags::empty());
        }
    }
}

/// Creates a symbolic link. What had its name is replaced, unless it is a folder.
pub(crate) fn create_link(folder: BorrowedFd<'_>, name: &OsStr, target: &Path) -> io::Result<()> {
    let temporary = temporary_name(PREFIX);
    rustix::fs::symlinkat(target, folder, temporary.as_str())?;
    rustix::fs::renameat(folder, temporary.as_str(), folder, name).map_err(|error| {
        let _ = rustix::fs::unlinkat(folder, temporary.as_str(), AtFlags::empty());
        error.into()
    })
}

/// Creates a file with a temporary name, which begins with `prefix`.
pub(crate) fn create_named(folder: BorrowedFd<'_>, prefix: &str, mode: Mode) -> Result<(File, String), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A few may be left over, but not this many.
    for _ in 0..1000 {
        let name = temporary_name(prefix);
        match rustix::fs::openat(folder, name.as_str(), flags, mode) {
            Err(Errno::EXIST) => {}
            opened => return Ok((opened?.into(), name)),
        }
    }
    Err(Errno::EXIST)
}

/// A name that no other write uses, in this process or another one.
pub(super) fn temporary_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
