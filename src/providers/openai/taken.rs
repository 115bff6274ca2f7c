//! What OpenAI's models take of a job's options, over either API.
//!
//! From <https://developers.openai.com/api/docs/guides/deployment-checklist>, the parameters of both APIs in OpenAI's own
//! client, and what the API answers to what it doesn't take (as of November 2026):
//! - a model takes no temperature while it thinks, so those that always think take none. What thinks, and whether it does
//!   unless told not to, is in [`effort`](super::effort). It is 1 without one. `search` models take none either;
//! - the Responses API has no parameter for stop texts;
//! - Chat Completions has one for up to four, which o3, o4-mini and GPT-5 to GPT-5.4 refuse
//!   (<https://github.com/huggingface/smolagents/issues/1893>).
//!
//! A name with a `/` is a gateway's, which may well make something of what the model itself refuses; names that aren't known,
//! and open-weight models, are other servers'. Of these nothing is said.

use super::effort::{self, Ability};
use crate::job::Thinking;
use crate::providers::{Model, Untaken, Wish};

/// The temperature of a model that isn't asked for one.
const OWN: f64 = 1.0;
/// How many stop texts Chat Completions takes.
const MOST_STOPS: usize = 4;

/// What is asked of a model over the Responses API and not taken.
pub(in crate::providers) fn over_responses(wish: &Wish<'_>) -> Vec<Untaken> {
    let mut untaken = Vec::new();
    let model = wish.model;
    if is_openais(model) {
        let word = effort::of_openai(&model.name, model.thinking);
        untaken.extend(cold(model, word.as_ref().ok().copied().flatten()));
        untaken.extend(word.err());
    }
    if !model.stop.is_empty() {
        let help = format!("remove it, or name the model `openai-chat/{}`", model.name);
        untaken.push(Untaken::new("stop", "the Responses API takes no `stop`", help));
    }
    untaken
}

/// What is asked of a model over Chat Completions and not taken.
pub(in crate::providers) fn over_chat(wish: &Wish<'_>) -> Vec<Untaken> {
    let mut untaken = Vec::new();
    let model = wish.model;
    if !is_openais(model) {
        return untaken;
    }
    let word = effort::over_chat(&model.name, model.thinking, wish.has_tools);
    untaken.extend(cold(model, word.as_ref().ok().copied().flatten()));
    untaken.extend(word.err());
    if !model.stop.is_empty() && refuses_stops(&model.name) {
        untaken.push(Untaken::new("stop", format!("{} takes no `stop`", model.name), "remove it"));
    } else if model.stop.len() > MOST_STOPS {
        let why = format!("the Chat Completions API takes at most {MOST_STOPS} texts as `stop`");
        untaken.push(Untaken::new("stop", why, format!("keep {MOST_STOPS} of these {}", model.stop.len())));
    }
    untaken
}

/// The temperature to send with this word for the effort: none where it is the model's own and saying so may be an error.
pub(in crate::providers) fn temperature(model: &Model, word: Option<&str>) -> Option<f64> {
    let is_fixed = is_openais(model) && takes_only_its_own(model, word);
    model.temperature.filter(|temperature| !(is_fixed && *temperature == OWN))
}

/// A temperature that isn't taken.
fn cold(model: &Model, word: Option<&str>) -> Option<Untaken> {
    let is_other = model.temperature.is_some_and(|temperature| temperature != OWN);
    if !is_other || !takes_only_its_own(model, word) {
        return None;
    }
    let name = &model.name;
    Some(match (effort::ability(name), model.thinking) {
        (Ability::Down("none"), None) => {
            let why = format!("{name} thinks unless told not to, and takes no `temperature` while it does");
            Untaken::new("temperature", why, "add `thinking: off`, or remove it")
        }
        (Ability::Down("none"), Some(_)) => {
            let why = format!("{name} takes no `temperature` while it thinks");
            Untaken::new("temperature", why, "say `thinking: off`, or remove it")
        }
        _ => Untaken::new("temperature", format!("{name} takes no `temperature`"), "remove it, or name another model"),
    })
}

fn is_openais(model: &Model) -> bool {
    let is_known = !matches!(effort::ability(&model.name), Ability::Unknown | Ability::Open);
    is_known && !model.name.contains('/')
}

