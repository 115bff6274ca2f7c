//! The tools that an agent can use. A new tool is one file here and one line in [`TOOLS`].

pub(crate) mod bash;
mod edit_file;
mod file_tool;
mod glob;
mod grep;
mod input;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod path_swap_race_tests;
mod read_file;
mod server_tool;
pub mod submit_result;
pub mod task;
mod todo;
mod tool;
mod tool_state;
pub mod toolbox;
mod write_file;

use crate::diagnostic::{Rule, rule};

pub use crate::message::ToolError;
pub use server_tool::{ServerTool, ToolDefinition, ToolServers};
pub use tool::{Builtin, CallFuture, Tool, ToolContext, ToolGrant, ToolSpec};
pub use tool_state::{FileVersion, TodoItem, TodoStatus, ToolState};

/// The rules about tools' options, in addition to those of the YAML reader.
pub const RULES: &[Rule] = &[
    rule!(Error "unexpected-tool-options"),
    rule!(Error "bad-bash-rule"),
    rule!(Error "rule-test-failed"),
    rule!(Warning "empty-allow"),
];

/// All built-in tools.
pub static TOOLS: &[Builtin] = &[
    bash::BUILTIN,
    read_file::BUILTIN,
    write_file::BUILTIN,
    edit_file::BUILTIN,
    glob::BUILTIN,
    grep::BUILTIN,
    todo::BUILTIN,
    task::BUILTIN,
];
