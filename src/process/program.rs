//! Runs a program of the user's configuration to its end, without a shell and a sandbox.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::reaper::{CALL_ID_VARIABLE, CommandTree};
use super::spawn::{close_inherited_files, detach};

/// A program, and what it runs with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramCall<'a> {
    /// The absolute path of the program.
    pub(crate) program: &'a Path,
    /// Its arguments.
    pub(crate) arguments: &'a [String],
    /// Its environment, and no other variables.
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// How much it may print.
    pub(crate) max_bytes: usize,
}

/// What a program did.
#[derive(Debug)]
pub(crate) enum ProgramOutcome {
    /// It ended by itself, and printed this to stdout.
    Exited(ExitStatus, Vec<u8>),
    /// It took longer than it was allowed, and was killed.
    TimedOut,
    /// It printed more than it was allowed, and was killed.
    TooMuchOutput,
}

impl ProgramCall<'_> {
    /// Runs the program in the root folder, without input; what it prints to stderr is dropped. When this returns, all processes
    /// that it started have ended; if the future is dropped, they are killed.
    ///
    /// # Errors
    /// It can't be started.
    pub(crate) async fn run(&self) -> io::Result<ProgramOutcome> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        close_inherited_files();
        let call_id = format!("{}.program.{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(self.program);
        command
            .args(self.arguments)
            .env_clear()
            .envs(self.environment)
            .env(CALL_ID_VARIABLE, &call_id)
            .current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        detach(&mut command, false);
        let (mut child, tree) = CommandTree::start(call_id, || {
            let child = command.spawn()?;
            let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            Ok((child, id.ok_or_else(|| io::Error::other("the process has no id"))?))
        })?;
        let mut group = ProcessGroup { tree, has_ended: false };
        let Some(stdout) = child.stdout.take() else { return Err(io::Error::other("the process has no output")) };
        let most = self.max_bytes as u64 + 1;
        let exchange = async {
            let mut output = Vec::new();
            stdout.take(most).read_to_end(&mut output).await?;
            if output.len() as u64 == most {
                return Ok(ProgramOutcome::TooMuchOutput);
            }
            Ok(ProgramOutcome::Exited(child.wait().await?, output))
        };
        let outcome = timeout(self.timeout, exchange).await.unwrap_or(Ok(ProgramOutcome::TimedOut));
        if !matches!(outcome, Ok(ProgramOutcome::Exited(..))) {
            group.kill();
            child.wait().await?;
        }
        group.has_ended = true;
        group.tree.kill_leftovers().await;
        outcome
    }
}

/// The processes of the program.
struct ProcessGroup {
    tree: CommandTree,
    has_ended: bool,
}

impl ProcessGroup {
    fn kill(&self) {
        // It may have ended already.
        let _ = kill_process_group(self.tree.id(), Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
        }
    }
}
