//! A command that no model asked for, run as `bash` runs one.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use super::bash::spell;
use super::output::Output;
use super::process::{Ended, MOST_PROCESSES, run};
use super::toolbox::CallLimits;
use super::workspace::Workspace;
use super::{Environment, Memory, Scope};
use crate::mask::Mask;
use crate::sandbox::Sandbox;

/// How commands are run.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// Where.
    pub workspace: &'a Arc<Workspace>,
    /// What must not be seen of their output.
    pub mask: &'a Arc<Mask>,
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
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// Without an exit code, for this reason; or it changed what none may change.
    Failed(String),
    /// The run is over.
    Stopped,
}

impl Command<'_> {
    /// Runs `bash -c` in the workspace: what it printed, masked and bounded, and how it ended.
    pub async fn run(&self, command: &str, limits: &CallLimits) -> (String, End) {
        let memory = Arc::new(Memory::new(Arc::clone(self.mask)));
        let scope = Scope {
            call_id: "",
            workspace: self.workspace,
            memory: &memory,
            mask: self.mask,
            environment: self.environment,
            sandbox: self.sandbox,
            limits,
        };
        let mut output = Output::new(self.mask, self.max_chars);
        let ended = run(command, &scope, false, self.timeout, MOST_PROCESSES, &mut output).await;
        let breach = self.sandbox.inspect().err();
        let end = match ended {
            _ if breach.is_some() => End::Failed(breach.map(|breach| breach.to_string()).unwrap_or_default()),
            Err(error) => End::Failed(format!("bash can't be started: {error}")),
            Ok(Ended::Stopped(_)) => End::Stopped,
            Ok(Ended::TimedOut) => End::Failed(format!("timed out after {}", spell(self.timeout))),
            Ok(Ended::Crowded) => End::Failed(format!("killed: it had more than {MOST_PROCESSES} processes at once")),
            Ok(Ended::Exited(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => End::Exited(code),
                (None, Some(signal)) => End::Failed(format!("killed by signal {signal}")),
                (None, None) => End::Failed("ended without an exit code".to_owned()),
            },
        };
        (output.finish(), end)
    }
}
