//! Whether a tier works: one command, started as every other will be, that says how it is confined.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{SandboxPolicy, programs};

/// How long all probes of a tier may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most that is read of what it prints, in bytes.
const MOST: usize = 1 << 16;
/// Prints what the kernel knows of it, with nothing but the shell itself.
const SCRIPT: &str = "echo \"$(</proc/self/status)\"";

/// Why a tier can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeError {
    /// It didn't end in time.
    TimedOut,
    /// It ended, and said this.
    Fails(String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => write!(f, "a trial of it didn't end within {} seconds", PROBE_TIMEOUT.as_secs()),
            Self::Fails(why) => f.write_str(why),
        }
    }
}

/// When probes that begin now must be over.
pub(super) fn deadline() -> Instant {
    Instant::now() + PROBE_TIMEOUT
}

/// The shell to try it with.
pub(super) fn shell(boundary: &SandboxPolicy) -> Option<PathBuf> {
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    let writable: Vec<PathBuf> = std::iter::once(&boundary.workspace).chain(&boundary.writable).cloned().collect();
    let path = boundary.path_dirs.iter().cloned();
    programs::find("bash", path.chain(usual), &writable)
        .or_else(|| programs::find("bash", ["/bin".into()].into_iter(), &[]))
}

/// Runs a command that is a confined bash, and looks whether it has neither capabilities nor a way to new privileges.
pub(super) fn run(command: &mut Command, filtered: bool, deadline: Instant) -> Result<(), ProbeError> {
    let failed = |error: io::Error| ProbeError::Fails(error.to_string());
    command.args(["-c", SCRIPT]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut trial = ProbeProcess(command.spawn().map_err(failed)?);
    let (stdout, stderr) = trial.read_output(deadline)?;
    let status = trial.wait(deadline)?;
    if !status.success() {
        let line = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        return Err(ProbeError::Fails(line.trim().chars().take(200).collect()));
    }
    check_status(&stdout, filtered)
}

/// See proc_pid_status(5).
fn check_status(status: &str, filtered: bool) -> Result<(), ProbeError> {
    let field = |name: &str| {
        let mut fields = status.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| *found == name).map_or("", |(_, value)| value.trim())
    };
    let none = |name: &str| !field(name).is_empty() && field(name).bytes().all(|digit| digit == b'0');
    if !["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].into_iter().all(none) {
        return Err(ProbeError::Fails("commands keep capabilities".to_owned()));
    }
    if field("NoNewPrivs") != "1" {
        return Err(ProbeError::Fails("commands can get new privileges".to_owned()));
    }
    if filtered && field("Seccomp") != "2" {
        return Err(ProbeError::Fails("commands can make any system call".to_owned()));
    }
    Ok(())
}

/// A started trial; killed when it is dropped.
struct ProbeProcess(Child);

impl ProbeProcess {
    /// Reads both streams to their ends.
    fn read_output(&mut self, deadline: Instant) -> Result<(String, String), ProbeError> {
        let (Some(mut stdout), Some(mut stderr)) = (self.0.stdout.take(), self.0.stderr.take()) else {
            return Err(ProbeError::Fails("its output can't be read".to_owned()));
        };
        let out = read_to_end(&mut stdout, deadline)?;
        // It is a line or two, which the pipe has room for.
        let err = read_to_end(&mut stderr, deadline)?;
        Ok((out, err))
    }

    /// Waits for its end, which its closed streams say is near.
    fn wait(&mut self, deadline: Instant) -> Result<std::process::ExitStatus, ProbeError> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_micros(200)),
                Ok(None) => return Err(ProbeError::TimedOut),
                Err(error) => return Err(ProbeError::Fails(error.to_string())),
            }
        }
    }
}

impl Drop for ProbeProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // Its parent-death signal takes what is inside with it.
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

fn read_to_end(pipe: &mut (impl Read + AsFd), deadline: Instant) -> Result<String, ProbeError> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < MOST {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| ProbeError::TimedOut)?;
        let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout));
        match ready {
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
