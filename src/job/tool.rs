//! A tool in the allowlist of an agent.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::yaml::{self, Node, Spanned};

const HELP: &str = "write `- NAME`, or `- NAME: { OPTION: VALUE }` with one name in each entry";

/// A tool: its name, or its name with options.
#[derive(Debug, Clone)]
pub enum ToolEntry {
    /// The name alone.
    Name(String),
    /// With options, which the tool itself parses.
    Options {
        /// The name.
        name: Spanned<String>,
        /// The options; null if nothing follows the name.
        options: Node,
    },
}

impl ToolEntry {
    /// The tool's name, as the job writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Options { name, .. } => &name.value,
        }
    }
}

impl<'de> Deserialize<'de> for ToolEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrOptions;
        impl<'de> Visitor<'de> for NameOrOptions {
            type Value = ToolEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool's name, or a mapping of one name to its options")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ToolEntry, E> {
                Ok(ToolEntry::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolEntry, A::Error> {
                let malformed = |what: &str| yaml::coded_error("bad-tool-entry", what, Some(HELP));
                let Some(name) = map.next_key::<Spanned<String>>()? else {
                    return Err(malformed("this entry names no tool"));
                };
                let options = map.next_value::<Node>()?;
                match map.next_key::<Spanned<String>>()? {
                    None => Ok(ToolEntry::Options { name, options }),
                    Some(_) => Err(malformed("this entry names more than one tool")),
                }
            }
        }
        deserializer.deserialize_any(NameOrOptions)
    }
}

impl JsonSchema for ToolEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolEntry".into()
    }

    /// Any tool; [`crate::schema`] adds the existing ones.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "object", "minProperties": 1, "maxProperties": 1 }],
        })
    }
}
