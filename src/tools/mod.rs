//! The tools that an agent can use. A new tool is one file here and one line in [`TOOLS`].

pub(crate) mod bash;
mod edit_file;
mod file_tool;
pub(crate) mod glob;
mod grep;
mod input;
pub mod output;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod path_swap_race_tests;
mod read_file;
mod server_tool;
pub mod set_state;
pub mod skill;
pub mod submit_result;
pub mod task;
mod timed_validation;
mod todo;
mod tool;
mod tool_state;
pub mod toolbox;
mod write_file;

use crate::diagnostic::{Rule, rule};
use crate::message::ToolCall;
use crate::text::truncate;

pub use crate::message::ToolError;
pub use server_tool::{ServerCall, ServerTool, ToolDefinition, ToolServers};
pub use tool::{Builtin, CallFuture, Tool, ToolContext, ToolGrant, ToolOutput, ToolSpec};
pub use tool_state::{FileVersion, ToolState};

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

/// The built-in tool with this name.
pub fn builtin(name: &str) -> Option<&'static Builtin> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Whether a tool starts commands.
pub fn starts_commands(name: &str) -> bool {
    builtin(name).is_some_and(|tool| tool.starts_commands)
}

/// Whether a tool can change files of the workspace. One that isn't built in may.
pub fn may_change_files(name: &str) -> bool {
    builtin(name).is_none_or(|tool| tool.changes_files)
}

/// What a call is about, in one line of at most 100 characters: the main field of its tool, or else the first text in its
/// input.
pub fn call_subject(call: &ToolCall) -> String {
    let input: serde_json::Value = match serde_json::from_str(call.input.get()) {
        Ok(input) => input,
        Err(_) => return String::new(),
    };
    let subject = builtin(&call.tool).and_then(|tool| tool.subject_field);
    let preferred = subject.and_then(|subject| input.get(subject)?.as_str());
    let first = || input.as_object()?.values().find_map(serde_json::Value::as_str);
    let text = preferred.or_else(first).unwrap_or_default();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    // A tab between two words is a space; other control characters are left out.
    let shown: String = line.replace('\t', " ").chars().filter(|letter| !letter.is_control()).collect();
    truncate::ellipsize(&shown, 100)
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn the_subject_of_a_call_is_one_line_with_its_spaces() {
        let subject = |command: &str| {
            let input = serde_json::json!({ "command": command }).to_string();
            let input = std::sync::Arc::from(RawValue::from_string(input).unwrap());
            call_subject(&ToolCall { id: "1".into(), tool: "bash".into(), input, input_error: None })
        };
        assert_eq!(subject("\n  printf\t'a\tb'\u{7} | wc\nls"), "printf 'a b' | wc");
    }
}
