//! Finds out whether a tier works: one command is started as every other will be and reports how it is confined.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

#[cfg(target_os = "linux")]
use super::{policy::SandboxPolicy, programs};

/// How long all probes of a tier may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Prints what the kernel says about the shell, without starting another program.
#[cfg(target_os = "linux")]
pub(super) const STATUS_SCRIPT: &str = "while read -r line; do echo \"$line\"; done < /proc/self/status\n";

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

#[cfg(target_os = "linux")]
/// Checks the content of `/proc/self/status`, see proc_pid_status(5): that these sets of capabilities are empty, that there is
/// no way to gain privileges, and optionally that system calls are filtered.
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

/// Runs a confined shell to its end, or kills it at the deadline. Returns what it printed.
///
/// # Errors
/// If it can't be started, fails or doesn't end in time.
pub(super) fn run(shell: &mut Command, deadline: Instant) -> Result<String, String> {
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let explain = |error: io::Error| error.to_string();
    let mut child = shell.spawn().map_err(explain)?;
    let process = Pid::from_child(&child);
    let (ended, has_ended) = channel::<()>();
    let watchdog = thread::Builder::new().spawn(move || {
        let left = deadline.saturating_duration_since(Instant::now());
        let timed_out = has_ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout);
        if timed_out {
            // Processes in a sandbox end with their parent.
            let _ = kill_process_group(process, Signal::KILL);
        }
        timed_out
    });
    let watchdog = watchdog.map_err(explain)?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    // The output is a page or two, which fits into the pipes' buffers. Errors show up as missing output.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut stdout));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut stderr));
    // It isn't reaped before the other thread has ended, so the process id is still its own.
    let _ = waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    drop(ended);
    let timed_out = watchdog.join().unwrap_or(true);
    let status = child.wait().map_err(explain)?;
    if timed_out {
        return Err(format!("a test command didn't end within {} seconds", PROBE_TIMEOUT.as_secs()));
    }
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        let line = stderr.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no error message");
        return Err(line.chars().take(200).collect());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
