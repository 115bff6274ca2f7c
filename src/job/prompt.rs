//! Texts for a model, in the job file or beside it.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer};

use super::PATH_PATTERN;
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

impl<'de> Deserialize<'de> for PromptText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Spanned::<ParsedPrompt>::deserialize(deserializer)?;
        match read.value {
            ParsedPrompt::Prompt(prompt) => Ok(prompt),
            ParsedPrompt::Nothing if read.node.is_placeholder() => Ok(Self::Text(String::new())),
            ParsedPrompt::Nothing => Err(de::Error::invalid_type(Unexpected::Unit, &EXPECTED)),
        }
    }
}

const EXPECTED: &str = "a text, or `{ file: PATH }`";

/// What stands there: nothing, too, where the reader makes up for a mistake.
enum ParsedPrompt {
    Nothing,
    Prompt(PromptText),
}

impl<'de> Deserialize<'de> for ParsedPrompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrFile;
        impl<'de> Visitor<'de> for TextOrFile {
            type Value = ParsedPrompt;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_unit<E: de::Error>(self) -> Result<ParsedPrompt, E> {
                Ok(ParsedPrompt::Nothing)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ParsedPrompt, E> {
                Ok(ParsedPrompt::Prompt(PromptText::Text(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ParsedPrompt, A::Error> {
                let file = PromptFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ParsedPrompt::Prompt(PromptText::File(file)))
            }
        }
        deserializer.deserialize_any(TextOrFile)
    }
}
