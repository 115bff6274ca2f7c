//! Locks a run's folder, so that only one process writes to it.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, fstat};

use super::files::is_without_locks;
use super::lease::{LEASE_FILE, Lease, simulated_boot_id};
use crate::error::Error;
use crate::workspace::open_beneath::{FileId, file_id};
use crate::workspace::open_root::OpenRoot;

/// How long to wait for the lock: after a kill, helper processes hold it until they have ended the run's commands.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a folder may be removed by its owner while this process takes it.
const MAX_REMOVALS: usize = 50;

/// The folder's lock. The system releases it when this process ends in any way.
#[derive(Debug)]
pub(super) struct RecordLock {
    pub(super) root: OpenRoot,
    /// Device and inode of the folder.
    id: (u64, u64),
    /// Keeps processes on other machines away.
    pub(super) lease: Lease,
}

impl RecordLock {
    /// Takes the lock of a folder by its canonical path, waiting up to two seconds. On a file system without locks, only the lease keeps other processes away.
    ///
    /// # Errors
    /// If another process holds it, or the folder can't be opened; [`io::ErrorKind::NotFound`] if it was moved or removed
    /// meanwhile.
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Record { path: folder.to_owned(), source };
        let root = OpenRoot::open_canonical(folder).map_err(failed)?;
        let id = fstat(root.folder()).map(|found| file_id(&found)).map_err(|error| failed(error.into()))?;
        if simulated_boot_id().is_some() {
            return Ok(Self { root, id, lease: Lease::take(folder, false)? });
        }
        match lock_in_time(root.folder()) {
            // While this process waited, the folder was moved or removed. Another one at its path has an owner of its own, whose
            // lease must not be taken: this lock says nothing about that owner. While the lock is held, the folder stays.
            Ok(()) if !is_at(folder, id) => Err(failed(io::ErrorKind::NotFound.into())),
            Ok(()) => Ok(Self { root, id, lease: Lease::take(folder, true)? }),
            Err(errno) if is_without_locks(errno) => Ok(Self { root, id, lease: Lease::take(folder, false)? }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse { path: folder.to_owned() }),
            Err(errno) => Err(failed(io::Error::from(errno))),
        }
    }

    /// Duplicates the descriptor; the lock is released when both are closed. `None` if no descriptor is left.
    pub(super) fn duplicate(&self) -> Option<OwnedFd> {
        self.root.folder().try_clone_to_owned().ok()
    }

    /// Whether the folder at a path is the one that is locked. It isn't if it was moved or removed before the lock was taken.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        is_at(path, self.id)
    }

    /// Checks that this is still the folder at a path, which may have been moved and replaced by another one, and that no other
    /// process has taken the record over.
    ///
    /// # Errors
    /// If it isn't, or if one has.
    pub(super) fn check(&self, path: &Path) -> io::Result<()> {
        self.lease.check()?;
        if id(&std::fs::metadata(path)?) == self.id {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the run's folder was replaced by another one"))
    }
}

/// Takes the lock of a folder, waiting up to two seconds.
fn lock_in_time(opened: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let start = Instant::now();
    loop {
        match flock(opened, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_POLL_INTERVAL);
            }
            taken => return taken,
        }
    }
}

/// The lock and the lease of a folder that exists for nothing else: what it stands for belongs to this process.
#[derive(Debug)]
pub struct FolderLease(RecordLock);

