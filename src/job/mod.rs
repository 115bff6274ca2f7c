//! The job file, key for key, with places.
//!
//! These types say what a job file can hold; their comments are the descriptions in the JSON Schema. What must hold
//! beyond the form (names that exist, numbers that make sense) is checked in [`crate::lints`].

mod check;
mod duration;
mod input;
mod limit;
mod model;
mod prompt;
mod returns;
mod tool;
pub mod value;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::diagnostic::{Rule, rule};
use crate::yaml::Spanned;

pub use check::{Check, DEFAULT_CHECK_SECONDS, MAX_CHECKS, MAX_REPAIRS, VariableMention, input_variables};
pub use duration::{Duration, MAX_DURATION};
pub use input::{Input, InputType, input_variable};
pub use limit::Limit;
pub use model::{MAX_STOP_CHARS, MAX_STOPS, MAX_TEMPERATURE, MODEL_PATTERN, ModelOptions, ModelSpec};
pub use prompt::{PromptFile, PromptText};
pub use returns::Returns;
pub use tool::ToolEntry;

/// Mistakes in a job's form, beside those that the reader of YAML finds in any file.
pub const RULES: &[Rule] = &[rule!(Error "bad-duration"), rule!(Error "bad-tool-entry")];

/// The form of a job's or a subagent's name.
pub const NAME_PATTERN: &str = "^[a-z0-9][a-z0-9-]{0,63}$";
/// The same in words.
pub const NAME_FORM: &str = "a name is 1 to 64 of `a-z`, `0-9` and `-`, and begins with a letter or digit";

/// The form of an input's name.
pub const INPUT_NAME_PATTERN: &str = "^[a-z_][a-z0-9_]{0,63}$";
/// The same in words.
pub const INPUT_NAME_FORM: &str = "an input's name is 1 to 64 of `a-z`, `0-9` and `_`, and begins with no digit";

/// The form of a path that stays in its folder. It lets some through that don't (`a/../..`), for it can't count.
pub const PATH_PATTERN: &str = r"^(?!/)(?!(\./+)*\.\.(/|$))[^\x00]+$";

/// The form of an entry of `protect` and `allow_changes`, in words.
pub const PROTECTED_FORM: &str = "write a path from the workspace, such as `deploy/`, without `..` and wildcards";
/// The most entries of `protect`, and of `allow_changes`.
pub const MAX_PATHS: usize = 100;

/// The form of an environment variable's name.
pub const ENV_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// The same in words.
pub const ENV_FORM: &str = "a name is made of letters, digits and `_`, and begins with no digit";

/// The name of the subagent that is there when a job has `task` and names none.
pub const GENERAL_SUBAGENT: &str = "general";

/// Turns of the parent where the job doesn't say.
pub const PARENT_TURNS: u32 = 50;
/// Turns of a subagent where the job doesn't say.
pub const SUBAGENT_TURNS: u32 = 30;
/// The greatest number of turns that an agent can be given.
pub const MAX_TURNS: u32 = 10_000;
/// Output tokens of one reply of the parent where the job doesn't say.
pub const PARENT_TOKENS: u32 = 8_000;
/// Output tokens of one reply of a subagent where the job doesn't say.
pub const SUBAGENT_TOKENS: u32 = 4_000;
/// The greatest number of output tokens of one reply that an agent can be given.
pub const MAX_TOKENS: u32 = 1_000_000;
/// How long a run may take where the job doesn't say, in seconds.
pub const WALL_CLOCK_SECONDS: u64 = 30 * 60;
/// Tool calls of a run where the job doesn't say.
pub const TOOL_CALLS: u64 = 1_000;
/// Subagents of a run where the job doesn't say.
pub const SUBAGENTS: u64 = 50;
/// Subagents at once where the job doesn't say.
pub const PARALLEL_SUBAGENTS: u32 = 4;
/// The greatest number of subagents that can be allowed to run at once.
pub const MAX_PARALLEL_SUBAGENTS: u32 = 1_000;

