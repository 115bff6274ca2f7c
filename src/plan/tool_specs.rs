//! The tool definitions that models get.

use super::{Plan, PlannedAgent};
use crate::tools::submit_result::SubmitResult;
use crate::tools::task::Task;
use crate::tools::toolbox::MAX_RESULT_CHARS;
use crate::tools::{TOOLS, Tool, ToolGrant, ToolSpec};

/// The greatest length of a subagent's data. It must fit into the tool result of its parent, with the outcome.
const MAX_RETURNED: usize = MAX_RESULT_CHARS - 1_000;

impl Plan {
    /// The tool `task` with the plan's subagents.
    pub fn task_tool(&self) -> Task {
        let described = self.subagents.iter().map(|(name, subagent)| {
            let description = subagent.description.as_deref().unwrap_or_default().trim();
            let data = if subagent.returns.is_some() { "(Its summary is data, as JSON.)" } else { "" };
            (name.clone(), [description, data].join(" ").trim().to_owned())
        });
        Task::new(described)
    }

    /// The tool with which an agent submits its data; `None` for an agent that returns text.
    ///
    /// # Errors
    /// The schema is invalid. A plan that was made from a job has valid ones.
    pub fn submit_result(&self, agent: &PlannedAgent) -> Result<Option<SubmitResult>, String> {
        // Only the parent has a prompt. The size of its data is bounded by its replies.
        let most = agent.prompt.is_none().then_some(MAX_RETURNED);
        agent.returns.as_ref().map(|schema| SubmitResult::new(schema, most)).transpose()
    }

    /// The definitions of an agent's tools, in the order of the allowlist, `submit_result` last.
    ///
    /// # Errors
    /// A tool is unknown, or has unknown options. A plan that was made from a job has neither.
    pub fn tool_specs(&self, agent: &PlannedAgent) -> Result<Vec<ToolSpec>, String> {
        let granted = |grant: &ToolGrant| {
            if grant.name == Task::NAME {
                return Ok(Box::new(self.task_tool()) as Box<dyn Tool>);
            }
            let known = TOOLS.iter().find(|tool| tool.name == grant.name);
            (known.ok_or_else(|| format!("there is no tool `{}`", grant.name))?.build)(&grant.options)
        };
        let mut tools = agent.tools.iter().map(granted).collect::<Result<Vec<_>, String>>()?;
        tools.extend(self.submit_result(agent)?.map(|tool| Box::new(tool) as Box<dyn Tool>));
        Ok(tools.iter().map(|tool| ToolSpec::of(tool.as_ref())).collect())
    }
}
