//! Child processes: starting commands, limiting their output, and ending everything that they started.

pub(crate) mod bounded_output;
mod environment;
pub mod fd_limit;
pub(crate) mod job_control;
#[cfg(any(test, target_os = "macos"))]
mod orphan_guard;
#[cfg(target_os = "macos")]
mod process_table;
#[cfg(target_os = "linux")]
mod process_tree;
pub(crate) mod program;
pub(crate) mod reaper;
mod run_deadline;
pub(crate) mod spawn;

use tokio_util::sync::CancellationToken;

pub use environment::{Environment, WITHHELD, is_always_passed};
pub use reaper::kill_all;
pub use run_deadline::RunDeadline;

/// When a tool call or a check must end.
#[derive(Debug, Clone)]
pub struct CallLimits {
    /// When the run's time is up.
    pub deadline: RunDeadline,
    /// Cancelled when the run ends early.
    pub cancel: CancellationToken,
}

impl CallLimits {
    /// Why the call must stop now, if it must.
    pub(crate) fn stop_reason(&self) -> Option<&'static str> {
        if self.cancel.is_cancelled() {
            Some("the run was cancelled")
        } else if self.deadline.is_expired() {
            Some("the run's time is up")
        } else {
            None
        }
    }
}
