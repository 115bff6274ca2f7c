//! Tools of tool servers, which speak the Model Context Protocol.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tool::{CallFuture, Tool, ToolContext};
use crate::egress::CallTraffic;
use crate::json_schema::ProviderSchema;
use crate::message::ToolError;
use crate::text::hex;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolDefinition {
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its input, an object.
    pub input_schema: Value,
}

impl ToolDefinition {
    /// The definition of a tool of which only the name is known.
    pub fn unknown() -> Self {
        Self { description: String::new(), input_schema: json!({ "type": "object" }) }
    }

    /// SHA-256 of the definition as compact JSON, in hex.
    pub fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        hex(&Sha256::digest(text))
    }
}

/// The tool servers of a run.
pub trait ToolServers: Send + Sync + fmt::Debug {
    /// Calls a tool and returns the text for the model.
    ///
    /// # Errors
    /// A [`ToolError`] for the model. It never ends the run.
    fn call<'a>(&'a self, call: ServerCall<'a>, context: &'a ToolContext<'a>) -> CallFuture<'a>;

    /// What the program of a server has reached and was refused since the last time.
    fn take_traffic(&self, server: &str) -> CallTraffic {
        let _ = server;
        CallTraffic::default()
    }
}

/// A call of a server's tool.
#[derive(Debug, Clone, Copy)]
pub struct ServerCall<'a> {
    /// The id of the agent that calls.
    pub agent: &'a str,
    /// The server's name.
    pub server: &'a str,
    /// The tool's name on the server.
    pub tool: &'a str,
    /// Its input.
    pub input: &'a RawValue,
}

/// A tool of a server.
#[derive(Debug)]
pub struct ServerTool {
    server: String,
    tool: String,
    name: String,
    definition: ToolDefinition,
    /// The schema that models get.
    schema: ProviderSchema,
    /// The agent that has it, and the servers that perform it.
    performer: Option<(String, Arc<dyn ToolServers>)>,
}

impl ServerTool {
    /// Describes a tool that can't be called. `name` is the one that models know.
    pub fn new(server: &str, tool: &str, name: String, definition: &ToolDefinition) -> Self {
        Self {
            server: server.to_owned(),
            tool: tool.to_owned(),
            name,
            schema: ProviderSchema::new(definition.input_schema.clone()),
            definition: definition.clone(),
            performer: None,
        }
    }

    /// The same tool for an agent. These servers perform it.
    #[must_use]
    pub fn performed_by(self, agent: &str, servers: Option<Arc<dyn ToolServers>>) -> Self {
        Self { performer: servers.map(|servers| (agent.to_owned(), servers)), ..self }
    }
}

impl Tool for ServerTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        self.definition.description.clone()
    }

    fn input_schema(&self) -> Value {
        self.schema.schema().clone()
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        match &self.performer {
            Some((agent, servers)) => {
                let (server, tool) = (self.server.as_str(), self.tool.as_str());
                match self.schema.restore(input) {
                    None => servers.call(ServerCall { agent, server, tool, input }, context),
                    Some(input) => Box::pin(async move {
                        servers.call(ServerCall { agent, server, tool, input: &input }, context).await
                    }),
                }
            }
            None => {
                let message = format!("the server `{}` isn't running", self.server);
                Box::pin(std::future::ready(Err(ToolError(message))))
            }
        }
    }
}
