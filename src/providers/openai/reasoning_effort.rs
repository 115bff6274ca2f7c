//! How much OpenAI's models think, in the words that each of them takes.
//!
//! From <https://developers.openai.com/api/docs/guides/reasoning>, the pages of the single models below
//! <https://developers.openai.com/api/docs/models>, and what the API answers to values that it doesn't take (as of November
//! 2026):
//! - GPT-3.5 to GPT-4.5 and the `chat` and `search` models don't think, or don't let it be chosen;
//! - the o series takes `low`, `medium` and `high` and always thinks; so do the `codex` and open-weight (`gpt-oss`) models,
//!   GPT-6 Astra and GPT-6.1 Sol (<https://developers.openai.com/api/docs/guides/latest-model>,
//!   <https://github.com/BerriAI/litellm-docs/pull/1173>);
//! - GPT-5, `mini` and `nano` take `minimal`, too; all others from GPT-5.1 on take `none` instead, and refuse `minimal`
//!   (<https://github.com/openai/openai-agents-python/issues/2089>; `ReasoningEffort` in the API's description: all models
//!   before GPT-5.1 don't support `none`). Up to GPT-5.4 that is what they do unless told otherwise, later ones think;
//! - `gpt-5-pro` takes `high`, later `pro` models `medium` and `high`.
//!
//! Chat Completions takes no tools from GPT-5.4 and later while they think, and most of these think unless told not to; from
//! GPT-6 Astra and GPT-6.1 Sol, which can't be told, it takes none at all
//! (<https://developers.openai.com/api/docs/guides/deployment-checklist>).

use crate::job::Thinking;
use crate::providers::UnsupportedOption;

/// What a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EffortSupport {
    Unsupported,
    AlwaysOn,
    /// Always, wherever it runs: on anybody's server, mostly.
    OpenWeight,
    /// Down to this.
    DownTo(&'static str),
    MediumAndHigh,
    OnlyHigh,
    /// A name that isn't known: newer, or somebody's own.
    Unknown,
}

/// The word for what a job asks of a model of OpenAI's; `None` where nothing is to be said.
///
/// # Errors
/// The model can't.
pub(in crate::providers) fn for_responses(
    model: &str,
    thinking: Option<Thinking>,
) -> Result<Option<&'static str>, UnsupportedOption> {
    let Some(thinking) = thinking else { return Ok(None) };
    let refuse =
        |why: String| Err(UnsupportedOption::new("thinking", why, "leave `thinking` out, or choose another model"));
    match (effort_support(model), thinking) {
        (EffortSupport::Unsupported, Thinking::Off) => Ok(None),
        (EffortSupport::Unsupported, _) => {
            refuse(format!("{model} can't think, or not by choice, so `thinking` isn't possible"))
        }
        (
            EffortSupport::AlwaysOn
            | EffortSupport::OpenWeight
            | EffortSupport::MediumAndHigh
            | EffortSupport::OnlyHigh,
            Thinking::Off,
        ) => refuse(format!("{model} always thinks, so `thinking: off` isn't possible")),
        (EffortSupport::MediumAndHigh, Thinking::Low) => {
            refuse(format!("{model} takes `thinking: medium` or `high` only"))
        }
        (EffortSupport::OnlyHigh, Thinking::Low | Thinking::Medium) => {
            refuse(format!("{model} takes `thinking: high` only"))
        }
        (EffortSupport::DownTo(least), Thinking::Off) => Ok(Some(least)),
        _ => Ok(Some(effort_name(thinking))),
    }
}

/// The word for what a job asks of a model of OpenAI's over Chat Completions.
///
/// # Errors
/// The model can't, or not there.
pub(in crate::providers) fn for_chat_completions(
    model: &str,
    thinking: Option<Thinking>,
    has_tools: bool,
) -> Result<Option<&'static str>, UnsupportedOption> {
    let word = for_responses(model, thinking)?;
    let instead = || format!("name the model `openai/{model}`");
    match effort_support(model) {
        EffortSupport::AlwaysOn if has_tools && is_always_reasoning_gpt6(model) => Err(UnsupportedOption::new(
            "name",
            format!("the Chat Completions API takes no tools from {model}"),
            instead(),
        )),
        EffortSupport::DownTo("none")
            if has_tools && version(&name_words(model)).is_some_and(|version| version >= (5, 4)) =>
        {
            match word {
                None | Some("none") => Ok(Some("none")),
                Some(_) => {
                    let why = format!("the Chat Completions API takes no tools from {model} while it thinks");
                    Err(UnsupportedOption::new("thinking", why, instead()))
                }
            }
        }
        _ => Ok(word),
    }
}

/// The word for what a job asks at somebody else's server. A model of OpenAI's has its own words there, too; what it can't is
/// left to the server, which may have something else by that name.
pub(in crate::providers) fn for_other_server(model: &str, thinking: Option<Thinking>) -> Option<&'static str> {
    match effort_support(model) {
        // A name with a `/` is a gateway's, which has words of its own.
        EffortSupport::Unsupported | EffortSupport::DownTo(_)
            if thinking == Some(Thinking::Off) && !model.contains('/') =>
        {
            for_responses(model, thinking).ok().flatten()
        }
        _ => thinking.map(effort_name),
    }
}

/// The word for what a job asks of any other model.
fn effort_name(thinking: Thinking) -> &'static str {
    match thinking {
        Thinking::Off => "none",
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
    }
}

/// Whether a model gives its thoughts, encrypted, to be sent back; asking another for them is an error.
pub(in crate::providers) fn returns_reasoning(model: &str) -> bool {
    effort_support(model) != EffortSupport::Unsupported
}

/// Whether a model thinks unless told otherwise.
pub(super) fn reasons_by_default(model: &str) -> bool {
    version(&name_words(model)).is_none_or(|version| version >= (5, 5))
}

