//! Runs a shell command to its end, including every process that it started.

pub(crate) mod server;

use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::CallLimits;
use super::bounded_output::CommandOutput;
use super::environment::Environment;
use super::fd_limit;
use super::reaper::{CALL_ID_VARIABLE, CommandTree, call_prefix};
use crate::egress::{CallEgress, Serving};
use crate::running_clock;
#[cfg(target_os = "linux")]
use crate::sandbox::host_access::HostAccess;
use crate::sandbox::{HiddenPaths, MAX_RESTARTS, PreparedCommand, Sandbox, TamperError};
use crate::workspace::Workspace;

/// The most processes that a command may have at once: many times what builds and tests need.
pub(crate) const MAX_PROCESSES: usize = 2_000;
/// How often the processes are counted.
const PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a command may take to end after SIGTERM.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);
/// How long after a command that was ended by a signal the run may be cancelled by the same one.
const SIGNAL_GRACE: Duration = Duration::from_millis(100);
/// What is said of a command that was ended with the run.
const UNKNOWN_EFFECT: &str =
    "Its effect is unknown: all, part or none of it may have happened. Check before you repeat it.";
/// How long a supervisor may take to end a process tree, in addition to its own timeout.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(8);
/// How much is read from the pipe after the command's end, in bytes: the capacity of the largest pipe.
const MAX_DRAINED_BYTES: usize = 1 << 20;
/// How much of a command's first output is kept to find an error message of bubblewrap, in bytes.
const STARTUP_OUTPUT_BYTES: usize = 400;

/// A command for `bash -c`, and what it runs with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShellCommand<'a> {
    /// The command.
    pub(crate) command: &'a str,
    /// Options of bash for it.
    pub(crate) shell_options: &'a [&'a str],
    /// The folder that it starts in.
    pub(crate) workspace: &'a Workspace,
    /// Its environment variables.
    pub(crate) environment: &'a Environment,
    /// How it is confined.
    pub(crate) sandbox: &'a Sandbox,
    /// Whether the sandbox keeps it from writing to the workspace.
    pub(crate) read_only: bool,
    /// The hosts that it may reach, and what it reaches; for nothing or everything there is none.
    pub(crate) egress: Option<&'a CallEgress>,
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// The most processes that it may have at once.
    pub(crate) max_processes: usize,
    /// When the run ends.
    pub(crate) limits: &'a CallLimits,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessOutcome {
    /// By itself, or by a signal that legwork didn't send.
    Exited(ExitStatus),
    /// It took longer than it was allowed.
    TimedOut,
    /// The run is over, for this reason.
    Stopped(&'static str),
    /// It had more processes than it was allowed.
    TooManyProcesses,
}

impl ProcessOutcome {
    /// The exit code, if the command ended by itself with one.
    pub(crate) fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited(status) => status.code(),
            _ => None,
        }
    }
}

/// Why a call or a check has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A command changed something that is protected.
    #[error("{0}")]
    Tampered(TamperError),
    /// A command can't be started.
    #[error("bash can't be started: {0}")]
    NotStarted(io::Error),
    /// The sandbox no longer works.
    #[error("commands can't be confined any more: {0}")]
    Unconfined(io::Error),
    /// The workspace was moved or replaced.
    #[error("{0}")]
    WorkspaceMoved(io::Error),
}

impl EnvironmentError {
    /// Whether the run must end. It needn't if the command itself is the reason.
    pub fn ends_run(&self) -> bool {
        use io::ErrorKind::{ArgumentListTooLong, InvalidInput};
        !matches!(self, Self::NotStarted(error) if matches!(error.kind(), InvalidInput | ArgumentListTooLong))
    }
}

/// Where the output of a command goes.
pub(crate) struct Streams<'a> {
    /// Standard error, and standard output unless that goes elsewhere.
    pub(crate) shown: &'a mut CommandOutput,
    /// Standard output byte by byte.
    pub(crate) stdout: Option<&'a mut RawOutput>,
}

/// The first bytes of a command's standard output. What would be more ends the pipe, so that the command soon ends, too.
#[derive(Debug)]
pub(crate) struct RawOutput {
    pub(crate) bytes: Vec<u8>,
    most: usize,
    pub(crate) is_too_long: bool,
}

impl RawOutput {
    pub(crate) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_too_long: false }
    }

    /// Takes the next bytes. Returns whether there may be more.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let fitting = bytes.len().min(self.most - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fitting]);
        self.is_too_long |= fitting < bytes.len();
        !self.is_too_long
    }

    fn clear(&mut self) {
        *self = Self::new(self.most);
    }
}

