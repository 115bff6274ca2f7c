//! A job's own checks: commands that are run as `bash` runs an agent's, and pass where they exit with 0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::agent::{Review, Reviewed};
use crate::mask::Mask;
use crate::plan::PlannedCheck;
use crate::sandbox::Sandbox;
use crate::tools::command::{Command, End};
use crate::tools::environment::Environment;
use crate::tools::toolbox::CallLimits;
use crate::tools::workspace::Workspace;

/// The most that is kept of what a check prints, in characters: its beginning and its end.
pub const MAX_OUTPUT: usize = 20_000;

/// Runs checks in a workspace.
#[derive(Debug)]
pub struct Checks {
    /// Where they are run.
    pub workspace: Arc<Workspace>,
    /// What must not be seen.
    pub mask: Arc<Mask>,
    /// What they see of the environment.
    pub environment: Arc<Environment>,
    /// How they are confined.
    pub sandbox: Arc<Sandbox>,
}

impl Review for Checks {
    fn check<'a>(&'a self, check: &'a PlannedCheck, _: u32, limits: &'a CallLimits) -> BoxFuture<'a, Option<Reviewed>> {
        Box::pin(async move {
            let begun = Instant::now();
            let command = Command {
                workspace: &self.workspace,
                mask: &self.mask,
                environment: &self.environment,
                sandbox: &self.sandbox,
                timeout: Duration::from_millis(check.timeout_ms.max(1)),
                max_chars: MAX_OUTPUT,
            };
            let (mut output, end) = command.run(&check.run, limits).await;
            let (exit_code, why) = match end {
                End::Stopped => return None,
                End::Exited(code) => (Some(code), None),
                End::Failed(why) => (None, Some(why)),
            };
            if let Some(why) = why {
                if !output.is_empty() && !output.ends_with('\n') {
                    output.push('\n');
                }
                output.push_str(&self.mask.text(&why));
            }
            let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            Some(Reviewed { exit_code, output, duration_ms })
        })
    }
}
