//! The real executable, in its own folder and environment, with a timeout for every wait.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;

use super::record::RunFolder;
use super::server::{KEY, Server};
use super::test_folder::TestFolder;

/// A program that isn't started yet.
pub(crate) struct Program {
    command: Command,
    workspace: PathBuf,
    stdin: Option<Vec<u8>>,
    timeout: Duration,
}

impl Program {
    /// The environment has only `PATH`, an empty home, and no proxy for loopback; stdin is empty.
    pub(super) fn new(folder: &TestFolder, executable: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(executable);
        command
            .args(arguments)
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.home())
            .env("NO_PROXY", "127.0.0.1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { command, workspace: folder.path(), stdin: None, timeout: Duration::from_secs(180) }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Points the provider `anthropic` at a test's server, with its key.
    pub(crate) fn anthropic(self, server: &Server) -> Self {
        self.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY)
    }

    /// Points the providers `openai` and `openai-chat` at a test's server, with its key.
    pub(crate) fn openai(self, server: &Server) -> Self {
        self.env("OPENAI_BASE_URL", format!("{}/v1", server.url())).env("OPENAI_API_KEY", KEY)
    }

    /// Points the provider `gemini` at a test's server, with its key.
    pub(crate) fn gemini(self, server: &Server) -> Self {
        self.env("GOOGLE_GEMINI_BASE_URL", server.url()).env("GEMINI_API_KEY", KEY)
    }

    /// Starts in a folder below the workspace.
    pub(crate) fn in_folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(self.workspace.join(folder));
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets the timeout, three minutes by default. At the timeout the program is killed and the test fails.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts it without waiting.
    pub(crate) fn spawn(mut self) -> RunningProgram {
        self.command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = self.command.spawn().expect("the executable starts");
        if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), self.stdin) {
            // The program need not read all of it.
            thread::spawn(move || pipe.write_all(&bytes));
        }
        let stdout = drain(child.stdout.take().expect("stdout is piped"));
        let stderr = drain(child.stderr.take().expect("stderr is piped"));
        let line = format!("{:?}", self.command);
        RunningProgram {
            child,
            stdout,
            stderr,
            timeout: self.timeout,
            workspace: self.workspace,
            command_line: line,
            reaped: false,
        }
    }

    /// The command that starts it.
    pub(super) fn into_command(self) -> Command {
        self.command
    }

    /// Starts it and waits for its end.
    pub(crate) fn run(self) -> ProgramOutput {
        self.spawn().wait()
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    receive
}

/// A running program. Killed on drop.
pub(crate) struct RunningProgram {
    child: Child,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    timeout: Duration,
    workspace: PathBuf,
    command_line: String,
    reaped: bool,
}

impl RunningProgram {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it hasn't ended yet.
    pub(crate) fn is_alive(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::Pid(self.raw_pid()), options), Ok(None))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> &Self {
        kill_process(self.raw_pid(), signal).expect("a signal to the program");
        self
    }

    /// Waits for its end. At the timeout, kills it and fails the test.
    pub(crate) fn wait(mut self) -> ProgramOutput {
        let (send, ended) = channel();
        let pid = self.raw_pid();
        thread::spawn(move || {
            // It stays a zombie, so that its process id can't be reused before it is killed below.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let _ = send.send(());
        });
        let in_time = ended.recv_timeout(self.timeout).is_ok();
        if !in_time {
            let _ = self.child.kill();
        }
        let status = self.child.wait().expect("the program's end");
        self.reaped = true;
        // Processes that it left behind may still hold the pipes.
        let [stdout, stderr] = [&self.stdout, &self.stderr]
            .map(|pipe| pipe.recv_timeout(Duration::from_secs(120)).expect("its output ends with it"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(in_time, "{} took longer than {:?}\n{stdout}\n{stderr}", self.command_line, self.timeout);
        ProgramOutput {
            status,
            stdout,
            stderr,
            workspace: self.workspace.clone(),
            command_line: self.command_line.clone(),
        }
    }

    fn raw_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program that has ended. Every assertion names the command and shows its whole output.
pub(crate) struct ProgramOutput {
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    workspace: PathBuf,
    command_line: String,
}

impl ProgramOutput {
    /// Asserts that it exited with this code.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert!(
            self.status.code() == Some(code),
            "{} instead of exit code {code}\n{}",
            self.status,
            self.full_output()
        );
        self
    }

    /// Whether it exited with this code.
    pub(crate) fn exited_with(&self, code: i32) -> bool {
        self.status.code() == Some(code)
    }

    /// The signal that killed it, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.status)
    }

    #[track_caller]
    pub(crate) fn assert_stdout(&self, text: &str) -> &Self {
        assert!(self.stdout == text, "stdout isn't {text:?}\n{}", self.full_output());
        self
    }

    #[track_caller]
    pub(crate) fn assert_stdout_contains(&self, text: &str) -> &Self {
        assert!(self.stdout.contains(text), "stdout lacks {text:?}\n{}", self.full_output());
        self
    }

    #[track_caller]
    pub(crate) fn assert_stderr(&self, text: &str) -> &Self {
        assert!(self.stderr == text, "stderr isn't {text:?}\n{}", self.full_output());
        self
    }

    #[track_caller]
    pub(crate) fn assert_stderr_contains(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "stderr lacks {text:?}\n{}", self.full_output());
        self
    }

    /// Asserts that the text is neither in stdout nor in stderr.
    #[track_caller]
    pub(crate) fn assert_not_printed(&self, text: &str) -> &Self {
        let printed = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(!printed, "{text:?} was printed\n{}", self.full_output());
        self
    }

    /// Stdout as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout isn't JSON: {error}\n{}", self.full_output()))
    }

    /// Stdout as one JSON value per line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("a line isn't JSON: {error}\n{line}\n{}", self.full_output()))
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The newest run's folder below `runs/`, if only one job has run.
    #[track_caller]
    pub(crate) fn run_folder(&self) -> RunFolder {
        let runs = self.workspace.join("runs");
        let entries =
            std::fs::read_dir(&runs).unwrap_or_else(|error| panic!("no runs: {error}\n{}", self.full_output()));
        let jobs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        let [job] = jobs.as_slice() else { panic!("not one job's runs: {jobs:?}\n{}", self.full_output()) };
        self.run_folder_in(job)
    }

    /// The newest run's folder in a job's runs folder, for `--out` and for several jobs.
    #[track_caller]
    pub(crate) fn run_folder_in(&self, job: impl AsRef<Path>) -> RunFolder {
        let latest = self.workspace.join(job).join("latest");
        let path = latest.canonicalize().unwrap_or_else(|error| panic!("{latest:?}: {error}\n{}", self.full_output()));
        RunFolder::new(path)
    }

    /// The whole output, for the message of a failed assertion.
    pub(crate) fn full_output(&self) -> String {
        format!("{}\n--- {}\n--- stdout\n{}\n--- stderr\n{}", self.command_line, self.status, self.stdout, self.stderr)
    }
}
