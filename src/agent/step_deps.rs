//! What the steps before the agent run with, and what is known once they have run.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::event::StateRead;
use crate::sandbox::Sandbox;

/// The variable with the folder in which steps leave files, and from which agents read them.
pub const FILES_VARIABLE: &str = "LEGWORK_FILES";

/// Confines the steps of a run, which may also change this folder.
pub type ConfineSteps = dyn Fn(&Path) -> Result<Arc<Sandbox>, String> + Send + Sync;

/// What the steps before the agent run with.
#[derive(Clone, Default)]
pub struct StepDeps {
    /// Confines them; `None` in a replay, which runs none.
    pub confine: Option<Arc<ConfineSteps>>,
    /// The folder of the record for the files that they leave.
    pub files: Option<PathBuf>,
    /// Values that are taken instead of running the steps of these names.
    pub given: Map<String, Value>,
    /// The state that a run begins with whose journal has none yet.
    pub state: StateRead,
}

/// What is known once the steps have run.
#[derive(Debug, Default)]
pub(super) struct LateState {
    /// The values of `before`, by name.
    pub(super) before: Map<String, Value>,
    /// The state at the start.
    pub(super) state: Value,
    /// The names of the checks whose conditions are false.
    pub(super) skipped_checks: HashSet<String>,
}
