//! Faults for tests: the process is killed after its Nth event or in the middle of its Nth file operation, or the Nth operation
//! fails. Release builds ignore them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The faults to inject; none by default.
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
    /// Kills the process right after this many events.
    pub fn kill_after(&self, events: u64) {
        self.events.store(events, Ordering::Relaxed);
    }

    /// Kills the process at the Nth operation from now; if that is a write, halfway through it.
    pub fn kill_at(&self, operation: u64) {
        self.kill_at.store(operation, Ordering::Relaxed);
    }

    /// Lets the Nth operation from now and all later ones fail, as on a full disk.
    pub fn fail_at(&self, operation: u64) {
        self.fail_at.store(operation, Ordering::Relaxed);
    }

    /// Lets only the Nth operation from now fail.
    pub fn fail_once_at(&self, operation: u64) {
        self.fail_once_at.store(operation, Ordering::Relaxed);
    }

    /// To be called after an event was written.
    pub(crate) fn event(&self) {
        if cfg!(debug_assertions) && self.events.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_self();
        }
    }

    /// To be called before a file is created, flushed, renamed or removed.
    pub(crate) fn operation(&self) -> io::Result<()> {
        self.write(|| Ok(()))
    }

    /// To be called before a write; `write_half` writes half of the data.
    pub(crate) fn write(&self, write_half: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        let number = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let is = |at: &AtomicU64| at.load(Ordering::Relaxed) == number;
        let dies = is(&self.kill_at);
        if !dies && !is(&self.fail_once_at) && number < self.fail_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        write_half()?;
        if dies {
            kill_self();
        }
        Err(io::ErrorKind::StorageFull.into())
    }
}

fn kill_self() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}
