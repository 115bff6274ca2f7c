//! What Claude models take of a job's options.
//!
//! A temperature is from 0 to 1, and 1 without one. From Claude 4.7 on, and for every Fable and Mythos, it is an error to
//! ask for another; the others take no other while they think
//! (<https://platform.claude.com/docs/en/build-with-claude/thinking>, "Sampling parameters";
//! <https://platform.claude.com/docs/en/about-claude/models/migration-guide>; as of November 2026). A stop text holds more
//! than white space: the API says so to others (<https://github.com/BerriAI/litellm/issues/3286>). A reply has at most 4096
//! tokens up to Claude 3, 8192 from 3.5, 64000 from 3.7 (Opus 4 and 4.1: 32000), 128000 from 4.6 on; more is an error
//! (<https://platform.claude.com/docs/en/about-claude/models/overview>).

use super::model_name::ModelName;
use super::thinking;
use crate::job::Thinking;
use crate::providers::{Model, RequestOptions, UnsupportedOption};

/// The temperature of a model that isn't asked for one.
const DEFAULT_TEMPERATURE: f64 = 1.0;

/// What is asked of a model and not taken.
pub(super) fn unsupported_options(wish: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
    let RequestOptions { model, max_tokens, .. } = *wish;
    let mut untaken: Vec<UnsupportedOption> =
        thinking::check_supported(&model.name, model.thinking).err().into_iter().collect();
    let name = ModelName::parse(&model.name);
    if name == ModelName::Unknown {
        return untaken;
    }
    if untaken.is_empty() && thinks(model) && thinking::leaves_no_budget(&model.name, max_tokens) {
        let why = format!("{} thinks within `max_tokens`, and {max_tokens} are too few for that", model.name);
        untaken.push(UnsupportedOption::new(
            "thinking",
            why,
            "give the agent more than 1024 `max_tokens`, or leave `thinking` out",
        ));
    }
    untaken.extend(UnsupportedOption::exceeds_reply_limit(wish, max_output_tokens(name)));
    if let Some(temperature) = model.temperature.filter(|temperature| *temperature != DEFAULT_TEMPERATURE) {
        if has_fixed_temperature(name) {
            let why = format!("{} takes no `temperature`", model.name);
            untaken.push(UnsupportedOption::new("temperature", why, "remove it, or name an older model"));
        } else if !(0.0..=1.0).contains(&temperature) {
            let why = format!("{} takes a `temperature` from 0 to 1", model.name);
            untaken.push(UnsupportedOption::new("temperature", why, "write a number from 0 to 1, or remove it"));
        } else if thinks(model) {
            let why = format!("{} takes no `temperature` while it thinks", model.name);
            untaken.push(UnsupportedOption::new("temperature", why, "remove it, or leave `thinking` out"));
        }
    }
    if let Some(blank) = model.stop.iter().find(|text| !text.is_empty() && text.trim().is_empty()) {
        let why = format!("{} takes no `stop` that is only white space, as {blank:?} is", model.name);
        untaken.push(UnsupportedOption::new("stop", why, "write what stands around it, too, or remove it"));
    }
    untaken
}

/// The most tokens of a reply, where they are known.
fn max_output_tokens(name: ModelName) -> Option<u32> {
    let (family, version) = match name {
        ModelName::Legacy => return Some(4_096),
        ModelName::Known(family, version) => (family, version?),
        ModelName::Unknown => return None,
    };
    Some(match version {
        (..=2, _) | (3, ..=4) => 4_096,
        (3, ..=6) => 8_192,
        (3, _) => 64_000,
        (4, ..=4) if family == "opus" => 32_000,
        (4, ..=5) => 64_000,
        (4, _) | (5, 0) if family != "haiku" => 128_000,
        _ => return None,
    })
}

/// The temperature to send: none where it is the model's own and saying so may be an error.
pub(super) fn temperature(model: &Model) -> Option<f64> {
    let is_fixed = has_fixed_temperature(ModelName::parse(&model.name)) || thinks(model);
    model.temperature.filter(|temperature| !(is_fixed && *temperature == DEFAULT_TEMPERATURE))
}

fn thinks(model: &Model) -> bool {
    matches!(model.thinking, Some(Thinking::Low | Thinking::Medium | Thinking::High))
}

