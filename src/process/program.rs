//! Runs a program of the user's configuration to its end, without a shell and a sandbox.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::reaper::{CALL_ID_VARIABLE, CommandTree, call_prefix};
use super::spawn::{close_inherited_files, detach};
use crate::running_clock::timeout;
#[cfg(target_os = "linux")]
use crate::sandbox::kill_guard::KillGuard;

/// A program, and what it runs with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramCall<'a> {
    /// The absolute path of the program.
    pub(crate) program: &'a Path,
    /// Its arguments.
    pub(crate) arguments: &'a [String],
    /// The folder that it starts in.
    pub(crate) folder: &'a Path,
    /// What it reads from standard input.
    pub(crate) input: &'a [u8],
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
    /// Runs the program until it exits, whatever still holds its output; what it prints to
    /// stderr is dropped. When this returns, all processes that it started have ended; if the future is dropped, they are killed.
    ///
    /// # Errors
    /// It can't be started.
    pub(crate) async fn run(&self) -> io::Result<ProgramOutcome> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        close_inherited_files();
        let call_id = format!("{}program.{}", call_prefix(), CALLS.fetch_add(1, Ordering::Relaxed));
        // The program ends with this process, but what it has started doesn't.
        #[cfg(target_os = "linux")]
        let _guard = KillGuard::shared().ok();
        let mut command = Command::new(self.program);
        command
            .args(self.arguments)
            .env_clear()
            .envs(self.environment)
            .env(CALL_ID_VARIABLE, &call_id)
            .current_dir(self.folder);
        command.stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        detach(&mut command, false);
        let (mut child, tree) = CommandTree::start(call_id, || {
            let child = command.spawn()?;
            let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            Ok((child, id.ok_or_else(|| io::Error::other("the process has no id"))?))
        })?;
        let mut group = ProcessGroup { tree, has_ended: false };
        let Some(mut stdout) = child.stdout.take() else { return Err(io::Error::other("the process has no output")) };
        let stdin = child.stdin.take();
        let write = async move {
            if let Some(mut stdin) = stdin {
                // The program need not read all of it.
                let _ = stdin.write_all(self.input).await;
            }
        };
        let exchange = async {
            let mut output = Vec::new();
            let mut is_open = true;
            let mut write = std::pin::pin!(write);
            let mut is_written = false;
            let status = loop {
                tokio::select! {
                    () = &mut write, if !is_written => is_written = true,
                    read = stdout.read_buf(&mut output), if is_open => is_open = read? > 0,
                    status = child.wait() => break status?,
                }
                if output.len() > self.max_bytes {
                    return Ok(ProgramOutcome::TooMuchOutput);
                }
            };
            // What it started may hold the pipe for ever. What the program itself has printed is in the pipe now.
            if is_open {
                read_available(&stdout, self.max_bytes, &mut output)?;
            }
            Ok(if output.len() > self.max_bytes {
                ProgramOutcome::TooMuchOutput
            } else {
                ProgramOutcome::Exited(status, output)
            })
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

/// Reads what is in a pipe that doesn't block, up to one byte more than `max_bytes` in all.
fn read_available(pipe: &impl AsFd, max_bytes: usize, output: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while output.len() <= max_bytes {
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(length) => output.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(script: &str, max_bytes: usize) -> ProgramOutcome {
        let call = ProgramCall {
            program: Path::new("/bin/sh"),
            arguments: &["-c".to_owned(), script.to_owned()],
            folder: Path::new("/"),
            input: &[],
            environment: &BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            timeout: Duration::from_secs(30),
            max_bytes,
        };
        call.run().await.unwrap()
    }

    #[tokio::test]
    async fn a_child_that_holds_the_output_is_not_waited_for() {
        for script in
            ["sleep 1000 & printf key", "(sleep 1000; echo late) & printf key", "setsid sleep 1000 & printf key"]
        {
            let start = std::time::Instant::now();
            let outcome = run(script, 100).await;
            assert!(
                matches!(&outcome, ProgramOutcome::Exited(status, output) if status.success() && output == b"key"),
                "{script}: {outcome:?}"
            );
            assert!(start.elapsed() < Duration::from_secs(20), "{script}");
        }
    }

    #[tokio::test]
    async fn output_is_complete_and_bounded() {
        let long = "i=0; while [ $i -lt 2000 ]; do echo 0123456789; i=$((i+1)); done";
        assert!(matches!(run(long, 22_000).await, ProgramOutcome::Exited(_, output) if output.len() == 22_000));
        for script in [long.to_owned(), format!("sleep 1000 & {long}")] {
            assert!(matches!(run(&script, 21_999).await, ProgramOutcome::TooMuchOutput), "{script}");
        }
    }
}