/// GPT-6 Astra and GPT-6.1 Sol, of which GPT-6 Sol is none.
fn is_always_reasoning_gpt6(model: &str) -> bool {
    let words = name_words(model);
    let has = |word: &str| words.iter().any(|own| own == word);
    match version(&words) {
        Some(version) => version >= (6, 0) && has("astra") || version >= (6, 1) && has("sol"),
        None => false,
    }
}

/// The name's words; a fine-tuned model's are those of its base (`ft:gpt-4.1-mini:...`).
pub(super) fn name_words(model: &str) -> Vec<String> {
    let name = model.to_ascii_lowercase();
    let name = name.strip_prefix("ft:").map_or(&*name, |rest| rest.split(':').next().unwrap_or_default());
    name.rsplit('/').next().unwrap_or_default().split('-').map(str::to_owned).collect()
}

/// `gpt-5.6-sol` is (5, 6).
pub(super) fn version(words: &[String]) -> Option<(u32, u32)> {
    let (major, minor) = match words {
        [gpt, version, ..] if gpt == "gpt" => version.split_once('.').unwrap_or((version, "0")),
        _ => return None,
    };
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub(super) fn effort_support(model: &str) -> EffortSupport {
    let words = name_words(model);
    let has = |word: &str| words.iter().any(|own| own == word);
    let first = words.first().map_or("", String::as_str);
    let is_o = first.strip_prefix('o').is_some_and(|number| number.parse::<u32>().is_ok());
    match (first, version(&words)) {
        _ if has("oss") => EffortSupport::OpenWeight,
        _ if is_o || first == "codex" => EffortSupport::AlwaysOn,
        ("chatgpt", _) => EffortSupport::Unsupported,
        (_, Some((..=4, _))) => EffortSupport::Unsupported,
        (_, Some(_)) if has("chat") || has("search") => EffortSupport::Unsupported,
        (_, Some((5, 0))) if has("pro") => EffortSupport::OnlyHigh,
        (_, Some(_)) if has("pro") => EffortSupport::MediumAndHigh,
        (_, Some(_)) if has("codex") || is_always_reasoning_gpt6(model) => EffortSupport::AlwaysOn,
        (_, Some((5, 0))) => EffortSupport::DownTo("minimal"),
        (_, Some(_)) => EffortSupport::DownTo("none"),
        // `gpt-4o`, `gpt-35-turbo`.
        ("gpt", None) if words.get(1).is_some_and(|word| word.starts_with(['3', '4'])) => EffortSupport::Unsupported,
        _ => EffortSupport::Unknown,
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
            ("gpt-6-sol", [none, low, medium, high]),
            ("gpt-6.1-terra", [none, low, medium, high]),
            ("gpt-6-astra", [no, low, medium, high]),
            ("gpt-6.1-sol", [no, low, medium, high]),
            ("somebodys-own", [none, low, medium, high]),
        ] {
            let said = FOUR.map(|thinking| for_responses(model, Some(thinking)).map_err(|_| ()));
            assert_eq!(said, expected, "{model}");
            assert_eq!(for_responses(model, None), Ok(None));
        }
    }

    #[test]
    fn chat_completions_has_no_thinking_beside_tools() {
        let (low, off) = (Some(Thinking::Low), Some(Thinking::Off));
        for (model, thinking, has_tools, expected) in [
            ("gpt-5", low, true, Ok(Some("low"))),
            ("gpt-5", off, true, Ok(Some("minimal"))),
            ("gpt-5.3", None, true, Ok(None)),
            ("gpt-5.4-mini", None, true, Ok(Some("none"))),
            ("gpt-5.4-mini", None, false, Ok(None)),
            ("gpt-6.1-terra", low, false, Ok(Some("low"))),
            ("gpt-6.1-terra", low, true, Err("thinking")),
            ("gpt-6-astra", None, false, Ok(None)),
            ("gpt-6-astra", None, true, Err("name")),
            ("gpt-6.1-sol", low, true, Err("name")),
            ("gpt-6-sol", None, true, Ok(Some("none"))),
            ("o3", low, true, Ok(Some("low"))),
            ("gpt-4.1", None, true, Ok(None)),
            ("gpt-4.1", low, true, Err("thinking")),
            ("somebodys-own", low, true, Ok(Some("low"))),
        ] {
            let said = for_chat_completions(model, thinking, has_tools).map_err(|untaken| untaken.option);
            assert_eq!(said, expected, "{model} {thinking:?} {has_tools}");
        }
        let untaken = for_chat_completions("gpt-5.6-sol", low, true).unwrap_err();
        assert!(untaken.help.contains("`openai/gpt-5.6-sol`"), "{untaken:?}");
    }

    #[test]
    fn a_model_has_its_own_words_wherever_it_is_asked() {
        let (off, high) = (Some(Thinking::Off), Some(Thinking::High));
        for (model, thinking, expected) in [
            ("gpt-5", off, Some("minimal")),
            ("gpt-5.1", off, Some("none")),
            ("gpt-4.1", off, None),
            ("gpt-4.1", high, Some("high")),
            ("o3", off, Some("none")),
            ("openai/gpt-5", off, Some("none")),
            ("somebodys-own", off, Some("none")),
            ("somebodys-own", high, Some("high")),
            ("gpt-5", None, None),
        ] {
            assert_eq!(for_other_server(model, thinking), expected, "{model} {thinking:?}");
        }
    }

    #[test]
    fn thoughts_are_asked_of_those_that_have_some() {
        assert!(
            returns_reasoning("gpt-5")
                && returns_reasoning("o1")
                && returns_reasoning("somebodys-own")
                && !returns_reasoning("gpt-4o")
        );
    }
}
