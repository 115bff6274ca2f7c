//! Runs a server: a program that stays alive for the whole run and speaks over its stdin and stdout.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::{MAX_PROCESSES, RunningCommand, TERMINATION_GRACE, start_prepared};
use crate::sandbox::PreparedCommand;

/// How long a server may take to end after its stdin was closed, and after SIGTERM.
const GRACES: [Duration; 2] = [Duration::from_secs(1), TERMINATION_GRACE];
/// The same after a signal, when legwork itself has little time to end.
const HURRIED_GRACES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(300)];

/// A server that was started. All its processes are killed if this is dropped.
pub(crate) struct ServerProcess {
    running: RunningCommand,
}

/// The other ends of a server's standard streams.
pub(crate) struct ServerPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl ServerProcess {
    /// Starts a server.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start(prepared: PreparedCommand, arguments: &[String]) -> io::Result<(Self, ServerPipes)> {
        let mut running = start_prepared(prepared, |command| {
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        })?;
        let child = &mut running.child;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((Self { running }, ServerPipes { stdin, stdout, stderr })),
            _ => Err(io::Error::other("the program has no standard streams")),
        }
    }

    /// Waits until the program has ended.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.running.child.wait().await
    }

    /// How the program has ended, if it has.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.running.child.try_wait().ok().flatten()
    }

    /// Whether the program was never started, because another program has removed what bubblewrap was to hide. Then it can be
    /// started again.
    pub(crate) fn has_outdated_sandbox(&mut self) -> bool {
        self.try_wait().is_some() && !self.running.was_started() && self.running.hidden.have_changed()
    }

    /// Whether it has more processes than a command may have.
    pub(crate) fn has_too_many_processes(&self) -> bool {
        self.running.tree.has_more_than(MAX_PROCESSES)
    }

    /// Ends it with everything that it has started. Its stdin should be closed.
    pub(crate) async fn stop(mut self, is_hurried: bool) {
        let [closing, termination] = if is_hurried { HURRIED_GRACES } else { GRACES };
        if tokio::time::timeout(closing, self.wait()).await.is_err() {
            self.running.request_termination();
            if tokio::time::timeout(termination, self.wait()).await.is_err() {
                // It may just have ended.
                let _ = self.running.kill().await;
            }
        }
        self.running.tree.kill_leftovers().await;
    }

    /// Ends it at once with everything that it has started.
    pub(crate) async fn kill(mut self) {
        let _ = self.running.kill().await;
        self.running.tree.kill_leftovers().await;
    }
}
