//! Keys of other programs' agent files, recipes and SDKs.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::diagnostic::suggest_name;
use crate::yaml::KeyAliases;

/// A key of another format, and the key here that means the same. Case, `-` and `_` are ignored.
pub(super) static KEY_ALIASES: KeyAliases = &[
    // The job.
    ("title", "name"),
    ("summary", "description"),
    ("about", "description"),
    ("parameters", "inputs"),
    ("params", "inputs"),
    ("arguments", "inputs"),
    ("args", "inputs"),
    ("vars", "inputs"),
    ("llm", "model"),
    ("model_name", "model"),
    ("main", "parent"),
    ("root", "parent"),
    ("agent", "parent"),
    ("orchestrator", "parent"),
    ("agents", "subagents"),
    ("sub_recipes", "subagents"),
    ("children", "subagents"),
    ("workers", "subagents"),
    ("budget", "limits"),
    ("variables", "env"),
    ("environment", "env"),
    ("env_vars", "env"),
    ("environment_variables", "env"),
    ("network_access", "network"),
    ("response", "result"),
    ("returns", "result"),
    ("output", "result"),
    ("internet", "network"),
    // An agent.
    ("system_prompt", "system"),
    ("system_message", "system"),
    ("append_system_prompt", "system"),
    ("developer_instructions", "system"),
    ("instruction", "system"),
    ("instructions", "system"),
    ("persona", "system"),
    ("instructions", "prompt"),
    ("user_prompt", "prompt"),
    ("user_message", "prompt"),
    ("message", "prompt"),
    ("query", "prompt"),
    ("task", "prompt"),
    ("allowed_tools", "tools"),
    ("toolsets", "tools"),
    ("toolset", "tools"),
    ("functions", "tools"),
    ("capabilities", "tools"),
    ("max_iterations", "max_turns"),
    ("max_steps", "max_turns"),
    ("max_rounds", "max_turns"),
    ("turns", "max_turns"),
    ("turn_limit", "max_turns"),
    ("max_output_tokens", "max_tokens"),
    ("max_completion_tokens", "max_tokens"),
    ("when_to_use", "description"),
    ("result", "returns"),
    ("output", "returns"),
    ("json_schema", "schema"),
    ("output_schema", "schema"),
    // Limits.
    ("timeout", "wall_clock"),
    ("max_time", "wall_clock"),
    ("time_limit", "wall_clock"),
    ("duration", "wall_clock"),
    ("max_duration", "wall_clock"),
    ("budget_usd", "cost_usd"),
    ("max_budget_usd", "cost_usd"),
    ("max_cost", "cost_usd"),
    ("max_cost_usd", "cost_usd"),
    ("cost", "cost_usd"),
    ("max_tokens", "tokens"),
    ("max_total_tokens", "tokens"),
    ("max_tool_calls", "tool_calls"),
    ("max_subagents", "subagents"),
    ("max_parallel", "parallel_subagents"),
    ("concurrency", "parallel_subagents"),
    ("parallel", "parallel_subagents"),
    // Inputs, models, tools and files.
    ("input_type", "type"),
    ("kind", "type"),
    ("choices", "enum"),
    ("options", "enum"),
    ("values", "enum"),
    ("default_value", "default"),
    ("sensitive", "secret"),
    ("model", "name"),
    ("reasoning", "thinking"),
    ("reasoning_effort", "thinking"),
    ("effort", "thinking"),
    ("temp", "temperature"),
    ("stop_sequences", "stop"),
    ("stop_words", "stop"),
    ("context_window", "context"),
    ("context_length", "context"),
    ("context_size", "context"),
    ("max_context_tokens", "context"),
    ("num_ctx", "context"),
    ("path", "file"),
    ("commands", "allow"),
    ("allowed_commands", "allow"),
];

/// Whether a key is an alias or a misspelling of one of ours.
pub(super) fn is_alias_of(key: &str, ours: &str) -> bool {
    suggest_name(key, [ours]).is_some() || keys_for_alias(key).any(|meant| meant == ours)
}

/// The keys that an alias may mean.
pub(super) fn keys_for_alias(key: &str) -> impl Iterator<Item = &'static str> {
    static FOLDED: LazyLock<HashMap<String, Vec<&'static str>>> = LazyLock::new(|| {
        let mut folded: HashMap<String, Vec<&'static str>> = HashMap::new();
        for (elsewhere, here) in KEY_ALIASES {
            folded.entry(fold_key(elsewhere)).or_default().push(here);
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
        for (at, (elsewhere, here)) in KEY_ALIASES.iter().enumerate() {
            let again =
                KEY_ALIASES[..at].iter().find(|(other, same)| fold_key(other) == fold_key(elsewhere) && same == here);
            assert!(again.is_none(), "{elsewhere}");
            assert_ne!(fold_key(elsewhere), fold_key(here), "{elsewhere}");
        }
    }
}
