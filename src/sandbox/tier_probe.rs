//! Finds out whether a tier works: one command is started as every other will be and reports how it is confined.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::policy::SandboxPolicy;
use super::programs;

/// How long all probes of a tier may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a probe's output is read, in bytes.
const MAX_OUTPUT: usize = 1 << 16;
/// Prints what the kernel says about the shell, without starting another program.
const SCRIPT: &str = "echo \"$(</proc/self/status)\"";

/// Why a tier can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeError {
    TimedOut,
    Failed(String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => write!(f, "a test command didn't end within {} seconds", PROBE_TIMEOUT.as_secs()),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// When probes that start now must have ended.
pub(super) fn deadline() -> Instant {
    Instant::now() + PROBE_TIMEOUT
}

/// The shell that bubblewrap's probe runs.
pub(super) fn shell(policy: &SandboxPolicy) -> Option<PathBuf> {
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    let writable: Vec<PathBuf> = policy.writable_roots().cloned().collect();
    let path = policy.path_dirs.iter().cloned();
    programs::find("bash", path.chain(usual), &writable)
        .or_else(|| programs::find("bash", ["/bin".into()].into_iter(), &[]))
}

/// Runs a confined bash and checks that it has no capabilities and no way to gain privileges.
pub(super) fn run(command: &mut Command, is_filtered: bool, deadline: Instant) -> Result<(), ProbeError> {
    command.args(["-c", SCRIPT]);
    let output = output(command, deadline)?;
    if !output.status.success() {
        let line = output.stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("no error message");
        return Err(ProbeError::Failed(line.trim().chars().take(200).collect()));
    }
    check_status(&output.stdout, is_filtered)
}

/// Checks the content of `/proc/self/status`, see proc_pid_status(5).
fn check_status(status: &str, is_filtered: bool) -> Result<(), ProbeError> {
    let field = |name: &str| {
        let mut fields = status.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| *found == name).map_or("", |(_, value)| value.trim())
    };
    let is_zero = |name: &str| !field(name).is_empty() && field(name).bytes().all(|digit| digit == b'0');
    let problem = if !["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].into_iter().all(is_zero) {
        "commands keep capabilities"
    } else if field("NoNewPrivs") != "1" {
        "commands can gain privileges"
    } else if is_filtered && field("Seccomp") != "2" {
        "system calls aren't filtered"
    } else {
        return Ok(());
    };
    Err(ProbeError::Failed(problem.to_owned()))
}

/// What a probe printed and how it ended.
#[derive(Debug)]
pub(super) struct ProbeOutput {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) status: ExitStatus,
}

/// Runs a command to its end, or kills it at the deadline.
pub(super) fn output(command: &mut Command, deadline: Instant) -> Result<ProbeOutput, ProbeError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut process = ProbeProcess(command.spawn()?);
    let (Some(mut stdout), Some(mut stderr)) = (process.0.stdout.take(), process.0.stderr.take()) else {
        return Err(ProbeError::Failed("its output can't be read".to_owned()));
    };
    let stdout = read_to_end(&mut stdout, deadline)?;
    // The output is a line or two, which fits into the pipe's buffer.
    let stderr = read_to_end(&mut stderr, deadline)?;
    loop {
        match process.0.try_wait()? {
            Some(status) => return Ok(ProbeOutput { stdout, stderr, status }),
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_micros(200)),
            None => return Err(ProbeError::TimedOut),
        }
    }
}

/// A running probe, killed when it is dropped.
struct ProbeProcess(Child);

impl Drop for ProbeProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // Processes in a sandbox end with their parent.
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

fn read_to_end(pipe: &mut (impl Read + AsFd), deadline: Instant) -> Result<String, ProbeError> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < MAX_OUTPUT {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| ProbeError::TimedOut)?;
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(ProbeError::TimedOut),
            Ok(_) => match pipe.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            },
            Err(_) if left.is_zero() => return Err(ProbeError::TimedOut),
            Err(_) => {}
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
