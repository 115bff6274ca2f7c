//! A process that ends what is left if this program is killed while a sandbox is being made, or while a key command runs.
//! Bubblewrap ends with this program, but the process that it has started for the sandbox learns of that only later: until then
//! it would wait for ever, or run its command alone. A key command ends with this program, too, but not what it has started.
//!
//! It is this program itself, started again before the first of them. It waits for the end of a pipe that only this program
//! holds open, and then kills every process that has a call id of this program in its environment.

use std::fs;
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::call_id::{CALL_ID_VARIABLE, call_prefix};
use super::restorer::{add_helper, become_helper, own_program, remove_helper};
use crate::sync::IgnorePoison;

/// The argument with which the program becomes this process; it isn't part of the command line interface.
pub const ARGUMENT: &str = "end-after-kill";
/// How long to try. A process that waits for a device may not end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often nothing must be found: bubblewrap may just be about to start its process.
const SEARCHES: usize = 8;
/// The pause between two searches.
const PAUSE: Duration = Duration::from_millis(25);

/// The started process. It is ended on drop.
#[derive(Debug)]
pub(crate) struct KillGuard {
    process: Child,
    /// Its end is the signal.
    _pipe: PipeWriter,
}

impl KillGuard {
    /// The one of this process, which is started if need be.
    ///
    /// # Errors
    /// If it can't be started.
    pub(crate) fn shared() -> io::Result<Arc<Self>> {
        static SHARED: Mutex<Weak<KillGuard>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().ignore_poison();
        if let Some(guard) = shared.upgrade() {
            return Ok(guard);
        }
        let guard = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&guard);
        Ok(guard)
    }

    #[allow(unsafe_code)]
    fn start() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = own_program()?;
        command.arg0("legwork").arg(ARGUMENT).arg(call_prefix()).current_dir("/");
        command.stdin(OwnedFd::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
        unsafe {
            command.pre_exec(become_helper);
        }
        let process = command.spawn()?;
        add_helper(process.id());
        Ok(Self { process, _pipe: writer })
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        // Reaped here because not every init process of a container reaps orphans.
        let _ = self.process.kill();
        let _ = self.process.wait();
        remove_helper(self.process.id());
    }
}

/// The guard's main function. `prefix` is that of the ids of the calls.
///
/// # Errors
/// If the pipe or the list of processes can't be read.
pub fn run_kill_guard(prefix: &str) -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    let start = Instant::now();
    let mut empty = 0;
    while !prefix.is_empty() && empty < SEARCHES && start.elapsed() < KILL_TIMEOUT {
        empty = if kill_calls(prefix)? { 0 } else { empty + 1 };
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Kills all processes with such a call id. Returns whether there were any.
fn kill_calls(prefix: &str) -> io::Result<bool> {
    let wanted = format!("{CALL_ID_VARIABLE}={prefix}");
    let mut found = false;
    for entry in fs::read_dir("/proc")?.flatten() {
        let process = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        let Some(process) = process else { continue };
        // That of another user's process can't be read.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes())) {
            found |= kill_process(process, Signal::KILL).is_ok();
        }
    }
    Ok(found)
}
