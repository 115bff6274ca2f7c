//! Trouble on order, for tests: a process that dies after its Nth event, a disk whose Nth operation fails. A release
//! knows none of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is to go wrong. Nothing, until somebody says so.
#[derive(Debug)]
pub struct Trial {
    events: AtomicU64,
    operations: AtomicU64,
}

impl Default for Trial {
    fn default() -> Self {
        Self { events: u64::MAX.into(), operations: u64::MAX.into() }
    }
}

impl Trial {
    /// Has the process kill itself right after so many events.
    pub fn kill_after(&self, events: u64) {
        self.events.store(events, Ordering::Relaxed);
    }

    /// Has the disk fail from the Nth operation on, as a full one does: 1 is the next.
    pub fn fail_at(&self, operation: u64) {
        self.operations.store(operation, Ordering::Relaxed);
    }

    /// An event was written.
    pub(super) fn event(&self) {
        if cfg!(debug_assertions) && self.events.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    /// A file is about to be made, written, flushed or renamed.
    pub(super) fn operation(&self) -> io::Result<()> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        let left = self.operations.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.max(1) - 1));
        if left.is_ok_and(|left| left <= 1) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
