//! Running a command: one shell, its output, and the end of all that it started.

use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use crate::process::bounded_output::CommandOutput;
use crate::process::reaper::CommandTree;
use crate::process::{fd_limit, reaper};
use crate::sandbox::PreparedCommand;
use crate::tools::ToolContext;

/// How long a command may take to end after it was asked to.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);
/// The most that is read from the pipe after the command's end, in bytes: what fits into the largest pipe.
const DRAINED: usize = 1 << 20;
/// How many processes a command may have at once: many times what builds and tests have, and few enough for a machine.
pub(crate) const MOST_PROCESSES: usize = 2_000;
/// How often they are counted.
const PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a supervisor may take to end a process tree, beyond its own patience.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(8);
/// How much of a command's first output is kept for what the program that makes the sandbox says, in bytes.
const STARTUP_OUTPUT_BYTES: usize = 400;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessOutcome {
    /// By itself, or by a signal from elsewhere.
    Exited(ExitStatus),
    /// It took longer than it was allowed.
    TimedOut,
    /// The run is over, for this reason.
    Stopped(&'static str),
    /// It had more processes than it may have.
    TooManyProcesses,
}

/// Runs `bash -c` and feeds what it prints to `output`; with more than `most` processes at once it is killed. When this
/// returns, no process that it started is left; when it is dropped, they are killed. A command that couldn't be started for
/// want of something that the machine lacks is noted at the sandbox, for nothing can be done here any more.
pub(crate) async fn run(
    command: &str,
    scope: &ToolContext<'_>,
    read_only: bool,
    timeout: Duration,
    most: usize,
    output: &mut CommandOutput,
) -> io::Result<ProcessOutcome> {
    let ended = start_and_wait(command, scope, read_only, timeout, most, output).await;
    if let Err(error) = &ended
        && !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong)
    {
        scope.sandbox.record_start_failure(format!("a command can't be started: {error}"));
    }
    ended
}