impl ShellCommand<'_> {
    /// Runs the command and passes its output to `output`.
    ///
    /// # Errors
    /// As for [`Self::run_with`].
    pub(crate) async fn run(&self, output: &mut CommandOutput) -> Result<ProcessOutcome, EnvironmentError> {
        self.run_with(Streams { shown: output, stdout: None }).await
    }

    /// Runs the command. When this returns, all processes that it started have ended; if
    /// the future is dropped, they are killed.
    ///
    /// # Errors
    /// If the command can't be started, or changed something that is protected.
    pub(crate) async fn run_with(&self, mut streams: Streams<'_>) -> Result<ProcessOutcome, EnvironmentError> {
        self.workspace.check_not_moved().map_err(EnvironmentError::WorkspaceMoved)?;
        self.sandbox.confirm().map_err(EnvironmentError::Unconfined)?;
        let watch = self.sandbox.watch_command().map_err(EnvironmentError::NotStarted)?;
        let outcome = self.start_and_wait(&mut streams).await;
        if let Some(undone) = watch.finish().map_err(EnvironmentError::Tampered)? {
            streams.shown.push(format!("\n{undone}\n").as_bytes());
        }
        outcome.map_err(EnvironmentError::NotStarted)
    }

    /// Why the command failed, for people and models; `None` if it succeeded.
    pub(crate) fn describe_failure(&self, outcome: ProcessOutcome) -> Option<String> {
        match outcome {
            ProcessOutcome::Exited(status) => match (status.code(), status.signal()) {
                (Some(0), _) => None,
                (Some(code), _) => Some(format!("exit code {code}")),
                (None, Some(signal)) => Some(format!("killed by signal {signal}")),
                (None, None) => Some("ended without an exit code".to_owned()),
            },
            ProcessOutcome::TimedOut => Some(format!("timed out after {}", format_duration(self.timeout))),
            ProcessOutcome::Stopped(reason) => Some(format!("killed: {reason}. {UNKNOWN_EFFECT}")),
            ProcessOutcome::TooManyProcesses => {
                Some(format!("killed: it had more than {} processes at once", self.max_processes))
            }
        }
    }

    async fn start_and_wait(&self, streams: &mut Streams<'_>) -> io::Result<ProcessOutcome> {
        for _ in 0..MAX_RESTARTS {
            match self.try_once(streams).await? {
                Ok(outcome) => return Ok(outcome),
                // Another program has removed what bubblewrap was to hide. The command hasn't run.
                Err(failure) if failure.is_outdated => {
                    streams.shown.clear();
                    streams.stdout.iter_mut().for_each(|stdout| stdout.clear());
                }
                Err(failure) => return Err(failure.error),
            }
        }
        self.try_once(streams).await?.map_err(|failure| failure.error)
    }

    async fn try_once(&self, streams: &mut Streams<'_>) -> io::Result<Result<ProcessOutcome, SetupFailure>> {
        let Streams { shown: output, stdout } = streams;
        let (mut running, mut pipe, mut stdout_pipe) = self.start(stdout.is_some())?;
        let mut take = |chunk: &[u8]| stdout.as_mut().is_some_and(|stdout| stdout.push(chunk));
        let mut stdout_buffer = vec![0; if stdout_pipe.is_some() { 1 << 14 } else { 0 }];
        let mut startup_output = Vec::new();
        let mut keep = |chunk: &[u8]| {
            startup_output.extend_from_slice(&chunk[..chunk.len().min(STARTUP_OUTPUT_BYTES - startup_output.len())]);
            output.push(chunk);
        };
        let mut buffer = vec![0; 1 << 14];
        let deadline = self.limits.deadline.expired();
        let timeout = running_clock::sleep(self.timeout);
        tokio::pin!(deadline, timeout);
        // Not at once: most commands have ended before the first check.
        let first_check = tokio::time::Instant::now() + PROCESS_CHECK_INTERVAL;
        let mut process_check = tokio::time::interval_at(first_check, PROCESS_CHECK_INTERVAL);
        process_check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_terminating = false;
        let mut is_open = true;
        let outcome = loop {
            tokio::select! {
                status = running.child.wait() => {
                    let status = status?;
                    break if is_terminating { ProcessOutcome::TimedOut } else { ProcessOutcome::Exited(status) };
                }
                read = pipe.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(count) => keep(&buffer[..count]),
                },
                read = read_some(stdout_pipe.as_mut(), &mut stdout_buffer), if stdout_pipe.is_some() => {
                    let may_be_more = matches!(read, Ok(count) if count > 0 && take(&stdout_buffer[..count]));
                    stdout_pipe = stdout_pipe.filter(|_| may_be_more);
                }
                () = &mut timeout => {
                    if is_terminating {
                        running.kill().await?;
                        break ProcessOutcome::TimedOut;
                    }
                    is_terminating = true;
                    running.request_termination();
                    timeout.set(running_clock::sleep(TERMINATION_GRACE));
                }
                _ = process_check.tick() => if running.tree.has_more_than(self.max_processes) {
                    running.kill().await?;
                    break ProcessOutcome::TooManyProcesses;
                },
                () = self.limits.cancel.cancelled() => {
                    running.kill().await?;
                    break ProcessOutcome::Stopped("the run was cancelled");
                }
                () = &mut deadline => {
                    running.kill().await?;
                    break ProcessOutcome::Stopped("the run's time is up");
                }
            }
        };
        running.tree.kill_leftovers().await;
        let served = running.finish_serving().await;
        let outcome = match outcome {
            // Who ends this program may signal its commands as well, and those may end first.
            ProcessOutcome::Exited(status) if ended_by_signal(status) => {
                match tokio::time::timeout(SIGNAL_GRACE, self.limits.cancel.cancelled()).await {
                    Ok(()) => ProcessOutcome::Stopped("the run was cancelled"),
                    Err(_) => outcome,
                }
            }
            outcome => outcome,
        };
        let mut drained = 0;
        while is_open && drained < MAX_DRAINED_BYTES {
            match pipe.try_read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => keep(&buffer[..count]),
            }
            drained += buffer.len();
        }
        while let Some(pipe) = &stdout_pipe {
            match pipe.try_read(&mut stdout_buffer) {
                Ok(count) if count > 0 && take(&stdout_buffer[..count]) => {}
                _ => break,
            }
        }
        match outcome {
            ProcessOutcome::Exited(status) if status.code().is_some_and(|code| code != 0) && !running.was_started() => {
                let startup_output = String::from_utf8_lossy(&startup_output);
                let line =
                    startup_output.lines().find(|line| line.contains("bwrap")).map(|line| line.trim().to_owned());
                let line =
                    line.or_else(|| Some(served.err()?.to_string())).unwrap_or_else(|| "no error message".into());
                let error = io::Error::other(format!("the sandbox can't be set up ({line})"));
                Ok(Err(SetupFailure { error, is_outdated: running.hidden.have_changed() }))
            }
            outcome => Ok(Ok(outcome)),
        }
    }

    /// Starts the command, with the pipe that its output comes from, and one for standard output alone if that is wanted.
    fn start(&self, splits: bool) -> io::Result<(RunningCommand, Receiver, Option<Receiver>)> {
        let (reader, writer) = io::pipe()?;
        let (stdout_reader, stdout) = if splits {
            io::pipe().map(|(reader, writer)| (Some(reader), writer))?
        } else {
            (None, writer.try_clone()?)
        };
        let root = self.workspace.root();
        let bash = self.environment.shell(root, &self.sandbox.writable);
        let prepared = self.sandbox.command(bash, root, self.environment.variables(), self.read_only, self.egress)?;
        let running = start_prepared(prepared, |shell| {
            shell
                .args(self.shell_options)
                .arg("-c")
                .arg(self.command)
                .stdin(Stdio::null())
                .stdout(stdout)
                .stderr(writer);
        })?;
        let receiver = |reader| Receiver::from_owned_fd(OwnedFd::from(reader));
        Ok((running, receiver(reader)?, stdout_reader.map(receiver).transpose()?))
    }
}

