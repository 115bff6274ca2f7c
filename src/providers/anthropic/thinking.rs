//! How much a Claude model thinks, in the words that its generation understands.
//!
//! From <https://platform.claude.com/docs/en/build-with-claude/thinking>, `/adaptive-thinking`, `/extended-thinking` and the
//! migration guides of the single models (as of November 2026):
//! - up to Claude 3.5: no thinking;
//! - 3.7 to 4.5: `{"type": "enabled", "budget_tokens": N}`, N at least 1024 and below `max_tokens`; off without it;
//! - 4.6 to 4.8: `{"type": "adaptive"}` with `output_config.effort` (4.7 and later refuse a budget); off without it;
//! - 5 and later: the same, and on without it. To turn it off: `disabled` for Opus 5, Sonnet 5 and Haiku 5.5,
//!   `between_tools` for Sonnet 5.5 and later. Opus 5.5 and every Fable and Mythos can't be turned off.
//!
//! All of them allow `tool_choice` `auto` and `none` while they think, and refuse to be forced to a tool.

use serde_json::{Value, json};

use super::model_name::ModelName;
use crate::job::Thinking;
use crate::providers::UnsupportedOption;

/// The least budget, which must be less than `max_tokens`.
const MIN_BUDGET_TOKENS: u32 = 1_024;

/// What a model understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThinkingMode {
    Unsupported,
    Budget,
    Adaptive,
}

/// How its thinking is turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DisableMode {
    Omit,
    Explicit(&'static str),
    Unsupported,
}

/// Whether a model can do what a job asks of it.
///
/// # Errors
/// It can't: what the operator should know.
pub(super) fn check_supported(model: &str, thinking: Option<Thinking>) -> Result<(), UnsupportedOption> {
    let refuse =
        |why: String| Err(UnsupportedOption::new("thinking", why, "leave `thinking` out, or choose another model"));
    let (form, off) = thinking_support(model);
    match thinking {
        Some(Thinking::Off) if off == DisableMode::Unsupported => {
            refuse(format!("{model} always thinks, so `thinking: off` isn't possible"))
        }
        Some(Thinking::Low | Thinking::Medium | Thinking::High) if form == ThinkingMode::Unsupported => {
            refuse(format!("{model} can't think, so `thinking` isn't possible"))
        }
        _ => Ok(()),
    }
}

/// Whether a model can't think at all within so short a reply.
pub(super) fn leaves_no_budget(model: &str, max_tokens: u32) -> bool {
    thinking_support(model).0 == ThinkingMode::Budget && max_tokens <= MIN_BUDGET_TOKENS
}

/// Whether a turn of the model that thinks has to begin with a thought: the API refuses one that lost it, unless the request
/// asks for no thoughts. From 4.6 on it doesn't mind (`/adaptive-thinking`); others' servers aren't known to.
pub(super) fn requires_leading_thinking(model: &str) -> bool {
    matches!(ModelName::parse(model), ModelName::Known(..)) && thinking_support(model).0 == ThinkingMode::Budget
}

/// Whether the API takes a model's thinking back only if nothing before it has changed, and refuses the request otherwise
/// (<https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks>): Fable and Mythos from 5.1,
/// the others from 5.5. What has no version in its name may be one of these.
pub(in crate::providers) fn has_prefix_bound_thinking(model: &str) -> bool {
    match ModelName::parse(model) {
        ModelName::Known("fable" | "mythos", version) => version.is_none_or(|version| version >= (5, 1)),
        ModelName::Known(_, version) => version.is_none_or(|version| version >= (5, 5)),
        ModelName::Legacy | ModelName::Unknown => false,
    }
}

/// Whether a server refuses thinking that was produced behind other messages, as [`binds_thinking`] says of known models. A
/// deployment may have any name.
pub(in crate::providers) fn is_prefix_mismatch(refusal: &str) -> bool {
    refusal.contains("bound to a different conversation") || refusal.contains("prefix_mismatch_behavior")
}

/// The members of the request that say it: `thinking` and `output_config`.
pub(super) fn request_members(model: &str, thinking: Option<Thinking>, max_tokens: u32) -> Vec<(&'static str, Value)> {
    let (form, off) = thinking_support(model);
    let (effort, budget) = match (thinking, off) {
        (None, _) | (Some(Thinking::Off), DisableMode::Omit | DisableMode::Unsupported) => return Vec::new(),
        (Some(Thinking::Off), DisableMode::Explicit(kind)) => return vec![("thinking", json!({ "type": kind }))],
        (Some(Thinking::Low), _) => ("low", 2_048),
        (Some(Thinking::Medium), _) => ("medium", 8_192),
        (Some(Thinking::High), _) => ("high", 16_384),
    };
    match form {
        ThinkingMode::Unsupported => Vec::new(),
        ThinkingMode::Adaptive => {
            vec![("thinking", json!({ "type": "adaptive" })), ("output_config", json!({ "effort": effort }))]
        }
        // A quarter of the reply stays for the answer. A reply too short for the least budget goes without.
        ThinkingMode::Budget if max_tokens <= MIN_BUDGET_TOKENS => Vec::new(),
        ThinkingMode::Budget => {
            let budget = budget.min(max_tokens / 4 * 3).max(MIN_BUDGET_TOKENS);
            vec![("thinking", json!({ "type": "enabled", "budget_tokens": budget }))]
        }
    }
}

