//! Whole runs: how they start, end, resume and are replayed.

pub(crate) mod before_steps;
pub(crate) mod keyed_runs;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod run_failures;
pub(crate) mod runs;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod subagents;
#[cfg(target_os = "linux")]
pub(crate) mod suspensions;
pub(crate) mod ways_to_continue;
