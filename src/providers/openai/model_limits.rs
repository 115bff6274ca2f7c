//! What OpenAI's models take of a job's options, over either API.
//!
//! From <https://developers.openai.com/api/docs/guides/deployment-checklist>, the parameters of both APIs in OpenAI's own
//! client, and what the API answers to what it doesn't take (as of November 2026):
//! - a model takes no temperature while it thinks, so those that always think take none. What thinks, and whether it does
//!   unless told not to, is in [`effort`](super::effort). It is 1 without one. `search` models take none either;
//! - the Responses API has no parameter for stop texts;
//! - Chat Completions has one for up to four, which o3, o4-mini and GPT-5 to GPT-5.4 refuse
//!   (<https://github.com/huggingface/smolagents/issues/1893>);
//! - a reply has at most as many tokens as the model's page says (<https://developers.openai.com/api/docs/models>); more is
//!   an error, as in <https://github.com/opencode-ai/opencode/issues/140>.
//!
//! A name with a `/` is a gateway's, which may well make something of what the model itself refuses; names that aren't known,
//! and open-weight models, are other servers'. Of these nothing is said.

use super::reasoning_effort::{self, EffortSupport};
use crate::job::Thinking;
use crate::providers::{Model, RequestOptions, UnsupportedOption};

/// The temperature of a model that isn't asked for one.
const DEFAULT_TEMPERATURE: f64 = 1.0;
/// How many stop texts Chat Completions takes.
const MAX_STOP_SEQUENCES: usize = 4;

/// What is asked of a model over the Responses API and not taken.
pub(in crate::providers) fn unsupported_by_responses(wish: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
    let mut untaken = Vec::new();
    let model = wish.model;
    if is_openais(model) {
        let word = reasoning_effort::for_responses(&model.name, model.thinking);
        untaken.extend(unsupported_temperature(model, word.as_ref().ok().copied().flatten()));
        untaken.extend(word.err());
        untaken.extend(UnsupportedOption::exceeds_reply_limit(wish, max_output_tokens(&model.name)));
    }
    if !model.stop.is_empty() {
        let help = format!("remove it, or name the model `openai-chat/{}`", model.name);
        untaken.push(UnsupportedOption::new("stop", "the Responses API takes no `stop`", help));
    }
    untaken
}

/// What is asked of a model over Chat Completions and not taken.
pub(in crate::providers) fn unsupported_by_chat_completions(wish: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
    let mut untaken = Vec::new();
    let model = wish.model;
    if !is_openais(model) {
        return untaken;
    }
    let word = reasoning_effort::for_chat_completions(&model.name, model.thinking, wish.has_tools);
    untaken.extend(unsupported_temperature(model, word.as_ref().ok().copied().flatten()));
    untaken.extend(word.err());
    untaken.extend(UnsupportedOption::exceeds_reply_limit(wish, max_output_tokens(&model.name)));
    if !model.stop.is_empty() && rejects_stop_sequences(&model.name) {
        untaken.push(UnsupportedOption::new("stop", format!("{} takes no `stop`", model.name), "remove it"));
    } else if model.stop.len() > MAX_STOP_SEQUENCES {
        let why = format!("the Chat Completions API takes at most {MAX_STOP_SEQUENCES} texts as `stop`");
        untaken.push(UnsupportedOption::new(
            "stop",
            why,
            format!("keep {MAX_STOP_SEQUENCES} of these {}", model.stop.len()),
        ));
    }
    untaken
}

/// The temperature to send with this word for the effort: none where it is the model's own and saying so may be an error.
pub(in crate::providers) fn temperature(model: &Model, word: Option<&str>) -> Option<f64> {
    let is_fixed = is_openais(model) && has_fixed_temperature(model, word);
    model.temperature.filter(|temperature| !(is_fixed && *temperature == DEFAULT_TEMPERATURE))
}

/// A temperature that isn't taken.
fn unsupported_temperature(model: &Model, word: Option<&str>) -> Option<UnsupportedOption> {
    let is_other = model.temperature.is_some_and(|temperature| temperature != DEFAULT_TEMPERATURE);
    if !is_other || !has_fixed_temperature(model, word) {
        return None;
    }
    let name = &model.name;
    Some(match (reasoning_effort::effort_support(name), model.thinking) {
        (EffortSupport::DownTo("none"), None) => {
            let why = format!("{name} thinks unless told not to, and takes no `temperature` while it does");
            UnsupportedOption::new("temperature", why, "add `thinking: off`, or remove it")
        }
        (EffortSupport::DownTo("none"), Some(_)) => {
            let why = format!("{name} takes no `temperature` while it thinks");
            UnsupportedOption::new("temperature", why, "say `thinking: off`, or remove it")
        }
        _ => UnsupportedOption::new(
            "temperature",
            format!("{name} takes no `temperature`"),
            "remove it, or name another model",
        ),
    })
}

fn is_openais(model: &Model) -> bool {
    let is_known =
        !matches!(reasoning_effort::effort_support(&model.name), EffortSupport::Unknown | EffortSupport::OpenWeight);
    is_known && !model.name.contains('/')
}

fn has_fixed_temperature(model: &Model, word: Option<&str>) -> bool {
    let has = |word: &str| reasoning_effort::name_words(&model.name).iter().any(|own| own == word);
    match reasoning_effort::effort_support(&model.name) {
        EffortSupport::Unsupported => has("search"),
        EffortSupport::DownTo("none") => match (word, model.thinking) {
            (Some("none"), _) => false,
            // Asked for what isn't possible, too.
            (Some(_), _) | (None, Some(Thinking::Low | Thinking::Medium | Thinking::High)) => true,
            (None, _) => reasoning_effort::reasons_by_default(&model.name),
        },
        EffortSupport::AlwaysOn | EffortSupport::DownTo(_) | EffortSupport::MediumAndHigh | EffortSupport::OnlyHigh => {
            true
        }
        EffortSupport::OpenWeight | EffortSupport::Unknown => false,
    }
}

