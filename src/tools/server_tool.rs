//! Tools of tool servers, which speak the Model Context Protocol.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::tool::{CallFuture, Tool, ToolContext};
use crate::job::server_tool_name;
use crate::message::ToolError;

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

/// The tool servers of a run.
pub trait ToolServers: Send + Sync + fmt::Debug {
    /// Calls a tool and returns the text for the model.
    ///
    /// # Errors
    /// A [`ToolError`] for the model. It never ends the run.
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        input: &'a RawValue,
        context: &'a ToolContext<'a>,
    ) -> CallFuture<'a>;
}

/// A tool of a server.
#[derive(Debug)]
pub struct ServerTool {
    server: String,
    tool: String,
    name: String,
    definition: ToolDefinition,
    servers: Option<Arc<dyn ToolServers>>,
}

impl ServerTool {
    /// Describes a tool that can't be called.
    pub fn new(server: &str, tool: &str, definition: &ToolDefinition) -> Self {
        Self {
            server: server.to_owned(),
            tool: tool.to_owned(),
            name: server_tool_name(server, tool),
            definition: definition.clone(),
            servers: None,
        }
    }

    /// The same tool, which these servers perform.
    #[must_use]
    pub fn performed_by(self, servers: Option<Arc<dyn ToolServers>>) -> Self {
        Self { servers, ..self }
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
        self.definition.input_schema.clone()
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        match &self.servers {
            Some(servers) => servers.call(&self.server, &self.tool, input, context),
            None => {
                let message = format!("the server `{}` isn't running", self.server);
                Box::pin(std::future::ready(Err(ToolError(message))))
            }
        }
    }
}
