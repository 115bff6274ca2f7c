//! A process between this program and a command that has no process namespace of its own. It reaps orphans of the command,
//! and it ends the command's whole process tree when the command itself has ended, when it gets a signal, and when this
//! program has ended in any way.
//!
//! It forks the command between fork and exec, so it is a copy of this program that never executes another. Nothing here may
//! allocate, lock or panic: only system calls are made, and /proc is read into buffers on the stack.
//!
//! If the run was killed, another process restores protected files, see [`super::restorer`]. That one waits for the end of a
//! pipe that the supervisor holds open until the tree has ended, so that no command can interfere.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;
use rustix::path::DecInt;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, wait};

/// How long the supervisor tries to end a tree. It then gives up on processes that the kernel can't end (waiting for a device)
/// or that it may not signal.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two searches for remaining processes.
const PAUSE: Duration = Duration::from_millis(10);
/// How many processes one search finds; the next one finds the others.
const MAX_FOUND: usize = 4096;
/// The signals that ask the supervisor to end the tree.
const TERMINATION_SIGNALS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// Adds a supervisor to a command. The supervisor keeps the `kept_open` descriptors open: the lock of the run's record is not
/// released, and nothing is restored, before the run's processes have ended. Must be called before any other pre-exec step is
/// added, because the supervisor must not be confined.
#[allow(unsafe_code)]
pub(super) fn supervise(command: &mut Command, kept_open: [Option<Arc<OwnedFd>>; 2]) {
    let runner = getpid();
    let enter = move || -> io::Result<()> {
        let kept_open = kept_open.each_ref().map(|kept_open| kept_open.as_ref().map_or(-1, AsRawFd::as_raw_fd));
        rustix::process::setsid()?;
        rustix::process::set_child_subreaper(Some(getpid()))?;
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        let supervisor = getpid();
        let before = block_signals(&all_signals())?;
        fork_supervised(runner, kept_open)?;
        block_signals(&before)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() == Some(supervisor) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
    unsafe {
        command.pre_exec(enter);
    }
}

/// Asks a supervisor to end its tree.
pub fn request_termination(supervisor: Pid) {
    for signal in [Signal::TERM, Signal::CONT] {
        // It may have ended already. A stopped process gets the signal only when it continues.
        let _ = kill_process(supervisor, signal);
    }
}

/// Starts the process that becomes the command, and returns there; this process becomes its supervisor. Like fork(2), but it
/// doesn't run the handlers that the C library has for multi-threaded programs.
///
/// The memory isn't copied, as the process is about to execute a program: until then, this process waits, see vfork(2). Then it
/// continues on another stack, because the new process has returned to callers whose frames are on this one.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn fork_supervised(runner: Pid, kept_open: [RawFd; 2]) -> io::Result<()> {
    extern "C" fn supervise(command: i32, runner: i32, first_kept: RawFd, second_kept: RawFd) -> ! {
        match (Pid::from_raw(command), Pid::from_raw(runner)) {
            (Some(command), Some(runner)) => run_supervisor(command, runner, [first_kept, second_kept]),
            _ => end_like(None),
        }
    }
    let stack_end = STACK.0.get().wrapping_add(1);
    let result: i64;
    // SAFETY: for the new process, this is a system call that returns once; it has its own registers and leaves `STACK` alone. The
    // other process, the only one with this copy of the memory apart from the new one, doesn't use its old stack again: it
    // calls a function that never returns, with the registers of that function's arguments and an aligned stack.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jle 2f",
            "mov rsp, r12",
            "mov edi, eax",
            "mov esi, r13d",
            "mov edx, r14d",
            "mov ecx, r15d",
            "call {supervise}",
            "ud2",
            "2:",
            supervise = sym supervise,
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") u64::from((libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD).cast_unsigned()),
            in("rsi") 0_u64,
            in("rdx") 0_u64,
            in("r10") 0_u64,
            in("r8") 0_u64,
            in("r12") stack_end,
            in("r13") runner.as_raw_nonzero().get(),
            in("r14") kept_open[0],
            in("r15") kept_open[1],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result as i32)) }
}

