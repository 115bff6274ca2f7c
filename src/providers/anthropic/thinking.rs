//! How requests ask Claude models to think.

use serde_json::{Value, json};

use crate::job::Thinking;
use crate::models::{Capabilities, ThinkingControl, ThinkingOff, effort_name};

/// The vendor of the models, as in the table of models.
pub(super) const VENDOR: &str = "anthropic";

/// Whether a turn has to start with thinking if the request asks for it. The API then refuses a turn that has lost its
/// thinking. Models from Claude 4.6 on, and compatible servers, don't require it.
pub(super) fn requires_leading_thinking(model: &str) -> bool {
    let found = Capabilities::of(VENDOR, model);
    found.is_known && matches!(found.thinking.control, ThinkingControl::Budget { .. })
}

/// The members of the request that ask for thinking: `thinking` and `output_config`.
pub(super) fn request_members(model: &str, thinking: Option<Thinking>, max_tokens: u32) -> Vec<(&'static str, Value)> {
    let support = Capabilities::of(VENDOR, model).thinking;
    let (thinking, budget) = match (thinking, support.off) {
        (None, _) | (Some(Thinking::Off), ThinkingOff::Omit | ThinkingOff::Impossible) => return Vec::new(),
        (Some(Thinking::Off), ThinkingOff::Word(kind)) => return vec![("thinking", json!({ "type": kind }))],
        (Some(Thinking::Low), _) => (Thinking::Low, 2_048),
        (Some(Thinking::Medium), _) => (Thinking::Medium, 8_192),
        (Some(Thinking::High), _) => (Thinking::High, 16_384),
        (Some(Thinking::XHigh), _) => (Thinking::XHigh, 32_768),
        (Some(Thinking::Max), _) => (Thinking::Max, u32::MAX),
    };
    match support.control {
        ThinkingControl::Unsupported => Vec::new(),
        ThinkingControl::Level => vec![
            ("thinking", json!({ "type": "adaptive" })),
            ("output_config", json!({ "effort": effort_name(thinking) })),
        ],
        // A reply that is too short for the minimum budget gets no thinking. Otherwise leave a quarter for the answer.
        ThinkingControl::Budget { min, .. } if max_tokens <= min => Vec::new(),
        ThinkingControl::Budget { min, max } => {
            let budget = budget.min(max_tokens / 4 * 3).clamp(min, max);
            vec![("thinking", json!({ "type": "enabled", "budget_tokens": budget }))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_generation_gets_its_thinking_options() {
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
            ("claude-opus-5-5", Some(Thinking::XHigh), adaptive("xhigh")),
            ("claude-haiku-5-5", Some(Thinking::Max), adaptive("max")),
            ("somebody/model-7", Some(Thinking::Max), budget(6000)),
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
    fn a_thinking_budget_is_smaller_than_the_reply() {
        let budget = |max_tokens| {
            let members = request_members("claude-sonnet-4-5", Some(Thinking::High), max_tokens);
            members.first().map(|(_, value)| value["budget_tokens"].as_u64().unwrap())
        };
        assert_eq!(budget(64_000), Some(16_384));
        assert_eq!(budget(1_025), Some(1_024));
        assert_eq!(budget(1_024), None);
    }
}
