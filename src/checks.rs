//! Runs a job's checks: commands in the environment of `bash`, which pass if they exit with 0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::agent::{CheckRun, CheckRunner};
use crate::plan::PlannedCheck;
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::{MAX_PROCESSES, ProcessOutcome, ShellCommand};
use crate::process::{CallLimits, Environment};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::workspace::Workspace;

/// How much of a check's output is kept, in characters: its beginning and its end.
pub const MAX_OUTPUT_CHARS: usize = 20_000;

/// Runs checks in a workspace.
#[derive(Debug)]
pub struct CommandCheckRunner {
    /// The folder that checks run in.
    pub workspace: Arc<Workspace>,
    /// The secrets to remove from their output.
    pub mask: Arc<Redactor>,
    /// Their environment variables.
    pub environment: Arc<Environment>,
    /// How they are confined.
    pub sandbox: Arc<Sandbox>,
}

impl CheckRunner for CommandCheckRunner {
    fn run<'a>(&'a self, check: &'a PlannedCheck, _: u32, limits: &'a CallLimits) -> BoxFuture<'a, Option<CheckRun>> {
        Box::pin(async move {
            let started = Instant::now();
            let command = ShellCommand {
                command: &check.run,
                workspace: &self.workspace,
                environment: &self.environment,
                sandbox: &self.sandbox,
                read_only: false,
                timeout: Duration::from_millis(check.timeout_ms.max(1)),
                max_processes: MAX_PROCESSES,
                limits,
            };
            let mut output = CommandOutput::new(&self.mask, MAX_OUTPUT_CHARS);
            let outcome = command.run(&mut output).await;
            let (exit_code, failure) = match (self.sandbox.check_tampering(), outcome) {
                (Err(error), _) => (None, Some(error.to_string())),
                (Ok(()), Err(error)) => (None, Some(format!("bash can't be started: {error}"))),
                (Ok(()), Ok(ProcessOutcome::Stopped(_))) => return None,
                (Ok(()), Ok(outcome)) => match outcome.exit_code() {
                    Some(code) => (Some(code), None),
                    None => (None, command.describe_failure(outcome)),
                },
            };
            let mut output = output.finish();
            if let Some(failure) = failure {
                if !output.is_empty() && !output.ends_with('\n') {
                    output.push('\n');
                }
                output.push_str(&self.mask.redact(&failure));
            }
            let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            Some(CheckRun { exit_code, output, duration_ms })
        })
    }
}
