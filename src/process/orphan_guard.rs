//! A process that kills commands if this program is killed, for systems whose kernel doesn't: macOS.

use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rustix::process::Pid;

use crate::sync::IgnorePoison;

/// Reads `+ ID` for a command that was started and `- ID` for one that has ended. The end of the input comes with the end of
/// this program; then it kills the process groups of the commands that are left. It runs in the background, so that it isn't a
/// child of this program.
const SCRIPT: &str = r#"exec 3<&0
{
    trap '' HUP INT TERM
    ids=' '
    while read -r change id; do
        case $change in
            +) ids="$ids$id " ;;
            -) ids="${ids%% $id *} ${ids#* $id }" ;;
        esac
    done
    for id in $ids; do kill -KILL "-$id"; done
} <&3 3<&- &"#;

/// Starts the process with the first command and tells it which commands are running.
#[derive(Debug, Default)]
pub(super) struct OrphanGuard(Mutex<Option<PipeWriter>>);

impl OrphanGuard {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Must be called before a command is started.
    ///
    /// # Errors
    /// If the process can't be started.
    pub(super) fn arm(&self) -> io::Result<()> {
        let mut pipe = self.0.lock().ignore_poison();
        if pipe.is_none() {
            let (reader, writer) = io::pipe()?;
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", SCRIPT, "legwork-orphan-guard"]).current_dir("/").env_clear();
            // A process group of its own, so that a signal to ours doesn't reach it.
            shell.process_group(0).stdin(OwnedFd::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
            if !shell.status()?.success() {
                return Err(io::Error::other("the process that ends commands if legwork is killed can't be started"));
            }
            *pipe = Some(writer);
        }
        Ok(())
    }

    /// A command that leads a process group was started.
    pub(super) fn started(&self, command: Pid) {
        self.report('+', command);
    }

    /// A command has ended.
    pub(super) fn ended(&self, command: Pid) {
        self.report('-', command);
    }

    fn report(&self, change: char, command: Pid) {
        if let Some(pipe) = &mut *self.0.lock().ignore_poison() {
            // If the process was killed, the next commands continue without it.
            let _ = pipe.write_all(format!("{change} {}\n", command.as_raw_nonzero()).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Child;

    use rustix::process::{Signal, kill_process};

    use super::*;

    #[test]
    fn only_commands_that_are_running_are_killed() {
        let guard = OrphanGuard::new();
        guard.arm().unwrap();
        let sleeper = |_| Command::new("sleep").arg("30").process_group(0).spawn().unwrap();
        let mut sleepers: Vec<Child> = (0..4).map(sleeper).collect();
        for sleeper in &sleepers {
            guard.started(Pid::from_child(sleeper));
        }
        for at in [1, 3] {
            guard.ended(Pid::from_child(&sleepers[at]));
        }
        drop(guard);
        // The guard kills all at once, so the others have been spared when the last one has ended.
        for at in [2, 0] {
            assert_eq!(sleepers[at].wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        for at in [1, 3] {
            // Not SIGTERM, which they ignore if whoever started the tests does.
            kill_process(Pid::from_child(&sleepers[at]), Signal::ALARM).unwrap();
            assert_eq!(sleepers[at].wait().unwrap().signal(), Some(libc::SIGALRM));
        }
    }
}
