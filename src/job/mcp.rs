//! Tool servers of a job, which speak the Model Context Protocol.

use std::collections::HashSet;
use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::access::{ENV_FORM, ENV_PATTERN, JobNetwork};
use super::duration::Duration;
use super::prompt::{OrText, TextOrMapping};
use crate::text::{hex, sanitize};
use crate::yaml::Spanned;

/// The greatest number of servers of a job.
pub const MAX_SERVERS: usize = 50;
/// The default timeout of a call, in seconds.
pub const DEFAULT_SERVER_SECONDS: u64 = 120;
/// The longest timeout of a call, in seconds.
pub const MAX_SERVER_SECONDS: u64 = 3600;
/// The longest name of a tool for a model: `SERVER__TOOL`. OpenAI accepts no longer one.
pub const MAX_TOOL_NAME: usize = 64;
/// The longest name of a tool on its server, in characters, as the protocol says.
const MAX_SERVER_TOOL_NAME: usize = 128;
/// How many digits of a digest make a name unique.
const NAME_DIGEST_CHARS: usize = 8;
/// What separates a server's name from that of its tool.
pub const SERVER_SEPARATOR: &str = "__";

/// A tool server: a program that legwork starts, or an address.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tool server", extend("oneOf" = [{ "required": ["command"] }, { "required": ["url"] }]))]
pub struct McpServer {
    /// The program and its arguments, such as `[mcp-server-git, --repository, .]`. It runs in the sandbox, in the workspace,
    /// and speaks over stdin and stdout.
    #[schemars(length(min = 1), extend("items" = { "type": "string" }))]
    pub command: Option<Spanned<Vec<Spanned<String>>>>,

    /// Environment variables that the program gets, in addition to a few that are always passed: names, whose values are those
    /// of legwork's own environment, or `NAME: VALUE` for values that aren't secret.
    #[serde(default)]
    pub env: ServerEnv,

    /// What the program may reach: `none`, `open`, or a list of hosts, which needn't be in the job's.
    #[schemars(extend("default" = "none"))]
    pub network: Option<Spanned<JobNetwork>>,

    /// The address of a server that speaks streamable HTTP.
    #[schemars(regex(pattern = "^https?://"), extend("patternErrorMessage" = "write an address such as `https://HOST/mcp`"))]
    pub url: Option<Spanned<String>>,

    /// Headers of each request to the address: texts, or `{ env: NAME }` for the value of an environment variable.
    #[serde(default)]
    pub headers: IndexMap<Spanned<String>, Spanned<HeaderValue>>,

    /// A client certificate for an https address: `{ env: NAME }`, a variable with the path of a PEM file that has the
    /// certificate and its key.
    pub client_cert: Option<Spanned<FileVariable>>,

    /// Whether the run ends if the server doesn't start or lacks a listed tool. Otherwise the agents do without it.
    #[schemars(extend("default" = true))]
    pub required: Option<Spanned<bool>>,

    /// How long the server may take for a call without a reply or a report of progress, at most `1h`.
    #[schemars(extend(
        "default" = "2m",
        "pattern" = Duration::pattern(std::time::Duration::from_secs(MAX_SERVER_SECONDS)),
        "patternErrorMessage" = "write it like `90s` or `20m`, at most `1h`",
    ))]
    pub timeout: Option<Spanned<Duration>>,
}

/// The variables of a server: a list of names and mappings of values, or one mapping.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum ServerEnv {
    /// Names, and mappings of values.
    List(Vec<Spanned<EnvEntry>>),
    /// Values by name.
    Values(IndexMap<Spanned<String>, Spanned<String>>),
}

/// An entry in the list of a server's variables.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum EnvEntry {
    /// The name of a variable.
    Name(#[schemars(regex(pattern = ENV_PATTERN), extend("patternErrorMessage" = ENV_FORM))] String),
    /// Values by name.
    Values(EnvValues),
}

/// Values of variables by name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EnvValues(IndexMap<Spanned<String>, Spanned<String>>);

impl Default for ServerEnv {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl ServerEnv {
    /// The names without a value.
    pub fn names(&self) -> Vec<Spanned<String>> {
        let Self::List(entries) = self else { return Vec::new() };
        let name = |entry: &Spanned<EnvEntry>| match &entry.value {
            EnvEntry::Name(name) => Some(Spanned { value: name.clone(), node: entry.node.clone() }),
            EnvEntry::Values(_) => None,
        };
        entries.iter().filter_map(name).collect()
    }

