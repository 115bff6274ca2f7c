//! What Google's models can, told by their names.
//!
//! From <https://ai.google.dev/gemini-api/docs/thinking>, the pages on what is new in each model, and the developer's guides
//! of <https://docs.cloud.google.com/gemini-enterprise-agent-platform/models> (as of November 2026):
//! - up to Gemini 2.0: no thinking;
//! - 2.5: a budget in tokens (`thinkingBudget`): Pro 128 to 32768, Flash up to 24576, Flash-Lite 512 to 24576; 0 turns it
//!   off, except for Pro;
//! - 3 and later: a level (`thinkingLevel`). Pro takes `LOW` and `HIGH`, from 3.1 on `MEDIUM`, too; Flash and Flash-Lite
//!   up to 3.6 also `MINIMAL`, which hardly thinks; Flash 3.7 and 3.8 and Gemini 4 Argon `LOW`, `MEDIUM` and `HIGH`;
//! - 3.5 Flash-Lite, and all from 3.6 on, ignore a temperature;
//! - from 3 on, a call has to come back with the signature of its thought;
//! - a reply has at most 8192 tokens up to 2.0 and 65536 from 2.5 on; more is an error, as in
//!   <https://github.com/stackblitz-labs/bolt.diy/issues/955>.

use serde_json::{Map, Value, json};

use crate::job::Thinking;

/// How much a model thinks, and how that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThinkingControl {
    Unsupported,
    Budget {
        least: u32,
        most: u32,
        can_be_off: bool,
    },
    Level {
        has_minimal: bool,
        has_medium: bool,
    },
    /// A name that isn't known: newer, or somebody's own. Newer ones take levels.
    Unknown,
}

/// What a model can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capabilities {
    thinking: ThinkingControl,
    /// Whether it samples as it likes.
    pub(super) ignores_temperature: bool,
    /// Whether its calls are signed, and numbered.
    pub(super) signs_calls: bool,
    /// The most tokens of a reply, where they are known.
    pub(super) max_output_tokens: Option<u32>,
}

impl Capabilities {
    /// That of the model of this name.
    pub(super) fn of_model(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let words: Vec<&str> = name.rsplit('/').next().unwrap_or_default().split('-').collect();
        let has = |word: &str| words.contains(&word);
        if words.first() != Some(&"gemini") {
            return Self {
                thinking: ThinkingControl::Unknown,
                ignores_temperature: false,
                signs_calls: false,
                max_output_tokens: None,
            };
        }
        let version = words.get(1).and_then(|word| version(word));
        let (is_lite, is_flash, is_pro) = (has("lite"), has("flash"), has("pro"));
        let is_for_text = !["image", "tts", "live", "audio", "embedding"].iter().any(|word| has(word));
        let form = match version {
            _ if !is_for_text => ThinkingControl::Unknown,
            Some(version) if version < (2, 5) => ThinkingControl::Unsupported,
            Some((2, 5)) if is_pro => ThinkingControl::Budget { least: 128, most: 32_768, can_be_off: false },
            Some((2, 5)) if is_lite => ThinkingControl::Budget { least: 512, most: 24_576, can_be_off: true },
            Some((2, 5)) if is_flash => ThinkingControl::Budget { least: 1, most: 24_576, can_be_off: true },
            Some((3, 0)) if is_pro => ThinkingControl::Level { has_minimal: false, has_medium: false },
            Some((3, 1)) if is_pro => ThinkingControl::Level { has_minimal: false, has_medium: true },
            Some((3, 0..=6)) if is_flash => ThinkingControl::Level { has_minimal: true, has_medium: true },
            Some((3, 7 | 8)) if is_flash && !is_lite => ThinkingControl::Level { has_minimal: false, has_medium: true },
            Some((4, _)) if has("argon") => ThinkingControl::Level { has_minimal: false, has_medium: true },
            _ => ThinkingControl::Unknown,
        };
        let ignores_temperature = version.is_some_and(|version| version >= (3, 6) || (is_lite && version == (3, 5)));
        let longest_reply = match version {
            _ if !is_for_text => None,
            Some(version) if version < (2, 5) => Some(8_192),
            Some((2, 5) | (3, ..=1)) => Some(65_536),
            _ => None,
        };
        let signs = version.is_none_or(|version| version >= (3, 0));
        Self { thinking: form, ignores_temperature, signs_calls: signs, max_output_tokens: longest_reply }
    }

