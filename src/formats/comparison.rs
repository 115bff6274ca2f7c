//! Two runs side by side, as data.

use indexmap::IndexMap;
use serde::Serialize;

use crate::event::{Change, CheckResult, Outcome, SubagentResult, Usage};
use crate::plan::diff::PlanChange;

/// Two runs and what differs between them. As JSON its fields are a promise; a change of theirs is a new `format`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The version of this form: 1.
    pub format: u32,
    /// Whether both are runs of a job of the same name.
    pub same_job: bool,
    /// The runs, as they were named.
    pub runs: [ComparedRun; 2],
    /// What differs in what was planned, prompts as diffs.
    pub plan: Vec<PlanChange>,
    /// What differs in the data that they ended with.
    pub result: Vec<PlanChange>,
    /// What differs in the parent's last text, as the hunks of a unified diff; null where it is the same.
    pub text: Option<String>,
    /// Every file that one of them has changed, in the order of their paths.
    pub files: Vec<ChangedFile>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedRun {
    /// Its id.
    pub run_id: String,
    /// Its job's name.
    pub job: String,
    /// The parent's model.
    pub model: String,
    /// How it ended; null where it hasn't.
    pub outcome: Option<Outcome>,
    /// The parent's turns.
    pub turns: u32,
    /// Tool calls of all agents.
    pub tool_calls: u64,
    /// The same by the tools' names, those used most first. Calls of subagents whose journals weren't kept are missing.
    pub tools: IndexMap<String, u64>,
    /// Tokens of the whole run.
    pub usage: Usage,
    /// Its cost in US dollars; null where it isn't known, or the run hasn't ended.
    pub cost_usd: Option<f64>,
    /// Its running time in milliseconds; null where it hasn't ended.
    pub duration_ms: Option<u64>,
    /// How tools were confined; null where it hasn't ended.
    pub sandbox: Option<String>,
    /// Its subagents that have ended.
    pub subagents: Vec<SubagentResult>,
    /// Every attempt of every check.
    pub checks: Vec<CheckResult>,
    /// Whether it is known what it has changed.
    pub has_changes: bool,
    /// How many files it has changed, where that is more than its record lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<u64>,
}

/// A file that one of them has changed.
#[derive(Debug, Serialize)]
pub struct ChangedFile {
    /// Its path, relative to the workspace.
    pub path: String,
    /// What each of them did; null where it left the file as it was.
    pub changes: [Option<Change>; 2],
    /// Whether both did the very same, where both have that in their patches.
    pub same: Option<bool>,
}
