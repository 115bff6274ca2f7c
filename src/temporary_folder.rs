//! Temporary folders that are locked while they are in use, so that those of killed processes are found and removed later.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;
use tempfile::TempDir;

/// The start of the name of every such folder.
const PREFIX: &str = "legwork-tmp-";
/// A younger folder may not be locked yet.
const MIN_AGE: Duration = Duration::from_secs(60);

/// A temporary folder of this process, which is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    _lock: File,
}

impl TemporaryFolder {
    /// Creates a folder in `parent`.
    ///
    /// # Errors
    /// The folder can't be created.
    pub fn create_in(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = open(folder.path())?;
        // Some file systems have no locks. Their folders are never taken for those of killed processes.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { folder, _lock: lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether a path is such a folder that a killed process of this user has left. It is locked until the file is closed.
pub fn leftover(path: &Path) -> Option<File> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let folder = open(path).ok()?;
    let metadata = folder.metadata().ok()?;
    let is_own = metadata.uid() == geteuid().as_raw();
    let is_old = SystemTime::now().duration_since(metadata.modified().ok()?).is_ok_and(|age| age >= MIN_AGE);
    (is_own && is_old && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()).then_some(folder)
}

fn open(folder: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_folders_that_nobody_uses_are_leftovers() {
        let parent = tempfile::tempdir().unwrap();
        let used = TemporaryFolder::create_in(parent.path()).unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        let other = parent.path().join("other");
        for folder in [&left, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        assert!(leftover(&left).is_none(), "it may not be locked yet");
        for folder in [used.path(), &left, &other] {
            File::open(folder).unwrap().set_modified(SystemTime::now() - 2 * MIN_AGE).unwrap();
        }
        assert!(leftover(used.path()).is_none() && leftover(&other).is_none());
        let found = leftover(&left).unwrap();
        assert!(leftover(&left).is_none(), "someone is removing it");
        // Closing isn't enough: a program that another test starts may have a copy of the descriptor for a moment.
        flock(&found, FlockOperation::Unlock).unwrap();
        assert!(leftover(&left).is_some());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
