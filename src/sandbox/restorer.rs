//! A process that restores protected files if this program is killed while a command runs, or before the check after it.
//!
//! It is this program itself, started again before the first command, with a [`TamperGuard`] in memory that no command can
//! reach. It waits for the end of a pipe that this program and the supervisors of commands hold open. If a check is due then,
//! it compares the protected files and restores what was changed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Pid;

use super::policy::Tier;
use super::tamper_guard::TamperGuard;
use crate::sync::IgnorePoison;

/// The argument with which the program becomes this process; it isn't part of the command line interface.
pub const ARGUMENT: &str = "restore-after-kill";
/// Bytes before the snapshot: whether a check is due, and whether commands may outlive the pipe.
const HEADER: u64 = 2;
/// When to check in bubblewrap's tier: the kernel ends the commands together with bubblewrap, but doesn't report when that is
/// done.
const CHECK_DELAYS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(450)];

/// How long to wait for the process to end after the run.
const REAP_TIMEOUT: Duration = Duration::from_millis(200);

/// The process ids of the restorers, one for each run, and of other processes that outlive this one.
static HELPERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Whether a child process is a restorer or another process of legwork's own, and not something that a command left behind.
pub fn is_helper(process: Pid) -> bool {
    helpers().contains(&process.as_raw_nonzero().get().cast_unsigned())
}

fn helpers() -> MutexGuard<'static, Vec<u32>> {
    HELPERS.lock().ignore_poison()
}

/// A child process isn't something that a command left behind.
pub(super) fn add_helper(process: u32) {
    helpers().push(process);
}

/// The process has been reaped, and its id may be used for another one.
pub(super) fn remove_helper(process: u32) {
    helpers().retain(|helper| *helper != process);
}

/// Makes a process one that signals to this program don't reach. For a time between fork and exec.
#[allow(unsafe_code)]
pub(super) fn become_helper() -> io::Result<()> {
    rustix::process::setsid()?;
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: a plain system call. Ignored signals stay ignored after exec.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    Ok(())
}

/// Starts the process and tells it when a check is due.
#[derive(Debug)]
pub(super) struct Restorer {
    /// Whether commands may end after the pipe does: with bubblewrap, or with macOS, where no process waits for their end.
    commands_outlive_pipe: bool,
    /// The lock of the record: the run can't be resumed before everything is restored.
    record_lock: Option<Arc<OwnedFd>>,
    started: Mutex<Option<RestorerProcess>>,
}

#[derive(Debug)]
struct RestorerProcess {
    process: Child,
    /// The writing end of the pipe.
    liveness_pipe: Option<Arc<OwnedFd>>,
    memory: File,
    /// Identifies the guard state that the memory holds.
    fingerprint: Option<u64>,
}

impl Restorer {
    pub(super) fn new(tier: Tier, record_lock: Option<Arc<OwnedFd>>) -> Self {
        Self { commands_outlive_pipe: tier != Tier::Landlock, record_lock, started: Mutex::default() }
    }

    /// From now on, a check with this guard is due if this program ends.
    ///
    /// # Errors
    /// If the process can't be started; no command may be started then.
    pub(super) fn arm(&self, guard: &TamperGuard) -> io::Result<()> {
        let mut started = self.started.lock().ignore_poison();
        // It may have been killed.
        started.take_if(|started| !matches!(started.process.try_wait(), Ok(None)));
        let started = match &mut *started {
            Some(started) => started,
            none => none.insert(self.start(guard)?),
        };
        let fingerprint = guard.fingerprint();
        if started.fingerprint != Some(fingerprint) {
            started.fingerprint = None;
            started.memory.set_len(HEADER)?;
            started.memory.seek(SeekFrom::Start(HEADER))?;
            started.memory.write_all(&guard.snapshot())?;
            started.fingerprint = Some(fingerprint);
        }
        started.memory.write_all_at(&[1, u8::from(self.commands_outlive_pipe)], 0)
    }

    /// No check is due any more.
    pub(super) fn disarm(&self) {
        if let Some(started) = &*self.started.lock().ignore_poison() {
            // Can't fail: the byte was written before.
            let _ = started.memory.write_all_at(&[0], 0);
        }
    }

