//! The types of a job file.
//!
//! Their doc comments are the descriptions in the JSON Schema. Everything beyond the form (names that exist, numbers in
//! range) is checked in [`crate::lints`].

mod agent_file;
mod access;
mod before;
mod check;
mod duration;
mod input;
mod limit;
mod mcp;
mod model;
mod outputs;
mod prompt;
mod size;
mod state;
mod tool;
pub mod value;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::diagnostic::{Rule, rule};
use crate::yaml::{Node, Spanned};

pub use crate::yaml::value_or;
pub use access::{
    AllowedHosts, ENV_FORM, ENV_PATTERN, HostEntry, HostFile, JobNetwork, MAX_HOSTS, Network, NetworkWord,
};
pub use agent_file::{CONTEXT_BYTES, ContextEntry, MAX_AGENT_FILES, MAX_CONTEXT_BYTES, SkillEntry};
pub use before::{BeforeStep, DEFAULT_STEP_SECONDS, FILES_PART, MAX_STEP_BYTES, MAX_STEPS, STEP_NAME_FORM};
pub use check::{Check, DEFAULT_CHECK_SECONDS, MAX_CHECKS, MAX_REPAIRS, VariableMention, input_variables};
pub use duration::{Duration, MAX_DURATION};
pub use input::{Input, InputType, input_variable, with_article};
pub use limit::Limit;
pub use mcp::{
    DEFAULT_SERVER_SECONDS, EnvEntry, EnvValues, FileVariable, HeaderValue, HeaderVariable, MAX_SERVER_SECONDS,
    MAX_SERVERS, MAX_TOOL_NAME, McpServer, SERVER_SEPARATOR, ServerEntry, ServerEnv, allows_model_name, allows_tool,
    model_tool_names, tool_name_error,
};
pub use model::{
    MAX_FALLBACKS, MAX_STOP_CHARS, MAX_STOPS, MAX_TEMPERATURE, MAX_TOKENS, MODEL_PATTERN, ModelOptions, ModelSpec,
    ServiceTier, Thinking,
};
pub use outputs::{
    COMMAND_SECONDS, JobOutput, JobOutputs, MAX_ENTRIES, MAX_OUTPUTS, MAX_PATCH_FILES, MAX_REVIEW_COMMENTS,
    NOTHING_TO_DO, OUTPUT_NAME_FORM, OutputRules, OutputTarget, PATCH_BYTES, PATCH_FILES, PublishedOutcome,
    REVIEW_COMMENTS, RULES_KEY, ReviewEvent, TextList, is_output_name,
};
pub use prompt::{PATH_PATTERN, PromptFile, PromptText};
pub use size::Size;
pub use state::{JobState, MAX_STATE_BYTES, MAX_STATE_DEPTH, STATE_BYTES, STATE_FILE, json_depth};
pub use tool::{OUTPUT_KEY, ToolEntry};

/// The rules for the form of a job, in addition to those for any YAML file.
pub const RULES: &[Rule] = &[rule!(Error "bad-duration"), rule!(Error "bad-size"), rule!(Error "bad-tool-entry")];

/// The form of a job's or a subagent's name.
pub const NAME_PATTERN: &str = "^[a-z0-9][a-z0-9-]{0,63}$";
/// The same in words.
pub const NAME_FORM: &str = "a name is 1 to 64 of `a-z`, `0-9` and `-`, and begins with a letter or digit";

/// The form of an input's name.
pub const INPUT_NAME_PATTERN: &str = "^[a-z_][a-z0-9_]{0,63}$";
/// The same in words.
pub const INPUT_NAME_FORM: &str = "an input's name is 1 to 64 of `a-z`, `0-9` and `_`, and doesn't begin with a digit";

/// The form of an entry of `protect` and `allow_changes`, in words.
pub const PROTECTED_FORM: &str = "write a path from the workspace, such as `deploy/`, without `..` and wildcards";
/// The greatest number of entries of `protect`, and of `allow_changes`.
pub const MAX_PATHS: usize = 100;

/// The name of the default subagent, for a job with `task` and without subagents.
pub const GENERAL_SUBAGENT: &str = "general";

