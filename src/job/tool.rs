//! A tool in the allowlist of an agent.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::mcp::ServerEntry;
use crate::yaml::{self, Node, Spanned};

const HELP: &str = "write `- NAME`, or `- NAME: { OPTION: VALUE }` with one name in each entry";
const SERVER_HELP: &str = "write `- { mcp: SERVER, allow: [TOOL, ...] }`";

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
    /// Tools of a tool server.
    Server(ServerEntry),
    /// Outputs of the job, and `nothing_to_do`.
    Outputs(Spanned<Vec<Spanned<String>>>),
}

/// The key of an entry that lists outputs.
pub const OUTPUT_KEY: &str = "output";

impl ToolEntry {
    /// The key that names a tool server.
    pub const SERVER_KEY: &'static str = "mcp";

    /// The tool's name, as the job writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Options { name, .. } => &name.value,
            Self::Server(_) => Self::SERVER_KEY,
            Self::Outputs(_) => OUTPUT_KEY,
        }
    }

    /// The tools of a tool server, if it is such an entry.
    pub fn server(&self) -> Option<&ServerEntry> {
        match self {
            Self::Server(entry) => Some(entry),
            _ => None,
        }
    }

    /// The names of outputs, if it is such an entry.
    pub fn outputs(&self) -> &[Spanned<String>] {
        match self {
            Self::Outputs(names) => &names.value,
            _ => &[],
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
                if is_server_key(&name.value) {
                    let mut entries = vec![(name, options)];
                    while let Some(key) = map.next_key::<Spanned<String>>()? {
                        entries.push((key, map.next_value::<Node>()?));
                    }
                    return server_entry(&entries);
                }
                if name.value == OUTPUT_KEY {
                    let names = options.decode_nested().ok_or_else(|| malformed("this entry lists no outputs"))?;
                    return match map.next_key::<Spanned<String>>()? {
                        None => Ok(ToolEntry::Outputs(names)),
                        Some(_) => Err(malformed("this entry names more than outputs")),
                    };
                }
                match map.next_key::<Spanned<String>>()? {
                    None => Ok(ToolEntry::Options { name, options }),
                    Some(_) => Err(malformed("this entry names more than one tool")),
                }
            }
        }
        deserializer.deserialize_any(NameOrOptions)
    }
}

/// Whether a key belongs to the entry of a tool server.
fn is_server_key(key: &str) -> bool {
    matches!(key, ToolEntry::SERVER_KEY | "allow")
}

fn server_entry<E: de::Error>(entries: &[(Spanned<String>, Node)]) -> Result<ToolEntry, E> {
    if let Some((key, _)) = entries.iter().find(|(key, _)| !is_server_key(&key.value)) {
        let what = format!("an entry for a tool server has no key `{}`", key.value);
        return Err(yaml::coded_error("bad-tool-entry", what, Some(SERVER_HELP)));
    }
    let value = |key: &str| entries.iter().find(|(name, _)| name.value == key).map(|(_, node)| node);
    let missing = |what: &str| yaml::coded_error("bad-tool-entry", what, Some(SERVER_HELP));
    let server = value(ToolEntry::SERVER_KEY).ok_or_else(|| missing("this entry names no tool server"))?;
    let allow = value("allow").ok_or_else(|| {
        let name = server.text().unwrap_or("SERVER");
        let help = format!("write `- {{ mcp: {name}, allow: [TOOL, ...] }}`");
        let what = "this entry lists no tools of the server: `allow` is missing";
        yaml::coded_error("bad-tool-entry", what, Some(&help))
    })?;
    match (server.decode_nested(), allow.decode_nested()) {
        (Some(server), Some(allow)) => Ok(ToolEntry::Server(ServerEntry { server, allow })),
        _ => Err(missing("this entry for a tool server can't be read")),
    }
}

impl JsonSchema for ToolEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolEntry".into()
    }

    /// Any tool; [`crate::editor_schema`] adds the existing ones.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "object", "minProperties": 1, "maxProperties": 2 }],
        })
    }
}
