//! Data that an agent ends with: what it has submitted, and what becomes of an answer without any.

use serde_json::Value;

use super::{Agent, RunAbort, RunState};
use crate::event::Outcome;
use crate::message::{ToolCall, ToolResult};
use crate::plan::PlannedAgent;
use crate::tools::submit_result::SubmitResult;

/// What an agent is told that answers without its data.
const REMINDER: &str = "Your work was to end with data, and there is none that fits. Call `submit_result` now with all of \
                           it, mend what you are told doesn't fit, and then end. You aren't asked again.";

/// What an agent has submitted.
#[derive(Debug, Default)]
pub(super) struct StructuredOutput {
    /// What reads it; none where the agent ends with a text.
    tool: Option<SubmitResult>,
    /// The last that fits.
    result: Option<Value>,
    was_reminded: bool,
}

/// What an answer without calls comes to, as far as data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStatus {
    /// It is there, or none is needed.
    Satisfied,
    /// It is missing, and the agent is told so.
    Reminded(&'static str),
    /// It is missing still.
    Missing,
}

impl StructuredOutput {
    pub(super) fn new(tree: &RunState, planned: &PlannedAgent) -> Result<Self, RunAbort> {
        let failed = |message| RunAbort { outcome: Outcome::EnvironmentFailed, message, hint: None };
        Ok(Self { tool: tree.plan.submit_result(planned).map_err(failed)?, ..Self::default() })
    }

    /// Takes a call and its answer, in the order of the calls; from a run's record as well as from the tool.
    pub(super) fn record_call(&mut self, call: &ToolCall, answer: &ToolResult) {
        let Some(tool) = self.tool.as_ref().filter(|_| call.tool == SubmitResult::NAME) else { return };
        if !answer.is_error
            && call.input_error.is_none()
            && let Some(data) = tool.accepted(&call.input)
        {
            self.result = Some(data);
        }
    }

    /// What is missing at the agent's end.
    fn is_missing(&self) -> bool {
        self.tool.is_some() && self.result.is_none()
    }

    pub(super) fn into_result(self) -> Option<Value> {
        self.result
    }
}

impl Agent<'_> {
    /// Looks whether an agent that has answered has submitted its data. It is asked for it once more.
    pub(super) fn output_status(&mut self) -> OutputStatus {
        if !self.structured_output.is_missing() {
            OutputStatus::Satisfied
        } else if std::mem::replace(&mut self.structured_output.was_reminded, true) {
            OutputStatus::Missing
        } else {
            OutputStatus::Reminded(REMINDER)
        }
    }
}
