//! One process at a time writes a run's folder.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::Error;

/// What is left of a run that was killed lets go of the lock when it has ended the run's commands.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The folder's lock. The system lets go of it when this process ends, however it ends.
#[derive(Debug)]
pub(super) struct RecordLock {
    folder: File,
    /// The folder's device and inode.
    identity: (u64, u64),
}

impl RecordLock {
    /// Takes it, and waits for it no longer than two seconds. A file system that knows no locks gives one that holds nobody
    /// off.
    ///
    /// # Errors
    /// Where another process has it, or the folder can't be opened.
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Record { path: folder.to_owned(), source };
        let opened = File::open(folder).map_err(failed)?;
        let began = Instant::now();
        let mut taken = flock(&opened, FlockOperation::NonBlockingLockExclusive);
        while taken == Err(rustix::io::Errno::WOULDBLOCK) && began.elapsed() < LOCK_TIMEOUT {
            std::thread::sleep(LOCK_POLL_INTERVAL);
            taken = flock(&opened, FlockOperation::NonBlockingLockExclusive);
        }
        match taken {
            Ok(()) | Err(rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK) => {
                let metadata = opened.metadata().map_err(failed)?;
                Ok(Self { folder: opened, identity: (metadata.dev(), metadata.ino()) })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse { path: folder.to_owned() }),
            Err(errno) => Err(failed(io::Error::from(errno))),
        }
    }

    /// The same lock once more: it is free when both are closed. `None` where the system has no descriptor left.
    pub(super) fn another(&self) -> Option<OwnedFd> {
        self.folder.try_clone().ok().map(OwnedFd::from)
    }

    /// Whether a path still leads to the folder: somebody may have moved it, and put another one in its place.
    ///
    /// # Errors
    /// Where it doesn't.
    pub(super) fn is_at(&self, path: &Path) -> io::Result<()> {
        let found = std::fs::metadata(path)?;
        if (found.dev(), found.ino()) == self.identity {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "another folder has taken the place of the run's own"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = RecordLock::take(folder.path()).unwrap();
        assert!(matches!(RecordLock::take(folder.path()), Err(Error::InUse { .. })));
        drop(first);
        RecordLock::take(folder.path()).unwrap();
    }

    #[test]
    fn one_that_is_let_go_of_soon_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let first = RecordLock::take(folder.path()).unwrap();
        let (began, begun) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            begun.recv().unwrap();
            // Some pauses of whoever waits.
            std::thread::sleep(5 * LOCK_POLL_INTERVAL);
            drop(first);
        });
        began.send(()).unwrap();
        RecordLock::take(folder.path()).unwrap();
        holder.join().unwrap();
    }
}
