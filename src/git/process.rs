//! A running git that is killed at a deadline.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// A running git that is killed at a deadline, and when this is dropped.
pub(super) struct GitProcess {
    child: Child,
    /// Kills the process at the deadline: git would wait for ever on a pipe in place of a file.
    watchdog: Option<(Sender<()>, JoinHandle<()>)>,
}

impl GitProcess {
    pub(super) fn start(mut command: Command, deadline: Instant) -> io::Result<Self> {
        let child = command.spawn()?;
        let (done, is_done) = channel();
        let pid = Pid::from_child(&child);
        let watchdog = std::thread::Builder::new().name("git".to_owned()).spawn(move || {
            // The process isn't reaped before this thread has ended, so the process id is still its own.
            if is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                == Err(RecvTimeoutError::Timeout)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        })?;
        Ok(Self { child, watchdog: Some((done, watchdog)) })
    }

    /// Its standard input and output, as far as they are pipes.
    pub(super) fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>) {
        (self.child.stdin.take(), self.child.stdout.take())
    }

    /// What it prints, as far as they are pipes.
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

impl Drop for GitProcess {
    fn drop(&mut self) {
        if self.watchdog.is_some() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            self.stop_watchdog();
        }
        let _ = self.child.wait();
    }
}
