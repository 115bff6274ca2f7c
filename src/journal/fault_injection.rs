//! Faults for tests: the process is killed after its Nth event or in the middle of its Nth file operation, or the Nth operation
//! fails. Release builds ignore them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The fault to inject; none by default.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Kills the process right after this many events.
    KillAfter(u64),
    /// Kills the process at the Nth operation; if that is a write, halfway through it.
    KillAt(u64),
    /// Lets the Nth operation and all later ones fail, as on a full disk.
    FailAt(u64),
    /// Lets only the Nth operation fail.
    FailOnceAt(u64),
}

/// Counts the events and file operations of a run until a fault is due.
#[derive(Debug, Default)]
pub struct FaultInjection {
    /// The fault to inject.
    pub fault: Option<Fault>,
    events: AtomicU64,
    operations: AtomicU64,
}

impl FaultInjection {
    /// To be called after an event was written.
    pub(crate) fn event(&self) {
        let number = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        if cfg!(debug_assertions) && matches!(self.fault, Some(Fault::KillAfter(events)) if events == number) {
            kill_self();
        }
    }

    /// To be called before a file is created, flushed, renamed or removed.
    pub(crate) fn operation(&self) -> io::Result<()> {
        self.write(|| Ok(()))
    }

    /// To be called before a write; `write_half` writes half of the data.
    pub(crate) fn write(&self, write_half: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        match self.fault.filter(|_| cfg!(debug_assertions)) {
            Some(Fault::KillAt(at)) if at == number => {
                write_half()?;
                kill_self();
            }
            Some(Fault::FailAt(at)) if at <= number => write_half()?,
            Some(Fault::FailOnceAt(at)) if at == number => write_half()?,
            _ => return Ok(()),
        }
        Err(io::ErrorKind::StorageFull.into())
    }
}

fn kill_self() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}
