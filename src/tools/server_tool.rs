//! Tools of tool servers, which speak the Model Context Protocol.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::tool::{CallFuture, Tool, ToolContext};
use crate::job::server_tool_name;
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
    /// The agent that has it, and the servers that perform it.
    performer: Option<(String, Arc<dyn ToolServers>)>,
}

impl ServerTool {
    /// Describes a tool that can't be called.
    pub fn new(server: &str, tool: &str, definition: &ToolDefinition) -> Self {
        Self {
            server: server.to_owned(),
            tool: tool.to_owned(),
            name: server_tool_name(server, tool),
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
        without_alternatives(self.definition.input_schema.clone())
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        match &self.performer {
            Some((agent, servers)) => {
                servers.call(ServerCall { agent, server: &self.server, tool: &self.tool, input }, context)
            }
            None => {
                let message = format!("the server `{}` isn't running", self.server);
                Box::pin(std::future::ready(Err(ToolError(message))))
            }
        }
    }
}

/// Keys of JSON Schema that providers refuse at the top of a tool's schema.
const ALTERNATIVES: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// A schema without alternatives at its top, which Anthropic and OpenAI refuse: the properties of all of them are at the top,
/// and optional. The server checks the input itself.
fn without_alternatives(mut schema: Value) -> Value {
    let Some(fields) = schema.as_object_mut() else { return schema };
    let mut branches = Vec::new();
    for key in ALTERNATIVES {
        if let Some(Value::Array(items)) = fields.shift_remove(key) {
            branches.extend(items);
        }
    }
    for key in ["not", "if", "then", "else", "enum", "const"] {
        fields.shift_remove(key);
    }
    let branches = branches.iter().filter_map(|branch| branch.get("properties")?.as_object());
    let found: Vec<(String, Value)> = branches.flatten().map(|(name, value)| (name.clone(), value.clone())).collect();
    if !found.is_empty()
        && let Some(properties) =
            fields.entry("properties").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        for (name, value) in found {
            properties.entry(name).or_insert(value);
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_at_the_top_become_optional_properties() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "string" } },
            "required": ["a"],
            "oneOf": [{ "properties": { "a": {}, "b": { "anyOf": [{ "type": "null" }] } }, "required": ["b"] }, { "required": ["c"] }],
        });
        let expected = json!({
            "type": "object",
            "properties": { "a": { "type": "string" }, "b": { "anyOf": [{ "type": "null" }] } },
            "required": ["a"],
        });
        assert_eq!(without_alternatives(schema), expected);
        assert_eq!(without_alternatives(expected.clone()), expected);
    }
}