/// The default of the parent's turns.
pub const PARENT_TURNS: u32 = 50;
/// The default of a subagent's turns.
pub const SUBAGENT_TURNS: u32 = 30;
/// The greatest number of turns that an agent can be given.
pub const MAX_TURNS: u32 = 10_000;
/// The default of output tokens in one reply of the parent.
pub const PARENT_TOKENS: u32 = 8_000;
/// The default of output tokens in one reply of a subagent.
pub const SUBAGENT_TOKENS: u32 = 4_000;
/// The default of a run's duration, in seconds.
pub const WALL_CLOCK_SECONDS: u64 = 30 * 60;
/// The default number of tool calls in a run.
pub const TOOL_CALLS: u64 = 1_000;
/// The default number of subagents in a run.
pub const SUBAGENTS: u64 = 50;
/// The default of what commands may send to the hosts of a list.
pub const UPLOAD: &str = "50MB";
/// The same in bytes.
pub const UPLOAD_BYTES: u64 = 50_000_000;
/// The default number of subagents at once.
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

    /// Typed values that are given when the job starts, with `--set NAME=VALUE` or `--inputs FILE`.
    #[schemars(extend("propertyNames" = {
        "title": "input", "pattern": INPUT_NAME_PATTERN, "patternErrorMessage": INPUT_NAME_FORM,
    }))]
    pub inputs: Option<Spanned<IndexMap<Spanned<String>, Input>>>,

    /// The model: `provider/model`, or a mapping with options.
    pub model: Spanned<ModelSpec>,

    /// The agent that gets the job's prompt.
    pub parent: Parent,

    /// Agents that the parent can delegate work to with the `task` tool, by name. Default: one named `general` with the
    /// parent's other tools.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {
        "title": "subagent", "pattern": NAME_PATTERN, "patternErrorMessage": NAME_FORM,
    }))]
    pub subagents: IndexMap<Spanned<String>, Subagent>,

    /// Servers with more tools, which speak the Model Context Protocol, by name. An agent gets the tools that it lists:
    /// `- { mcp: NAME, allow: [TOOL, ...] }`.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_SERVERS, "propertyNames" = {
        "title": "server", "pattern": NAME_PATTERN, "patternErrorMessage": NAME_FORM,
    }))]
    pub mcp: IndexMap<Spanned<String>, McpServer>,
    /// Files of the workspace whose text is added to the system prompt of every agent: paths, globs, or `{ file: PATH, ref: COMMIT }`.
    #[serde(default)]
    #[schemars(length(max = MAX_AGENT_FILES))]
    pub context: Vec<Spanned<ContextEntry>>,

    /// How many bytes the context files of one agent may have together.
    #[schemars(range(min = 1, max = MAX_CONTEXT_BYTES), extend("default" = CONTEXT_BYTES))]
    pub context_bytes: Option<Spanned<u32>>,

    /// Skills that all agents can use: folders of the workspace with a `SKILL.md`.
    #[serde(default)]
    #[schemars(length(max = MAX_AGENT_FILES))]
    pub skills: Vec<Spanned<SkillEntry>>,

    /// Limits of the whole run, subagents and retries included.
    #[serde(default)]
    pub limits: Limits,

    /// Environment variables that commands get, in addition to a few that are always passed.
    #[serde(default)]
    #[schemars(extend("items" = {
        "type": "string", "pattern": ENV_PATTERN, "patternErrorMessage": ENV_FORM,
    }))]
    pub env: Vec<Spanned<String>>,

    /// What commands, checks and steps may reach: `none`, `open`, or a list of hosts.
    #[serde(default)]
    #[schemars(extend("default" = "none"))]
    pub network: JobNetwork,

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

    /// Commands that run before the agent starts, in order. Templates use their output as `{{ before.NAME }}`.
    #[serde(default)]
    #[schemars(length(max = MAX_STEPS))]
    pub before: Vec<BeforeStep>,

    /// Whether there is nothing to do: a template that renders to `true` or `false`. If it is true, no agent starts, and the run
    /// is `skipped`.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the condition is empty"))]
    pub skip_if: Option<Spanned<String>>,

    /// Commands that must pass after the parent's last answer.
    #[serde(default)]
    #[schemars(length(max = MAX_CHECKS))]
    pub checks: Vec<Check>,

    /// How often the output of failed checks goes back to the parent, which then continues.
    #[schemars(range(max = MAX_REPAIRS), extend("default" = 0))]
    pub repairs: Option<Spanned<u32>>,

    /// The final answer as data: the parent gets a tool `submit_result` for it.
    pub result: Option<Returns>,

    /// What agents may propose to do outside: comments, reviews, pull requests, labels. `legwork publish` does it after the
    /// run. An agent gets the tools that it lists: `- { output: [NAME, ...] }`.
    pub outputs: Option<Spanned<JobOutputs>>,

    /// One JSON value that is kept between runs: templates read it as `{{ state }}`, and the parent gets a tool `set_state` that
    /// replaces it.
    pub state: Option<Spanned<JobState>>,

    /// How a conversation is compacted that outgrows its model's context window.
    #[serde(default)]
    #[schemars(extend("default" = "summary"))]
    pub compaction: Compaction,

    /// Which subagents' journals are kept after the run.
    #[serde(default)]
    #[schemars(extend("default" = "always"))]
    pub keep: Keep,
}

