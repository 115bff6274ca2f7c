//! Finds out whether a tier works: one command is started as every other will be and reports how it is confined.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::policy::PreparedCommand;
#[cfg(target_os = "linux")]
use super::{policy::SandboxPolicy, programs};
use crate::sync::IgnorePoison;

/// How long all probes of a tier may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a probe may take to end after it was killed.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);
/// Prints what the kernel says about a POSIX shell, without starting another program.
#[cfg(target_os = "linux")]
pub(super) const STATUS_SCRIPT: &str = "while read -r line; do echo \"$line\"; done < /proc/self/status\n";
/// The same for bash, which reads a file line by line with several system calls a line.
#[cfg(target_os = "linux")]
pub(super) const BASH_STATUS_SCRIPT: &str = "mapfile -t lines < /proc/self/status && printf '%s\\n' \"${lines[@]}\"";

/// When probes that start now must have ended.
pub(super) fn deadline() -> Instant {
    Instant::now() + PROBE_TIMEOUT
}

/// The shell that bubblewrap's probe runs.
#[cfg(target_os = "linux")]
pub(super) fn shell(policy: &SandboxPolicy) -> Option<PathBuf> {
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    let writable: Vec<PathBuf> = policy.writable_roots().cloned().collect();
    let path = policy.path_dirs.iter().cloned();
    programs::find("bash", path.chain(usual), &writable)
        .or_else(|| programs::find("bash", ["/bin".into()].into_iter(), &[]))
}

/// Checks the content of `/proc/self/status`, see proc_pid_status(5): that these sets of capabilities are empty, that there is
/// no way to gain privileges, and optionally that system calls are filtered.
#[cfg(target_os = "linux")]
pub(super) fn check_status(status: &str, empty_sets: &[&str], is_filtered: bool) -> Result<(), String> {
    let field = |name: &str| {
        let mut fields = status.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| *found == name).map_or("", |(_, value)| value.trim())
    };
    let is_zero = |name: &&str| !field(name).is_empty() && field(name).bytes().all(|digit| digit == b'0');
    let problem = if !empty_sets.iter().all(is_zero) {
        "commands keep capabilities"
    } else if field("NoNewPrivs") != "1" {
        "commands can gain privileges"
    } else if is_filtered && field("Seccomp") != "2" {
        "system calls aren't filtered"
    } else {
        return Ok(());
    };
    Err(problem.to_owned())
}

/// A confined shell that is running on a thread of its own. It is killed if this is dropped.
#[derive(Debug)]
pub(super) struct Probe {
    output: Receiver<Result<String, String>>,
    shell: Arc<Mutex<ProbeShell>>,
    deadline: Instant,
}

#[derive(Debug, Default)]
struct ProbeShell {
    /// From its start until it is reaped. It leads a process group.
    process: Option<Pid>,
    is_cancelled: bool,
}

impl Probe {
    /// Starts the first of these confined shells, and the next one each time that what is hidden has changed before the shell
    /// ran. They are killed at the deadline.
    ///
    /// # Errors
    /// There can't be another thread.
    pub(super) fn start(
        shells: impl Iterator<Item = io::Result<PreparedCommand>> + Send + 'static,
        deadline: Instant,
    ) -> Result<Self, String> {
        let (sender, output) = channel();
        let shell = Arc::<Mutex<ProbeShell>>::default();
        let running = Arc::clone(&shell);
        let run = move || {
            let result = run_first(shells, &running);
            // Nobody waits for it any more if it was cancelled.
            let _ = sender.send(result.map_err(|error| error.to_string()));
        };
        thread::Builder::new().name("probe".to_owned()).spawn(run).map_err(|error| error.to_string())?;
        Ok(Self { output, shell, deadline })
    }

    /// The result if the shell has ended.
    #[cfg(target_os = "linux")]
    pub(super) fn result(&self) -> Option<Result<String, String>> {
        self.output.try_recv().ok()
    }

    /// Waits for the end. Returns what the shell printed.
    ///
    /// # Errors
    /// If it can't be started, fails or doesn't end in time.
    pub(super) fn wait(self) -> Result<String, String> {
        match self.output.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("a test command didn't end within {} seconds", PROBE_TIMEOUT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err("a test command was broken off".to_owned()),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut shell = lock(&self.shell);
        shell.is_cancelled = true;
        if let Some(process) = shell.process {
            // It isn't reaped yet, so the process id is still its own. Processes in a sandbox end with their parent.
            let _ = kill_process_group(process, Signal::KILL);
            drop(shell);
            let _ = self.output.recv_timeout(KILL_TIMEOUT);
        }
    }
}

fn lock(shell: &Mutex<ProbeShell>) -> MutexGuard<'_, ProbeShell> {
    shell.lock().ignore_poison()
}

/// Runs the first shell that can be started. Other programs may remove what was to be hidden, which is no fault of the tier.
fn run_first(
    shells: impl Iterator<Item = io::Result<PreparedCommand>>,
    running: &Mutex<ProbeShell>,
) -> io::Result<String> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    for prepared in shells {
        let mut prepared = prepared?;
        let hidden = std::mem::take(&mut prepared.hidden);
        result = run(prepared, running);
        if result.is_ok() || !hidden.have_changed() {
            break;
        }
    }
    result
}

/// Runs a confined shell to its end.
fn run(prepared: PreparedCommand, running: &Mutex<ProbeShell>) -> io::Result<String> {
    // The pipe for the report of bubblewrap must stay open.
    #[cfg(target_os = "linux")]
    let PreparedCommand { mut command, status_pipe: _status_pipe, hosts, .. } = prepared;
    #[cfg(not(target_os = "linux"))]
    let PreparedCommand { mut command, status_pipe: _status_pipe, .. } = prepared;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = {
        let mut running = lock(running);
        if running.is_cancelled {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = command.spawn()?;
        running.process = Some(Pid::from_child(&child));
        child
    };
    drop(command);
    #[cfg(target_os = "linux")]
    let serving = hosts.map(super::host_access::HostAccess::serve).transpose()?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    // The output is a page or two, which fits into the pipes' buffers. Errors show up as missing output.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut stdout));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut stderr));
    let _ = waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    lock(running).process = None;
    let status = child.wait()?;
    #[cfg(target_os = "linux")]
    if let Some(serving) = serving {
        serving.finish_now()?;
    }
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        let line = stderr.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no error message");
        return Err(io::Error::other(line.chars().take(200).collect::<String>()));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