fn thinking_support(model: &str) -> (ThinkingMode, DisableMode) {
    let (family, version) = match ModelName::parse(model) {
        ModelName::Legacy => return (ThinkingMode::Unsupported, DisableMode::Omit),
        // What imitates the API knows its older form.
        ModelName::Unknown => return (ThinkingMode::Budget, DisableMode::Explicit("disabled")),
        ModelName::Known(family, version) => (family, version),
    };
    let Some(version) = version else {
        return match family {
            "sonnet" => (ThinkingMode::Adaptive, DisableMode::Explicit("between_tools")),
            "haiku" => (ThinkingMode::Adaptive, DisableMode::Explicit("disabled")),
            _ => (ThinkingMode::Adaptive, DisableMode::Unsupported),
        };
    };
    match (family, version) {
        (_, (..=2, _) | (3, ..=6)) => (ThinkingMode::Unsupported, DisableMode::Omit),
        ("fable" | "mythos", _) => (ThinkingMode::Adaptive, DisableMode::Unsupported),
        (_, (3, _) | (4, ..=5)) => (ThinkingMode::Budget, DisableMode::Omit),
        (_, (4, _)) => (ThinkingMode::Adaptive, DisableMode::Omit),
        ("opus", (5, 5..) | (6.., _)) => (ThinkingMode::Adaptive, DisableMode::Unsupported),
        ("sonnet", (5, 5..) | (6.., _)) => (ThinkingMode::Adaptive, DisableMode::Explicit("between_tools")),
        _ => (ThinkingMode::Adaptive, DisableMode::Explicit("disabled")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generation_gets_its_own_words() {
        let budget = |tokens| json!([["thinking", { "type": "enabled", "budget_tokens": tokens }]]);
        let adaptive = |effort| json!([["thinking", { "type": "adaptive" }], ["output_config", { "effort": effort }]]);
        let off = |kind| json!([["thinking", { "type": kind }]]);
        let cases = [
            ("claude-3-5-sonnet-20241022", Some(Thinking::Off), json!([])),
            ("claude-3-7-sonnet-latest", Some(Thinking::Low), budget(2048)),
            ("claude-sonnet-4-20250514", Some(Thinking::High), budget(6000)),
            ("claude-haiku-4-5-20251001", Some(Thinking::Off), json!([])),
            ("claude-opus-4-5", Some(Thinking::Medium), budget(6000)),
            ("anthropic.claude-opus-4-6-v1:0", Some(Thinking::High), adaptive("high")),
            ("claude-opus-4-8", Some(Thinking::Off), json!([])),
            ("claude-opus-5", Some(Thinking::Off), off("disabled")),
            ("claude-sonnet-5", Some(Thinking::Off), off("disabled")),
            ("claude-sonnet-5-5", Some(Thinking::Off), off("between_tools")),
            ("claude-haiku-5-5", Some(Thinking::Off), off("disabled")),
            ("claude-opus-5-5", Some(Thinking::Low), adaptive("low")),
            ("claude-fable-5-2", Some(Thinking::Medium), adaptive("medium")),
            ("claude-sonnet-latest", Some(Thinking::Medium), adaptive("medium")),
            ("somebody/model-7", Some(Thinking::Low), budget(2048)),
            ("somebody/model-7", Some(Thinking::Off), off("disabled")),
            ("claude-opus-5-5", None, json!([])),
        ];
        for (model, thinking, expected) in cases {
            assert_eq!(json!(request_members(model, thinking, 8_000)), expected, "{model} {thinking:?}");
        }
    }

    #[test]
    fn newer_models_bind_their_thinking_to_what_precedes_it() {
        for name in [
            "claude-fable-5-1",
            "claude-mythos-5-2",
            "claude-opus-5-5",
            "anthropic/claude-sonnet-5.5",
            "us.anthropic.claude-haiku-5-5-v1:0",
            "claude-opus-6",
            "claude-sonnet-latest",
        ] {
            assert!(has_prefix_bound_thinking(name), "{name}");
        }
        for name in
            ["claude-fable-5", "claude-opus-5", "claude-sonnet-4-5-20250929", "claude-2.1", "gpt-6", "my-claude"]
        {
            assert!(!has_prefix_bound_thinking(name), "{name}");
        }
    }

    #[test]
    fn a_budget_is_within_the_reply() {
        let budget = |max_tokens| {
            let members = request_members("claude-sonnet-4-5", Some(Thinking::High), max_tokens);
            members.first().map(|(_, value)| value["budget_tokens"].as_u64().unwrap())
        };
        assert_eq!(budget(64_000), Some(16_384));
        assert_eq!(budget(1_025), Some(1_024));
        assert_eq!(budget(1_024), None);
    }

    #[test]
    fn what_a_model_cannot_do_is_refused() {
        assert!(check_supported("claude-opus-5-5", Some(Thinking::Off)).unwrap_err().why.contains("always thinks"));
        assert!(check_supported("claude-mythos-preview", Some(Thinking::Off)).is_err());
        assert!(
            check_supported("claude-3-haiku-20240307", Some(Thinking::Low)).unwrap_err().why.contains("can't think")
        );
        assert!(check_supported("claude-3-haiku-20240307", Some(Thinking::Off)).is_ok());
        assert!(check_supported("claude-opus-5-5", None).is_ok());
    }
}
