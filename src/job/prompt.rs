//! A prompt, in the job file or in a file of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::text_or_mapping::{OrText, TextOrMapping};
use crate::yaml::Spanned;

/// The form of a path that stays in its folder. It accepts some that don't (`a/../..`), because a pattern can't count.
pub const PATH_PATTERN: &str = r"^(?!/)(?!(\./+)*\.\.(/|$))[^\x00]+$";

/// A template: a text, or the path of a file.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum PromptText {
    /// The text.
    Text(String),
    /// A file.
    File(PromptFile),
}

/// A prompt in a file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "prompt file")]
pub struct PromptFile {
    /// The path of a text file below the job file's folder, relative to that folder.
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
