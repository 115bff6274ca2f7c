//! How requests ask Gemini models to think.

use serde_json::{Map, Value, json};

use crate::job::Thinking;
use crate::models::{ThinkingControl, ThinkingOff, ThinkingSupport};

/// The `thinkingConfig` of a request, if it needs one. It requests summaries of thoughts, too: they are recorded, and
/// they show that the model is working.
pub(super) fn thinking_config(support: &ThinkingSupport, thinking: Option<Thinking>, max_tokens: u32) -> Option<Value> {
    let (level, budget) = match (thinking?, support.off) {
        (Thinking::Off, ThinkingOff::Word(word)) => (word, 0),
        (Thinking::Off, _) => ("", 0),
        (Thinking::Low, _) => ("LOW", 2_048),
        (Thinking::Medium, _) => ("MEDIUM", 8_192),
        (Thinking::High, _) => ("HIGH", 24_576),
        (Thinking::XHigh, _) => ("XHIGH", 32_768),
        (Thinking::Max, _) => ("MAX", u32::MAX),
    };
    let mut config = Map::new();
    match support.control {
        ThinkingControl::Unsupported => return None,
        ThinkingControl::Budget { .. } if budget == 0 && support.off != ThinkingOff::Impossible => {
            config.insert("thinkingBudget".to_owned(), json!(0));
        }
        // Thoughts count as a part of the reply, so leave a quarter of it for the answer.
        ThinkingControl::Budget { min, max } => {
            config.insert("thinkingBudget".to_owned(), json!(budget.min(max_tokens / 4 * 3).clamp(min, max)));
        }
        ThinkingControl::Level => {
            config.insert("thinkingLevel".to_owned(), json!(level));
        }
    }
    if thinking != Some(Thinking::Off) {
        config.insert("includeThoughts".to_owned(), json!(true));
    }
    Some(Value::Object(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Capabilities;
    use crate::providers::Model;

    const FOUR: [Thinking; 4] = [Thinking::Off, Thinking::Low, Thinking::Medium, Thinking::High];

    #[test]
    fn every_model_generation_gets_its_thinking_options() {
        let budget = |tokens: u32| Some(json!({ "thinkingBudget": tokens, "includeThoughts": true }));
        let level = |level: &str| Some(json!({ "thinkingLevel": level, "includeThoughts": true }));
        let [low, medium, high] = ["LOW", "MEDIUM", "HIGH"].map(level);
        let no = || Some(json!("no"));
        let off = || Some(json!({ "thinkingBudget": 0 }));
        let minimal = || Some(json!({ "thinkingLevel": "MINIMAL" }));
        for (model, expected) in [
            ("gemini-1.5-pro", [None, no(), no(), no()]),
            ("gemini-2.0-flash-001", [None, no(), no(), no()]),
            ("gemini-2.5-pro", [no(), budget(2_048), budget(8_192), budget(24_576)]),
            ("models/gemini-2.5-flash-preview-09-2025", [off(), budget(2_048), budget(8_192), budget(24_576)]),
            ("gemini-2.5-flash-lite", [off(), budget(2_048), budget(8_192), budget(24_576)]),
            ("gemini-3-pro-preview", [no(), low.clone(), no(), high.clone()]),
            ("gemini-3.1-pro-preview", [no(), low.clone(), medium.clone(), high.clone()]),
            ("gemini-3-flash-preview", [minimal(), low.clone(), medium.clone(), high.clone()]),
            ("gemini-3.5-flash-lite", [minimal(), low.clone(), medium.clone(), high.clone()]),
            ("gemini-3.8-flash", [no(), low.clone(), medium.clone(), high.clone()]),
            ("gemini-4-argon", [no(), low.clone(), medium.clone(), high.clone()]),
            ("gemini-flash-latest", [minimal(), low.clone(), medium.clone(), high.clone()]),
            ("gemini-9-neon", [minimal(), low.clone(), medium.clone(), high.clone()]),
            ("somebodys-own", [minimal(), low, medium, high]),
        ] {
            let support = Capabilities::of("google", model).thinking;
            let configs = FOUR.map(|thinking| {
                let asking = Model { thinking: Some(thinking), ..Model::new("gemini", model) };
                match super::super::LIMITS.check_thinking(&asking, false) {
                    Ok(_) => thinking_config(&support, Some(thinking), 65_536),
                    Err(_) => no(),
                }
            });
            assert_eq!(configs, expected, "{model}");
            assert_eq!(thinking_config(&support, None, 65_536), None);
        }
    }

    #[test]
    fn a_thinking_budget_leaves_room_for_the_reply_and_stays_in_range() {
        let budget = |model, thinking, max_tokens| {
            let support = Capabilities::of("google", model).thinking;
            thinking_config(&support, Some(thinking), max_tokens).unwrap()["thinkingBudget"].as_u64().unwrap()
        };
        assert_eq!(budget("gemini-2.5-flash", Thinking::High, 8_000), 6_000);
        assert_eq!(budget("gemini-2.5-flash-lite", Thinking::Low, 300), 512);
        assert_eq!(budget("gemini-2.5-pro", Thinking::Low, 100), 128);
        assert_eq!(budget("gemini-2.5-flash", Thinking::Off, 100), 0);
        let has_no_room = |thinking, max_tokens| {
            Capabilities::of("google", "gemini-2.5-flash-lite").thinking.exceeds_reply(thinking, max_tokens)
        };
        assert!(has_no_room(Some(Thinking::Low), 512) && !has_no_room(Some(Thinking::Low), 513));
        assert!(!has_no_room(Some(Thinking::Off), 1) && !has_no_room(None, 1));
    }
}
