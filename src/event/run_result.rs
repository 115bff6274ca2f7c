//! `result.json`: how a run ended, for machines.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CutOffRequests, Outcome};
use crate::message::Usage;

/// The path of a subagent's summary, relative to the run's folder.
pub fn summary_file(id: &str) -> String {
    format!("subagents/{id}.md")
}

/// How a run ended. Its JSON Schema is `schemas/result.schema.json`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "legwork result")]
pub struct RunResult {
    /// Version of this format.
    pub format: u32,
    /// The run's id, the name of its folder.
    pub run_id: String,
    /// The job's name.
    pub job: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The process's exit code, which follows from the outcome.
    pub exit_code: u8,
    /// The parent's last text; empty if it had none.
    pub text: String,
    /// The final answer as data, if the job asks for it.
    pub result: Option<serde_json::Value>,
    /// The condition `skip_if` that was true, if the run was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_by: Option<String>,
    /// The steps that ran before the agent, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StepResult>,
    /// The state that the job keeps between its runs; absent if it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateResult>,
    /// The error, if the run didn't complete.
    pub error: Option<ErrorInfo>,
    /// When it started.
    #[schemars(with = "String")]
    #[schemars(extend("format" = "date-time"))]
    pub started_at: Timestamp,
    /// When it ended.
    #[schemars(with = "String")]
    #[schemars(extend("format" = "date-time"))]
    pub finished_at: Timestamp,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// The parent's turns.
    pub turns: u32,
    /// The parent's tool calls, `task` included.
    pub tool_calls: u64,
    /// Tokens of the whole run, subagents included.
    pub usage: Usage,
    /// Cost of the whole run in US dollars, subagents included: an estimate from list prices or the user's own `prices.toml`.
    /// Null if a price isn't known.
    pub cost_usd: Option<f64>,
    /// The requests that were cut off; absent if there are none. The tokens and the cost contain what was reserved for them.
    #[serde(default, skip_serializing_if = "CutOffRequests::is_none")]
    pub cut_off_requests: CutOffRequests,
    /// The parent's model.
    pub model: String,
    /// The fallback model that gave the parent's last reply; absent if it was the parent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// How tools were confined: `off`, or the tier that was reached.
    pub sandbox: String,
    /// The subagents, in the order in which they were called.
    pub subagents: Vec<SubagentResult>,
    /// The job's own checks, every attempt.
    pub checks: Vec<CheckResult>,
    /// The files of the workspace that changed during the run, in the order of their paths, at most 5,000. Null if the
    /// changes aren't known.
    pub changes: Option<Vec<Change>>,
    /// How many files changed, including those that `changes` doesn't list. Null if the changes aren't known.
    #[serde(default)]
    pub changed_files: Option<u64>,
    /// What `changes` and `changes.patch` leave out, in one sentence; null if they are complete.
    #[serde(default)]
    pub changes_incomplete: Option<String>,
    /// The files and folders that the run made or changed and that git ignores, if it had a workspace of its own, such as a row of
    /// a map: `changes` and `changes.patch` don't have them. At most 100; folders end with `/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes_ignored: Vec<String>,
}

/// The error of a run that didn't complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorInfo {
    /// A stable code: the name of the outcome.
    pub code: String,
    /// What happened, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A file of the workspace that changed during the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its path, relative to the workspace.
    pub path: String,
    /// How it changed.
    pub change: ChangeKind,
    /// Added lines; null if it isn't text.
    pub lines_added: Option<u64>,
    /// Removed lines; null if it isn't text.
    pub lines_removed: Option<u64>,
    /// The size in bytes of a binary file after the change, or before if it was deleted. Left out of text files, and of files that
    /// are too large to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<u64>,
}

/// How a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// Its contents changed.
    Modified,
    /// It was deleted.
    Deleted,
}

/// How one subagent ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SubagentResult {
    /// Its id in the run, such as `explorer-1`.
    #[serde(deserialize_with = "super::journal_entry::agent_id")]
    pub id: String,
    /// Which subagent of the job it is.
    pub agent: String,
    /// The parent's description of the task.
    pub description: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// The fallback model that gave its last reply; absent if it was its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// Its turns.
    pub turns: u32,
    /// Its tool calls.
    pub tool_calls: u64,
    /// Its own tokens.
    pub usage: Usage,
    /// Its own cost in US dollars, an estimate; null if a price isn't known.
    pub cost_usd: Option<f64>,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
    /// Its summary, relative to the run's folder.
    pub summary_file: String,
}

/// What a run did with its job's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateResult {
    /// The value that the run began with.
    pub before: serde_json::Value,
    /// The value that it leaves to the next run.
    pub after: serde_json::Value,
    /// Whether it was replaced: the run has completed, and its agent has called `set_state`.
    pub replaced: bool,
    /// How the value differs from the one before: a diff of both as JSON, at most 20,000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub difference: String,
}

/// A step that ran before the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepResult {
    /// The step's name.
    pub name: String,
    /// Whether it succeeded.
    pub passed: bool,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}

/// One attempt of one of the job's checks.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// The check's name.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The command's exit code; null if it had none.
    pub exit_code: Option<i32>,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}
