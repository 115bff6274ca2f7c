//! The ways out that a run is given, and how many refusals it has recorded.

use std::sync::Arc;

use crate::egress::Egress;
use crate::event::NetworkRefused;
use crate::sandbox::Sandbox;

/// The ways out of a run.
#[derive(Debug, Clone, Default)]
pub struct NetworkDeps {
    /// The way out that all lists share; `None` if there is no list.
    pub egress: Option<Egress>,
    /// For subagents that have less than the open network of the run.
    pub narrowed: Option<Arc<Sandbox>>,
    /// How many refusals earlier parts of the run have recorded.
    pub refused_lines: u64,
}

/// How many refusals a run has recorded, and those that it has no more lines for.
#[derive(Debug, Default)]
pub(super) struct RefusedLines {
    pub(super) count: u64,
    pub(super) rest: Option<NetworkRefused>,
}
