//! How an agent ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Outcome, Usage};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An agent has ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentFinished {
    /// Its id.
    #[serde(deserialize_with = "super::agent_id::agent_id")]
    pub id: String,
    /// Which subagent of the plan it was; none for the parent.
    pub subagent: Option<String>,
    /// The parent's description of the task.
    pub description: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its last text; empty if it had none.
    pub text: String,
    /// Why the model refused, if it did and its provider says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The data that it ended with, if it had to end with data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// The replies that it got, without the one to a final request.
    pub turns: u32,
    /// The tool calls that it made.
    pub tool_calls: u64,
    /// How many times its conversation was compacted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compactions: u32,
    /// Its own tokens.
    pub usage: Usage,
    /// Its own cost in US dollars, if every price is known.
    pub cost_usd: Option<f64>,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}
