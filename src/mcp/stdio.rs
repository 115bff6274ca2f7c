//! Servers that are programs: their streams, with bounds, and their end.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::stream_bounds::{MAX_MESSAGE_BYTES, StreamBounds};
use crate::egress::CallEgress;
use crate::process::Environment;
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::server::{ServerPipes, ServerProcess};
use crate::redaction::Redactor;
use crate::sandbox::{CommandWatch, Sandbox, TamperError, UndoneChanges, programs};
use crate::sync::IgnorePoison;

/// How much of the end of a server's stderr is shown, in characters: why it ended is in its last lines.
const MAX_SHOWN_CHARS: usize = 500;
/// How much of a server's stderr is kept, in characters: its beginning and its end.
const MAX_STDERR_CHARS: usize = 2_000;
/// How often a server's processes are counted.
const PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait for the exit code of a server that closed its stdin or stdout.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// A running program.
pub(super) struct ServerProgram {
    process: Arc<tokio::sync::Mutex<Option<ServerProcess>>>,
    stderr: Arc<Mutex<Option<CommandOutput>>>,
    /// How it ended, once that was looked up.
    end: OnceLock<String>,
    bounds: Arc<StreamBounds>,
    /// Stops counting its processes.
    done: CancellationToken,
    watch: Option<CommandWatch<Arc<Sandbox>>>,
    /// The sandbox that watches what is protected.
    watching: Arc<Sandbox>,
    /// The sandbox that confines it. Its folders for HOME and `/tmp` are removed with it.
    _confining: Arc<Sandbox>,
}

/// What a program is started with.
pub(super) struct ProgramConfig<'a> {
    pub(super) command: &'a [String],
    pub(super) environment: &'a Environment,
    pub(super) workspace: &'a Path,
    /// Confines it.
    pub(super) sandbox: &'a Arc<Sandbox>,
    /// Watches what is protected, as long as it lives.
    pub(super) watching: &'a Arc<Sandbox>,
    /// The hosts that it may reach; `None` if that is nothing or everything.
    pub(super) egress: Option<&'a CallEgress>,
    pub(super) redactor: &'a Redactor,
    pub(super) bounds: &'a Arc<StreamBounds>,
}

impl ServerProgram {
    /// Starts a program. Returns it with its streams.
    ///
    /// # Errors
    /// Why it can't be started.
    pub(super) fn start(config: &ProgramConfig<'_>) -> Result<(Self, BoundedReader<ChildStdout>, ChildStdin), String> {
        let Some((name, arguments)) = config.command.split_first() else {
            return Err("the command is empty".to_owned());
        };
        let program = find_program(name, config)?;
        let failed = |error: io::Error| format!("`{name}` can't be started: {error}");
        let watch = config.watching.watch_server().map_err(failed)?;
        let variables = config.environment.variables();
        let prepared = config.sandbox.command(&program, config.workspace, variables, false, config.egress);
        let prepared = prepared.map_err(failed)?;
        let (process, pipes) = ServerProcess::start(prepared, arguments).map_err(failed)?;
        let ServerPipes { stdin, stdout, stderr } = pipes;
        let bounds = Arc::clone(config.bounds);
        let program = Self {
            process: Arc::new(tokio::sync::Mutex::new(Some(process))),
            stderr: Arc::new(Mutex::new(Some(CommandOutput::new(config.redactor, MAX_STDERR_CHARS)))),
            end: OnceLock::new(),
            bounds: Arc::clone(&bounds),
            done: CancellationToken::new(),
            watch: Some(watch),
            watching: Arc::clone(config.watching),
            _confining: Arc::clone(config.sandbox),
        };
        tokio::spawn(keep_stderr(stderr, Arc::clone(&program.stderr)));
        tokio::spawn(check_processes(Arc::clone(&program.process), Arc::clone(&bounds), program.done.clone()));
        Ok((program, BoundedReader { inner: stdout, line: 0, bounds }, stdin))
    }

    /// Whether the program was never started, and can be started again: see [`ServerProcess::has_outdated_sandbox`].
    pub(super) async fn has_outdated_sandbox(&self) -> bool {
        let mut process = self.process.lock().await;
        process.as_mut().is_some_and(ServerProcess::has_outdated_sandbox)
    }

    /// How the program ended, and the end of its stderr, for people and models.
    pub(super) async fn describe_end(&self) -> String {
        if let Some(end) = self.end.get() {
            return end.clone();
        }
        let mut parts = Vec::new();
        parts.extend(self.bounds.violation().map(|why| format!("legwork stopped it: {why}")));
        let status = {
            let mut process = self.process.lock().await;
            match process.as_mut() {
                Some(process) => match tokio::time::timeout(EXIT_GRACE, process.wait()).await {
                    Ok(Ok(status)) => Some(status),
                    _ => process.try_wait(),
                },
                None => None,
            }
        };
        if parts.is_empty() {
            parts.push(match status {
                Some(status) => format!("it ended with {}", describe_status(status)),
                None => "it closed its stdin or stdout".to_owned(),
            });
        }
        // What it wrote last may not have been read yet.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let stderr = self.stderr.lock().ignore_poison().take();
        let stderr = stderr.map(CommandOutput::finish).unwrap_or_default();
        if !stderr.trim().is_empty() {
            parts.push(format!("its stderr: {}", last(stderr.trim(), MAX_SHOWN_CHARS)));
        }
        self.end.get_or_init(|| parts.join("; ")).clone()
    }

