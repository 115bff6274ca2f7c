//! A tool server as a plan has it.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tool_lock::ToolDefinitions;
use crate::job::{self, DEFAULT_SERVER_SECONDS, McpServer, Network, allows_tool, value_or};

/// A tool server that an agent of the plan uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSpec {
    /// The program and its arguments; empty for a server with an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment variables that the program gets in addition to the default ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Environment variables with values that the job declares.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env_values: IndexMap<String, String>,
    /// The network access of the program.
    #[serde(default)]
    pub network: Network,
    /// The address of a server that speaks HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub headers: IndexMap<String, PlannedHeader>,
    /// The variable with the path of a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<String>,
    /// Whether the run ends without it.
    pub required: bool,
    /// How long a call may take without a reply or a report of progress, in milliseconds.
    pub timeout_ms: u64,
    /// The tools that agents list, by their names on the server. Absent: not known before the server has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolDefinitions>,
    /// Why it didn't start, if the run continues without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PlannedHeader {
    /// The value.
    Text(String),
    /// The name of the variable that holds it.
    Variable {
        /// The variable.
        env: String,
        /// A text before its value.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
    },
}

impl ServerSpec {
    /// From a job's declaration, with what its program may reach.
    pub fn new(declared: &McpServer, network: Network) -> Self {
        let words = declared.command.iter().flat_map(|command| &command.value);
        let header = |value: &job::HeaderValue| match value {
            job::HeaderValue::Text(text) => PlannedHeader::Text(text.clone()),
            job::HeaderValue::Variable(variable) => {
                PlannedHeader::Variable { env: variable.env.clone(), prefix: variable.prefix.clone() }
            }
        };
        let headers = declared.headers.iter().map(|(name, value)| (name.value.clone(), header(&value.value)));
        Self {
            command: words.map(|word| word.value.clone()).collect(),
            env: declared.env.names().into_iter().map(|name| name.value).collect(),
            env_values: declared.env.values().map(|(name, value)| (name.value.clone(), value.value.clone())).collect(),
            network,
            url: declared.url.as_ref().map(|url| url.value.clone()),
            headers: headers.collect(),
            client_cert: declared.client_cert.as_ref().map(|variable| variable.value.env.clone()),
            required: value_or(declared.required.as_ref(), true),
            timeout_ms: declared
                .timeout
                .as_ref()
                .map_or(DEFAULT_SERVER_SECONDS * 1000, |timeout| timeout.value.milliseconds()),
            tools: None,
            missing: None,
        }
    }

    /// Whether legwork starts it as a program.
    pub fn is_program(&self) -> bool {
        self.url.is_none()
    }

    /// The variables that it gets, and those in its headers and of its client certificate.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(String::as_str).chain(self.header_variables()).chain(self.client_cert.as_deref())
    }

    /// The variables in its headers.
    pub fn header_variables(&self) -> impl Iterator<Item = &str> {
        self.headers.values().filter_map(|header| match header {
            PlannedHeader::Text(_) => None,
            PlannedHeader::Variable { env, .. } => Some(env.as_str()),
        })
    }
}

/// The tools of a server that an agent can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerGrant {
    /// The server's name.
    #[serde(rename = "name")]
    pub server: String,
    /// The names of its tools. `*` at the end matches anything.
    pub allow: Vec<String>,
}

impl ServerGrant {
    /// Whether the agent can use a tool of the server.
    pub fn allows(&self, tool: &str) -> bool {
        self.allow.iter().any(|pattern| allows_tool(pattern, tool))
    }
}