impl Job {
    /// The declared inputs, in the job's order.
    pub fn inputs(&self) -> impl Iterator<Item = (&Spanned<String>, &Input)> {
        self.inputs.iter().flat_map(|inputs| inputs.value.iter())
    }

    /// Whether an input is an image.
    pub fn is_image(&self, name: &str) -> bool {
        self.inputs().any(|(declared, input)| declared.value == name && input.kind.value == InputType::Image)
    }

    /// The scripts of its steps and checks.
    pub fn scripts(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.before.iter().map(|step| &step.run).chain(self.checks.iter().map(|check| &check.run))
    }

    /// All agents, the parent first.
    pub fn agents(&self) -> impl Iterator<Item = Agent<'_>> {
        let Parent { system, tools, max_turns, max_tokens, context, skills, .. } = &self.parent;
        let parent = Agent {
            name: None,
            system: system.as_ref(),
            tools: &tools.value,
            max_turns: max_turns.as_ref(),
            max_tokens: max_tokens.as_ref(),
            model: None,
            workspace: None,
            network: None,
            returns: self.result.as_ref(),
            own_context: context,
            own_skills: skills,
        };
        std::iter::once(parent).chain(self.subagents.iter().map(|(name, subagent)| Agent {
            name: Some(name),
            system: subagent.system.as_ref(),
            tools: &subagent.tools.value,
            max_turns: subagent.max_turns.as_ref(),
            max_tokens: subagent.max_tokens.as_ref(),
            model: subagent.model.as_ref(),
            workspace: subagent.workspace.as_ref(),
            network: subagent.network.as_ref(),
            returns: subagent.returns.as_ref(),
            own_context: &subagent.context,
            own_skills: &subagent.skills,
        }))
    }

    /// The models of an agent: its own, and then its fallbacks. `max_tokens` and `model` are the keys of the agent's mapping.
    pub fn models<'a>(
        &'a self,
        max_tokens: Option<&'a Spanned<u32>>,
        model: Option<&'a Spanned<ModelSpec>>,
    ) -> impl Iterator<Item = AgentModel<'a>> {
        let chosen = model.unwrap_or(&self.model);
        let limit = |spec: &'a Spanned<ModelSpec>| spec.value.options()?.max_tokens.as_ref();
        std::iter::once(chosen).chain(chosen.value.fallback()).map(move |spec| AgentModel {
            spec,
            max_tokens: max_tokens.or_else(|| limit(spec)).or_else(|| limit(chosen)),
        })
    }

    /// The models of a declared agent.
    pub fn models_of<'a>(&'a self, agent: &Agent<'a>) -> impl Iterator<Item = AgentModel<'a>> {
        self.models(agent.max_tokens, agent.model)
    }

    /// The declared outputs, in the job's order.
    pub fn outputs(&self) -> impl Iterator<Item = (&Spanned<String>, &JobOutput)> {
        let entries = self.outputs.iter().flat_map(|outputs| &outputs.value.entries);
        entries.map(|(name, output)| (name, &output.value))
    }

    /// The entries of all agents for tool servers.
    pub fn server_entries(&self) -> impl Iterator<Item = &ServerEntry> {
        self.agents().flat_map(|agent| agent.tools).filter_map(|entry| entry.value.server())
    }

    /// Whether any agent lists a tool of a server, by the name that models know.
    pub fn lists_server_tool(&self, server: &str, tool: &str) -> bool {
        let mut entries = self.server_entries().filter(|entry| entry.server.value == server);
        entries.any(|entry| entry.allow.value.iter().any(|pattern| allows_model_name(&pattern.value, tool)))
    }

    /// The context files of an agent: the job's and then its own.
    pub fn context_of<'a>(&'a self, agent: &Agent<'a>) -> impl Iterator<Item = &'a Spanned<ContextEntry>> {
        self.context.iter().chain(agent.own_context)
    }

    /// The skills of an agent: the job's and then its own.
    pub fn skills_of<'a>(&'a self, agent: &Agent<'a>) -> impl Iterator<Item = &'a Spanned<SkillEntry>> {
        self.skills.iter().chain(agent.own_skills)
    }

    /// Whether the parent can delegate work to subagents.
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

    /// The task of the agent.
    #[schemars(extend("pattern" = r"\S", "patternErrorMessage" = "the prompt is empty"))]
    pub prompt: Spanned<PromptText>,

    /// The tools that the agent can use. An empty list means no tools.
    pub tools: Spanned<Vec<Spanned<ToolEntry>>>,

    /// The greatest number of turns: model replies with the answers to their tool calls.
    #[schemars(range(min = 1, max = MAX_TURNS), extend("default" = PARENT_TURNS))]
    pub max_turns: Option<Spanned<u32>>,

    /// The greatest number of output tokens of one reply.
    #[schemars(range(min = 1, max = MAX_TOKENS), extend("default" = PARENT_TOKENS))]
    pub max_tokens: Option<Spanned<u32>>,

    /// Files of the workspace whose text is added to the system prompt of this agent, after the job's: paths, globs, or `{ file: PATH, ref: COMMIT }`.
    #[serde(default)]
    #[schemars(length(max = MAX_AGENT_FILES))]
    pub context: Vec<Spanned<ContextEntry>>,

    /// Skills that this agent can use, in addition to the job's: folders of the workspace with a `SKILL.md`.
    #[serde(default)]
    #[schemars(length(max = MAX_AGENT_FILES))]
    pub skills: Vec<Spanned<SkillEntry>>,
}

