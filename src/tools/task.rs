//! `task`: declared here, and executed by the agent loop, which runs the subagent.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::input::{parse, schema};
use super::tool::{Builtin, CallFuture, Tool, ToolContext, no_options};
use crate::message::ToolError;

pub(super) const BUILTIN: Builtin = Builtin {
    name: Task::NAME,
    reads_only: false,
    starts_commands: false,
    changes_files: false,
    reads_content: false,
    parent_only: true,
    subject_field: Some("description"),
    parse_options: no_options,
    options_schema: || None,
    build: |_| Ok(Box::new(Task::new([]))),
};

/// The input of `task`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskInput {
    /// The task. The subagent doesn't see this conversation, so include everything it needs, and what it should report.
    pub prompt: String,
    /// The task in three to six words, for the user.
    #[serde(default)]
    pub description: Option<String>,
    /// Which subagent to use.
    #[serde(default, alias = "subagent_type")]
    pub agent: Option<String>,
    /// The job sets the model.
    #[serde(default)]
    #[schemars(skip)]
    model: Option<IgnoredAny>,
    /// A call waits for its subagent.
    #[serde(default)]
    #[schemars(skip)]
    run_in_background: Option<IgnoredAny>,
}

impl TaskInput {
    /// Parses the input of a call.
    ///
    /// # Errors
    /// If it is malformed, or the prompt is empty. Whether the agent exists isn't checked.
    pub fn read(input: &RawValue) -> Result<Self, ToolError> {
        let task: Self = parse(input)?;
        if task.prompt.trim().is_empty() {
            return Err(ToolError::new("invalid input: `prompt` is empty"));
        }
        Ok(task)
    }
}

/// The `task` tool of a parent with certain subagents.
#[derive(Debug, Clone)]
pub struct Task {
    subagents: Vec<(String, String)>,
}

impl Task {
    /// The tool's name.
    pub const NAME: &str = "task";

    /// Offers subagents, given by name and description.
    pub fn new(subagents: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { subagents: subagents.into_iter().collect() }
    }
}

impl Tool for Task {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> String {
        let mut text = "Runs a subagent on a task. It works on the same files and returns a summary; use it for work whose \
                        details you don't need to see. Several tasks in one reply run in parallel. The subagent sees only \
                        the prompt, not this conversation."
            .to_owned();
        if !self.subagents.is_empty() {
            text.push_str("\n\nSubagents:");
        }
        for (name, description) in &self.subagents {
            text.push_str("\n- ");
            text.push_str(name);
            if !description.is_empty() {
                text.push_str(": ");
                text.push_str(description.trim());
            }
        }
        text
    }

    fn input_schema(&self) -> Value {
        let mut schema = schema::<TaskInput>();
        if !self.subagents.is_empty() {
            schema["properties"]["agent"]["enum"] = self.subagents.iter().map(|(name, _)| json!(name)).collect();
        }
        if let [_, _, ..] = self.subagents.as_slice()
            && let Some(required) = schema["required"].as_array_mut()
        {
            required.push(json!("agent"));
        }
        schema
    }

    fn call<'a>(&'a self, _: &'a RawValue, _: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async { Err(ToolError::new("subagents can't be started here")) })
    }
}