    /// Checks whether it has changed something that is protected.
    pub(super) fn check_protected(&self) -> Result<Option<UndoneChanges>, TamperError> {
        // A watch that ends compares everything.
        match self.watching.watch_command() {
            Ok(watch) => watch.finish(),
            Err(_) => Ok(None),
        }
    }

    /// Ends it with everything that it has started, after its stdin was closed.
    ///
    /// # Errors
    /// It has changed something that is protected.
    pub(super) async fn stop(mut self, is_hurried: bool) -> Result<(), TamperError> {
        self.done.cancel();
        let process = self.process.lock().await.take();
        if let Some(process) = process {
            process.stop(is_hurried).await;
        }
        self.watch.take().map_or(Ok(None), CommandWatch::finish).map(drop)
    }
}

impl Drop for ServerProgram {
    fn drop(&mut self) {
        self.done.cancel();
    }
}

fn describe_status(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// The path of a program: in the workspace if the name contains a slash, else in `PATH`.
fn find_program(name: &str, config: &ProgramConfig<'_>) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path = config.workspace.join(name);
        return if path.is_file() { Ok(path) } else { Err(format!("there is no program `{name}` in the workspace")) };
    }
    let path = config.environment.variables().get("PATH").map_or("", String::as_str);
    let writable = [config.workspace.to_owned()];
    programs::find(name, std::env::split_paths(path), &writable)
        .ok_or_else(|| format!("there is no program `{name}` in PATH"))
}

/// Reads a server's stdout, and fails if the server exceeds a bound.
pub(super) struct BoundedReader<R> {
    inner: R,
    /// The bytes of the current line.
    line: usize,
    bounds: Arc<StreamBounds>,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(violation) = self.bounds.violation() {
            return Poll::Ready(Err(io::Error::other(violation)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        let longest = self.line + memchr::memchr(b'\n', new).unwrap_or(new.len());
        self.line = match memchr::memrchr(b'\n', new) {
            Some(end) => new.len() - end - 1,
            None => self.line + new.len(),
        };
        if longest > MAX_MESSAGE_BYTES {
            self.bounds.violate("it sent a message of more than 16 MiB");
        }
        if let Err(violation) = self.bounds.count(new.len()) {
            // A failed read has no data.
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::other(violation)));
        }
        Poll::Ready(Ok(()))
    }
}

/// The last characters of a text.
fn last(text: &str, count: usize) -> String {
    match text.char_indices().rev().nth(count) {
        Some((at, _)) => format!("…{}", text[at..].chars().skip(1).collect::<String>()),
        None => text.to_owned(),
    }
}

async fn keep_stderr(mut pipe: ChildStderr, kept: Arc<Mutex<Option<CommandOutput>>>) {
    let mut buffer = vec![0; 1 << 13];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if let Some(output) = kept.lock().ignore_poison().as_mut() {
            output.push(&buffer[..count]);
        }
    }
}

/// Ends a program that has too many processes.
async fn check_processes(
    process: Arc<tokio::sync::Mutex<Option<ServerProcess>>>,
    bounds: Arc<StreamBounds>,
    done: CancellationToken,
) {
    loop {
        tokio::select! {
            () = done.cancelled() => return,
            () = tokio::time::sleep(PROCESS_CHECK_INTERVAL) => {}
        }
        // It is locked only while the server ends.
        let Ok(mut process) = process.try_lock() else { continue };
        if !process.as_ref().is_some_and(ServerProcess::has_too_many_processes) {
            continue;
        }
        bounds.violate("it had too many processes at once");
        if let Some(process) = process.take() {
            process.kill().await;
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::stream_bounds::MAX_UNANSWERED_BYTES;

    async fn read_all(text: &[u8]) -> Result<usize, String> {
        let mut reader = BoundedReader { inner: text, line: 0, bounds: Arc::default() };
        let mut out = Vec::new();
        reader.read_to_end(&mut out).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn long_messages_and_floods_are_refused() {
        let line = [vec![b'x'; MAX_MESSAGE_BYTES], b"\n".to_vec()].concat();
        assert_eq!(read_all(&line).await, Ok(line.len()));
        assert!(read_all(&[b"x".as_slice(), &line].concat()).await.unwrap_err().contains("16 MiB"));
        let flood = b"{}\n".repeat(MAX_UNANSWERED_BYTES / 3 + 1);
        assert!(read_all(&flood).await.unwrap_err().contains("64 MiB"));
    }
}
