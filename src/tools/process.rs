//! Running a command: one shell, its output, and the end of all that it started.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::orphans::{self, Tree};
use super::output::Output;
use super::{Environment, Scope};
use crate::sandbox::{Sandbox, Tier};

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// The most that is read from the pipe after the command's end, in bytes: what fits into the largest pipe.
const DRAINED: usize = 1 << 20;
/// How many processes a command may have at once: many times what builds and tests have, and few enough for a machine.
pub(super) const MOST_PROCESSES: usize = 2_000;
/// How often they are counted.
const GLANCE: Duration = Duration::from_millis(100);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself, or by a signal from elsewhere.
    Exited(ExitStatus),
    /// It took longer than it was allowed.
    TimedOut,
    /// The run is over, for this reason.
    Stopped(&'static str),
    /// It had more processes than it may have.
    Crowded,
}

/// Runs `bash -c` and feeds what it prints to `output`; with more than `most` processes at once it is killed. When this
/// returns, no process that it started is left; when it is dropped, they are killed.
pub(super) async fn run(
    command: &str,
    scope: &Scope<'_>,
    read_only: bool,
    timeout: Duration,
    most: usize,
    output: &mut Output,
) -> io::Result<Ended> {
    let limits = scope.limits;
    let (mut running, mut pipe) =
        Running::start(command, scope.workspace.root(), scope.environment, scope.sandbox, read_only)?;
    let mut buffer = vec![0; 1 << 14];
    let deadline = tokio::time::sleep_until(limits.deadline.into());
    let timeout = tokio::time::sleep_until((Instant::now() + timeout).into());
    tokio::pin!(deadline, timeout);
    let mut glance = tokio::time::interval(GLANCE);
    glance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = false;
    let mut open = true;
    let ended = loop {
        tokio::select! {
            status = running.child.wait() => {
                let status = status?;
                break if asked { Ended::TimedOut } else { Ended::Exited(status) };
            }
            read = pipe.read(&mut buffer), if open => match read {
                Ok(0) | Err(_) => open = false,
                Ok(count) => output.push(&buffer[..count]),
            },
            () = &mut timeout => {
                if asked {
                    running.signal(Signal::KILL);
                    running.child.wait().await?;
                    break Ended::TimedOut;
                }
                asked = true;
                running.ask();
                timeout.as_mut().reset((Instant::now() + GRACE).into());
            }
            _ = glance.tick() => if running.tree.is_above(most) {
                running.signal(Signal::KILL);
                running.child.wait().await?;
                break Ended::Crowded;
            },
            () = limits.cancel.cancelled() => break running.stop("the run was cancelled").await?,
            () = &mut deadline => break running.stop("the run's time is up").await?,
        }
    };
    running.tree.end().await;
    let mut drained = 0;
    while open && drained < DRAINED {
        match pipe.try_read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => output.push(&buffer[..count]),
        }
        drained += buffer.len();
    }
    Ok(ended)
}

/// A started command.
struct Running {
    child: Child,
    tree: Tree,
    tier: Tier,
}

impl Running {
    fn start(
        command: &str,
        folder: &Path,
        environment: &Environment,
        sandbox: &Sandbox,
        read_only: bool,
    ) -> io::Result<(Self, Receiver)> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        static INHERITED: Once = Once::new();
        INHERITED.call_once(close_on_exec);
        let mark = format!("{}.{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let (reader, writer) = io::pipe()?;
        let shell = sandbox.command(environment.shell(), folder, environment.variables(), read_only)?;
        let mut shell = Command::from(shell);
        shell.arg("-c").arg(command).env(orphans::MARK, &mark);
        shell.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
        detach(&mut shell);
        let (child, tree) = Tree::start(mark, || {
            let child = shell.spawn()?;
            let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            Ok((child, id.ok_or_else(|| io::Error::other("the process has no id"))?))
        })?;
        // With our ends of the pipe closed, its end is seen when the last process lets go of it.
        drop(shell);
        Ok((Self { child, tree, tier: sandbox.tier() }, Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }

    /// Asks the command to end.
    fn ask(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            // A stopped process hears nothing until it goes on.
            match self.inner() {
                // It may be gone already.
                Some(inner) => drop(kill_process_group(inner, signal)),
                None => self.signal(signal),
            }
        }
    }

    /// The process group of the command itself, where the process that we started is bubblewrap and only waits for it:
    /// its one child is the first process of the sandbox, and leads the session in which the command is.
    fn inner(&self) -> Option<Pid> {
        self.child.id().filter(|_| self.tier == Tier::Bubblewrap)?;
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

    async fn stop(&mut self, why: &'static str) -> io::Result<Ended> {
        self.signal(Signal::KILL);
        self.child.wait().await?;
        Ok(Ended::Stopped(why))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Makes sure that commands get none of the files that whoever started us left open: each could be a way around what a
/// command may see and change. Those that we open ourselves are closed on exec anyway.
#[allow(unsafe_code)]
pub(super) fn close_on_exec() {
    let listed = std::fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // SAFETY: only a flag is set, on what the number stands for now; one that was closed meanwhile is an error.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
    }
}

/// Gives the command a session of its own (so it has no terminal and its group is known), no core dumps, and an end when
/// this process ends.
#[allow(unsafe_code)]
fn detach(shell: &mut Command) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::setsid()?;
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none)?;
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = parent;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
    unsafe {
        shell.pre_exec(prepare);
    }
}

/// What a status says to the model, where the command failed.
pub(super) fn failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("killed by signal {signal}")),
        (None, None) => Some("ended without an exit code".to_owned()),
    }
}

#[cfg(test)]
mod tests;