/// Reads from a pipe, if there is one.
async fn read_some(pipe: Option<&mut Receiver>, buffer: &mut [u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => std::future::pending().await,
    }
}

/// Why bubblewrap couldn't start a command.
struct SetupFailure {
    error: io::Error,
    /// Whether what it was to hide has changed, so that the next try may succeed.
    is_outdated: bool,
}

/// Whether a command was ended by a signal that also ends this program, as its exit code says if a shell or a sandbox is in between.
fn ended_by_signal(status: ExitStatus) -> bool {
    let signals = [Signal::HUP, Signal::INT, Signal::TERM].map(Signal::as_raw);
    let of_code = status.code().map(|code| code - 128);
    status.signal().or(of_code).is_some_and(|signal| signals.contains(&signal))
}

/// Starts a prepared command. `configure` sets its arguments and streams.
fn start_prepared(prepared: PreparedCommand, configure: impl FnOnce(&mut Command)) -> io::Result<RunningCommand> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    close_inherited_files();
    let call_id = format!("{}{}", call_prefix(), CALLS.fetch_add(1, Ordering::Relaxed));
    #[cfg(target_os = "linux")]
    let hosts = prepared.hosts;
    let PreparedCommand { command, is_supervised, status_pipe, hidden, .. } = prepared;
    let mut command = Command::from(command);
    configure(&mut command);
    // A killed supervisor couldn't end the processes below it.
    command.env(CALL_ID_VARIABLE, &call_id).kill_on_drop(!is_supervised);
    detach(&mut command, is_supervised);
    let (child, tree) = CommandTree::start(call_id, || {
        let child = command.spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok((child, id.ok_or_else(|| io::Error::other("the process has no id"))?))
    })?;
    // Closes our ends of its pipes, so that reading ends when the last process closes its own.
    drop(command);
    #[cfg(target_os = "linux")]
    let serving = hosts.map(HostAccess::serve).transpose()?;
    #[cfg(not(target_os = "linux"))]
    let serving = None;
    Ok(RunningCommand { child, tree, is_supervised, status_pipe, hidden, serving })
}

