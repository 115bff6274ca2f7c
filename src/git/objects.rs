//! Object names, and contents from the object store.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::text::hex;

/// The name that git gives to a file's content.
pub(crate) fn object_id(content: &[u8], sha256: bool) -> Vec<u8> {
    fn hash<D: Digest>(content: &[u8]) -> Vec<u8> {
        let mut digest = D::new();
        digest.update(format!("blob {}\0", content.len()));
        digest.update(content);
        digest.finalize().to_vec()
    }
    if sha256 { hash::<Sha256>(content) } else { hash::<Sha1>(content) }
}

/// A `git cat-file --batch` process that reads the contents of objects.
///
/// It runs nothing that the repository configures: the git folder is given, so nothing is searched for; there is no home,
/// no system configuration and no environment; `cat-file` applies no filters unless asked to; replacements and fetching
/// missing objects are off. Contents are hashed again, because a command can write into the object store.
pub(crate) struct GitObjects {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sha256: bool,
    /// The largest content that is returned, in bytes.
    max_bytes: u64,
    /// Kills the process at the deadline: git would wait for ever on a pipe in place of an object.
    watchdog: Option<(Sender<()>, JoinHandle<()>)>,
}

impl GitObjects {
    /// Starts `git`, an absolute path, for a git folder.
    pub(crate) fn open(
        git: &Path,
        git_dir: &Path,
        sha256: bool,
        max_bytes: u64,
        deadline: Instant,
    ) -> io::Result<Self> {
        let mut child = Command::new(git)
            .arg("--git-dir")
            .arg(git_dir)
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
        let (done, is_done) = channel();
        let pid = Pid::from_child(&child);
        let watchdog = std::thread::Builder::new().name("git".to_owned()).spawn(move || {
            // The process isn't reaped before this thread has ended, so the process id is still its own.
            if is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                == Err(RecvTimeoutError::Timeout)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        })?;
        Ok(Self { child, input, output: BufReader::new(output), sha256, max_bytes, watchdog: Some((done, watchdog)) })
    }

    /// The content of an object; `None` if it is missing, too large or doesn't match its name.
    pub(crate) fn content(&mut self, name: &str) -> Option<Vec<u8>> {
        writeln!(self.input, "{name}").ok()?;
        let mut header = String::new();
        (&mut self.output).take(1024).read_line(&mut header).ok()?;
        let length = header.trim_end().strip_prefix(name)?.strip_prefix(" blob ")?;
        let length: u64 = length.parse().ok()?;
        if length > self.max_bytes {
            io::copy(&mut (&mut self.output).take(length.checked_add(1)?), &mut io::sink()).ok()?;
            return None;
        }
        let mut content = vec![0; usize::try_from(length).ok()? + 1];
        self.output.read_exact(&mut content).ok()?;
        content.pop();
        (hex(&object_id(&content, self.sha256)) == name).then_some(content)
    }
}

impl Drop for GitObjects {
    fn drop(&mut self) {
        if let Some((done, watchdog)) = self.watchdog.take() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            drop(done);
            let _ = watchdog.join();
        }
        let _ = self.child.wait();
    }
}
