//! A command that no model asked for, run as `bash` runs one.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use super::bash::spell;
use super::toolbox::CallLimits;
use super::{Environment, ToolContext, ToolState};
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::{MOST_PROCESSES, ProcessOutcome, run};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::workspace::Workspace;

/// How commands are run.
#[derive(Debug, Clone, Copy)]
pub struct CheckCommand<'a> {
    /// Where.
    pub workspace: &'a Arc<Workspace>,
    /// What must not be seen of their output.
    pub mask: &'a Arc<Redactor>,
    /// What they see of the environment.
    pub environment: &'a Environment,
    /// How they are confined.
    pub sandbox: &'a Sandbox,
    /// How long one may take.
    pub timeout: Duration,
    /// The most that is kept of what one prints, in characters.
    pub max_chars: usize,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// By itself, with this code.
    Exited(i32),
    /// Without an exit code, for this reason; or it changed what none may change.
    Failed(String),
    /// The run is over.
    Stopped,
}

impl CheckCommand<'_> {
    /// Runs `bash -c` in the workspace: what it printed, masked and bounded, and how it ended.
    pub async fn run(&self, command: &str, limits: &CallLimits) -> (String, CheckOutcome) {
        let memory = Arc::new(ToolState::new(Arc::clone(self.mask)));
        let scope = ToolContext {
            call_id: "",
            workspace: self.workspace,
            state: &memory,
            mask: self.mask,
            environment: self.environment,
            sandbox: self.sandbox,
            limits,
        };
        let mut output = CommandOutput::new(self.mask, self.max_chars);
        let ended = run(command, &scope, false, self.timeout, MOST_PROCESSES, &mut output).await;
        let breach = self.sandbox.check_tampering().err();
        let end = match ended {
            _ if breach.is_some() => CheckOutcome::Failed(breach.map(|breach| breach.to_string()).unwrap_or_default()),
            Err(error) => CheckOutcome::Failed(format!("bash can't be started: {error}")),
            Ok(ProcessOutcome::Stopped(_)) => CheckOutcome::Stopped,
            Ok(ProcessOutcome::TimedOut) => CheckOutcome::Failed(format!("timed out after {}", spell(self.timeout))),
            Ok(ProcessOutcome::TooManyProcesses) => {
                CheckOutcome::Failed(format!("killed: it had more than {MOST_PROCESSES} processes at once"))
            }
            Ok(ProcessOutcome::Exited(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => CheckOutcome::Exited(code),
                (None, Some(signal)) => CheckOutcome::Failed(format!("killed by signal {signal}")),
                (None, None) => CheckOutcome::Failed("ended without an exit code".to_owned()),
            },
        };
        (output.finish(), end)
    }
}
