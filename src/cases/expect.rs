//! `expect.yaml`: what a case expects of its run, and what its workspace is made of.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::count_range::CountRange;
use super::matchers::{FileExpectation, ResultExpectation, TextMatcher};
use crate::event::Outcome;
use crate::job::{Duration, MAX_DURATION};
use crate::yaml::Spanned;

/// The file in a case's folder.
pub const EXPECT_FILE: &str = "expect.yaml";

/// How long a case may take where it doesn't say, in seconds.
pub const CASE_SECONDS: u64 = 5 * 60;

/// What a case expects of its run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "legwork expectations")]
pub struct Expect {
    /// What the case shows, for people.
    pub description: Option<String>,

    /// How the run ends.
    #[schemars(extend("default" = "completed"))]
    pub outcome: Option<Spanned<Outcome>>,

    /// The exit code of `legwork run`.
    pub exit_code: Option<Spanned<u8>>,

    /// The greatest number of turns of the parent.
    #[schemars(range(min = 1))]
    pub max_turns: Option<Spanned<u32>>,

    /// The parent's last text.
    pub text: Option<Spanned<TextMatcher>>,

    /// The final answer as data.
    pub result: Option<Spanned<ResultExpectation>>,

    /// Files of the workspace after the run, by their paths.
    #[serde(default)]
    pub files: IndexMap<Spanned<String>, Spanned<FileExpectation>>,

    /// How often tools are called, by all agents together.
    #[serde(default)]
    pub tools: IndexMap<Spanned<String>, Spanned<CountRange>>,

    /// How many calls, of all agents together, are answered with an error.
    pub failed_calls: Option<Spanned<CountRange>>,

    /// How many subagents are started.
    pub subagents: Option<Spanned<CountRange>>,

    /// Single agents, by their ids: `parent`, or a subagent's name and its number, such as `explorer-1`.
    #[serde(default)]
    pub agents: IndexMap<Spanned<String>, AgentExpectation>,

    /// How the job's checks end, the last time that they are run, by their names.
    #[serde(default)]
    pub checks: IndexMap<Spanned<String>, Spanned<CheckExpectation>>,

    /// Makes the workspace a git repository with these commits, the same each time.
    #[schemars(length(max = MAX_COMMITS))]
    pub git: Option<Spanned<Vec<Commit>>>,

    /// How long the case may take.
    #[schemars(extend("default" = "5m", "pattern" = Duration::pattern(MAX_DURATION),
        "patternErrorMessage" = "write it like `90s`, `20m` or `1h30m`, at most 30 days"))]
    pub timeout: Option<Spanned<Duration>>,
}

/// What is expected of one agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "agent", extend("minProperties" = 1))]
pub struct AgentExpectation {
    /// How it ends.
    pub outcome: Option<Spanned<Outcome>>,

    /// The greatest number of its turns.
    #[schemars(range(min = 1))]
    pub max_turns: Option<Spanned<u32>>,

    /// Its last text: a subagent's summary.
    pub text: Option<Spanned<TextMatcher>>,

    /// How often it calls tools.
    #[serde(default)]
    pub tools: IndexMap<Spanned<String>, Spanned<CountRange>>,
}

/// How a check ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckExpectation {
    /// It passes.
    Passed,
    /// It fails.
    Failed,
    /// It isn't run.
    NotRun,
}

impl CheckExpectation {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotRun => "not_run",
        }
    }
}

/// The greatest number of commits of a case.
pub(super) const MAX_COMMITS: usize = 100;

/// One commit of the workspace's repository. What stands in no commit's folder but in `workspace` lies there uncommitted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "commit")]
pub struct Commit {
    /// Its message.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the message is empty"))]
    pub message: Spanned<String>,

    /// The folder of the case whose files are laid over those that are there.
    #[schemars(extend("default" = "workspace"))]
    pub folder: Option<Spanned<String>>,

    /// Files that go.
    #[serde(default)]
    pub remove: Vec<Spanned<String>>,

    /// A tag for it.
    pub tag: Option<Spanned<String>>,
}

impl Commit {
    /// The folder of the case that it takes files from.
    pub fn folder(&self) -> &str {
        self.folder.as_ref().map_or(super::WORKSPACE_FOLDER, |folder| folder.value.as_str())
    }
}
