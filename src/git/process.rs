//! A running git that is killed at a deadline, or when it waits for something that doesn't come.

use std::fs;
use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How often a process is looked at before it counts as idle.
const IDLE_CHECKS: u32 = 10;

/// A running git that is killed at a deadline, and when this is dropped.
pub(super) struct GitProcess {
    child: Child,
    /// Kills the process at the deadline: git would wait for ever on a pipe in place of a file.
    watchdog: Option<(Sender<()>, JoinHandle<()>)>,
}

impl GitProcess {
    pub(super) fn start(command: Command, deadline: Instant) -> io::Result<Self> {
        Self::start_watched(command, deadline, Duration::MAX)
    }

    /// Also kills it when it has slept for `max_idle`. Git waits for ever on a pipe in place of a file such as `.gitignore`,
    /// which a run can make in the middle of its work.
    pub(super) fn start_watched(mut command: Command, deadline: Instant, max_idle: Duration) -> io::Result<Self> {
        let child = command.spawn()?;
        let (done, is_done) = channel();
        let pid = Pid::from_child(&child);
        let watchdog = std::thread::Builder::new().name("git".to_owned()).spawn(move || {
            // The process isn't reaped before this thread has ended, so the process id is still its own.
            let mut last = (Instant::now(), None);
            loop {
                let wait = deadline.saturating_duration_since(Instant::now()).min(max_idle / IDLE_CHECKS);
                if is_done.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let used = sleeping_after(pid);
                if used.is_none() || used != last.1 {
                    last = (Instant::now(), used);
                }
                if Instant::now() >= deadline || last.0.elapsed() >= max_idle {
                    let _ = kill_process(pid, Signal::KILL);
                    return;
                }
            }
        })?;
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
    pub(super) fn wait(mut self) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        // It isn't reaped yet.
        while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == Errno::INTR)
        {}
        self.stop_watchdog();
        self.child.wait()
    }

    fn stop_watchdog(&mut self) {
        if let Some((done, watchdog)) = self.watchdog.take() {
            drop(done);
            let _ = watchdog.join();
        }
    }
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
            self.stop_watchdog();
        }
        let _ = self.child.wait();
    }
}