/// The stack of the supervisor. Each supervisor has its own copy.
#[cfg(target_arch = "x86_64")]
static STACK: SupervisorStack = SupervisorStack(std::cell::UnsafeCell::new([0; 256 << 10]));

#[cfg(target_arch = "x86_64")]
#[repr(align(16))]
struct SupervisorStack(std::cell::UnsafeCell<[u8; 256 << 10]>);

// SAFETY: only supervisors use it, which have one thread.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
unsafe impl Sync for SupervisorStack {}

/// Starts the process that becomes the command, and returns there; this process becomes its supervisor. Doesn't run the
/// handlers that the C library has for multi-threaded programs.
#[cfg(not(target_arch = "x86_64"))]
#[allow(unsafe_code)]
fn fork_supervised(runner: Pid, kept_open: [RawFd; 2]) -> io::Result<()> {
    // SAFETY: no memory is shared, and the child continues on a copy of this stack. Only plain system calls follow.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        command => match Pid::from_raw(command as i32) {
            Some(command) => run_supervisor(command, runner, kept_open),
            None => end_like(None),
        },
    }
}

/// The supervisor's main function.
fn run_supervisor(command: Pid, runner: Pid, kept_open: [RawFd; 2]) -> ! {
    // This includes the pipes of the command's output and start, whose readers wait for their end.
    close_all_but(kept_open);
    let mut ended = None;
    while ended.is_none() && getppid() == Some(runner) {
        let must_end = next_signal(None).is_some_and(|signal| TERMINATION_SIGNALS.contains(&signal));
        reap(command, &mut ended);
        if must_end {
            break;
        }
    }
    let start = Instant::now();
    while start.elapsed() < KILL_TIMEOUT {
        if !reap(command, &mut ended) {
            break;
        }
        kill_tree();
        if !reap(command, &mut ended) {
            break;
        }
        next_signal(Some(PAUSE));
    }
    end_like(ended)
}