/// An agent that the parent can delegate work to.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "subagent")]
pub struct Subagent {
    /// What the subagent does. The parent's model reads it.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the description is empty"))]
    pub description: Option<Spanned<String>>,

    /// Replaces the built-in system prompt.
    pub system: Option<Spanned<PromptText>>,

    /// The tools that the agent can use. An empty list means no tools. `task` can't be in it.
    pub tools: Spanned<Vec<Spanned<ToolEntry>>>,

    /// The greatest number of turns: model replies with the answers to their tool calls.
    #[schemars(range(min = 1, max = MAX_TURNS), extend("default" = SUBAGENT_TURNS))]
    pub max_turns: Option<Spanned<u32>>,

    /// The greatest number of output tokens of one reply.
    #[schemars(range(min = 1, max = MAX_TOKENS), extend("default" = SUBAGENT_TOKENS))]
    pub max_tokens: Option<Spanned<u32>>,

    /// The model that answers. Default: the job's.
    pub model: Option<Spanned<ModelSpec>>,

    /// Files of the workspace whose text is added to the system prompt of this agent, after the job's: paths, globs, or `{ file: PATH, ref: COMMIT }`.
    #[serde(default)]
    #[schemars(length(max = MAX_AGENT_FILES))]
    pub context: Vec<Spanned<ContextEntry>>,

    /// Skills that this agent can use, in addition to the job's: folders of the workspace with a `SKILL.md`.
    #[serde(default)]
    #[schemars(length(max = MAX_AGENT_FILES))]
    pub skills: Vec<Spanned<SkillEntry>>,