/// A legwork job: what a parent agent is asked to do, with which tools, subagents and limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "legwork job")]
pub struct Job {
    /// The job's name. Default: made from the file's name.
    #[schemars(regex(pattern = NAME_PATTERN), extend("patternErrorMessage" = NAME_FORM))]
    pub name: Option<Spanned<String>>,

    /// What the job does, for people.
    pub description: Option<String>,

    /// Typed values that whoever starts the job gives, with `--set NAME=VALUE` or `--inputs FILE`.
    #[schemars(extend("propertyNames" = {
        "title": "input", "pattern": INPUT_NAME_PATTERN, "patternErrorMessage": INPUT_NAME_FORM,
    }))]
    pub inputs: Option<Spanned<IndexMap<Spanned<String>, Input>>>,

    /// The model that answers: `provider/model`, or a mapping with options.
    pub model: Spanned<ModelSpec>,

    /// The agent that gets the job's prompt.
    pub parent: Parent,

    /// Agents that the parent can hand work to with the `task` tool, by name. Default: one named `general` with the
    /// parent's other tools.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {
        "title": "subagent", "pattern": NAME_PATTERN, "patternErrorMessage": NAME_FORM,
    }))]
    pub subagents: IndexMap<Spanned<String>, Subagent>,

    /// What the whole run may use, subagents and retries included.
    #[serde(default)]
    pub limits: Limits,

    /// Environment variables that `bash`, and only `bash`, may see beside a fixed harmless few.
    #[serde(default)]
    #[schemars(extend("items" = {
        "type": "string", "pattern": ENV_PATTERN, "patternErrorMessage": ENV_FORM,
    }))]
    pub env: Vec<Spanned<String>>,

    /// What tools may reach over the network.
    #[serde(default)]
    #[schemars(extend("default" = "none"))]
    pub network: Network,

    /// What commands may change in git folders.
    #[serde(default)]
    #[schemars(extend("default" = "read"))]
    pub git: GitAccess,

    /// More files and folders of the workspace that no tool may change, such as `deploy/`.
    #[serde(default)]
    #[schemars(length(max = MAX_PATHS), extend("items" = {
        "type": "string", "pattern": PATH_PATTERN, "patternErrorMessage": PROTECTED_FORM,
    }))]
    pub protect: Vec<Spanned<String>>,

    /// Files and folders that tools may change although they, or a folder above them, are protected by default, such as
    /// `.github/workflows/release.yml`.
    #[serde(default)]
    #[schemars(length(max = MAX_PATHS), extend("items" = {
        "type": "string", "pattern": PATH_PATTERN, "patternErrorMessage": PROTECTED_FORM,
    }))]
    pub allow_changes: Vec<Spanned<String>>,

    /// Commands that must pass after the parent's last answer.
    #[serde(default)]
    #[schemars(length(max = MAX_CHECKS))]
    pub checks: Vec<Check>,

    /// How often the output of failed checks goes back to the parent, which then works on.
    #[schemars(range(max = MAX_REPAIRS), extend("default" = 0))]
    pub repairs: Option<Spanned<u32>>,

    /// The final answer as data: the parent gets a tool `submit_result` for it.
    pub result: Option<Returns>,

    /// What is done with a conversation that outgrows its model's window.
    #[serde(default)]
    #[schemars(extend("default" = "summary"))]
    pub compaction: Compaction,

    /// Which subagents' own journals stay after the run.
    #[serde(default)]
    #[schemars(extend("default" = "always"))]
    pub keep: Keep,
}

impl Job {
    /// The declared inputs, in the job's order.
    pub fn inputs(&self) -> impl Iterator<Item = (&Spanned<String>, &Input)> {
        self.inputs.iter().flat_map(|inputs| inputs.value.iter())
    }

