//! What the YAML reader gets to know about the keys of a job file.

use crate::job::{MAX_PARALLEL_SUBAGENTS, MAX_TOKENS, MAX_TURNS};
use crate::yaml::{ErrorDetail, FormatHints, Node};

use super::key_aliases::KEY_ALIASES;
use super::misplaced_keys;
use super::ranges::{range_help, range_message};

/// The hints for job files.
pub(super) static JOB_HINTS: FormatHints =
    FormatHints { key_aliases: KEY_ALIASES, complete_error, is_misplaced: misplaced_keys::is_misplaced };

const INPUT_TYPES: &[&str] = &["string", "integer", "number", "boolean", "path", "list"];

fn complete_error(node: &Node, error: &mut ErrorDetail) {
    match error.code {
        "unknown-key" => misplaced_keys::complete_error(node, error),
        "out-of-range" => complete_range(&node.path(), error),
        "wrong-type" => {
            // A type in the place of an input's declaration.
            if let (["inputs", name], Some(kind)) = (&node.path()[..], node.as_str())
                && INPUT_TYPES.contains(&kind)
            {
                error.help = Some(format!("write `{name}: {{ type: {kind} }}`"));
            }
        }
        _ => {}
    }
}

fn complete_range(path: &[&str], error: &mut ErrorDetail) {
    let agent_key = match path {
        ["parent", rest @ ..] | ["subagents", _, rest @ ..] => rest,
        ["model", ..] => path,
        _ => &[],
    };
    let most = match (path, agent_key) {
        (_, ["max_turns"]) => ("max_turns", MAX_TURNS),
        (_, ["max_tokens"] | ["model", "max_tokens"]) => ("max_tokens", MAX_TOKENS),
        (["limits", "parallel_subagents"], _) => ("parallel_subagents", MAX_PARALLEL_SUBAGENTS),
        (["limits", key @ ("tokens" | "tool_calls" | "subagents")], _) => {
            error.message = format!("`{key}` must be a whole number of at least 1");
            error.help = Some("write a number of at least 1, or `none` for no limit".to_owned());
            return;
        }
        _ => return,
    };
    error.message = range_message(most.0, most.1);
    error.help = Some(range_help(most.1));
}
