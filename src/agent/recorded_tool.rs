//! A tool whose calls were answered when the run was recorded.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::replay_driver::ReplayDriver;
use crate::tools::{Tool, ToolContext, ToolError};

/// Looks like the tool in it, and answers from the record where the record answers.
pub(super) struct RecordedTool {
    tool: Box<dyn Tool>,
    agent: String,
    recorded: Arc<dyn ReplayDriver>,
}

impl RecordedTool {
    pub(super) fn new(tool: Box<dyn Tool>, agent: &str, recorded: Arc<dyn ReplayDriver>) -> Self {
        Self { tool, agent: agent.to_owned(), recorded }
    }
}

impl Tool for RecordedTool {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> String {
        self.tool.description()
    }

    fn input_schema(&self) -> Value {
        self.tool.input_schema()
    }

    fn reads_only(&self) -> bool {
        self.tool.reads_only()
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>> {
        match self.recorded.recorded_result(&self.agent, scope.call_id) {
            None => self.tool.call(input, scope),
            Some(result) if result.is_error => Box::pin(std::future::ready(Err(ToolError(result.text)))),
            Some(result) => Box::pin(std::future::ready(Ok(result.text))),
        }
    }
}
