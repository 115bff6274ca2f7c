//! Options of a job that a model or an API is known not to support.

use super::api::ProviderError;
use super::model::Model;
use crate::job::Thinking;
use crate::models::{
    Capabilities, ChatTools, DEFAULT_TEMPERATURE, TemperatureSupport, ThinkingControl, ThinkingOff, effort_name,
};

/// What an agent requests of its model.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions<'a> {
    /// The model, with its options.
    pub model: &'a Model,
    /// Whether the agent has tools.
    pub has_tools: bool,
    /// The maximum number of output tokens of one reply.
    pub max_tokens: u32,
}

/// A requested option that isn't supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedOption {
    /// The option's key in the job file, such as `thinking`; `name` if the model itself is the problem.
    pub option: &'static str,
    /// Why, in one sentence.
    pub why: String,
    /// What to do about it.
    pub help: String,
}

impl UnsupportedOption {
    /// An unsupported option, why, and what to do about it.
    pub fn new(option: &'static str, why: impl Into<String>, help: impl Into<String>) -> Self {
        Self { option, why: why.into(), help: help.into() }
    }
}

// Some options can be checked only when the conversation is opened, because support depends on the endpoint.
impl From<UnsupportedOption> for ProviderError {
    fn from(unsupported: UnsupportedOption) -> Self {
        Self::rejected(unsupported.why).with_hint(unsupported.help)
    }
}

/// The limits of an API, as opposed to those of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiLimits {
    /// The vendor whose models are checked; see [`crate::models::VENDORS`].
    pub(crate) vendor: &'static str,
    /// The API's name: `the Messages API`.
    pub(crate) api: &'static str,
    /// The maximum number of stop sequences, if any.
    pub(crate) max_stop_sequences: Option<usize>,
    /// Whether stop sequences of white space are refused: <https://github.com/BerriAI/litellm/issues/3286>.
    pub(crate) rejects_blank_stop: bool,
    /// Whether the limits apply to unknown models, too. Servers of a common API may have other limits.
    pub(crate) holds_for_all: bool,
    /// Whether it has `tier: flex`.
    pub(crate) has_flex_tier: bool,
    /// The provider to use for models that can't have tools in this API, as in Chat Completions.
    pub(crate) tools_elsewhere: Option<&'static str>,
    /// The provider to use for stop sequences if this API has none.
    pub(crate) stop_elsewhere: Option<&'static str>,
}

impl ApiLimits {
    /// The requested options that the model or the API doesn't support.
    pub(crate) fn unsupported(&self, request: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
        let model = request.model;
        let found = Capabilities::of(self.vendor, &model.name);
        let mut unsupported = Vec::new();
        if found.is_known {
            let thinking = self.check_thinking(model, request.has_tools);
            let effective = thinking.as_ref().ok().copied().unwrap_or(model.thinking);
            unsupported.extend(temperature_problem(model, &found, effective));
            unsupported.extend(reply_limit_problem(request, found.max_output_tokens));
            unsupported.extend(thinking.err().or_else(|| thinking_budget_problem(request, &found)));
        }
        if self.holds_for_all || found.is_known {
            unsupported.extend(self.stop_problem(model, &found));
        }
        if model.is_flex() && !self.has_flex_tier {
            let why = format!("{} doesn't support `tier: flex`", self.api);
            unsupported.push(UnsupportedOption::new("tier", why, "remove it; OpenAI's and Google's models have it"));
        }
        unsupported
    }

