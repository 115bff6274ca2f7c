//! A comparison of two runs, as data.

use indexmap::IndexMap;
use serde::Serialize;

use crate::event::{Change, CheckResult, Outcome, SubagentResult, Usage};
use crate::plan::diff::PlanChange;

/// Two runs and their differences. The JSON fields are stable; incompatible changes raise `format`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The version of this data format: 1.
    pub format: u32,
    /// Whether the jobs have the same name.
    pub same_job: bool,
    /// The runs, in the order of the command line.
    pub runs: [ComparedRun; 2],
    /// The differences between the plans, prompts as diffs.
    pub plan: Vec<PlanChange>,
    /// The differences between the results.
    pub result: Vec<PlanChange>,
    /// A unified diff of the parents' last texts, hunks only; null if they are equal.
    pub text: Option<String>,
    /// The files that either run changed, sorted by path.
    pub files: Vec<ChangedFile>,
}

/// One of the two runs.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedRun {
    /// The run id.
    pub run_id: String,
    /// The name of the job.
    pub job: String,
    /// The parent's model.
    pub model: String,
    /// How the run ended; null if it hasn't.
    pub outcome: Option<Outcome>,
    /// The turns of the parent.
    pub turns: u32,
    /// Tool calls of all agents.
    pub tool_calls: u64,
    /// Calls by tool, most used first. Calls of subagents whose journals weren't kept are missing.
    pub tools: IndexMap<String, u64>,
    /// The tokens of the whole run.
    pub usage: Usage,
    /// The cost in US dollars; null if it is unknown or the run hasn't ended.
    pub cost_usd: Option<f64>,
    /// The duration in milliseconds; null if the run hasn't ended.
    pub duration_ms: Option<u64>,
    /// The sandbox tier; null if the run hasn't ended.
    pub sandbox: Option<String>,
    /// The subagents that have ended.
    pub subagents: Vec<SubagentResult>,
    /// Every attempt of every check.
    pub checks: Vec<CheckResult>,
    /// Whether the changes of the run are known.
    pub has_changes: bool,
    /// The number of changed files, if the record doesn't list them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<u64>,
}

/// A file that at least one of the runs changed.
#[derive(Debug, Serialize)]
pub struct ChangedFile {
    /// The path, relative to the workspace.
    pub path: String,
    /// The change by each run; null if the run left the file unchanged.
    pub changes: [Option<Change>; 2],
    /// Whether both made the same change; null unless both patches contain the file.
    pub same: Option<bool>,
}