fn has_fixed_temperature(name: ModelName) -> bool {
    match name {
        ModelName::Known("fable" | "mythos", _) | ModelName::Known(_, None) => true,
        ModelName::Known(_, Some(version)) => version >= (4, 7),
        ModelName::Legacy | ModelName::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(name: &str, thinking: Option<Thinking>, temperature: Option<f64>, stop: &[&str]) -> Model {
        let stop = stop.iter().map(|text| (*text).to_owned()).collect();
        Model { thinking, temperature, stop, ..Model::new("anthropic", name) }
    }

    fn refused(model: &Model, max_tokens: u32) -> Vec<&'static str> {
        unsupported_options(&RequestOptions { model, has_tools: true, max_tokens })
            .iter()
            .map(|untaken| untaken.option)
            .collect()
    }

    #[test]
    fn each_model_has_its_own_limits() {
        let (low, off) = (Some(Thinking::Low), Some(Thinking::Off));
        let nothing: &[&str] = &[];
        for (name, thinking, temperature, expected) in [
            ("claude-sonnet-4-5", None, 0.0, nothing),
            ("claude-opus-4-6", off, 0.5, nothing),
            ("claude-sonnet-4-5", None, 1.5, &["temperature"]),
            ("claude-sonnet-4-5", low, 0.5, &["temperature"]),
            ("claude-sonnet-4-5", low, 1.0, nothing),
            ("claude-opus-4-7", None, 0.0, &["temperature"]),
            ("claude-haiku-5-5", off, 0.0, &["temperature"]),
            ("claude-sonnet-latest", None, 0.0, &["temperature"]),
            ("claude-fable-5", None, 1.0, nothing),
            ("claude-3-haiku-20240307", low, 0.2, &["thinking", "temperature"]),
            ("claude-opus-5-5", off, 0.2, &["thinking", "temperature"]),
            ("somebody/model-7", low, 1.7, nothing),
        ] {
            let model = asking(name, thinking, Some(temperature), &[]);
            assert_eq!(refused(&model, 4_000), expected, "{name} {thinking:?} {temperature}");
        }
    }

    #[test]
    fn a_reply_is_no_longer_than_the_model_can_write() {
        for (name, most) in [
            ("claude-2.1", Some(4_096)),
            ("claude-3-haiku-20240307", Some(4_096)),
            ("claude-3-5-sonnet-latest", Some(8_192)),
            ("claude-3-7-sonnet-20250219", Some(64_000)),
            ("claude-opus-4-20250514", Some(32_000)),
            ("claude-opus-4-1", Some(32_000)),
            ("claude-sonnet-4-20250514", Some(64_000)),
            ("claude-haiku-4-5-20251001", Some(64_000)),
            ("claude-opus-4-5", Some(64_000)),
            ("claude-sonnet-4-6", Some(128_000)),
            ("claude-opus-5", Some(128_000)),
            ("claude-haiku-5-5", None),
            ("claude-sonnet-latest", None),
            ("somebody/model-7", None),
        ] {
            let model = asking(name, None, None, &[]);
            assert!(refused(&model, most.unwrap_or(1_000_000)).is_empty(), "{name}");
            let more = most.map(|most| refused(&model, most + 1));
            assert!(more.is_none_or(|more| more == ["max_tokens"]), "{name}");
        }
    }

    #[test]
    fn everything_that_is_not_taken_is_said() {
        let model = asking("claude-sonnet-4-5", Some(Thinking::High), Some(0.5), &["END", "\n"]);
        assert_eq!(refused(&model, 1_024), ["thinking", "temperature", "stop"]);
        assert_eq!(refused(&model, 1_025), ["temperature", "stop"]);
    }

    #[test]
    fn a_temperature_that_is_the_models_own_is_left_unsaid_where_it_may_be_an_error() {
        let low = Some(Thinking::Low);
        for (name, thinking, asked, sent) in [
            ("claude-sonnet-4-5", None, 1.0, Some(1.0)),
            ("claude-sonnet-4-5", low, 1.0, None),
            ("claude-opus-5", None, 1.0, None),
            ("claude-sonnet-4-5", None, 0.0, Some(0.0)),
            ("somebody/model-7", None, 1.0, Some(1.0)),
        ] {
            assert_eq!(temperature(&asking(name, thinking, Some(asked), &[])), sent, "{name}");
        }
        assert_eq!(temperature(&asking("claude-sonnet-4-5", None, None, &[])), None);
    }
}