    /// All agents, the parent first.
    pub fn agents(&self) -> impl Iterator<Item = Agent<'_>> {
        let Parent { system, tools, max_turns, max_tokens, .. } = &self.parent;
        let parent = Agent {
            name: None,
            system: system.as_ref(),
            tools: &tools.value,
            max_turns: max_turns.as_ref(),
            max_tokens: self.max_tokens(max_tokens.as_ref(), None),
            model: None,
            returns: self.result.as_ref(),
        };
        std::iter::once(parent).chain(self.subagents.iter().map(|(name, subagent)| Agent {
            name: Some(name),
            system: subagent.system.as_ref(),
            tools: &subagent.tools.value,
            max_turns: subagent.max_turns.as_ref(),
            max_tokens: self.max_tokens(subagent.max_tokens.as_ref(), subagent.model.as_ref()),
            model: subagent.model.as_ref(),
            returns: subagent.returns.as_ref(),
        }))
    }

    /// How long a reply of an agent may be, where the job says: of the agent itself, else of the model that it asks. `own`
    /// and `model` are what stands in the agent's mapping.
    pub fn max_tokens<'a>(
        &'a self,
        own: Option<&'a Spanned<u32>>,
        model: Option<&'a Spanned<ModelSpec>>,
    ) -> Option<&'a Spanned<u32>> {
        own.or_else(|| model.unwrap_or(&self.model).value.options()?.max_tokens.as_ref())
    }

    /// Whether the parent can hand work to subagents.
    pub fn delegates(&self) -> bool {
        self.parent.tools.value.iter().any(|tool| tool.name() == "task")
    }
}

/// The agent that gets the job's prompt.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "parent")]
pub struct Parent {
    /// Replaces the built-in system prompt.
    pub system: Option<Spanned<PromptText>>,

    /// What the agent is asked to do.
    #[schemars(extend("pattern" = r"\S", "patternErrorMessage" = "the prompt is empty"))]
    pub prompt: Spanned<PromptText>,

    /// Exactly what the agent can use; an empty list means no tools.
    pub tools: Spanned<Vec<Spanned<ToolEntry>>>,

    /// The greatest number of turns: model replies with the answers to their tool calls.
    #[schemars(range(min = 1, max = MAX_TURNS), extend("default" = PARENT_TURNS))]
    pub max_turns: Option<Spanned<u32>>,

    /// The greatest number of output tokens of one reply.
    #[schemars(range(min = 1, max = MAX_TOKENS), extend("default" = PARENT_TOKENS))]
    pub max_tokens: Option<Spanned<u32>>,
}

/// An agent that the parent can hand work to.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "subagent")]
pub struct Subagent {
    /// What the parent's model reads about it: what to hand to it.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the description is empty"))]
    pub description: Option<Spanned<String>>,

    /// Replaces the built-in system prompt.
    pub system: Option<Spanned<PromptText>>,

    /// Exactly what the agent can use; an empty list means no tools. `task` can't be in it.
    pub tools: Spanned<Vec<Spanned<ToolEntry>>>,

    /// The greatest number of turns: model replies with the answers to their tool calls.
    #[schemars(range(min = 1, max = MAX_TURNS), extend("default" = SUBAGENT_TURNS))]
    pub max_turns: Option<Spanned<u32>>,

    /// The greatest number of output tokens of one reply.
    #[schemars(range(min = 1, max = MAX_TOKENS), extend("default" = SUBAGENT_TOKENS))]
    pub max_tokens: Option<Spanned<u32>>,

    /// The model that answers. Default: the job's.
    pub model: Option<Spanned<ModelSpec>>,

    /// The summary as data: the subagent gets a tool `submit_result` for it, and the parent sees JSON.
    pub returns: Option<Returns>,
}