impl FolderLease {
    /// Takes it, and creates the folder for it. Waits up to two seconds for another process of this machine.
    ///
    /// # Errors
    /// If another process has it ([`Error::InUse`]), or the folder can't be created.
    pub fn take(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Record { path: folder.to_owned(), source };
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = folder.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        // A record can come from anywhere, so a link of this name isn't followed.
        let folder = above.canonicalize().map_err(failed)?.join(name);
        for _ in 0..MAX_REMOVALS {
            match std::fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
            match RecordLock::take(&folder) {
                // Its owner has just removed it.
                Err(Error::Record { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                taken => return taken.map(Self),
            }
        }
        Err(Error::InUse { path: folder })
    }

    /// The folder, open.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.0.root.folder()
    }

    /// The folder's canonical path.
    pub fn path(&self) -> &Path {
        self.0.root.path()
    }

    /// Checks that this process still has it.
    ///
    /// # Errors
    /// If it was suspended for so long that another process has taken it over.
    pub fn check(&self) -> io::Result<()> {
        self.0.lease.check()
    }
}

impl Drop for FolderLease {
    fn drop(&mut self) {
        self.0.lease.release();
        let _ = std::fs::remove_dir(self.0.root.path());
    }
}

/// Whether a record has the file of a lease.
pub fn has_lease(record: &Path) -> bool {
    std::fs::symlink_metadata(record.join(LEASE_FILE)).is_ok()
}

/// Removes the lease that a killed process has left in a record whose run is final, if the lock says that no process
/// of this machine uses the record, and no other machine can. The path is canonical.
pub fn remove_left_lease(record: &Path) {
    let Ok(opened) = OpenRoot::open_canonical(record) else { return };
    if simulated_boot_id().is_none()
        && lock_in_time(opened.folder()).is_ok()
        && fstat(opened.folder()).is_ok_and(|found| is_at(record, file_id(&found)))
    {
        Lease::remove_left(&opened);
    }
}

/// Whether a process of this machine holds a folder's lock. This takes a shared lock for a moment; who wants the exclusive one
/// tries again.
pub(super) fn is_locked(folder: &Path) -> bool {
    let Ok(opened) = File::open(folder) else { return false };
    simulated_boot_id().is_none()
        && flock(&opened, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// The lock of a folder that is about to be removed.
#[derive(Debug)]
pub struct RemovalLock {
    opened: File,
    folder: FileId,
}

/// The lock ends now, also where a program that is just being started has a copy of the descriptor.
impl Drop for RemovalLock {
    fn drop(&mut self) {
        let _ = flock(&self.opened, FlockOperation::Unlock);
    }
}

impl RemovalLock {
    /// Locks a folder without waiting; `None` if another process holds the lock, or has moved the folder.
    ///
    /// # Errors
    /// If the folder can't be opened.
    pub fn take(folder: &Path) -> io::Result<Option<Self>> {
        let opened = File::open(folder)?;
        if simulated_boot_id().is_none()
            && flock(&opened, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK)
        {
            return Ok(None);
        }
        let (found, locked) = (std::fs::symlink_metadata(folder)?, opened.metadata()?);
        let folder = id(&locked);
        Ok((id(&found) == folder).then_some(Self { opened, folder }))
    }

    /// The folder that is locked.
    pub fn folder(&self) -> FileId {
        self.folder
    }
}

/// Whether the folder at a path is the one with this device and inode.
fn is_at(path: &Path, folder: (u64, u64)) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| id(&found) == folder)
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let first = RecordLock::take(folder.path()).unwrap();
        assert!(matches!(RecordLock::take(folder.path()), Err(Error::InUse { .. })));
        drop(first);
        RecordLock::take(folder.path()).unwrap();
    }

    #[test]
    fn the_lease_of_a_folder_that_replaced_the_locked_one_is_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let (folder, moved) = (root.path().join("key"), root.path().join("key.1"));
        std::fs::create_dir(&folder).unwrap();
        let first = RecordLock::take(&folder).unwrap();
        let waiting = {
            let folder = folder.clone();
            std::thread::spawn(move || RecordLock::take(&folder).map(drop))
        };
        // It has opened the folder and waits for the lock.
        std::thread::sleep(5 * LOCK_POLL_INTERVAL);
        std::fs::rename(&folder, &moved).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let second = RecordLock::take(&folder).unwrap();
        let lease = || std::fs::read_to_string(folder.join("lease")).unwrap();
        let owner = lease();
        drop(first);
        let refused = waiting.join().unwrap();
        // On a busy machine, it opens the second folder.
        assert!(matches!(refused, Err(Error::Record { .. } | Error::InUse { .. })));
        assert_eq!(lease(), owner);
        drop(second);
    }

    #[test]
    fn a_lock_that_is_released_soon_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let first = RecordLock::take(folder.path()).unwrap();
        let (start, started) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            started.recv().unwrap();
            std::thread::sleep(5 * LOCK_POLL_INTERVAL);
            drop(first);
        });
        start.send(()).unwrap();
        RecordLock::take(folder.path()).unwrap();
        holder.join().unwrap();
    }
}
