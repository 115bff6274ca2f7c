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
        let read = Spanned::<Read>::deserialize(deserializer)?;
        match read.value {
            Read::Prompt(prompt) => Ok(prompt),
            Read::Nothing if read.node.is_made_up() => Ok(Self::Text(String::new())),
            Read::Nothing => Err(de::Error::invalid_type(Unexpected::Unit, &EXPECTED)),
        }
    }
}

const EXPECTED: &str = "a text, or `{ file: PATH }`";

/// What stands there: nothing, too, where the reader makes up for a mistake.
enum Read {
    Nothing,
    Prompt(PromptText),
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrFile;
        impl<'de> Visitor<'de> for TextOrFile {
            type Value = Read;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Read, E> {
                Ok(Read::Nothing)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Read, E> {
                Ok(Read::Prompt(PromptText::Text(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Read, A::Error> {
                let file = PromptFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Read::Prompt(PromptText::File(file)))
            }
        }
        deserializer.deserialize_any(TextOrFile)
    }
}
