//! The data that an agent has to end with.

use serde_json::Value;

use super::run_abort::RunAbort;
use super::run_state::RunState;
use crate::event::Outcome;
use crate::message::{ToolCall, ToolResult};
use crate::plan::PlannedAgent;
use crate::tools::submit_result::SubmitResult;

/// What the model reads if it answers without its data.
const REMINDER: &str = "Your work must end with data, and you haven't submitted any that matches its schema. Call \
                        `submit_result` now with all of it, fix what it reports, and then end. This is the only reminder.";

/// What an agent has submitted.
#[derive(Debug, Default)]
pub(super) struct StructuredOutput {
    /// The tool that checks the data; `None` if the agent ends with a text.
    tool: Option<SubmitResult>,
    /// The last data that matched the schema.
    result: Option<Value>,
    was_reminded: bool,
}

/// Whether an agent that has answered has submitted its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStatus {
    /// The data is there, or none is needed.
    Satisfied,
    /// The data is missing, and the agent gets this reminder.
    Reminded(&'static str),
    /// The data is still missing after the reminder.
    Missing,
}

impl StructuredOutput {
    pub(super) fn new(run: &RunState, planned: &PlannedAgent) -> Result<Self, RunAbort> {
        let failed = |message: String| RunAbort::new(Outcome::EnvironmentFailed, message);
        Ok(Self { tool: run.deps.plan.submit_result(planned).map_err(failed)?, ..Self::default() })
    }

    /// Takes a call and its result, in the order of the calls; from the record as well as from the tool.
    pub(super) fn record_call(&mut self, call: &ToolCall, answer: &ToolResult) {
        let Some(tool) = self.tool.as_ref().filter(|_| call.tool == SubmitResult::NAME) else { return };
        if !answer.is_error
            && call.input_error.is_none()
            && let Some(data) = tool.accepted(&call.input)
        {
            self.result = Some(data);
        }
    }

    /// The status of an agent that has answered without calls. It is reminded once.
    pub(super) fn status(&mut self) -> OutputStatus {
        if self.tool.is_none() || self.result.is_some() {
            OutputStatus::Satisfied
        } else if std::mem::replace(&mut self.was_reminded, true) {
            OutputStatus::Missing
        } else {
            OutputStatus::Reminded(REMINDER)
        }
    }

    pub(super) fn into_result(self) -> Option<Value> {
        self.result
    }
}