    /// The pipe whose end the process waits for. Every process that ends commands and may outlive this program holds it open.
    #[cfg(target_os = "linux")]
    pub(super) fn liveness_pipe(&self) -> Option<Arc<OwnedFd>> {
        let started = self.started.lock().ignore_poison();
        started.as_ref().and_then(|started| started.liveness_pipe.clone())
    }

    #[allow(unsafe_code)]
    fn start(&self, guard: &TamperGuard) -> io::Result<RestorerProcess> {
        let memory = create_memory()?;
        memory.write_all_at(&[0, 0], 0)?;
        let (reader, writer) = io::pipe()?;
        let kept_open: Vec<Arc<OwnedFd>> = guard.roots().into_iter().chain(self.record_lock.clone()).collect();
        let inherited: Vec<RawFd> = kept_open.iter().map(AsRawFd::as_raw_fd).chain([memory.as_raw_fd()]).collect();
        let mut command = own_program()?;
        command.arg0("legwork").arg(ARGUMENT).arg(memory.as_raw_fd().to_string());
        command.current_dir("/");
        command.stdin(OwnedFd::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
        let prepare = move || {
            become_helper()?;
            for number in &inherited {
                // SAFETY: `kept_open` and `memory` stay open until the process has been started.
                let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(*number) };
                fcntl_setfd(descriptor, FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
        unsafe {
            command.pre_exec(prepare);
        }
        let process = command.spawn()?;
        drop(kept_open);
        add_helper(process.id());
        Ok(RestorerProcess { process, liveness_pipe: Some(Arc::new(OwnedFd::from(writer))), memory, fingerprint: None })
    }
}

/// A file that has no name and isn't open in any command.
#[cfg(target_os = "linux")]
fn create_memory() -> io::Result<File> {
    use rustix::fs::MemfdFlags;

    let create = |flags| rustix::fs::memfd_create("legwork-restore", MemfdFlags::CLOEXEC | flags);
    // Some systems require this flag, and kernels before 6.3 don't know it.
    Ok(File::from(create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()))?))
}

#[cfg(not(target_os = "linux"))]
fn create_memory() -> io::Result<File> {
    tempfile::tempfile()
}

#[cfg(target_os = "linux")]
#[allow(clippy::unnecessary_wraps, reason = "other systems have to look for it")]
pub(super) fn own_program() -> io::Result<Command> {
    Ok(Command::new("/proc/self/exe"))
}

#[cfg(not(target_os = "linux"))]
fn own_program() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

impl Drop for RestorerProcess {
    fn drop(&mut self) {
        // It ends with the pipe, at once if no check is due. It is reaped here because not every init process of a container
        // reaps orphans.
        self.liveness_pipe = None;
        let start = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && start.elapsed() < REAP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        remove_helper(self.process.id());
    }
}

/// The restorer's main function. `descriptor` is the number of the memory with the snapshot.
///
/// # Errors
/// If there is no such memory.
pub fn run_restorer(descriptor: &str) -> io::Result<()> {
    let number: u32 = descriptor.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut memory = File::open(format!("/dev/fd/{number}"))?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    // On macOS, the place in the file is the one of the process that wrote it.
    memory.rewind()?;
    let mut header = [0; HEADER as usize];
    memory.read_exact(&mut header)?;
    let [is_due, commands_outlive_pipe] = header.map(|byte| byte == 1);
    let mut bytes = Vec::new();
    memory.read_to_end(&mut bytes)?;
    let mut guard = TamperGuard::from_snapshot(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    drop(bytes);
    let delays: &[Duration] = match (is_due, commands_outlive_pipe) {
        (false, _) => &[],
        (true, true) => &CHECK_DELAYS,
        (true, false) => &[Duration::ZERO],
    };
    for delay in delays {
        std::thread::sleep(*delay);
        // No process is left that the result could be reported to.
        let _ = guard.check(false);
    }
    guard.discard_object_copies();
    Ok(())
}
