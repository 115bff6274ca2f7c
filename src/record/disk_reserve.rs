//! Reserves disk space for the end of a run.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

/// In bytes: many times the size of `result.json`, and enough for the transcript and report of a short run.
const RESERVE_BYTES: u64 = 256 * 1024;

/// An unnamed file that takes up space until it is closed. The system closes it even if the run is killed, so nothing is left
/// behind.
#[derive(Debug)]
pub(super) struct DiskReserve(Mutex<Option<File>>);

impl DiskReserve {
    /// Reserves space on the disk of `folder`, if the file system supports it.
    pub(super) fn allocate(folder: &Path) -> Self {
        let held = tempfile::tempfile_in(folder).ok();
        Self(Mutex::new(held.filter(|file| fallocate(file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok())))
    }

    /// Reserves nothing.
    pub(super) fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// Frees the space.
    pub(super) fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_reserve_takes_space_has_no_name_and_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = DiskReserve::allocate(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // The file system of the temporary folder may not support it.
        if let Some(file) = &*reserve.0.lock().unwrap() {
            let taken = file.metadata().unwrap();
            assert!(taken.blocks() * 512 >= RESERVE_BYTES && taken.nlink() == 0, "{taken:?}");
        }
        reserve.release();
        assert!(reserve.0.lock().unwrap().is_none());
        reserve.release();
    }
}