    /// The values, by name.
    pub fn values(&self) -> impl Iterator<Item = (&Spanned<String>, &Spanned<String>)> {
        let (entries, values) = match self {
            Self::List(entries) => (entries.as_slice(), None),
            Self::Values(values) => ([].as_slice(), Some(values)),
        };
        let in_list = entries.iter().filter_map(|entry| match &entry.value {
            EnvEntry::Name(_) => None,
            EnvEntry::Values(values) => Some(&values.0),
        });
        in_list.chain(values).flatten()
    }
}

impl OrText<'_> for EnvValues {
    const EXPECTED: &'static str = "the name of a variable, or `{ NAME: VALUE }`";
}

impl<'de> Deserialize<'de> for EnvEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(name) => Self::Name(name),
            TextOrMapping::Mapping(values) => Self::Values(values),
        })
    }
}

impl<'de> Deserialize<'de> for ServerEnv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrMapping;
        impl<'de> Visitor<'de> for ListOrMapping {
            type Value = ServerEnv;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names, or `{ NAME: VALUE }`")
            }

            // The placeholder of a value that couldn't be read.
            fn visit_unit<E: de::Error>(self) -> Result<ServerEnv, E> {
                Ok(ServerEnv::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ServerEnv, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(ServerEnv::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ServerEnv, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(ServerEnv::Values)
            }
        }
        deserializer.deserialize_any(ListOrMapping)
    }
}

/// The value of a header: a text, or a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(untagged)]
pub enum HeaderValue {
    /// The value.
    Text(String),
    /// An environment variable that holds it.
    Variable(HeaderVariable),
}

/// An environment variable that holds the value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "header variable")]
pub struct HeaderVariable {
    /// The variable's name.
    #[schemars(regex(pattern = ENV_PATTERN), extend("patternErrorMessage" = ENV_FORM))]
    pub env: String,
    /// A text before the value, such as `"Bearer "`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// An environment variable that holds the path of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "file variable")]
pub struct FileVariable {
    /// The variable's name.
    #[schemars(regex(pattern = ENV_PATTERN), extend("patternErrorMessage" = ENV_FORM))]
    pub env: String,
}

impl OrText<'_> for HeaderVariable {
    const EXPECTED: &'static str = "a text, or `{ env: NAME }`";
}

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(text) => Self::Text(text),
            TextOrMapping::Mapping(variable) => Self::Variable(variable),
        })
    }
}

/// The tools of a server that an agent can use.
#[derive(Debug, Clone)]
pub struct ServerEntry {
    /// The server's name.
    pub server: Spanned<String>,
    /// The names of tools as the server has them. `*` at the end of a name matches anything.
    pub allow: Spanned<Vec<Spanned<String>>>,
}

/// Whether an entry of `allow` matches the name of a tool.
pub fn allows_tool(pattern: &str, tool: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => tool.starts_with(start),
        None => pattern == tool,
    }
}

/// The same for a name that a model knows. The names of servers may have characters that models can't use.
pub fn allows_model_name(pattern: &str, tool: &str) -> bool {
    let (start, star) = match pattern.strip_suffix('*') {
        Some(start) => (start, "*"),
        None => (pattern, ""),
    };
    allows_tool(pattern, tool) || allows_tool(&format!("{}{star}", plain_name(start)), tool)
}