    /// What the subagent's commands may reach, at most what the job's `network` allows. Default: the same.
    pub network: Option<Spanned<JobNetwork>>,

    /// The folder that the subagent's tools work in.
    #[serde(default)]
    #[schemars(extend("default" = "shared"))]
    pub workspace: Option<Spanned<SubagentWorkspace>>,

    /// The summary as data: the subagent gets a tool `submit_result` for it, and the parent sees JSON.
    pub returns: Option<Returns>,
}

/// Data that an agent returns instead of text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "data")]
pub struct Returns {
    /// JSON Schema of the data; or `{ file: PATH }`, a file below the job's folder that holds one, YAML or JSON.
    #[schemars(extend("type" = ["object", "boolean"], "properties" = { "file": {
        "description": "Path of a file that holds the schema, from the job file's folder and below it.",
        "type": "string", "pattern": PATH_PATTERN, "patternErrorMessage": "the path leads out of the job's folder",
    } }))]
    pub schema: Node,
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
    /// Its turns, if declared.
    pub max_turns: Option<&'a Spanned<u32>>,
    /// Its output tokens of one reply, if declared for it.
    pub max_tokens: Option<&'a Spanned<u32>>,
    /// Its own model.
    pub model: Option<&'a Spanned<ModelSpec>>,
    /// The folder that its tools work in, if declared.
    pub workspace: Option<&'a Spanned<SubagentWorkspace>>,
    /// What its commands may reach, if declared.
    pub network: Option<&'a Spanned<JobNetwork>>,
    /// The data that it returns.
    pub returns: Option<&'a Returns>,
    /// Its context files, in addition to the job's.
    pub own_context: &'a [Spanned<ContextEntry>],
    /// Its skills, in addition to the job's.
    pub own_skills: &'a [Spanned<SkillEntry>],
}

impl Agent<'_> {
    /// The output tokens of one reply where neither the agent nor its model declares them.
    pub fn default_tokens(&self) -> u32 {
        if self.name.is_none() { PARENT_TOKENS } else { SUBAGENT_TOKENS }
    }
}

/// One of the models of an agent.
pub struct AgentModel<'a> {
    /// The model.
    pub spec: &'a Spanned<ModelSpec>,
    /// The output tokens of one reply, if declared for the agent, for this model or for the one that it replaces.
    pub max_tokens: Option<&'a Spanned<u32>>,
}

/// Limits of the whole run, subagents and retries included.
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

    /// What commands may send to the hosts of a list, in bytes, such as `50MB`, or `none`.
    #[schemars(extend("default" = UPLOAD))]
    pub upload: Option<Spanned<Limit<Size>>>,

    /// Subagents that may run at once.
    #[schemars(range(min = 1, max = MAX_PARALLEL_SUBAGENTS), extend("default" = PARALLEL_SUBAGENTS))]
    pub parallel_subagents: Option<Spanned<u32>>,
}

/// The folder that a subagent's tools work in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubagentWorkspace {
    /// The parent's workspace.
    #[default]
    Shared,
    /// A copy of the parent's workspace, made when the `task` call starts. Its changes are merged into the parent's workspace
    /// at the end, in the order of the calls, and none of them if one conflicts.
    Own,
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

/// How a conversation is compacted that outgrows its model's context window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// No compaction: the agent ends.
    Off,
    /// Old tool results are truncated.
    Results,
    /// Old tool results are truncated; if that isn't enough, the model summarizes the conversation.
    #[default]
    Summary,
}

/// Which subagents' journals are kept after the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// All.
    #[default]
    Always,
    /// All if the run didn't complete, none if it did.
    OnFailure,
    /// None.
    Never,
}

/// Whether a name has the form of [`NAME_PATTERN`].
pub fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()) && has_only(name, '-')
}

/// Whether a name has the form of [`INPUT_NAME_PATTERN`].
pub fn is_input_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_') && has_only(name, '_')
}

/// Whether a name has at most 64 characters: lower-case letters, digits and a separator.
fn has_only(name: &str, separator: char) -> bool {
    name.len() <= 64 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == separator)
}

/// Makes a name from a file's name: the stem in lower case, with a dash for each run of other characters than letters and
/// digits. `None` if nothing is left.
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
