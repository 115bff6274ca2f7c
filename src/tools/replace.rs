//! Writing a file: a new inode, then a rename, in a folder that was reached without following a link.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::resolve::Resolved;
use super::{Refusal, Workspace};

/// The largest file that is read in one piece to be changed, in bytes.
pub(super) const MAX_FILE: u64 = 16 << 20;

/// A place for a file, found and allowed.
pub(super) struct Target<'a> {
    workspace: &'a Workspace,
    found: Resolved,
    /// Its canonical path from the root.
    pub(super) path: PathBuf,
    /// Its name in its folder.
    name: OsString,
}

impl Workspace {
    /// Finds the place for a file.
    ///
    /// # Errors
    /// Refuses what lies outside, what is protected, and what is there already but no regular file.
    pub(super) fn target(&self, path: &str) -> Result<Target<'_>, Refusal> {
        if path.ends_with('/') {
            return Err(Refusal(format!("`{path}` names a folder")));
        }
        let found = self.find(path)?;
        let path = found.path.clone();
        let shown = path.display();
        self.check_writable(&path)?;
        found.inodes().try_for_each(|inode| self.check_inode(&path, inode))?;
        match (found.kind(), found.name()) {
            (None, Some(_)) => {}
            (Some(FileType::RegularFile), Some(name)) => {
                let access = rustix::fs::accessat(found.folder(), name, Access::WRITE_OK, AtFlags::EACCESS);
                if access == Err(Errno::ACCESS) {
                    return Err(Refusal(format!("`{shown}` is read-only")));
                }
            }
            (Some(FileType::Directory), _) => return Err(Refusal(format!("`{shown}` is a folder"))),
            _ => return Err(Refusal(format!("`{shown}` is not a regular file"))),
        }
        Ok(Target { workspace: self, path, name: found.name().unwrap_or_default().to_owned(), found })
    }
}

impl Target<'_> {
    /// Whether a file was there when the place was looked up.
    pub(super) fn exists(&self) -> bool {
        self.found.stat.is_some()
    }

    /// What the file holds now.
    pub(super) fn read(&self) -> Result<Vec<u8>, Refusal> {
        let shown = self.path.display();
        let Some(stat) = &self.found.stat else {
            return Err(self.workspace.explain(&self.path, &io::ErrorKind::NotFound.into()));
        };
        if stat.st_size.cast_unsigned() > MAX_FILE {
            return Err(Refusal(format!("`{shown}` is too large to be edited ({} MB)", stat.st_size >> 20)));
        }
        let read = || {
            let file = self.found.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
            let mut content = Vec::new();
            File::from(file).take(MAX_FILE).read_to_end(&mut content)?;
            Ok(content)
        };
        read().map_err(|error| self.workspace.explain(&self.path, &error))
    }

    /// Puts a new file in its place, whole or not at all, making missing folders. It keeps the permissions of the one
    /// before, and its owner where that is allowed.
    pub(super) fn write(&mut self, content: &[u8]) -> Result<(), Refusal> {
        self.try_write(content).map_err(|error| self.workspace.explain(&self.path, &error))
    }

    fn try_write(&mut self, content: &[u8]) -> io::Result<()> {
        self.found.make_folders()?;
        let folder = self.found.folder();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if self.exists() { 0o600 } else { 0o666 });
        let (temporary, file) = loop {
            let name = temporary_name();
            match rustix::fs::openat(folder, name.as_str(), flags, mode) {
                Ok(file) => break (name, File::from(file)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let done = self.fill(file, content).and_then(|()| {
            rustix::fs::renameat(folder, temporary.as_str(), folder, &self.name)?;
            Ok(())
        });
        if done.is_err() {
            // The first error is the one to tell.
            let _ = rustix::fs::unlinkat(folder, temporary.as_str(), AtFlags::empty());
        }
        done
    }

    fn fill(&self, mut file: File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)?;
        if let Some(before) = &self.found.stat {
            let now = rustix::fs::fstat(&file)?;
            if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid) {
                let (user, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
                // Only the superuser may give a file away.
                let _ = rustix::fs::fchown(&file, Some(user), Some(group));
            }
            rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o777))?;
        }
        Ok(())
    }
}

/// A name that no other write of this or another process uses at the moment.
fn temporary_name() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(".legwork-{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