fn takes_only_its_own(model: &Model, word: Option<&str>) -> bool {
    let has = |word: &str| effort::words(&model.name).iter().any(|own| own == word);
    match effort::ability(&model.name) {
        Ability::Nothing => has("search"),
        Ability::Down("none") => match (word, model.thinking) {
            (Some("none"), _) => false,
            // Asked for what isn't possible, too.
            (Some(_), _) | (None, Some(Thinking::Low | Thinking::Medium | Thinking::High)) => true,
            (None, _) => effort::thinks_untold(&model.name),
        },
        Ability::Always | Ability::Down(_) | Ability::Pro | Ability::OnlyHigh => true,
        Ability::Open | Ability::Unknown => false,
    }
}

fn refuses_stops(model: &str) -> bool {
    let words = effort::words(model);
    let has = |word: &str| words.iter().any(|own| own == word);
    match (words.first().map(String::as_str), effort::version(&words)) {
        (Some("o3"), _) => !has("mini"),
        (Some("o4"), _) => true,
        (_, Some((5, ..=4))) => !has("chat") && !has("search"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(name: &str, thinking: Option<Thinking>, temperature: Option<f64>, stops: usize) -> Model {
        let stop = (0..stops).map(|number| format!("END{number}")).collect();
        Model { thinking, temperature, stop, ..Model::new("openai", name) }
    }

    fn options(untaken: &[Untaken]) -> Vec<&'static str> {
        untaken.iter().map(|untaken| untaken.option).collect()
    }

    #[test]
    fn what_thinks_takes_no_temperature() {
        let (low, off) = (Some(Thinking::Low), Some(Thinking::Off));
        for (name, thinking, over_responses_taken, over_chat_taken) in [
            ("gpt-4.1", None, true, true),
            ("gpt-4o-search-preview", None, false, false),
            ("gpt-5.2-chat-latest", None, true, true),
            ("o4-mini", None, false, false),
            ("gpt-5-mini", off, false, false),
            ("gpt-5.4-pro", None, false, false),
            ("gpt-5.1", None, true, true),
            ("gpt-5.1", low, false, false),
            ("gpt-5.4-mini", None, true, true),
            // With tools, Chat Completions is told that it isn't to think.
            ("gpt-6-luna", None, false, true),
            ("gpt-6-luna", off, true, true),
            ("gpt-oss-20b", low, true, true),
            ("openai/gpt-5", None, true, true),
            ("somebodys-own", low, true, true),
        ] {
            let model = asking(name, thinking, Some(0.0), 0);
            let wish = Wish { model: &model, has_tools: true, max_tokens: 8_000 };
            assert_eq!(over_responses(&wish).is_empty(), over_responses_taken, "{name} {thinking:?}");
            assert_eq!(over_chat(&wish).is_empty(), over_chat_taken, "{name} {thinking:?}");
            let own = asking(name, thinking, Some(OWN), 0);
            assert_eq!(over_chat(&Wish { model: &own, ..wish }), [], "{name} {thinking:?}");
        }
    }

    #[test]
    fn stop_texts_are_for_chat_completions_and_few() {
        for (name, stops, taken) in [
            ("gpt-4.1", 4, true),
            ("gpt-4.1", 5, false),
            ("o3", 1, false),
            ("o3-mini", 1, true),
            ("gpt-5.2", 1, false),
            ("gpt-5-chat-latest", 1, true),
            ("gpt-5.6-terra", 1, true),
            ("somebodys-own", 9, true),
        ] {
            let model = asking(name, None, None, stops);
            let wish = Wish { model: &model, has_tools: false, max_tokens: 8_000 };
            assert_eq!(options(&over_chat(&wish)).is_empty(), taken, "{name} {stops}");
            assert_eq!(options(&over_responses(&wish)), ["stop"], "{name}");
        }
    }

    #[test]
    fn everything_that_is_not_taken_is_said() {
        let model = asking("gpt-6-astra", Some(Thinking::Off), Some(0.5), 5);
        let wish = Wish { model: &model, has_tools: true, max_tokens: 8_000 };
        assert_eq!(options(&over_chat(&wish)), ["temperature", "thinking", "stop"]);
        assert_eq!(options(&over_responses(&wish)), ["temperature", "thinking", "stop"]);
    }

    #[test]
    fn a_temperature_that_is_the_models_own_is_left_unsaid_where_it_may_be_an_error() {
        for (name, word, asked, sent) in [
            ("o3", None, 1.0, None),
            ("gpt-6-luna", Some("none"), 1.0, Some(1.0)),
            ("gpt-6-luna", None, 1.0, None),
            ("gpt-4.1", None, 0.0, Some(0.0)),
            ("openai/gpt-5", None, 1.0, Some(1.0)),
        ] {
            assert_eq!(temperature(&asking(name, None, Some(asked), 0), word), sent, "{name}");
        }
    }
}
