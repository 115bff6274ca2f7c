//! Runs a job's checks: commands in the environment of `bash`, which pass if they exit with 0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::agent::{CheckRun, CheckRunner};
use crate::plan::PlannedCheck;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::tools::check_command::{CheckCommand, CheckOutcome};
use crate::tools::environment::Environment;
use crate::tools::toolbox::CallLimits;
use crate::workspace::Workspace;

/// The most that is kept of what a check prints, in characters: its beginning and its end.
pub const MAX_OUTPUT_CHARS: usize = 20_000;

/// Runs checks in a workspace.
#[derive(Debug)]
pub struct CommandCheckRunner {
    /// Where they are run.
    pub workspace: Arc<Workspace>,
    /// What must not be seen.
    pub mask: Arc<Redactor>,
    /// Their environment variables.
    pub environment: Arc<Environment>,
    /// How they are confined.
    pub sandbox: Arc<Sandbox>,
}

impl CheckRunner for CommandCheckRunner {
    fn run<'a>(&'a self, check: &'a PlannedCheck, _: u32, limits: &'a CallLimits) -> BoxFuture<'a, Option<CheckRun>> {
        Box::pin(async move {
            let begun = Instant::now();
            let command = CheckCommand {
                workspace: &self.workspace,
                mask: &self.mask,
                environment: &self.environment,
                sandbox: &self.sandbox,
                timeout: Duration::from_millis(check.timeout_ms.max(1)),
                max_chars: MAX_OUTPUT_CHARS,
            };
            let (mut output, end) = command.run(&check.run, limits).await;
            let (exit_code, why) = match end {
                CheckOutcome::Stopped => return None,
                CheckOutcome::Exited(code) => (Some(code), None),
                CheckOutcome::Failed(why) => (None, Some(why)),
            };
            if let Some(why) = why {
                if !output.is_empty() && !output.ends_with('\n') {
                    output.push('\n');
                }
                output.push_str(&self.mask.redact(&why));
            }
            let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            Some(CheckRun { exit_code, output, duration_ms })
        })
    }
}
