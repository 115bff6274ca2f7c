//! A process that puts protected files back when this program was killed while a command ran, or before what the command
//! has left was compared.
//!
//! It is this very program, started again before the first command with a snapshot of what must stay as it is, in memory
//! that no command can reach. It waits for the end of a pipe that this program and the supervisors of commands hold open.
//! When that comes and no comparison is due, it ends; else it compares, and puts back what was changed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Pid;

use super::tamper_guard::TamperGuard;

/// What the program is started with to be this process; no command of the command line.
pub const ARGUMENT: &str = "restore-after-kill";
/// Where the snapshot begins: behind one byte that says whether a comparison is due, and one for the tier.
const HEADER: u64 = 2;
/// When to look in bubblewrap's tier: the kernel ends the commands together with bubblewrap, but says nothing of when that
/// is done.
const CHECK_DELAYS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(450)];

/// How long its end is waited for when the run has ended.
const REAP_TIMEOUT: Duration = Duration::from_millis(200);

/// The process of this run; 0 for none.
static RESTORER_PID: AtomicI32 = AtomicI32::new(0);

/// Whether a child of ours is that process: then no command has left it.
pub fn is_restorer(process: Pid) -> bool {
    process.as_raw_nonzero().get() == RESTORER_PID.load(Ordering::Relaxed)
}

/// Our end of the line.
#[derive(Debug)]
pub(super) struct Restorer {
    /// Whether commands end with bubblewrap, and not before the pipe does.
    commands_outlive_pipe: bool,
    /// The record's lock: the run can't be resumed before all is put back.
    record_lock: Option<Arc<OwnedFd>>,
    started: Mutex<Option<RestorerProcess>>,
}

#[derive(Debug)]
struct RestorerProcess {
    process: Child,
    /// The writing end of the pipe.
    liveness_pipe: Option<Arc<OwnedFd>>,
    memory: File,
    /// Of the guard that the memory holds.
    fingerprint: Option<u64>,
}

impl Restorer {
    pub(super) fn new(ends_late: bool, held: Option<Arc<OwnedFd>>) -> Self {
        Self { commands_outlive_pipe: ends_late, record_lock: held, started: Mutex::default() }
    }

    /// From now on a comparison with the guard is due when this program ends.
    ///
    /// # Errors
    /// Where the process can't be started: then no command may be, either.
    pub(super) fn arm(&self, guard: &TamperGuard) -> io::Result<()> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        // One that somebody has killed is of no use.
        let is_there = started.as_mut().is_some_and(|started| matches!(started.process.try_wait(), Ok(None)));
        if !is_there {
            *started = None;
        }
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

    /// All was compared.
    pub(super) fn disarm(&self) {
        if let Some(started) = &*self.started.lock().unwrap_or_else(PoisonError::into_inner) {
            // Memory that was written takes another byte.
            let _ = started.memory.write_all_at(&[0], 0);
        }
    }

    /// What the process waits for the end of: to be held open by whatever outlives this program and ends commands.
    pub(super) fn liveness_pipe(&self) -> Option<Arc<OwnedFd>> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.as_ref().and_then(|started| started.liveness_pipe.clone())
    }

    #[allow(unsafe_code)]
    fn start(&self, guard: &TamperGuard) -> io::Result<RestorerProcess> {
        let make = |flags| rustix::fs::memfd_create("legwork-restore", MemfdFlags::CLOEXEC | flags);
        // Some systems allow no other, and kernels before 6.3 don't know it.
        let memory = File::from(make(MemfdFlags::NOEXEC_SEAL).or_else(|_| make(MemfdFlags::empty()))?);
        memory.write_all_at(&[0, 0], 0)?;
        let (reader, writer) = io::pipe()?;
        let roots = guard.roots();
        let kept: Vec<Arc<OwnedFd>> = roots.into_iter().chain(self.record_lock.clone()).collect();
        let inherited: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).chain([memory.as_raw_fd()]).collect();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("legwork").arg(ARGUMENT).arg(memory.as_raw_fd().to_string());
        command.current_dir("/");
        command.stdin(OwnedFd::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
        let prepare = move || {
            rustix::process::setsid()?;
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                // SAFETY: a plain system call; being ignored is kept over exec.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            for number in &inherited {
                // SAFETY: `kept` and `memory` are open until the process was started.
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
        drop(kept);
        RESTORER_PID.store(i32::try_from(process.id()).unwrap_or_default(), Ordering::Relaxed);
        Ok(RestorerProcess { process, liveness_pipe: Some(Arc::new(OwnedFd::from(writer))), memory, fingerprint: None })
    }
}

impl Drop for RestorerProcess {
    fn drop(&mut self) {
        // It ends when the line does, at once where nothing is due. Not every first process of a container reaps what is
        // left to it.
        self.liveness_pipe = None;
        let begun = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begun.elapsed() < REAP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = i32::try_from(self.process.id()).unwrap_or_default();
        let _ = RESTORER_PID.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The process's own life. `descriptor` is the number of the memory with the snapshot.
///
/// # Errors
/// Where there is no such memory.
pub fn run_restorer(descriptor: &str) -> io::Result<()> {
    let number: u32 = descriptor.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut memory = File::open(format!("/proc/self/fd/{number}"))?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    let mut header = [0; HEADER as usize];
    memory.read_exact(&mut header)?;
    let [is_due, ends_late] = header.map(|byte| byte == 1);
    if !is_due {
        return Ok(());
    }
    let mut bytes = Vec::new();
    memory.read_to_end(&mut bytes)?;
    let guard = TamperGuard::from_snapshot(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    drop(bytes);
    if ends_late {
        for pause in CHECK_DELAYS {
            std::thread::sleep(pause);
            let _ = guard.check(false);
        }
    } else {
        // There is nobody left to hear of it.
        let _ = guard.check(false);
    }
    Ok(())
}
