//! What a job may ask of a model beyond the defaults, and who is known not to take it.

use crate::providers::{Model, ProviderError, ProviderErrorKind};

/// What an agent asks of its model.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions<'a> {
    /// The model, with its options.
    pub model: &'a Model,
    /// Whether the agent has tools.
    pub has_tools: bool,
    /// The greatest number of output tokens of one reply.
    pub max_tokens: u32,
}

/// An option that a model is asked for and doesn't take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedOption {
    /// The option's key in the job file, such as `thinking`; `name` where the model itself doesn't fit.
    pub option: &'static str,
    /// Why, in one sentence.
    pub why: String,
    /// What to do about it.
    pub help: String,
}

impl UnsupportedOption {
    /// An option that isn't taken, why, and what to do about it.
    pub fn new(option: &'static str, why: impl Into<String>, help: impl Into<String>) -> Self {
        Self { option, why: why.into(), help: help.into() }
    }

    /// That replies may be longer than those of the model can be, which the APIs refuse. `most`: the model's bound in tokens,
    /// where it is known.
    pub(crate) fn exceeds_reply_limit(wish: &RequestOptions<'_>, most: Option<u32>) -> Option<Self> {
        let most = most.filter(|most| wish.max_tokens > *most)?;
        let why =
            format!("{} takes at most {most} as `max_tokens`, and {} are asked for", wish.model.name, wish.max_tokens);
        Some(Self::new("max_tokens", why, format!("write `max_tokens: {most}`, or less")))
    }
}

/// Where only the run knows who answers, so that nothing could be said of the job.
impl From<UnsupportedOption> for ProviderError {
    fn from(untaken: UnsupportedOption) -> Self {
        Self::new(ProviderErrorKind::Rejected, untaken.why).with_hint(untaken.help)
    }
}

impl Model {
    /// What it is asked for beyond the defaults: keys and values as a job writes them.
    pub fn explicit_options(&self) -> Vec<(&'static str, String)> {
        let word = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut options = Vec::new();
        options.extend(self.thinking.map(|thinking| ("thinking", word(serde_json::json!(thinking)))));
        options.extend(self.temperature.map(|temperature| ("temperature", temperature.to_string())));
        if !self.stop.is_empty() {
            options.push(("stop", serde_json::json!(self.stop).to_string()));
        }
        options.extend(self.context.map(|context| ("context", context.to_string())));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Thinking;

    #[test]
    fn options_read_as_in_a_job() {
        let shown = |model: Model| {
            model.explicit_options().iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(shown(Model::new("anthropic", "x")), none);
        let model = Model {
            thinking: Some(Thinking::Low),
            temperature: Some(0.0),
            stop: vec!["END".to_owned(), "\"".to_owned()],
            context: Some(32_000),
            ..Model::new("anthropic", "x")
        };
        assert_eq!(shown(model), ["thinking: low", "temperature: 0", r#"stop: ["END","\""]"#, "context: 32000"]);
    }
}
