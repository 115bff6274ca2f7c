//! Runs the scripts of a job: its checks, and its steps before the agent.

use std::time::Duration;

use super::network::CallNetwork;
use super::run_abort::RunAbort;
use super::run_state::RunState;
use crate::event::PARENT;
use crate::process::Environment;
use crate::process::spawn::{EnvironmentError, MAX_PROCESSES, ProcessOutcome, ShellCommand, Streams};
use crate::sandbox::Sandbox;

/// The most characters that are kept of a script's output: its beginning and its end.
pub(super) const MAX_OUTPUT_CHARS: usize = 20_000;

/// The options of bash for scripts: a line that fails fails the script, and so does a pipe.
const SCRIPT_OPTIONS: &[&str] = &["-e", "-o", "pipefail"];

/// The exit code of a command that SIGPIPE ended.
const EXIT_SIGPIPE: i32 = 141;

/// The reason for that exit code, with what to do. Without `pipefail`, it is never that of a pipe.
const SIGPIPE_REASON: &str = "exit code 141: a command was ended by SIGPIPE, because the next command of its pipe stopped \
                              reading. Use a command that reads everything: `sed -n 1p` for `head -n 1`, \
                              `grep PATTERN > /dev/null` for `grep -q PATTERN`.";

/// A script, and what it runs with.
pub(super) struct Script<'a> {
    /// What it is: `check NAME`, `step NAME`.
    pub(super) title: &'a str,
    pub(super) run: &'a str,
    pub(super) timeout_ms: u64,
    pub(super) environment: &'a Environment,
    pub(super) sandbox: &'a Sandbox,
}

/// How a script ended.
pub(super) struct ScriptEnd {
    /// Its exit code, if it had one.
    pub(super) exit_code: Option<i32>,
    /// What its output doesn't say about a failure.
    pub(super) reason: Option<String>,
    /// The hosts that it wasn't allowed to reach, in one line.
    pub(super) refused: Option<String>,
    /// Why the run must end, if it must.
    pub(super) failure: Option<EnvironmentError>,
}

impl Script<'_> {
    /// Runs the script in the workspace of a run.
    ///
    /// # Errors
    /// The run was stopped meanwhile.
    pub(super) async fn run(&self, run: &RunState, streams: Streams<'_>) -> Result<ScriptEnd, RunAbort> {
        let workspace = &run.deps.tools.workspace;
        let limits = run.call_limits();
        let mut network = CallNetwork::new(run, PARENT, self.title, run.deps.tools.egress.as_ref());
        let egress = network.egress();
        let command = ShellCommand {
            command: self.run,
            shell_options: SCRIPT_OPTIONS,
            workspace,
            environment: self.environment,
            sandbox: self.sandbox,
            read_only: false,
            egress: egress.as_ref(),
            timeout: Duration::from_millis(self.timeout_ms.max(1)),
            max_processes: MAX_PROCESSES,
            limits: &limits,
        };
        let outcome = network.watch(command.run_with(streams)).await?;
        let refused = network.finish()?;
        let (exit_code, reason) = match &outcome {
            Err(error) => (None, Some(error.to_string())),
            Ok(ProcessOutcome::Stopped(_)) => return Err(run.wait_for_stop().await),
            Ok(outcome) => match outcome.exit_code() {
                Some(EXIT_SIGPIPE) => (Some(EXIT_SIGPIPE), Some(SIGPIPE_REASON.to_owned())),
                Some(code) => (Some(code), None),
                None => (None, command.describe_failure(*outcome)),
            },
        };
        let moved = || workspace.check_not_moved().err().map(EnvironmentError::WorkspaceMoved);
        let failure = outcome.err().filter(EnvironmentError::ends_run).or_else(moved);
        Ok(ScriptEnd { exit_code, reason, refused, failure })
    }
}