    /// Whether it can think as much as a job asks.
    ///
    /// # Errors
    /// It can't: what the operator should know.
    pub(super) fn check_thinking(self, model: &str, thinking: Option<Thinking>) -> Result<(), String> {
        match (self.thinking, thinking) {
            (ThinkingControl::Unsupported, Some(Thinking::Low | Thinking::Medium | Thinking::High)) => {
                Err(format!("{model} can't think, so `thinking` isn't possible"))
            }
            (
                ThinkingControl::Budget { can_be_off: false, .. } | ThinkingControl::Level { has_minimal: false, .. },
                Some(Thinking::Off),
            ) => Err(format!("{model} always thinks, so `thinking: off` isn't possible")),
            (ThinkingControl::Level { has_medium: false, .. }, Some(Thinking::Medium)) => {
                Err(format!("{model} takes `thinking: low` or `high` only"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the least that it thinks, where it is asked to, takes up the whole reply.
    pub(super) fn leaves_no_budget(self, thinking: Option<Thinking>, max_tokens: u32) -> bool {
        let is_on = matches!(thinking, Some(Thinking::Low | Thinking::Medium | Thinking::High));
        is_on && matches!(self.thinking, ThinkingControl::Budget { least, .. } if max_tokens <= least)
    }

    /// The `thinkingConfig` that asks for it; `None` where nothing is to be said. Summaries of thoughts are asked for
    /// with it: they are to be read in the record, and show that the model is at work.
    pub(super) fn thinking_config(self, thinking: Option<Thinking>, max_tokens: u32) -> Option<Value> {
        let (level, budget) = match thinking? {
            Thinking::Off => ("MINIMAL", 0),
            Thinking::Low => ("LOW", 2_048),
            Thinking::Medium => ("MEDIUM", 8_192),
            Thinking::High => ("HIGH", 24_576),
        };
        let mut config = Map::new();
        match self.thinking {
            ThinkingControl::Unsupported => return None,
            ThinkingControl::Budget { can_be_off: true, .. } if budget == 0 => {
                config.insert("thinkingBudget".to_owned(), json!(0));
            }
            // A quarter of the reply stays for the answer, for thoughts count as part of it.
            ThinkingControl::Budget { least, most, .. } => {
                let budget = budget.min(max_tokens / 4 * 3).clamp(least, most);
                config.insert("thinkingBudget".to_owned(), json!(budget));
            }
            ThinkingControl::Level { .. } | ThinkingControl::Unknown => {
                config.insert("thinkingLevel".to_owned(), json!(level));
            }
        }
        if thinking != Some(Thinking::Off) {
            config.insert("includeThoughts".to_owned(), json!(true));
        }
        Some(Value::Object(config))
    }
}

/// `2.5` is (2, 5), `3` is (3, 0).
fn version(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once('.').unwrap_or((word, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: [Thinking; 4] = [Thinking::Off, Thinking::Low, Thinking::Medium, Thinking::High];

    #[test]
    fn every_generation_gets_its_own_words() {
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
            let ability = Capabilities::of_model(model);
            let said = FOUR.map(|thinking| match ability.check_thinking(model, Some(thinking)) {
                Ok(()) => ability.thinking_config(Some(thinking), 65_536),
                Err(_) => no(),
            });
            assert_eq!(said, expected, "{model}");
            assert_eq!(ability.check_thinking(model, None), Ok(()));
            assert_eq!(ability.thinking_config(None, 65_536), None);
        }
    }

    #[test]
    fn a_budget_leaves_room_for_the_answer_and_stays_within_its_bounds() {
        let budget = |model, thinking, max_tokens| {
            Capabilities::of_model(model).thinking_config(Some(thinking), max_tokens).unwrap()["thinkingBudget"]
                .as_u64()
                .unwrap()
        };
        assert_eq!(budget("gemini-2.5-flash", Thinking::High, 8_000), 6_000);
        assert_eq!(budget("gemini-2.5-flash-lite", Thinking::Low, 300), 512);
        assert_eq!(budget("gemini-2.5-pro", Thinking::Low, 100), 128);
        assert_eq!(budget("gemini-2.5-flash", Thinking::Off, 100), 0);
        let has_no_room = |thinking, max_tokens| {
            Capabilities::of_model("gemini-2.5-flash-lite").leaves_no_budget(thinking, max_tokens)
        };
        assert!(has_no_room(Some(Thinking::Low), 512) && !has_no_room(Some(Thinking::Low), 513));
        assert!(!has_no_room(Some(Thinking::Off), 1) && !has_no_room(None, 1));
    }

    #[test]
    fn how_long_a_reply_can_be_is_known() {
        for (model, expected) in [
            ("gemini-1.5-pro", Some(8_192)),
            ("models/gemini-2.0-flash", Some(8_192)),
            ("gemini-2.5-flash-lite", Some(65_536)),
            ("gemini-3.1-pro-preview", Some(65_536)),
            ("gemini-2.5-flash-image", None),
            ("gemini-9-neon", None),
            ("gemma-4-31b-it", None),
        ] {
            assert_eq!(Capabilities::of_model(model).max_output_tokens, expected, "{model}");
        }
    }

    #[test]
    fn who_signs_and_who_ignores_a_temperature_is_known() {
        for (model, signs, ignores) in [
            ("gemini-2.5-pro", false, false),
            ("gemini-3-flash-preview", true, false),
            ("gemini-3.5-flash", true, false),
            ("gemini-3.5-flash-lite", true, true),
            ("gemini-3.8-flash", true, true),
            ("gemini-4-argon", true, true),
            ("gemini-pro-latest", true, false),
            ("gemma-4-31b-it", false, false),
        ] {
            let ability = Capabilities::of_model(model);
            assert_eq!((ability.signs_calls, ability.ignores_temperature), (signs, ignores), "{model}");
        }
    }
}