/// The names of a server's tools for models, by those on the server: `SERVER__TOOL`. A character that a provider refuses becomes
/// `_`. A name that is too long, or that another tool has, ends with a digest of the tool's name.
pub fn model_tool_names<'a>(server: &str, tools: impl Iterator<Item = &'a str>) -> IndexMap<&'a str, String> {
    let prefix = format!("{server}{SERVER_SEPARATOR}");
    let most = MAX_TOOL_NAME.saturating_sub(prefix.len());
    let is_plain = |tool: &str| tool.len() <= most && plain_name(tool) == tool;
    let (plain, other): (Vec<&str>, Vec<&str>) = tools.partition(|tool| is_plain(tool));
    let mut taken: HashSet<String> = plain.iter().map(|tool| (*tool).to_owned()).collect();
    let mut names: IndexMap<&str, String> = plain.into_iter().map(|tool| (tool, format!("{prefix}{tool}"))).collect();
    for tool in other {
        let mut name = plain_name(tool);
        let has_meaning = name.bytes().any(|byte| byte.is_ascii_alphanumeric());
        if name.len() > most || !has_meaning || taken.contains(&name) {
            let digest = &hex(&Sha256::digest(tool))[..NAME_DIGEST_CHARS];
            name.truncate(most.saturating_sub(NAME_DIGEST_CHARS + 1));
            name = format!("{name}_{digest}");
        }
        taken.insert(name.clone());
        names.insert(tool, format!("{prefix}{name}"));
    }
    names
}

/// A name with `_` for each character that a provider refuses.
fn plain_name(tool: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') { letter } else { '_' };
    tool.chars().map(plain).collect()
}

/// Why a tool that has this name on its server can't be used, if it can't.
pub fn tool_name_error(tool: &str) -> Option<String> {
    let length = tool.chars().count();
    if tool.is_empty() {
        Some("the name is empty".to_owned())
    } else if sanitize::line(tool) != tool {
        Some("the name has control characters, or others that can't be seen".to_owned())
    } else {
        (length > MAX_SERVER_TOOL_NAME)
            .then(|| format!("the name has {length} characters, and at most {MAX_SERVER_TOOL_NAME} are accepted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_end() {
        for (pattern, tool) in
            [("get_issue", "get_issue"), ("list_*", "list_issues"), ("list_*", "list_"), ("*", "any")]
        {
            assert!(allows_tool(pattern, tool), "{pattern} {tool}");
        }
        for (pattern, tool) in [("get_issue", "get_issues"), ("list_*", "get_list_"), ("*_issue", "get_issue")] {
            assert!(!allows_tool(pattern, tool), "{pattern} {tool}");
        }
    }

    #[test]
    fn models_get_names_that_every_provider_accepts() {
        let long = ["x".repeat(80), "x".repeat(81), "x".repeat(59), "x".repeat(60)];
        let tools = ["a_b", "a.b", "a/b", "calendar.read", "with space", "\u{65e5}\u{672c}", "..", "x", "-"];
        let tools: Vec<&str> = tools.into_iter().chain(long.iter().map(String::as_str)).collect();
        let names = model_tool_names("git", tools.iter().copied());
        assert_eq!(names.len(), tools.len());
        assert_eq!(names.values().collect::<HashSet<_>>().len(), tools.len(), "{names:?}");
        for (tool, name) in [("a_b", "git__a_b"), ("calendar.read", "git__calendar_read"), ("-", "git__-")] {
            assert_eq!(names[tool], name);
        }
        for name in names.values() {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            assert!(name.len() <= MAX_TOOL_NAME && name.bytes().all(is_plain), "{name}");
        }
        // The others of the server don't matter, unless they collide.
        assert_eq!(model_tool_names("git", ["a.b"].into_iter())["a.b"], "git__a_b");
        assert!(names["a.b"].starts_with("git__a_b_") && names["a/b"].starts_with("git__a_b_"));
        let reversed = model_tool_names("git", tools.iter().rev().copied());
        assert_eq!(reversed["a_b"], "git__a_b");
        let longest = model_tool_names(&"s".repeat(64), ["t"].into_iter());
        assert_eq!(longest.len(), 1);
    }

    #[test]
    fn names_that_cannot_be_shown_are_refused() {
        assert_eq!(tool_name_error("a.b/c d"), None);
        assert!(tool_name_error("\u{202e}x").unwrap().contains("can't be seen"));
        assert!(tool_name_error("").unwrap().contains("empty"));
        assert!(tool_name_error(&"x".repeat(129)).unwrap().contains("129 characters"));
    }

    #[test]
    fn patterns_match_the_names_that_models_know() {
        for (pattern, tool) in [("calendar.read", "calendar_read"), ("calendar.*", "calendar_read"), ("get", "get")] {
            assert!(allows_model_name(pattern, tool), "{pattern} {tool}");
        }
        assert!(!allows_model_name("calendar.read", "calendar.write"));
    }
}
