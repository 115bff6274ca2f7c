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

use super::name::Name;
use crate::job::Thinking;
use crate::providers::Untaken;

/// The least budget, which must be less than `max_tokens`.
const LEAST_BUDGET: u32 = 1_024;

/// What a model understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Nothing,
    Budget,
    Adaptive,
}

/// How its thinking is turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Off {
    LeaveOut,
    Say(&'static str),
    Never,
}

/// Whether a model can do what a job asks of it.
///
/// # Errors
/// It can't: what the operator should know.
pub(super) fn check(model: &str, thinking: Option<Thinking>) -> Result<(), Untaken> {
    let refuse = |why: String| Err(Untaken::new("thinking", why, "leave `thinking` out, or choose another model"));
    let (form, off) = ability(model);
    match thinking {
        Some(Thinking::Off) if off == Off::Never => {
            refuse(format!("{model} always thinks, so `thinking: off` isn't possible"))
        }
        Some(Thinking::Low | Thinking::Medium | Thinking::High) if form == Form::Nothing => {
            refuse(format!("{model} can't think, so `thinking` isn't possible"))
        }
        _ => Ok(()),
    }
}

/// Whether a model can't think at all within so short a reply.
pub(super) fn has_no_room(model: &str, max_tokens: u32) -> bool {
    ability(model).0 == Form::Budget && max_tokens <= LEAST_BUDGET
}

/// Whether a turn of the model that thinks has to begin with a thought: the API refuses one that lost it, unless the request
/// asks for no thoughts. From 4.6 on it doesn't mind (`/adaptive-thinking`); others' servers aren't known to.
pub(super) fn begins_turns(model: &str) -> bool {
    matches!(Name::of(model), Name::Known(..)) && ability(model).0 == Form::Budget
}

/// Whether the API takes a model's thinking back only if nothing before it has changed, and refuses the request otherwise
/// (<https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks>): Fable and Mythos from 5.1,
/// the others from 5.5. What has no version in its name may be one of these.
pub(in crate::providers) fn binds_thinking(model: &str) -> bool {
    match Name::of(model) {
        Name::Known("fable" | "mythos", version) => version.is_none_or(|version| version >= (5, 1)),
        Name::Known(_, version) => version.is_none_or(|version| version >= (5, 5)),
        Name::Old | Name::Stranger => false,
    }
}

/// Whether a server refuses thinking that was produced behind other messages, as [`binds_thinking`] says of known models. A
/// deployment may have any name.
pub(in crate::providers) fn is_bound_elsewhere(refusal: &str) -> bool {
    refusal.contains("bound to a different conversation") || refusal.contains("prefix_mismatch_behavior")
}

/// The members of the request that say it: `thinking` and `output_config`.
pub(super) fn members(model: &str, thinking: Option<Thinking>, max_tokens: u32) -> Vec<(&'static str, Value)> {
    let (form, off) = ability(model);
    let (effort, budget) = match (thinking, off) {
        (None, _) | (Some(Thinking::Off), Off::LeaveOut | Off::Never) => return Vec::new(),
        (Some(Thinking::Off), Off::Say(kind)) => return vec![("thinking", json!({ "type": kind }))],
        (Some(Thinking::Low), _) => ("low", 2_048),
        (Some(Thinking::Medium), _) => ("medium", 8_192),
        (Some(Thinking::High), _) => ("high", 16_384),
    };
    match form {
        Form::Nothing => Vec::new(),
        Form::Adaptive => {
            vec![("thinking", json!({ "type": "adaptive" })), ("output_config", json!({ "effort": effort }))]
        }
        // A quarter of the reply stays for the answer. A reply too short for the least budget goes without.
        Form::Budget if max_tokens <= LEAST_BUDGET => Vec::new(),
        Form::Budget => {
            let budget = budget.min(max_tokens / 4 * 3).max(LEAST_BUDGET);
            vec![("thinking", json!({ "type": "enabled", "budget_tokens": budget }))]
        }
    }
}

fn ability(model: &str) -> (Form, Off) {
    let (family, version) = match Name::of(model) {
        Name::Old => return (Form::Nothing, Off::LeaveOut),
        // What imitates the API knows its older form.
        Name::Stranger => return (Form::Budget, Off::Say("disabled")),
        Name::Known(family, version) => (family, version),
    };
    let Some(version) = version else {
        return match family {
            "sonnet" => (Form::Adaptive, Off::Say("between_tools")),
            "haiku" => (Form::Adaptive, Off::Say("disabled")),
            _ => (Form::Adaptive, Off::Never),
        };
    };
    match (family, version) {
        (_, (..=2, _) | (3, ..=6)) => (Form::Nothing, Off::LeaveOut),
        ("fable" | "mythos", _) => (Form::Adaptive, Off::Never),
        (_, (3, _) | (4, ..=5)) => (Form::Budget, Off::LeaveOut),
        (_, (4, _)) => (Form::Adaptive, Off::LeaveOut),
        ("opus", (5, 5..) | (6.., _)) => (Form::Adaptive, Off::Never),
        ("sonnet", (5, 5..) | (6.., _)) => (Form::Adaptive, Off::Say("between_tools")),
        _ => (Form::Adaptive, Off::Say("disabled")),
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
            assert_eq!(json!(members(model, thinking, 8_000)), expected, "{model} {thinking:?}");
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
            assert!(binds_thinking(name), "{name}");
        }
        for name in
            ["claude-fable-5", "claude-opus-5", "claude-sonnet-4-5-20250929", "claude-2.1", "gpt-6", "my-claude"]
        {
            assert!(!binds_thinking(name), "{name}");
        }
    }

    #[test]
    fn a_budget_is_within_the_reply() {
        let budget = |max_tokens| {
            let members = members("claude-sonnet-4-5", Some(Thinking::High), max_tokens);
            members.first().map(|(_, value)| value["budget_tokens"].as_u64().unwrap())
        };
        assert_eq!(budget(64_000), Some(16_384));
        assert_eq!(budget(1_025), Some(1_024));
        assert_eq!(budget(1_024), None);
    }

    #[test]
    fn what_a_model_cannot_do_is_refused() {
        assert!(check("claude-opus-5-5", Some(Thinking::Off)).unwrap_err().why.contains("always thinks"));
        assert!(check("claude-mythos-preview", Some(Thinking::Off)).is_err());
        assert!(check("claude-3-haiku-20240307", Some(Thinking::Low)).unwrap_err().why.contains("can't think"));
        assert!(check("claude-3-haiku-20240307", Some(Thinking::Off)).is_ok());
        assert!(check("claude-opus-5-5", None).is_ok());
    }
}