/// A started command.
struct RunningCommand {
    child: Child,
    tree: CommandTree,
    is_supervised: bool,
    /// Where bubblewrap reports the exit code, which it does only if it could start the command.
    status_pipe: Option<PipeReader>,
    /// What bubblewrap hides.
    hidden: HiddenPaths,
    /// Its connections.
    serving: Option<Serving>,
}

impl RunningCommand {
    /// Asks the command to terminate.
    fn request_termination(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            // A stopped process gets SIGTERM only when it continues.
            match self.inner_process_group() {
                // It may have ended already.
                Some(inner) => drop(kill_process_group(inner, signal)),
                None => self.signal(signal),
            }
        }
    }

    /// The process group of the command itself, if the process that was started is bubblewrap or a supervisor. The first child
    /// of either leads the command's session.
    fn inner_process_group(&self) -> Option<Pid> {
        self.child.id().filter(|_| self.is_supervised || self.status_pipe.is_some())?;
        #[cfg(target_os = "linux")]
        {
            super::process_tree::children_of_first_thread(self.tree.id())?.first().copied()
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Signals the command's process group, unless the command has been reaped.
    fn signal(&self, signal: Signal) {
        if self.child.id().is_some() {
            // It may have ended already.
            let _ = kill_process_group(self.tree.id(), signal);
        }
    }

    /// Kills the command and waits for it to end.
    async fn kill(&mut self) -> io::Result<()> {
        if self.is_supervised {
            self.terminate_through_supervisor();
            if let Ok(ended) = tokio::time::timeout(SUPERVISOR_TIMEOUT, self.child.wait()).await {
                return ended.map(drop);
            }
        }
        self.signal(Signal::KILL);
        self.child.wait().await.map(drop)
    }

    /// Asks the supervisor to kill everything that the command has started.
    fn terminate_through_supervisor(&self) {
        #[cfg(target_os = "linux")]
        if self.child.id().is_some() {
            crate::sandbox::supervisor::request_termination(self.tree.id());
        }
    }

    /// Counts what the command has sent and received. It and everything that it started have ended.
    async fn finish_serving(&mut self) -> io::Result<()> {
        match self.serving.take() {
            Some(serving) => serving.finish().await,
            None => Ok(()),
        }
    }

    /// Whether a command that has ended was started at all, or bubblewrap failed before.
    fn was_started(&mut self) -> bool {
        let Some(status_pipe) = &mut self.status_pipe else { return true };
        let (mut status, mut buffer) = (Vec::new(), [0; 1024]);
        while let Ok(count @ 1..) = status_pipe.read(&mut buffer) {
            status.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&status).contains("\"exit-code\"")
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if self.is_supervised {
            self.terminate_through_supervisor();
        } else {
            self.signal(Signal::KILL);
        }
    }
}

/// Calls [`set_close_on_exec`] before the first command: later, files may be open that a command shall inherit.
pub(super) fn close_inherited_files() {
    static INHERITED: Once = Once::new();
    INHERITED.call_once(set_close_on_exec);
}

/// Keeps commands from inheriting files that were open when this process started, through which they could get around the
/// sandbox. Files that are opened here are closed on exec anyway.
#[allow(unsafe_code)]
pub(crate) fn set_close_on_exec() {
    let listed = std::fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // SAFETY: only sets a flag, on whatever file the number refers to now. A closed one is an error.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
    }
}

/// Gives the command its own session, which has no terminal and a known process group, turns core dumps off, restores the
/// limit of open files, and kills the command when this process ends, unless it has a supervisor.
#[allow(unsafe_code)]
pub(super) fn detach(shell: &mut Command, is_supervised: bool) {
    let parent = rustix::process::getpid();
    let files = fd_limit::original_limit();
    let prepare = move || {
        rustix::process::setsid()?;
        if let Some(files) = files {
            rustix::process::setrlimit(rustix::process::Resource::Nofile, files)?;
        }
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none)?;
        #[cfg(target_os = "linux")]
        if !is_supervised {
            crate::git::die_with(parent)?;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (parent, is_supervised);
        Ok(())
    };
    // SAFETY: the closure makes only system calls between fork and exec; it allocates, locks and drops nothing.
    unsafe {
        shell.pre_exec(prepare);
    }
}

/// A duration as a job writes it.
pub(crate) fn format_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if millis > 0 {
        return format!("{}ms", duration.as_millis());
    }
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod network_tests;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
