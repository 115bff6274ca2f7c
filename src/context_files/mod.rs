//! The context files and skills of a job: found and read before a run, so that everything that is wrong with them is known
//! before money is spent, and a run has the same texts from its start to its end.

mod file_reader;
mod loader;
mod skill_file;
mod texts;

use crate::diagnostic::{Rule, rule};

pub(crate) use loader::load;
pub use texts::{AgentFiles, ContextFile, Skill, WorkspaceFiles};

/// The rules about context files and skills.
pub const RULES: &[Rule] =
    &[rule!(Error "unreadable-context"), rule!(Error "context-too-large"), rule!(Error "bad-skill")];
