//! Trouble on order, for tests: a process that dies after its Nth event or amid its Nth operation, a disk whose Nth
//! operation fails. A release knows none of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is to go wrong. Nothing, until somebody says so.
#[derive(Debug)]
pub struct FaultInjection {
    events: AtomicU64,
    operations: AtomicU64,
    kill_at: AtomicU64,
    fail_at: AtomicU64,
    fail_once_at: AtomicU64,
}

impl Default for FaultInjection {
    fn default() -> Self {
        let never = || AtomicU64::new(u64::MAX);
        Self {
            events: never(),
            operations: AtomicU64::new(0),
            kill_at: never(),
            fail_at: never(),
            fail_once_at: never(),
        }
    }
}

impl FaultInjection {
    /// Has the process kill itself right after so many events.
    pub fn kill_after(&self, events: u64) {
        self.events.store(events, Ordering::Relaxed);
    }

    /// Has the process kill itself at the Nth operation, a write when it is half done: 1 is the next.
    pub fn kill_at(&self, operation: u64) {
        self.kill_at.store(operation, Ordering::Relaxed);
    }

    /// Has the disk fail from the Nth operation on, as a full one does: 1 is the next.
    pub fn fail_at(&self, operation: u64) {
        self.fail_at.store(operation, Ordering::Relaxed);
    }

    /// Has the disk fail at the Nth operation alone: 1 is the next.
    pub fn fail_once_at(&self, operation: u64) {
        self.fail_once_at.store(operation, Ordering::Relaxed);
    }

    /// An event was written.
    pub(super) fn event(&self) {
        if cfg!(debug_assertions) && self.events.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_self();
        }
    }

    /// A file is about to be made, flushed, renamed or removed.
    pub(super) fn operation(&self) -> io::Result<()> {
        self.write(|| Ok(()))
    }

    /// A file is about to be written; `half` writes a half of it.
    pub(super) fn write(&self, half: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        let number = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let is = |at: &AtomicU64| at.load(Ordering::Relaxed) == number;
        let dies = is(&self.kill_at);
        if !dies && !is(&self.fail_once_at) && number < self.fail_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        half()?;
        if dies {
            kill_self();
        }
        Err(io::ErrorKind::StorageFull.into())
    }
}

fn kill_self() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}
