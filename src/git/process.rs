//! A running git that is killed at a deadline, when it waits for something that doesn't come, and when this program ends.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, waitid};

/// How often a process is looked at before it counts as idle.
const IDLE_CHECKS: u32 = 10;
/// How often a process is looked at that may wait for a pipe or read a file without an end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Where the kernel says that a process waits until someone opens the other end of a pipe.
const OPENS_A_PIPE: [&str; 2] = ["wait_for_partner", "fifo_open"];
/// The largest file that git is let read, in bytes: it needs longer than it has for a larger one, such as an empty disk image.
const MAX_FILE_BYTES: u64 = 64 << 30;

/// A running git that is killed at a deadline, and when this is dropped.
pub(super) struct GitProcess {
    child: Child,
    /// Has started the process, and kills it at the deadline: git would wait for ever on a pipe in place of a file. It ends with the
    /// reason.
    watchdog: Option<(Sender<()>, JoinHandle<Option<String>>)>,
}

impl GitProcess {
    pub(super) fn start(command: Command, deadline: Instant) -> io::Result<Self> {
        Self::start_limited(command, deadline, None)
    }

    /// Also kills it when it has slept for `max_idle`, or waits for a pipe that nobody opens, or reads a file that is too large.
    /// Git waits for ever on a pipe in place of a file such as `.gitignore`, which a run can make in the middle of its work.
    pub(super) fn start_watched(command: Command, deadline: Instant, max_idle: Duration) -> io::Result<Self> {
        Self::start_limited(command, deadline, Some(max_idle))
    }

    fn start_limited(mut command: Command, deadline: Instant, max_idle: Option<Duration>) -> io::Result<Self> {
        end_with_parent(&mut command);
        let (started, is_started) = channel();
        let (done, is_done) = channel();
        // The kernel ends the process with the thread that has started it.
        let watchdog = std::thread::Builder::new().name("git".to_owned()).spawn(move || {
            let spawned = command.spawn();
            let pid = spawned.as_ref().map(Pid::from_child).ok();
            let _ = started.send(spawned);
            // The process isn't reaped before this thread has ended, so the process id is still its own.
            pid.and_then(|pid| watch(pid, &is_done, deadline, max_idle))
        })?;
        let child = is_started.recv().map_err(io::Error::other)??;
        Ok(Self { child, watchdog: Some((done, watchdog)) })
    }

    /// Its standard input and output, if they are pipes.
    pub(super) fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>) {
        (self.child.stdin.take(), self.child.stdout.take())
    }

    /// What it prints, if they are pipes.
    pub(super) fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It was killed: why, in words that follow its name.
    pub(super) fn wait(mut self) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        // It isn't reaped yet.
        while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == Errno::INTR)
        {}
        let killed = self.stop_watchdog();
        let status = self.child.wait()?;
        // It may have ended just before.
        killed.filter(|_| !status.success()).map_or(Ok(status), |why| Err(io::Error::other(why)))
    }

    fn stop_watchdog(&mut self) -> Option<String> {
        let (done, watchdog) = self.watchdog.take()?;
        drop(done);
        watchdog.join().ok().flatten()
    }
}

/// Kills the process when this program ends in any way, or its thread that starts the process.
#[allow(unsafe_code)]
fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || die_with(parent);
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Lets the kernel kill this process when its parent ends, for a process between fork and exec. Makes only system calls.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

/// Waits until the other side of `is_done` is gone, or kills the process: why.
fn watch(pid: Pid, is_done: &Receiver<()>, deadline: Instant, max_idle: Option<Duration>) -> Option<String> {
    let interval = max_idle.map_or(Duration::MAX, |idle| CHECK_INTERVAL.min(idle / IDLE_CHECKS));
    let mut last = (Instant::now(), None);
    let mut was_opening = false;
    loop {
        let wait = deadline.saturating_duration_since(Instant::now()).min(interval);
        if is_done.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
        let mut why = (Instant::now() >= deadline).then(|| "it took too long".to_owned());
        if let Some(max_idle) = max_idle {
            let used = sleeping_after(pid);
            if used.is_none() || used != last.1 {
                last = (Instant::now(), used);
            }
            let waits = || "it waits for a pipe, which may be in place of a file such as `.gitignore`".to_owned();
            let is_opening = opens_a_pipe(pid);
            let is_idle = last.0.elapsed() >= max_idle || is_opening && was_opening;
            was_opening = is_opening;
            why = why.or_else(|| is_idle.then(waits)).or_else(|| too_large_file(pid));
        }
        if why.is_some() {
            let _ = kill_process(pid, Signal::KILL);
            return why;
        }
    }
}

/// Whether a process waits until someone opens the other end of a pipe that isn't one of its own. Some kernels don't tell.
fn opens_a_pipe(pid: Pid) -> bool {
    let place = fs::read_to_string(format!("/proc/{}/wchan", pid.as_raw_nonzero()));
    place.is_ok_and(|place| OPENS_A_PIPE.contains(&place.trim()))
}

/// A file that a process reads and that is too large.
fn too_large_file(pid: Pid) -> Option<String> {
    let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
    let mut files = open.flatten().map(|entry| entry.path());
    files.find_map(|file| {
        let bytes = fs::metadata(&file).ok().filter(fs::Metadata::is_file)?.len();
        let path = (bytes > MAX_FILE_BYTES).then(|| fs::read_link(&file).unwrap_or_default())?;
        Some(format!("`{}` is too large, with {} GiB", path.display(), bytes >> 30))
    })
}

/// The processor time that a process has used, if all of its threads sleep now, but not because of a disk or a server of files.
/// `None` where the system doesn't tell.
fn sleeping_after(pid: Pid) -> Option<Vec<String>> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let used = threads.map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        // After the name, which may have spaces: the state, ten more fields, and the times in user and kernel mode.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        (*fields.first()? == "S").then(|| fields.get(11..13).unwrap_or_default().join(" "))
    });
    used.collect()
}

impl Drop for GitProcess {
    fn drop(&mut self) {
        if self.watchdog.is_some() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.stop_watchdog();
        }
        let _ = self.child.wait();
    }
}
