//! Which model answers.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::text_or_mapping::{OrText, TextOrMapping};
use super::{MAX_TOKENS, Thinking};
use crate::yaml::Spanned;

/// The form of a model's name, with no regard for which providers there are.
pub const MODEL_PATTERN: &str = "^[^/]+/.+$";

/// The highest temperature that any provider takes.
pub const MAX_TEMPERATURE: f64 = 2.0;
/// The greatest number of texts at which a reply ends.
pub const MAX_STOPS: usize = 16;
/// The greatest length of one of them, in characters.
pub const MAX_STOP_CHARS: usize = 256;

/// A model: `provider/name`, or a mapping with options.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum ModelSpec {
    /// The name alone.
    Name(#[schemars(regex(pattern = MODEL_PATTERN))] String),
    /// With options.
    Options(ModelOptions),
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

    /// How freely it picks its words: 0 for the likeliest ones. Not every model takes one, and Claude none above 1.
    #[schemars(range(min = 0, max = MAX_TEMPERATURE))]
    pub temperature: Option<Spanned<f64>>,

    /// Texts at which a reply ends; the text itself isn't part of it.
    #[schemars(length(max = MAX_STOPS), inner(length(min = 1, max = MAX_STOP_CHARS)), extend("uniqueItems" = true))]
    pub stop: Option<Spanned<Vec<Spanned<String>>>>,

    /// The greatest number of output tokens of one reply, for agents that don't say it themselves.
    #[schemars(range(min = 1, max = MAX_TOKENS))]
    pub max_tokens: Option<Spanned<u32>>,

    /// How many tokens its prompt and reply may have together. Default: what the table of prices says.
    #[schemars(range(min = 1))]
    pub context: Option<Spanned<u64>>,
}

impl ModelSpec {
    /// `provider/name`, as the job writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Options(options) => &options.name.value,
        }
    }

    /// What is asked of it beyond the defaults.
    pub fn options(&self) -> Option<&ModelOptions> {
        match self {
            Self::Name(_) => None,
            Self::Options(options) => Some(options),
        }
    }
}

impl OrText<'_> for ModelOptions {
    const EXPECTED: &'static str = "a model such as `anthropic/claude-sonnet-5-5`, or a mapping with `name`";
}

impl<'de> Deserialize<'de> for ModelSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(name) => Self::Name(name),
            TextOrMapping::Mapping(options) => Self::Options(options),
        })
    }
}
