//! What models are told of their tools.

use super::Plan;
use crate::tools::task::Task;
use crate::tools::{Grant, TOOLS, Tool, ToolSpec};

impl Plan {
    /// `task`, which offers the plan's subagents.
    pub fn task(&self) -> Task {
        let described = self.subagents.iter().map(|(name, subagent)| {
            let description = subagent.description.clone();
            (name.clone(), description.unwrap_or_default())
        });
        Task::new(described)
    }

    /// What an agent's model is told of its tools, in the order of the allowlist.
    ///
    /// # Errors
    /// Where a tool isn't known, or has options that it doesn't take; a plan that was made from a job has neither.
    pub fn told(&self, tools: &[Grant]) -> Result<Vec<ToolSpec>, String> {
        let told = |grant: &Grant| {
            let tool: Box<dyn Tool> = if grant.name == Task::NAME {
                Box::new(self.task())
            } else {
                let known = TOOLS.iter().find(|tool| tool.name == grant.name);
                (known.ok_or_else(|| format!("there is no tool `{}`", grant.name))?.build)(&grant.options)?
            };
            Ok(ToolSpec {
                name: tool.name().to_owned(),
                description: tool.description(),
                input_schema: tool.input_schema(),
            })
        };
        tools.iter().map(told).collect()
    }
}
