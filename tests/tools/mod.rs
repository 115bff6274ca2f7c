//! The tools of agents.

pub(crate) mod bash_rules;
pub(crate) mod file_tool_escapes;
pub(crate) mod images;
pub(crate) mod process_cleanup;
pub(crate) mod tool_memory;
