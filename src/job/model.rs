//! The model of a job or an agent, with its options.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::prompt::{OrText, TextOrMapping};
use crate::yaml::Spanned;

/// The greatest number of output tokens of one reply that an agent can be given.
pub const MAX_TOKENS: u32 = 1_000_000;

/// The form of a model's name, whatever the provider.
pub const MODEL_PATTERN: &str = "^[^/]+/.+$";

/// The highest temperature that any provider accepts.
pub const MAX_TEMPERATURE: f64 = 2.0;
/// The greatest number of stop sequences.
pub const MAX_STOPS: usize = 16;
/// The greatest length of a stop sequence, in characters.
pub const MAX_STOP_CHARS: usize = 256;
/// The greatest number of fallback models.
pub const MAX_FALLBACKS: usize = 8;

/// A model: `provider/name`, or a mapping with options.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum ModelSpec {
    /// The name alone.
    Name(#[schemars(regex(pattern = MODEL_PATTERN))] String),
    /// With options.
    Options(Box<ModelOptions>),
}

/// A model with options.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "model")]
pub struct ModelOptions {
    /// The model: `provider/name`.
    #[schemars(regex(pattern = MODEL_PATTERN))]
    pub name: Spanned<String>,

    /// How much it may think before it answers.
    pub thinking: Option<Spanned<Thinking>>,

    /// The randomness of its replies: 0 for the most likely words. Not every model accepts it; Claude accepts at most 1.
    #[schemars(range(min = 0, max = MAX_TEMPERATURE))]
    pub temperature: Option<Spanned<f64>>,

    /// Stop sequences: a reply ends before the first of these texts.
    #[schemars(length(max = MAX_STOPS), inner(length(min = 1, max = MAX_STOP_CHARS)), extend("uniqueItems" = true))]
    pub stop: Option<Spanned<Vec<Spanned<String>>>>,

    /// The greatest number of output tokens of one reply, for agents without `max_tokens`.
    #[schemars(range(min = 1, max = MAX_TOKENS))]
    pub max_tokens: Option<Spanned<u32>>,

    /// The context window: the tokens of a prompt and its reply together. Default: from the table of prices.
    #[schemars(range(min = 1))]
    pub context: Option<Spanned<u64>>,

    /// Cheaper and slower processing, where the provider has it: OpenAI and Gemini.
    pub tier: Option<Spanned<ServiceTier>>,

    /// Models that answer instead, in this order, if this one is overloaded or unreachable after all retries.
    #[schemars(with = "Option<Vec<serde_json::Value>>", length(max = MAX_FALLBACKS))]
    pub fallback: Option<Spanned<Vec<Spanned<ModelSpec>>>>,
}

impl ModelSpec {
    /// `provider/name`, as the job writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Options(options) => &options.name.value,
        }
    }

    /// The options.
    pub fn options(&self) -> Option<&ModelOptions> {
        match self {
            Self::Name(_) => None,
            Self::Options(options) => Some(options),
        }
    }

    /// The models that answer if this one fails.
    pub fn fallback(&self) -> &[Spanned<Self>] {
        self.options().and_then(|options| options.fallback.as_ref()).map_or(&[], |fallback| &fallback.value)
    }
}

impl OrText<'_> for ModelOptions {
    const EXPECTED: &'static str = "a model such as `anthropic/claude-sonnet-5-5`, or a mapping with `name`";
}

impl<'de> Deserialize<'de> for ModelSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(name) => Self::Name(name),
            TextOrMapping::Mapping(options) => Self::Options(Box::new(options)),
        })
    }
}

/// How much a model may think before it answers. Each provider maps it to its own setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
    /// More, for long work. Few models have it.
    #[serde(rename = "xhigh")]
    XHigh,
    /// Without a bound other than `max_tokens`. Few models have it.
    Max,
}

/// How a provider processes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceTier {
    /// At about half the price, later, and only while there is room.
    Flex,
}
