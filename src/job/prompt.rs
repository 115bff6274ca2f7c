//! A prompt, in the job file or in a file of its own, and how a value is read that is a text or a mapping.

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer};

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

/// A mapping that can also be written as a text.
pub(super) trait OrText<'de>: Deserialize<'de> {
    /// What the value must be, in words.
    const EXPECTED: &'static str;
}

/// A text, or a mapping of the form `M`.
pub(super) enum TextOrMapping<M> {
    Text(String),
    Mapping(M),
}

impl<'de, M: OrText<'de>> Deserialize<'de> for TextOrMapping<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Spanned::<Parsed<M>>::deserialize(deserializer)?;
        match read.value.0 {
            Some(value) => Ok(value),
            // The placeholder of a value that couldn't be read.
            None if read.node.is_placeholder() => Ok(Self::Text(String::new())),
            None => Err(de::Error::invalid_type(Unexpected::Unit, &M::EXPECTED)),
        }
    }
}

/// The value; `None` for a null.
struct Parsed<M>(Option<TextOrMapping<M>>);

impl<'de, M: OrText<'de>> Deserialize<'de> for Parsed<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrMap<M>(PhantomData<M>);
        impl<'de, M: OrText<'de>> Visitor<'de> for TextOrMap<M> {
            type Value = Parsed<M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(M::EXPECTED)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Parsed<M>, E> {
                Ok(Parsed(None))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Parsed<M>, E> {
                Ok(Parsed(Some(TextOrMapping::Text(text.to_owned()))))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parsed<M>, A::Error> {
                let mapping = M::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Parsed(Some(TextOrMapping::Mapping(mapping))))
            }
        }
        deserializer.deserialize_any(TextOrMap(PhantomData))
    }
}
