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
    /// The parent's words for the task.
    pub description: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its last text; empty where it said nothing.
    pub text: String,
    /// Why the model refused, where it did and its provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The data that it ended with, where it was asked for data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Replies that it got, the last request without tools not counted.
    pub turns: u32,
    /// Calls that it made.
    pub tool_calls: u64,
    /// How often room was made in its model's window, by shorter results or a summary.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compactions: u32,
    /// Its own tokens.
    pub usage: Usage,
    /// Its own cost in US dollars, where every price is known.
    pub cost_usd: Option<f64>,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}
