//! Contents from git's object store, by a git that runs nothing of what the repository says.
//!
//! Only `git cat-file --batch` is asked, with the git folder named, so that nothing is looked for; without a home, a
//! system's configuration or an environment; without filters, which it would only apply on request; without replacements;
//! and with no way to fetch what is missing. What it gives is hashed again: a command can write into the object store.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::{MAX_FILE_BYTES, git_object_id, hex};

/// A git that answers.
pub(super) struct GitObjects {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sha256: bool,
    /// Ends it when its time is up: a pipe in the place of an object would be waited for.
    watchdog: Option<(Sender<()>, JoinHandle<()>)>,
}

impl GitObjects {
    /// Starts `git`, which is absolute, for a git folder.
    pub(super) fn open(git: &Path, folder: &Path, sha256: bool, end: Instant) -> io::Result<Self> {
        let mut child = Command::new(git)
            .arg("--git-dir")
            .arg(folder)
            .args(["--no-pager", "--no-replace-objects", "--no-optional-locks", "-c", "core.fsmonitor=false"])
            .args(["-c", "protocol.allow=never", "cat-file", "--batch"])
            .current_dir("/")
            .env_clear()
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("HOME", "/nonexistent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("git has no pipes"))?;
        let (tell, told) = channel();
        let pid = Pid::from_child(&child);
        let watchdog = std::thread::Builder::new().name("git".to_owned()).spawn(move || {
            // It isn't waited for before this thread has ended, so the number is still its own.
            if told.recv_timeout(end.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        })?;
        Ok(Self { child, input, output: BufReader::new(output), sha256, watchdog: Some((tell, watchdog)) })
    }

    /// The content of that name; `None` where there is none, it is too long, or is another.
    pub(super) fn content(&mut self, name: &str) -> Option<Vec<u8>> {
        writeln!(self.input, "{name}").ok()?;
        let mut head = String::new();
        (&mut self.output).take(1024).read_line(&mut head).ok()?;
        let length = head.trim_end().strip_prefix(name)?.strip_prefix(" blob ")?;
        let length: u64 = length.parse().ok()?;
        if length > MAX_FILE_BYTES {
            io::copy(&mut (&mut self.output).take(length.checked_add(1)?), &mut io::sink()).ok()?;
            return None;
        }
        let mut content = vec![0; usize::try_from(length).ok()? + 1];
        self.output.read_exact(&mut content).ok()?;
        content.pop();
        (hex(&git_object_id(&content, self.sha256)) == name).then_some(content)
    }
}

impl Drop for GitObjects {
    fn drop(&mut self) {
        if let Some((tell, watchdog)) = self.watchdog.take() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            drop(tell);
            let _ = watchdog.join();
        }
        let _ = self.child.wait();
    }
}