/// Reaps all children that have ended, including orphans that this process has inherited. Returns whether any are left.
fn reap(command: Pid, ended: &mut Option<WaitStatus>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((process, status))) if process == command => *ended = Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills all descendants of this process. First each is stopped, parents before their children: a stopped process can't start
/// another one or react to the end of others.
fn kill_tree() {
    let this_process = getpid();
    // Each with the parent that it was found below.
    let mut found = [(0, 0); MAX_FOUND];
    let mut count = 0;
    add_children(this_process, &mut found, &mut count);
    let mut at = 0;
    while at < count {
        let (process, parent) = found[at];
        at += 1;
        let Some(process) = Pid::from_raw(process) else { continue };
        // The id may have been reused. A process whose parent has ended has become our child.
        let now = parent_of(process);
        if now != parent && now != this_process.as_raw_nonzero().get() {
            found[at - 1].0 = 0;
            continue;
        }
        let _ = kill_process(process, Signal::STOP);
        add_children(process, &mut found, &mut count);
    }
    for (process, _) in found.iter().take(count) {
        if let Some(process) = Pid::from_raw(*process) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Opens a file or folder in the folder of a process in /proc. Nothing here may format a path, because that allocates.
fn open_in_proc(process: Pid, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let all = openat(CWD, c"/proc", FOLDER, Mode::empty())?;
    let this_process = openat(&all, DecInt::new(process.as_raw_nonzero().get()), FOLDER, Mode::empty())?;
    openat(&this_process, name, flags, Mode::empty())
}

/// Adds the children of all threads of a process.
fn add_children(process: Pid, found: &mut [(i32, i32); MAX_FOUND], count: &mut usize) {
    let parent = process.as_raw_nonzero().get();
    let Ok(threads) = open_in_proc(process, c"task", FOLDER) else { return };
    let mut space = [MaybeUninit::uninit(); 2048];
    let mut names = RawDir::new(&threads, &mut space);
    while let Some(Ok(thread)) = names.next() {
        if thread.file_name().to_bytes().starts_with(b".") {
            continue;
        }
        let thread = openat(&threads, thread.file_name(), FOLDER, Mode::empty());
        let list = thread.and_then(|thread| openat(&thread, c"children", FILE, Mode::empty()));
        let Ok(list) = list else { continue };
        let mut number = 0_i32;
        let mut buffer = [0; 1024];
        while let Ok(length) = rustix::io::read(&list, &mut buffer) {
            // Every number is followed by a blank, including the last one.
            for byte in buffer.iter().take(length) {
                if byte.is_ascii_digit() {
                    number = number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                } else if number > 0 {
                    if let Some(place) = found.get_mut(*count) {
                        *place = (number, parent);
                        *count += 1;
                    }
                    number = 0;
                }
            }
            if length == 0 {
                break;
            }
        }
    }
}

/// The parent of a process, see proc_pid_stat(5); 0 if the process has ended.
fn parent_of(process: Pid) -> i32 {
    let mut buffer = [0; 512];
    let length = open_in_proc(process, c"stat", FILE).and_then(|stat| rustix::io::read(&stat, &mut buffer));
    let text = buffer.get(..length.unwrap_or(0)).unwrap_or_default();
    // The program's name, in parentheses, can contain anything. After it come the state, one letter, and the parent.
    let Some(end) = text.iter().rposition(|byte| *byte == b')') else { return 0 };
    let digits = text.iter().skip(end + 4).take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_i32, |number, byte| number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0')))
}

/// The set of all signals.
#[allow(unsafe_code)]
pub(super) fn all_signals() -> libc::sigset_t {
    // SAFETY: all zeros is a valid set, and it outlives the call.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Sets which signals are blocked, and returns the former mask.
#[allow(unsafe_code)]
pub(super) fn block_signals(mask: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = all_signals();
    // SAFETY: both sets outlive the call.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for a blocked signal; `None` at a timeout.
#[allow(unsafe_code)]
fn next_signal(longest: Option<Duration>) -> Option<Signal> {
    let time = longest.map(|longest| libc::timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: set and time outlive the call, and no signal information is requested.
    Signal::from_named_raw(unsafe { libc::sigtimedwait(&all_signals(), std::ptr::null_mut(), time) })
}

/// Closes every descriptor except these two, which get the numbers 0 and 1; a negative number means none.
#[allow(unsafe_code)]
fn close_all_but(kept: [RawFd; 2]) {
    for (number, kept) in (0..).zip(kept) {
        // SAFETY: this process uses none of its descriptors, and it never returns to code that does.
        unsafe {
            if libc::dup2(kept, number) < 0 {
                libc::close(number);
            }
        }
    }
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_close_range, 2, i32::MAX, 0) } != 0 {
        // A kernel before 5.9.
        for number in 2..1 << 16 {
            // SAFETY: as above.
            unsafe {
                libc::close(number);
            }
        }
    }
}

/// Ends this process with the same exit code or signal as the command.
#[allow(unsafe_code)]
fn end_like(ended: Option<WaitStatus>) -> ! {
    let (code, signal) = match ended {
        Some(status) => (status.exit_status(), status.terminating_signal()),
        // It couldn't be ended.
        None => (None, Some(libc::SIGKILL)),
    };
    // SAFETY: plain system calls on this process, which ends here.
    unsafe {
        if let Some(signal) = signal {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(signal, libc::SIG_DFL);
            let nothing: libc::sigset_t = std::mem::zeroed();
            libc::kill(libc::getpid(), signal);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const nothing, std::ptr::null_mut());
        }
        libc::_exit(code.unwrap_or(128 + signal.unwrap_or_default()))
    }
}
