//! Tool servers of a job, which speak the Model Context Protocol.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::access::{ENV_FORM, ENV_PATTERN, Network};
use super::duration::Duration;
use super::prompt::{OrText, TextOrMapping};
use crate::yaml::Spanned;

/// The greatest number of servers of a job.
pub const MAX_SERVERS: usize = 50;
/// The default timeout of a call, in seconds.
pub const DEFAULT_SERVER_SECONDS: u64 = 120;
/// The longest timeout of a call, in seconds.
pub const MAX_SERVER_SECONDS: u64 = 3600;
/// The longest name of a tool for a model: `SERVER__TOOL`. OpenAI accepts no longer one.
pub const MAX_TOOL_NAME: usize = 64;
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

    /// Environment variables that the program gets, in addition to a few that are always passed.
    #[serde(default)]
    #[schemars(extend("items" = {
        "type": "string", "pattern": ENV_PATTERN, "patternErrorMessage": ENV_FORM,
    }))]
    pub env: Vec<Spanned<String>>,

    /// What the program may reach.
    #[schemars(extend("default" = "none"))]
    pub network: Option<Spanned<Network>>,

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

/// The name of a server's tool for the model.
pub fn server_tool_name(server: &str, tool: &str) -> String {
    format!("{server}{SERVER_SEPARATOR}{tool}")
}

/// Why models can't call a tool of this name, if they can't: providers accept letters, digits, `_` and `-`.
pub fn tool_name_error(server: &str, tool: &str) -> Option<String> {
    let whole = server.len() + SERVER_SEPARATOR.len() + tool.len();
    if tool.is_empty() {
        return Some("the name is empty".to_owned());
    }
    if !tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        return Some("providers accept only letters, digits, `_` and `-` in the names of tools".to_owned());
    }
    (whole > MAX_TOOL_NAME).then(|| {
        format!("with the server's name it has {whole} characters, and providers accept at most {MAX_TOOL_NAME}")
    })
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
    fn names_that_a_provider_refuses_are_found() {
        assert_eq!(tool_name_error("git", "git_status"), None);
        assert_eq!(tool_name_error("git", &"x".repeat(59)), None);
        for (tool, word) in [("a.b", "letters"), ("a b", "letters"), ("\u{202e}x", "letters"), ("", "empty")] {
            assert!(tool_name_error("git", tool).unwrap().contains(word), "{tool}");
        }
        assert!(tool_name_error("git", &"x".repeat(60)).unwrap().contains("65 characters"));
    }
}