    /// The thinking to request: that of the job, or off if the model supports tools only without thinking.
    ///
    /// # Errors
    /// The model doesn't support it.
    pub(crate) fn check_thinking(&self, model: &Model, has_tools: bool) -> Result<Option<Thinking>, UnsupportedOption> {
        let name = &model.name;
        let support = Capabilities::of(self.vendor, name);
        let thinking = &support.thinking;
        let why = match model.thinking {
            Some(Thinking::Off) if thinking.off == ThinkingOff::Impossible => {
                Some(format!("{name} always thinks, so `thinking: off` isn't possible"))
            }
            None | Some(Thinking::Off) => None,
            Some(_) if thinking.control == ThinkingControl::Unsupported => {
                Some(format!("{name} doesn't support `thinking`"))
            }
            Some(level) if !thinking.levels.contains(&level) => {
                let levels: Vec<String> =
                    thinking.levels.iter().map(|level| format!("`{}`", effort_name(*level))).collect();
                Some(format!("{name} supports only {} as `thinking`", levels.join(" or ")))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(UnsupportedOption::new("thinking", why, "leave `thinking` out, or use another model"));
        }
        let Some(provider) = self.tools_elsewhere.filter(|_| has_tools) else { return Ok(model.thinking) };
        let elsewhere = || format!("name the model `{provider}/{name}`");
        match (support.chat_tools, model.thinking) {
            (ChatTools::Always, thinking) => Ok(thinking),
            (ChatTools::WithoutThinking, None | Some(Thinking::Off)) => Ok(Some(Thinking::Off)),
            (ChatTools::WithoutThinking, Some(_)) => {
                let why = format!("{} doesn't support tools with {name} while it thinks", self.api);
                Err(UnsupportedOption::new("thinking", why, elsewhere()))
            }
            (ChatTools::Never, _) => {
                let why = format!("{} doesn't support tools with {name}", self.api);
                Err(UnsupportedOption::new("name", why, elsewhere()))
            }
        }
    }

    fn stop_problem(&self, model: &Model, found: &Capabilities) -> Option<UnsupportedOption> {
        let name = &model.name;
        let (why, help) = match self.max_stop_sequences {
            _ if model.stop.is_empty() => return None,
            Some(0) => (
                format!("{} doesn't support `stop`", self.api),
                self.stop_elsewhere.map_or("remove it".to_owned(), |provider| {
                    format!("remove it, or name the model `{provider}/{name}`")
                }),
            ),
            _ if found.rejects_stop_sequences => (format!("{name} doesn't support `stop`"), "remove it".to_owned()),
            Some(max) if model.stop.len() > max => (
                format!("{} supports at most {max} `stop` sequences", self.api),
                format!("keep {max} of these {}", model.stop.len()),
            ),
            _ => {
                let is_blank = |text: &&String| !text.is_empty() && text.trim().is_empty();
                let blank = model.stop.iter().find(is_blank).filter(|_| self.rejects_blank_stop)?;
                let why = format!("{name} doesn't support `stop` sequences of white space, such as {blank:?}");
                (why, "add the text around it, or remove it".to_owned())
            }
        };
        Some(UnsupportedOption::new("stop", why, help))
    }
}

fn temperature_problem(model: &Model, found: &Capabilities, thinking: Option<Thinking>) -> Option<UnsupportedOption> {
    let temperature = model.temperature.filter(|temperature| *temperature != DEFAULT_TEMPERATURE)?;
    let name = &model.name;
    let (why, help) = match found.temperature {
        TemperatureSupport::Any => return None,
        TemperatureSupport::Ignored | TemperatureSupport::Fixed => {
            let verb = if found.temperature == TemperatureSupport::Fixed { "doesn't support" } else { "ignores" };
            (format!("{name} {verb} `temperature`"), "remove it, or use another model".to_owned())
        }
        TemperatureSupport::FixedWhileThinking { max } if !(0.0..=max).contains(&temperature) => (
            format!("{name} supports a `temperature` from 0 to {max}"),
            format!("write a number from 0 to {max}, or remove it"),
        ),
        TemperatureSupport::FixedWhileThinking { .. } if !found.thinking.is_active(thinking) => return None,
        TemperatureSupport::FixedWhileThinking { .. } => (
            match thinking {
                None => format!("{name} thinks by default, and doesn't support `temperature` while it does"),
                Some(_) => format!("{name} doesn't support `temperature` while it thinks"),
            },
            "remove it, or set `thinking: off`".to_owned(),
        ),
    };
    Some(UnsupportedOption::new("temperature", why, help))
}

fn reply_limit_problem(request: &RequestOptions<'_>, limit: Option<u32>) -> Option<UnsupportedOption> {
    let limit = limit.filter(|limit| request.max_tokens > *limit)?;
    let why = format!("{} supports at most {limit} `max_tokens`, not {}", request.model.name, request.max_tokens);
    Some(UnsupportedOption::new("max_tokens", why, format!("write `max_tokens: {limit}`, or less")))
}

fn thinking_budget_problem(request: &RequestOptions<'_>, found: &Capabilities) -> Option<UnsupportedOption> {
    let RequestOptions { model, max_tokens, .. } = *request;
    let is_too_short = found.thinking.exceeds_reply(model.thinking, max_tokens);
    let ThinkingControl::Budget { min, .. } = found.thinking.control else { return None };
    let why = format!("{} thinks within `max_tokens`, and {max_tokens} are too few for that", model.name);
    let help = format!("give the agent more than {min} `max_tokens`, or leave `thinking` out");
    is_too_short.then(|| UnsupportedOption::new("thinking", why, help))
}

/// The temperature to send. `None` if it is the default and sending it may be an error.
pub(crate) fn explicit_temperature(vendor: &str, model: &Model, thinking: Option<Thinking>) -> Option<f64> {
    let found = Capabilities::of(vendor, &model.name);
    let is_fixed = match found.temperature {
        TemperatureSupport::Any | TemperatureSupport::Ignored => false,
        TemperatureSupport::Fixed => true,
        TemperatureSupport::FixedWhileThinking { .. } => found.thinking.is_active(thinking),
    };
    model.temperature.filter(|temperature| !(is_fixed && *temperature == DEFAULT_TEMPERATURE))
}
