//! Texts for a model, in the job file or beside it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::PATH_PATTERN;
use super::text_or_mapping::{OrText, TextOrMapping};
use crate::yaml::Spanned;

/// A template: the text itself, or the file that holds it.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum PromptText {
    /// The text.
    Text(String),
    /// A file.
    File(PromptFile),
}

/// A text in a file of its own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "prompt file")]
pub struct PromptFile {
    /// Path of a text file, from the job file's folder and below it.
    #[schemars(regex(pattern = PATH_PATTERN), extend("patternErrorMessage" = "the path leads out of the job's folder"))]
    pub file: Spanned<String>,
}

impl OrText<'_> for PromptFile {
    const EXPECTED: &'static str = "a text, or `{ file: PATH }`";
}

impl<'de> Deserialize<'de> for PromptText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(text) => Self::Text(text),
            TextOrMapping::Mapping(file) => Self::File(file),
        })
    }
}