async fn start_and_wait(
    command: &str,
    scope: &ToolContext<'_>,
    read_only: bool,
    timeout: Duration,
    most: usize,
    output: &mut CommandOutput,
) -> io::Result<ProcessOutcome> {
    let limits = scope.limits;
    scope.workspace.check_not_moved()?;
    let (mut running, mut pipe) = RunningCommand::start(command, scope, read_only)?;
    let mut first = Vec::new();
    let mut buffer = vec![0; 1 << 14];
    let deadline = tokio::time::sleep_until(limits.deadline.into());
    let timeout = tokio::time::sleep_until((Instant::now() + timeout).into());
    tokio::pin!(deadline, timeout);
    let mut glance = tokio::time::interval(PROCESS_CHECK_INTERVAL);
    glance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = false;
    let mut open = true;
    let ended = loop {
        tokio::select! {
            status = running.child.wait() => {
                let status = status?;
                break if asked { ProcessOutcome::TimedOut } else { ProcessOutcome::Exited(status) };
            }
            read = pipe.read(&mut buffer), if open => match read {
                Ok(0) | Err(_) => open = false,
                Ok(count) => {
                    first.extend_from_slice(&buffer[..count.min(STARTUP_OUTPUT_BYTES.saturating_sub(first.len()))]);
                    output.push(&buffer[..count]);
                }
            },
            () = &mut timeout => {
                if asked {
                    running.kill().await?;
                    break ProcessOutcome::TimedOut;
                }
                asked = true;
                running.request_termination();
                timeout.as_mut().reset((Instant::now() + TERMINATION_GRACE).into());
            }
            _ = glance.tick() => if running.tree.has_more_than(most) {
                running.kill().await?;
                break ProcessOutcome::TooManyProcesses;
            },
            () = limits.cancel.cancelled() => {
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
    let mut drained = 0;
    while open && drained < DRAINED {
        match pipe.try_read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                first.extend_from_slice(&buffer[..count.min(STARTUP_OUTPUT_BYTES.saturating_sub(first.len()))]);
                output.push(&buffer[..count]);
            }
        }
        drained += buffer.len();
    }
    match ended {
        ProcessOutcome::Exited(status) if status.code().is_some_and(|code| code != 0) && !running.was_started() => {
            let first = String::from_utf8_lossy(&first);
            let line = first.lines().find(|line| line.contains("bwrap")).unwrap_or("it says nothing of why");
            Err(io::Error::other(format!("the sandbox can't be made ({})", line.trim())))
        }
        ended => Ok(ended),
    }
}

/// A started command.
struct RunningCommand {
    child: Child,
    tree: CommandTree,
    is_supervised: bool,
    report: Option<PipeReader>,
}

impl RunningCommand {
    fn start(command: &str, scope: &ToolContext<'_>, read_only: bool) -> io::Result<(Self, Receiver)> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        static INHERITED: Once = Once::new();
        INHERITED.call_once(close_on_exec);
        let mark = format!("{}.{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let (reader, writer) = io::pipe()?;
        let (root, environment) = (scope.workspace.root(), scope.environment);
        let bash = environment.shell(root, scope.sandbox.writable());
        let PreparedCommand { command: shell, is_supervised, status_pipe: report } =
            scope.sandbox.command(bash, root, environment.variables(), read_only)?;
        let mut shell = Command::from(shell);
        shell.arg("-c").arg(command).env(reaper::CALL_ID_VARIABLE, &mark);
        // A supervisor that is killed can't end what is left.
        shell.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(!is_supervised);
        detach(&mut shell, is_supervised);
        let (child, tree) = CommandTree::start(mark, || {
            let child = shell.spawn()?;
            let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            Ok((child, id.ok_or_else(|| io::Error::other("the process has no id"))?))
        })?;
        // With our ends of the pipe closed, its end is seen when the last process lets go of it.
        drop(shell);
        let this = Self { child, tree, is_supervised, report };
        Ok((this, Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }

    /// Asks the command to end.
    fn request_termination(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            // A stopped process hears nothing until it goes on.
            match self.inner_process_group() {
                // It may be gone already.
                Some(inner) => drop(kill_process_group(inner, signal)),
                None => self.signal(signal),
            }
        }
    }

    /// The process group of the command itself, where the process that we started only waits for it: the first child of
    /// bubblewrap or of a supervisor leads the session in which the command is.
    fn inner_process_group(&self) -> Option<Pid> {
        self.child.id().filter(|_| self.is_supervised || self.report.is_some())?;
        let own = self.tree.id().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
    }

    /// Signals the command's process group, for as long as the command itself was not reaped.
    fn signal(&self, signal: Signal) {
        if self.child.id().is_some() {
            // It may be gone already.
            let _ = kill_process_group(self.tree.id(), signal);
        }
    }

    /// Kills the command and waits for its end.
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

    /// Asks the command's supervisor to kill all that the command has started.
    fn terminate_through_supervisor(&self) {
        #[cfg(target_os = "linux")]
        if self.child.id().is_some() {
            crate::sandbox::supervisor::request_termination(self.tree.id());
        }
    }

    /// Whether the command itself was started, for one that has ended: what makes the sandbox says so.
    fn was_started(&mut self) -> bool {
        let Some(report) = &mut self.report else { return true };
        let (mut said, mut buffer) = (Vec::new(), [0; 1024]);
        while let Ok(count @ 1..) = report.read(&mut buffer) {
            said.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&said).contains("\"exit-code\"")
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

/// Makes sure that commands get none of the files that whoever started us left open: each could be a way around what a
/// command may see and change. Those that we open ourselves are closed on exec anyway.
#[allow(unsafe_code)]
pub(crate) fn close_on_exec() {
    let listed = std::fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // SAFETY: only a flag is set, on what the number stands for now; one that was closed meanwhile is an error.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
    }
}

/// Gives the command a session of its own (so it has no terminal and its group is known), no core dumps, the limit of open
/// files that this program was started with, and an end when this process ends, unless it has a supervisor.
#[allow(unsafe_code)]
fn detach(shell: &mut Command, is_supervised: bool) {
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
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (parent, is_supervised);
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
    unsafe {
        shell.pre_exec(prepare);
    }
}

/// What a status says to the model, where the command failed.
pub(crate) fn describe_failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("killed by signal {signal}")),
        (None, None) => Some("ended without an exit code".to_owned()),
    }
}

#[cfg(test)]
mod tests;
