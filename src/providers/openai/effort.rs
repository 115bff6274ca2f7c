//! How much OpenAI's models think, in the words that each of them takes.
//!
//! From <https://developers.openai.com/api/docs/guides/reasoning> and what the API answers to values that it doesn't take
//! (as of November 2026):
//! - GPT-3.5 to GPT-4.5 and the `chat` and `search` models don't think, or don't let it be chosen;
//! - the o series takes `low`, `medium` and `high` and always thinks; so do the `codex` and open-weight (`gpt-oss`) models;
//! - GPT-5, `mini` and `nano` take `minimal`, too; GPT-5.1 and later `none` instead;
//! - `gpt-5-pro` takes `high`, later `pro` models `medium` and `high`.
//!
//! Chat Completions takes no tools from GPT-5.4 and later while they think, and most of these think unless told not to.

use crate::job::Thinking;

/// What a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ability {
    Nothing,
    Always,
    /// Down to this.
    Down(&'static str),
    Pro,
    OnlyHigh,
    /// A name that isn't known: newer, or somebody's own.
    Unknown,
}

/// The word for what a job asks of a model of OpenAI's; `None` where nothing is to be said.
///
/// # Errors
/// The model can't: what the operator should know.
pub(in crate::providers) fn of_openai(model: &str, thinking: Option<Thinking>) -> Result<Option<&'static str>, String> {
    let Some(thinking) = thinking else { return Ok(None) };
    let ability = ability(model);
    match (ability, thinking) {
        (Ability::Nothing, Thinking::Off) => Ok(None),
        (Ability::Nothing, _) => Err(format!("{model} can't think, or not by choice, so `thinking` isn't possible")),
        (Ability::Always | Ability::Pro | Ability::OnlyHigh, Thinking::Off) => {
            Err(format!("{model} always thinks, so `thinking: off` isn't possible"))
        }
        (Ability::Pro, Thinking::Low) => Err(format!("{model} takes `thinking: medium` or `high` only")),
        (Ability::OnlyHigh, Thinking::Low | Thinking::Medium) => Err(format!("{model} takes `thinking: high` only")),
        (Ability::Down(least), Thinking::Off) => Ok(Some(least)),
        _ => Ok(Some(word(thinking))),
    }
}

/// The word for what a job asks of any other model.
pub(in crate::providers) fn word(thinking: Thinking) -> &'static str {
    match thinking {
        Thinking::Off => "none",
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
    }
}

/// Whether a model gives its thoughts, encrypted, to be sent back; asking another for them is an error.
pub(in crate::providers) fn thinks(model: &str) -> bool {
    ability(model) != Ability::Nothing
}

/// Whether Chat Completions takes no tools from a model while it thinks.
pub(in crate::providers) fn thinks_without_tools(model: &str) -> bool {
    matches!(ability(model), Ability::Down("none")) && version(&words(model)).is_some_and(|version| version >= (5, 4))
}

/// The name's words; a fine-tuned model's are those of its base (`ft:gpt-4.1-mini:...`).
fn words(model: &str) -> Vec<String> {
    let name = model.to_ascii_lowercase();
    let name = name.strip_prefix("ft:").map_or(&*name, |rest| rest.split(':').next().unwrap_or_default());
    name.rsplit('/').next().unwrap_or_default().split('-').map(str::to_owned).collect()
}

/// `gpt-5.6-sol` is (5, 6).
fn version(words: &[String]) -> Option<(u32, u32)> {
    let (major, minor) = match words {
        [gpt, version, ..] if gpt == "gpt" => version.split_once('.').unwrap_or((version, "0")),
        _ => return None,
    };
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn ability(model: &str) -> Ability {
    let words = words(model);
    let has = |word: &str| words.iter().any(|own| own == word);
    let first = words.first().map_or("", String::as_str);
    let is_o = first.strip_prefix('o').is_some_and(|number| number.parse::<u32>().is_ok());
    match (first, version(&words)) {
        _ if is_o || has("oss") || first == "codex" => Ability::Always,
        ("chatgpt", _) => Ability::Nothing,
        (_, Some((..=4, _))) => Ability::Nothing,
        (_, Some(_)) if has("chat") || has("search") => Ability::Nothing,
        (_, Some((5, 0))) if has("pro") => Ability::OnlyHigh,
        (_, Some(_)) if has("pro") => Ability::Pro,
        (_, Some(_)) if has("codex") => Ability::Always,
        (_, Some((5, 0))) => Ability::Down("minimal"),
        (_, Some(_)) => Ability::Down("none"),
        // `gpt-4o`, `gpt-35-turbo`.
        ("gpt", None) if words.get(1).is_some_and(|word| word.starts_with(['3', '4'])) => Ability::Nothing,
        _ => Ability::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generation_gets_its_own_words() {
        const FOUR: [Thinking; 4] = [Thinking::Off, Thinking::Low, Thinking::Medium, Thinking::High];
        let (no, left_out) = (Err(()), Ok(None));
        let [none, minimal, low, medium, high] =
            ["none", "minimal", "low", "medium", "high"].map(|word| Ok(Some(word)));
        for (model, expected) in [
            ("gpt-3.5-turbo-0125", [left_out, no, no, no]),
            ("gpt-4o-mini", [left_out, no, no, no]),
            ("gpt-4.1", [left_out, no, no, no]),
            ("ft:gpt-4.1-mini-2025-04-14:acme::x", [left_out, no, no, no]),
            ("chatgpt-4o-latest", [left_out, no, no, no]),
            ("gpt-5.2-chat-latest", [left_out, no, no, no]),
            ("o3", [no, low, medium, high]),
            ("o4-mini-2025-04-16", [no, low, medium, high]),
            ("gpt-5.1-codex-mini", [no, low, medium, high]),
            ("gpt-oss-20b", [no, low, medium, high]),
            ("gpt-5", [minimal, low, medium, high]),
            ("gpt-5-nano-2025-08-07", [minimal, low, medium, high]),
            ("gpt-5-pro", [no, no, no, high]),
            ("gpt-5.4-pro", [no, no, medium, high]),
            ("gpt-5.1", [none, low, medium, high]),
            ("gpt-5.6-sol", [none, low, medium, high]),
            ("gpt-6-astra", [none, low, medium, high]),
            ("somebodys-own", [none, low, medium, high]),
        ] {
            let said = FOUR.map(|thinking| of_openai(model, Some(thinking)).map_err(|_| ()));
            assert_eq!(said, expected, "{model}");
            assert_eq!(of_openai(model, None), Ok(None));
        }
    }

    #[test]
    fn who_thinks_only_without_tools_is_known() {
        for (model, expected) in [
            ("gpt-5", false),
            ("gpt-5.3", false),
            ("gpt-5.4-mini", true),
            ("gpt-6.1-terra", true),
            ("o3", false),
            ("gpt-4.1", false),
            ("somebodys-own", false),
        ] {
            assert_eq!(thinks_without_tools(model), expected, "{model}");
        }
        assert!(thinks("gpt-5") && thinks("o1") && thinks("somebodys-own") && !thinks("gpt-4o"));
    }
}
