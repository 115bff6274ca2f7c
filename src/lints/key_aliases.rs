//! Keys of other programs' agent files, recipes and SDKs.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::diagnostic::suggest_name;
use crate::yaml::KeyAliases;

/// The keys here, each with the keys of other formats that mean the same. Case, `-` and `_` are ignored.
pub(super) static KEY_ALIASES: KeyAliases = &[
    // The job.
    ("name", &["title"]),
    ("description", &["summary", "about"]),
    ("inputs", &["parameters", "params", "arguments", "args", "vars"]),
    ("model", &["llm", "model_name"]),
    ("parent", &["main", "root", "agent", "orchestrator"]),
    ("subagents", &["agents", "sub_recipes", "children", "workers"]),
    ("limits", &["budget"]),
    ("mcp", &["mcp_servers", "tool_servers", "servers"]),
    ("env", &["variables", "environment", "env_vars", "environment_variables"]),
    ("network", &["network_access", "internet"]),
    ("result", &["response", "returns"]),
    // An agent.
    (
        "system",
        &["system_prompt", "system_message", "append_system_prompt", "developer_instructions", "system_template"],
    ),
    ("system", &["instruction", "instructions", "persona"]),
    (
        "prompt",
        &[
            "instructions",
            "user_prompt",
            "user",
            "user_message",
            "message",
            "query",
            "task",
            "instance_template",
            "problem_statement",
        ],
    ),
    ("tools", &["allowed_tools", "core_tools", "toolsets", "toolset", "functions", "capabilities"]),
    ("max_turns", &["max_iterations", "max_steps", "max_rounds", "turns", "turn_limit", "step_limit", "max_iter"]),
    ("max_tokens", &["max_output_tokens", "max_completion_tokens"]),
    ("description", &["when_to_use"]),
    ("returns", &["result", "output"]),
    ("schema", &["json_schema", "output_schema"]),
    // Limits.
    ("wall_clock", &["timeout", "max_time", "time_limit", "duration", "max_duration"]),
    (
        "cost_usd",
        &["budget_usd", "max_budget_usd", "max_cost", "max_cost_usd", "max_budget_per_task", "cost", "cost_limit"],
    ),
    ("tokens", &["max_tokens", "max_total_tokens"]),
    ("tool_calls", &["max_tool_calls"]),
    ("subagents", &["max_subagents"]),
    ("parallel_subagents", &["max_parallel", "concurrency", "parallel"]),
    // Inputs, models, tools and files.
    ("type", &["input_type", "kind"]),
    ("enum", &["choices", "options", "values"]),
    ("default", &["default_value"]),
    ("secret", &["sensitive"]),
    ("name", &["model"]),
    ("thinking", &["reasoning", "reasoning_effort", "model_reasoning_effort", "effort"]),
    ("tier", &["service_tier"]),
    ("temperature", &["temp"]),
    ("stop", &["stop_sequences", "stop_words"]),
    ("context", &["context_window", "context_length", "context_size", "max_context_tokens", "num_ctx"]),
    ("file", &["path"]),
    ("allow", &["commands", "allowed_commands"]),
];

/// Whether a key is an alias or a misspelling of one of ours.
pub(super) fn is_alias_of(key: &str, ours: &str) -> bool {
    suggest_name(key, [ours]).is_some() || keys_for_alias(key).any(|meant| meant == ours)
}

/// The keys that an alias may mean.
pub(super) fn keys_for_alias(key: &str) -> impl Iterator<Item = &'static str> {
    static FOLDED: LazyLock<HashMap<String, Vec<&'static str>>> = LazyLock::new(|| {
        let mut folded: HashMap<String, Vec<&'static str>> = HashMap::new();
        for (here, elsewhere) in KEY_ALIASES {
            elsewhere.iter().for_each(|alias| folded.entry(fold_key(alias)).or_default().push(here));
        }
        folded
    });
    FOLDED.get(&fold_key(key)).into_iter().flatten().copied()
}

/// The longest key that is compared with others, in characters.
const MAX_KEY: usize = 100;

/// A key in lower case without dashes and underscores; the start of a very long one.
pub(super) fn fold_key(key: &str) -> String {
    let letters = key.chars().take(MAX_KEY);
    letters.filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_listed_once() {
        let mut pairs = std::collections::HashSet::new();
        for (here, elsewhere) in KEY_ALIASES {
            for alias in *elsewhere {
                assert!(pairs.insert((fold_key(alias), here)), "{alias}");
                assert_ne!(fold_key(alias), fold_key(here), "{alias}");
            }
        }
    }
}