/// What the parent and subagents have in common.
#[derive(Debug, Clone, Copy)]
pub struct Agent<'a> {
    /// The subagent's name; the parent has none.
    pub name: Option<&'a Spanned<String>>,
    /// Its own system prompt.
    pub system: Option<&'a Spanned<PromptText>>,
    /// Its allowlist.
    pub tools: &'a [Spanned<ToolEntry>],
    /// Its turns, where the job says.
    pub max_turns: Option<&'a Spanned<u32>>,
    /// Its output tokens of one reply, where the job says so of it, or of its model.
    pub max_tokens: Option<&'a Spanned<u32>>,
    /// Its own model.
    pub model: Option<&'a Spanned<ModelSpec>>,
    /// The data that it ends with.
    pub returns: Option<&'a Returns>,
}

/// What the whole run may use, subagents and retries included.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "limits")]
pub struct Limits {
    /// US dollars. Left out, or `none`: no limit.
    #[serde(default, deserialize_with = "limit::unless_none")]
    #[schemars(with = "Option<Limit<f64>>", extend("examples" = [2]))]
    pub cost_usd: Option<Spanned<f64>>,

    /// Tokens, input (cache reads included) and output. Left out, or `none`: no limit.
    #[serde(default, deserialize_with = "limit::unless_none")]
    #[schemars(with = "Option<Limit<u64>>", extend("examples" = [2_000_000]))]
    pub tokens: Option<Spanned<u64>>,

    /// Running time, such as `20m`, or `none`.
    #[schemars(extend("default" = "30m"))]
    pub wall_clock: Option<Spanned<Limit<Duration>>>,

    /// Tool calls, or `none`.
    #[schemars(extend("default" = TOOL_CALLS))]
    pub tool_calls: Option<Spanned<Limit<u64>>>,

    /// Subagents started, or `none`.
    #[schemars(extend("default" = SUBAGENTS))]
    pub subagents: Option<Spanned<Limit<u64>>>,

    /// Subagents that may run at once.
    #[schemars(range(min = 1, max = MAX_PARALLEL_SUBAGENTS), extend("default" = PARALLEL_SUBAGENTS))]
    pub parallel_subagents: Option<Spanned<u32>>,
}

/// What tools may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Everything.
    Open,
}

/// What commands may change in git folders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GitAccess {
    /// Nothing: `git status`, `git diff` and `git log` work, `git commit` doesn't.
    #[default]
    Read,
    /// What `git add`, `git commit`, `git tag` and new branches need: objects, references, logs, the index and `HEAD`.
    Commit,
}

impl GitAccess {
    /// Whether it is what holds where the job says nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is done with a conversation that outgrows its model's window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// Nothing: the agent ends.
    Off,
    /// Old tool results are shortened.
    Results,
    /// The same, and where that isn't enough, the model sums up what went before.
    #[default]
    Summary,
}

/// Which subagents' journals stay after the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// All.
    #[default]
    Always,
    /// All where the run didn't complete, none where it did.
    OnFailure,
    /// None.
    Never,
}

/// How much a model may think before it answers; each provider maps it to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
}

/// The value of a key that need not be there, or its default.
pub fn value_or<T: Copy>(given: Option<&Spanned<T>>, default: T) -> T {
    given.map_or(default, |given| given.value)
}

/// Whether a name has the form of [`NAME_PATTERN`].
pub fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && name.len() <= 64
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Whether a name has the form of [`INPUT_NAME_PATTERN`].
pub fn is_input_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && name.len() <= 64
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// A name for what has none, made from a file's name: the stem in lower case, everything but letters and digits
/// turned into single dashes. `None` where nothing is left.
///
/// ```
/// # use legwork::job::name_from_file;
/// assert_eq!(name_from_file("jobs/Find_tests.v2.yaml").as_deref(), Some("find-tests-v2"));
/// ```
pub fn name_from_file(path: &str) -> Option<String> {
    let stem = std::path::Path::new(path).file_stem()?.to_string_lossy().to_lowercase();
    let words: Vec<&str> = stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(64);
    Some(name.trim_end_matches('-').to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
