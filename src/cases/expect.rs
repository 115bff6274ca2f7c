//! `expect.yaml`: the expectations of a case, and the commits of its workspace.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::matchers::{CountRange, FileExpectation, ResultExpectation, TextMatcher};
use super::output_expectations::{OutputsExpectation, RefusedExpectation};
use crate::event::Outcome;
use crate::job::{Duration, MAX_DURATION};
use crate::yaml::Spanned;

/// The fixture in a case's folder: the initial files of the workspace.
pub const WORKSPACE_FOLDER: &str = "workspace";

/// The default timeout of a case, in seconds.
pub(super) const CASE_SECONDS: u64 = 5 * 60;

/// What a case expects of its run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "legwork expectations")]
pub struct Expect {
    /// A description for people.
    pub description: Option<String>,

    /// How the run ends.
    #[schemars(extend("default" = "completed"))]
    pub outcome: Option<Spanned<Outcome>>,

    /// The exit code of `legwork run`.
    pub exit_code: Option<Spanned<u8>>,

    /// The greatest number of turns of the parent.
    pub max_turns: Option<Spanned<u32>>,

    /// The parent's last text.
    pub text: Option<Spanned<TextMatcher>>,

    /// The result.
    pub result: Option<Spanned<ResultExpectation>>,

    /// The state that the run leaves to the next one.
    pub state: Option<Spanned<ResultExpectation>>,

    /// Files of the workspace after the run, by path.
    #[serde(default)]
    pub files: IndexMap<Spanned<String>, Spanned<FileExpectation>>,

    /// The number of calls of each tool, by all agents together.
    #[serde(default)]
    pub tools: IndexMap<Spanned<String>, Spanned<CountRange>>,

    /// The number of failed calls of all agents together.
    pub failed_calls: Option<Spanned<CountRange>>,

    /// The number of subagents started.
    pub subagents: Option<Spanned<CountRange>>,

    /// Expectations of single agents, by id: `parent`, or the name and number of a subagent, such as `explorer-1`.
    #[serde(default)]
    pub agents: IndexMap<Spanned<String>, AgentExpectation>,

    /// The results of the job's checks in their last attempt, by name.
    #[serde(default)]
    pub checks: IndexMap<Spanned<String>, Spanned<CheckExpectation>>,

    /// The outputs that the run proposes, by id, such as `comment-1` or the key that the model gave, or `nothing_to_do`: each with
    /// its data, of which keys may be omitted at any depth. No other output is proposed. In place of a text there may be conditions
    /// on it. Or `none`, or `snapshot`, for the case's `outputs.yaml`.
    pub outputs: Option<Spanned<OutputsExpectation>>,

    /// The calls of outputs that are refused, by the output's name: how many, or conditions on the reasons.
    #[serde(default)]
    pub refused_outputs: IndexMap<Spanned<String>, Spanned<RefusedExpectation>>,

    /// Makes the workspace a git repository with these commits. Their ids are the same each time.
    #[schemars(length(max = MAX_COMMITS))]
    pub git: Option<Spanned<Vec<Commit>>>,

    /// The timeout of the case.
    #[schemars(extend("default" = "5m", "pattern" = Duration::pattern(MAX_DURATION),
        "patternErrorMessage" = "write it like `90s`, `20m` or `1h30m`, at most 30 days"))]
    pub timeout: Option<Spanned<Duration>>,
}

/// The expectations of one agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "agent")]
pub struct AgentExpectation {
    /// How the agent ends.
    pub outcome: Option<Spanned<Outcome>>,

    /// The greatest number of turns.
    pub max_turns: Option<Spanned<u32>>,

    /// The last text; for a subagent, its summary.
    pub text: Option<Spanned<TextMatcher>>,

    /// The number of calls of each tool.
    #[serde(default)]
    pub tools: IndexMap<Spanned<String>, Spanned<CountRange>>,
}

/// How a check ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckExpectation {
    /// The check passes.
    Passed,
    /// The check fails.
    Failed,
    /// The check isn't run.
    NotRun,
}

impl CheckExpectation {
    /// The name in expect.yaml.
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

/// A commit of the workspace. If no commit uses the folder `workspace`, its files are added uncommitted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "commit")]
pub struct Commit {
    /// The commit message.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the message is empty"))]
    pub message: Spanned<String>,

    /// The folder of the case whose files are copied over the existing ones.
    #[schemars(extend("default" = "workspace"))]
    pub folder: Option<Spanned<String>>,

    /// Files to remove.
    #[serde(default)]
    pub remove: Vec<Spanned<String>>,

    /// A tag for the commit.
    pub tag: Option<Spanned<String>>,
}

impl Commit {
    /// The folder of the case with the files of the commit.
    pub fn folder(&self) -> &str {
        self.folder.as_ref().map_or(WORKSPACE_FOLDER, |folder| folder.value.as_str())
    }
}

/// The schema of `expect.yaml`, draft 7, for editors.
pub fn expect_schema() -> serde_json::Value {
    crate::editor_schema::editor_schema_of::<Expect>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Source;
    use crate::yaml::{self, Node};

    #[test]
    fn the_schema_accepts_exactly_the_forms_that_are_valid() {
        let validator = jsonschema::draft7::new(&expect_schema()).unwrap();
        for (text, is_valid) in [
            ("outcome: completed\nexit_code: 0\nmax_turns: 3\ntimeout: 2m\n", true),
            ("files: { a: exists, b: absent, c: snapshot }\n", true),
            (
                "files: { a: { contains: x }, b: { is: y }, c: { snapshot: true, lacks: [x, y] }, d: { matches: '^z' } }\n",
                true,
            ),
            ("files: { a: exist }\n", false),
            ("files: { a: { contain: x } }\n", false),
            ("files: { a: [exists] }\n", false),
            ("text: { is: a, contains: [b, c] }\nresult: { has: { a: 1 } }\n", true),
            (
                "tools: { bash: 2, task: never, grep: called, glob: { at_least: 1, at_most: 3 } }\nfailed_calls: 0\n",
                true,
            ),
            ("tools: { bash: often }\n", false),
            ("outputs: { labels-1: { add: [bug] }, nothing_to_do: {} }\n", true),
            ("outputs: {}\n", true),
            ("outputs: [labels-1]\n", false),
            ("outputs: none\nrefused_outputs: { comment: 1, labels: never, issue: { at_least: 1 } }\n", true),
            ("outputs: snapshot\nrefused_outputs: { comment: { contains: mention } }\n", true),
            ("outputs: { greeting: { body: { contains: Hello, lacks: '@' } } }\n", true),
            ("outputs: all\n", false),
            ("refused_outputs: { comment: often }\n", false),
            ("refused_outputs: { comment: { contain: x } }\n", false),
            ("agents: { parent: { outcome: completed, tools: { bash: 1 }, text: { lacks: x } } }\n", true),
            ("checks: { tests pass: passed, other: not_run }\ngit: [{ message: Start, remove: [a], tag: v1 }]\n", true),
        ] {
            let source = Source::new("expect.yaml", text);
            let json = yaml::read::<Node>(&source).into_result().unwrap().to_json();
            assert_eq!(validator.is_valid(&json), is_valid, "{text}");
            assert_eq!(yaml::read::<Expect>(&source).into_result().is_ok(), is_valid, "{text}");
        }
    }
}