fn rejects_stop_sequences(model: &str) -> bool {
    let words = reasoning_effort::name_words(model);
    let has = |word: &str| words.iter().any(|own| own == word);
    match (words.first().map(String::as_str), reasoning_effort::version(&words)) {
        (Some("o3"), _) => !has("mini"),
        (Some("o4"), _) => true,
        (_, Some((5, ..=4))) => !has("chat") && !has("search"),
        _ => false,
    }
}

/// The most tokens of a reply, where they are known.
fn max_output_tokens(model: &str) -> Option<u32> {
    let words = reasoning_effort::name_words(model);
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let has = |word: &str| words.iter().any(|own| own == word);
    Some(match (word(0), word(1), reasoning_effort::version(&words)) {
        _ if has("search") => return None,
        ("o1", "mini", _) => 65_536,
        ("o1", "preview", _) => 32_768,
        ("o1" | "o3" | "o4", ..) => 100_000,
        ("chatgpt", "4o", _) => 16_384,
        ("gpt", "4o", _) if words.ends_with(&["2024", "05", "13"].map(str::to_owned)) => 4_096,
        ("gpt", "4o", _) => 16_384,
        ("gpt", _, Some((3, 5))) if !has("16k") && !has("instruct") => 4_096,
        ("gpt", _, Some((4, 0))) if has("turbo") || has("preview") => 4_096,
        ("gpt", _, Some((4, 0))) if !has("32k") => 8_192,
        ("gpt", _, Some((4, 1))) => 32_768,
        ("gpt", _, Some((5, ..=2))) if has("chat") => 16_384,
        ("gpt", _, Some((5, 0))) if has("pro") => 272_000,
        ("gpt", _, Some((5, ..=4))) if !has("chat") => 128_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(name: &str, thinking: Option<Thinking>, temperature: Option<f64>, stops: usize) -> Model {
        let stop = (0..stops).map(|number| format!("END{number}")).collect();
        Model { thinking, temperature, stop, ..Model::new("openai", name) }
    }

    fn options(untaken: &[UnsupportedOption]) -> Vec<&'static str> {
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
            let wish = RequestOptions { model: &model, has_tools: true, max_tokens: 8_000 };
            assert_eq!(unsupported_by_responses(&wish).is_empty(), over_responses_taken, "{name} {thinking:?}");
            assert_eq!(unsupported_by_chat_completions(&wish).is_empty(), over_chat_taken, "{name} {thinking:?}");
            let own = asking(name, thinking, Some(DEFAULT_TEMPERATURE), 0);
            assert_eq!(
                unsupported_by_chat_completions(&RequestOptions { model: &own, ..wish }),
                [],
                "{name} {thinking:?}"
            );
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
            let wish = RequestOptions { model: &model, has_tools: false, max_tokens: 8_000 };
            assert_eq!(options(&unsupported_by_chat_completions(&wish)).is_empty(), taken, "{name} {stops}");
            assert_eq!(options(&unsupported_by_responses(&wish)), ["stop"], "{name}");
        }
    }

    #[test]
    fn a_reply_is_no_longer_than_the_model_can_write() {
        for (name, most) in [
            ("gpt-3.5-turbo-0125", Some(4_096)),
            ("gpt-4", Some(8_192)),
            ("gpt-4-0613", Some(8_192)),
            ("gpt-4-turbo-2024-04-09", Some(4_096)),
            ("gpt-4-1106-preview", Some(4_096)),
            ("gpt-4-32k", None),
            ("gpt-4o", Some(16_384)),
            ("gpt-4o-2024-05-13", Some(4_096)),
            ("gpt-4o-mini-2024-07-18", Some(16_384)),
            ("ft:gpt-4.1-mini-2025-04-14:acme::x", Some(32_768)),
            ("o1-mini", Some(65_536)),
            ("o3", Some(100_000)),
            ("gpt-5-chat-latest", Some(16_384)),
            ("gpt-5-mini", Some(128_000)),
            ("gpt-5-pro", Some(272_000)),
            ("gpt-5.2-pro", Some(128_000)),
            ("gpt-9-nova", None),
            ("openai/gpt-4o", None),
            ("somebodys-own", None),
        ] {
            let model = asking(name, None, None, 0);
            let refused = |max_tokens| {
                let wish = RequestOptions { model: &model, has_tools: false, max_tokens };
                (options(&unsupported_by_chat_completions(&wish)), options(&unsupported_by_responses(&wish)))
            };
            assert_eq!(refused(most.unwrap_or(1_000_000)), (vec![], vec![]), "{name}");
            let more = most.map(|most| refused(most + 1));
            assert!(more.is_none_or(|more| more == (vec!["max_tokens"], vec!["max_tokens"])), "{name}");
        }
    }

    #[test]
    fn everything_that_is_not_taken_is_said() {
        let model = asking("gpt-6-astra", Some(Thinking::Off), Some(0.5), 5);
        let wish = RequestOptions { model: &model, has_tools: true, max_tokens: 8_000 };
        assert_eq!(options(&unsupported_by_chat_completions(&wish)), ["temperature", "thinking", "stop"]);
        assert_eq!(options(&unsupported_by_responses(&wish)), ["temperature", "thinking", "stop"]);
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
