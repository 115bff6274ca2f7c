//! Room on the disk that is kept for a run's end.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

/// Bytes: many times what `result.json` takes, and enough for the transcript and report of a short run.
const RESERVE_BYTES: u64 = 256 * 1024;

/// A file without a name that takes up room until it is closed. The system closes it even where the run is killed, so
/// nothing of it can stay behind.
#[derive(Debug)]
pub(super) struct DiskReserve(Mutex<Option<File>>);

impl DiskReserve {
    /// Takes the room on the disk of `folder`. A disk that can't promise room has none kept.
    pub(super) fn allocate(folder: &Path) -> Self {
        let held = tempfile::tempfile_in(folder).ok();
        Self(Mutex::new(held.filter(|file| fallocate(file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok())))
    }

    /// Keeps no room.
    pub(super) fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// Gives the room back, once.
    pub(super) fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_room_is_real_has_no_name_and_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = DiskReserve::allocate(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // Where the disk of the temporary folder promises no room, there is none to look at.
        if let Some(file) = &*reserve.0.lock().unwrap() {
            let taken = file.metadata().unwrap();
            assert!(taken.blocks() * 512 >= RESERVE_BYTES && taken.nlink() == 0, "{taken:?}");
        }
        reserve.release();
        assert!(reserve.0.lock().unwrap().is_none());
        reserve.release();
    }
}
