//! `task`: declared here, answered by the loop, which alone can run a subagent.

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::input::{parse, schema};
use super::{Builtin, Tool, ToolContext, ToolError, options};

pub(super) const BUILTIN: Builtin = Builtin {
    name: Task::NAME,
    reads_only: false,
    parent_only: true,
    subject_field: Some("description"),
    parse_options: options::none,
    options_schema: || None,
    build: |_| Ok(Box::new(Task::new([]))),
};

/// What the model says in a call of `task`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskInput {
    /// What the subagent is to do. It knows nothing of this conversation: say all that it needs, and what it should report.
    pub prompt: String,
    /// The task in three to six words, for those who watch.
    #[serde(default)]
    pub description: Option<String>,
    /// Which subagent to use.
    #[serde(default, alias = "subagent_type")]
    pub agent: Option<String>,
}

impl TaskInput {
    /// Reads a call's input.
    ///
    /// # Errors
    /// Says what is wrong with it and what is expected. Whether there is such an agent is not looked at.
    pub fn read(input: &RawValue) -> Result<Self, ToolError> {
        let task: Self = parse(input)?;
        if task.prompt.trim().is_empty() {
            return Err(ToolError::new(
                "bad input: `prompt` is empty; the subagent sees nothing else, so say what it is to do",
            ));
        }
        Ok(task)
    }
}

/// The declaration of `task` for a parent with given subagents.
#[derive(Debug, Clone)]
pub struct Task {
    subagents: Vec<(String, String)>,
}

impl Task {
    /// The tool's name.
    pub const NAME: &str = "task";

    /// Offers the subagents, each by name and description.
    pub fn new(subagents: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { subagents: subagents.into_iter().collect() }
    }
}

impl Tool for Task {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> String {
        let mut text = "Hands a task to a subagent, which works on its own in the same files and comes back with a \
                        summary. Use it for work whose details you need not see. Tasks called for in one reply run side by \
                        side. The subagent sees only the prompt that you write."
            .to_owned();
        match self.subagents.as_slice() {
            [] => {}
            subagents => {
                text.push_str("\n\nSubagents:");
                for (name, description) in subagents {
                    text.push_str("\n- ");
                    text.push_str(name);
                    if !description.is_empty() {
                        text.push_str(": ");
                        text.push_str(description.trim());
                    }
                }
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

    fn call<'a>(&'a self, _: &'a RawValue, _: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async { Err(ToolError::new("no subagent can be started from here")) })
    }
}
