//! The plan of a run: rendered prompts, resolved tools and limits, made from a valid job and its inputs.

mod build;
mod checks;
mod cost_bound;
mod default_prompts;
pub mod diff;
mod input_attachments;
mod input_values;
mod late_templates;
mod late_values;
mod limit_overrides;
mod outputs;
mod resolve_inputs;
mod row;
mod shared_prefixes;
mod steps;
mod system_prompt;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context_files::AgentFiles;
use crate::diagnostic::Rule;
use crate::job::{
    Compaction, GitAccess, Keep, NOTHING_TO_DO, Network, SERVER_SEPARATOR, SubagentWorkspace, allows_model_name,
    model_tool_names,
};
use crate::lints;
use crate::mcp::{MAX_TOOLS, ServerGrant, ServerSpec, StartError, ToolDefinitions};
use crate::message::ToolCall;
use crate::outputs::{Outputs, Proposals};
use crate::providers::Model;
use crate::redaction::Redactor;
use crate::tools::output::{NothingToDo, OutputTool};
use crate::tools::set_state::SetState;
use crate::tools::skill::{SkillText, SkillTool};
use crate::tools::submit_result::SubmitResult;
use crate::tools::task::{Task, TaskInput};
use crate::tools::toolbox::MAX_RESULT_CHARS;
use crate::tools::{ServerTool, Tool, ToolGrant, ToolSpec, builtin, may_change_files, starts_commands};

pub use build::RunContext;
pub use cost_bound::CostBound;
pub use input_attachments::InputAttachment;
pub use input_values::{InputValues, MAX_VALUE_BYTES, RULES, SecretInputs, ValueSource};
pub use late_templates::LateTemplates;
pub use late_values::LateValues;
pub use limit_overrides::LimitOverrideError;
pub use outputs::{check_trigger, resolve as resolve_outputs};
pub use row::{Cell, CellValue, Row};
pub use shared_prefixes::SharedPrefixes;

/// All rules for jobs and their inputs.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    lints::rules().chain(row::ROW_RULES).chain(RULES)
}

/// The version of the files of a record: the journal's lines, `plan.json` and `result.json`.
pub const FORMAT: u32 = 2;

/// The greatest length of a subagent's data. It must fit into the tool result of its parent, with the outcome.
const MAX_RETURNED: usize = MAX_RESULT_CHARS - 1_000;

/// Everything that a run needs, without secrets.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The version of this format.
    pub format: u32,
    /// The job's name.
    pub job: String,
    /// The job's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The folder that the tools work in, absolute.
    pub workspace: String,
    /// The values of the inputs, defaults included. Secret inputs are left out.
    pub inputs: IndexMap<String, Value>,
    /// Names of the secret inputs. Commands get their values as `$INPUT_NAME`; no file has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_inputs: Vec<String>,
    /// The images and PDFs of inputs, which the parent gets with its first message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<InputAttachment>,
    /// The agent that gets the job's prompt.
    pub parent: PlannedAgent,
    /// The agents that it can delegate to, by name, in the job's order.
    pub subagents: IndexMap<String, PlannedAgent>,
    /// The tool servers that they use, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub mcp: IndexMap<String, ServerSpec>,
    /// The texts of context files and skills, as they were when the plan was made.
    #[serde(flatten)]
    pub files: AgentFiles,
    /// The limits of the whole run.
    pub limits: PlannedLimits,
    /// Environment variables that commands get in addition to the default ones.
    pub env: Vec<String>,
    /// What commands, checks and steps before the agent reach.
    pub network: Network,
    /// What commands may change in git folders. Default: nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub git: GitAccess,
    /// Paths from the workspace that no tool may change, in addition to those that are protected by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Paths from the workspace that tools may change although they are protected by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_changes: Vec<String>,
    /// What agents may propose to do outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    /// The value that is kept between runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PlannedState>,
    /// Commands that run before the agent, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PlannedStep>,
    /// The templates that are rendered when the run has started, because they use the output of these commands, or the state. Where
    /// the plan has their text, `<before.NAME>` stands for a value that isn't known yet.
    #[serde(default, skip_serializing_if = "LateTemplates::is_empty")]
    pub late: LateTemplates,
    /// Commands that must pass after the parent's last answer, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<PlannedCheck>,
    /// How often the output of failed checks goes back to the parent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repairs: u32,
    /// How a conversation is compacted that outgrows its model's context window.
    #[serde(default)]
    pub compaction: Compaction,
    /// Which subagents' journals are kept after the run.
    pub keep: Keep,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Plan {
    /// All agents, the parent first.
    pub fn agents(&self) -> impl Iterator<Item = &PlannedAgent> {
        std::iter::once(&self.parent).chain(self.subagents.values())
    }

    /// All models that agents can get replies from, fallbacks included.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.agents().flat_map(PlannedAgent::models)
    }

    /// All models, to change them.
    pub fn models_mut(&mut self) -> impl Iterator<Item = &mut Model> {
        let agents = std::iter::once(&mut self.parent).chain(self.subagents.values_mut());
        agents.flat_map(|agent| {
            std::iter::once(&mut agent.model).chain(agent.fallback.iter_mut().map(|fallback| &mut fallback.model))
        })
    }

    /// Whether some agent or check can change files of the workspace.
    pub fn changes_files(&self) -> bool {
        // A map runs a step once in the shared workspace, before its rows start.
        self.active_checks().next().is_some()
            || self.before.iter().any(|step| !step.once)
            || self.starts_servers()
            || self.agents().flat_map(|agent| &agent.tools).any(|grant| may_change_files(&grant.name))
    }

    /// Whether a call names a tool that the agent doesn't have, or a subagent that doesn't exist.
    pub fn is_unavailable(&self, agent: &str, call: &ToolCall) -> bool {
        let Some(planned) = self.agent(agent) else { return true };
        let is_granted = planned.tools.iter().any(|grant| grant.name == call.tool);
        let is_unknown = |name: &String| !self.subagents.contains_key(name);
        if call.tool == Task::NAME && is_granted {
            return TaskInput::read(&call.input).is_ok_and(|input| input.agent.as_ref().is_some_and(is_unknown));
        }
        let is_of_server = || self.has_server_tool(planned, &call.tool);
        let is_its_result = planned.returns.is_some() && call.tool == SubmitResult::NAME;
        let is_skill = !planned.skills.is_empty() && call.tool == SkillTool::NAME;
        let is_output = planned.outputs.contains(&call.tool);
        let sets_state = self.has_set_state(planned) && call.tool == SetState::NAME;
        !is_granted && !is_its_result && !sets_state && !is_skill && !is_output && !is_of_server()
    }

    /// Whether an agent has a tool of a server. If the tools of the server aren't known, it has all that it lists.
    fn has_server_tool(&self, agent: &PlannedAgent, name: &str) -> bool {
        let Some((server, tool)) = name.split_once(SERVER_SEPARATOR) else { return false };
        let mut grants = agent.mcp.iter().filter(|grant| grant.server == server);
        match self.mcp.get(server).and_then(|server| server.tools.as_ref()) {
            Some(tools) => {
                let names = model_tool_names(server, tools.keys().map(String::as_str));
                let original = names.iter().find(|(_, known)| *known == name).map(|(original, _)| *original);
                original.is_some_and(|original| grants.any(|grant| grant.allows(original)))
            }
            None => grants.any(|grant| grant.allow.iter().any(|pattern| allows_model_name(pattern, tool))),
        }
    }

    /// An agent by its id in a run: `parent`, `explorer-1`.
    pub fn agent(&self, id: &str) -> Option<&PlannedAgent> {
        match id.rsplit_once('-') {
            _ if id == "parent" => Some(&self.parent),
            Some((name, _)) => self.subagents.get(name),
            None => None,
        }
    }

    /// Whether any subagent works in a copy of the workspace.
    pub fn copies_workspace(&self) -> bool {
        self.subagents.values().any(|subagent| subagent.workspace == SubagentWorkspace::Own)
    }

    /// Whether any agent or check starts commands, so that a sandbox is needed.
    pub fn runs_commands(&self) -> bool {
        let has_scripts = !self.before.is_empty() || self.active_checks().next().is_some();
        has_scripts || self.starts_servers() || self.has_commands()
    }

    /// Whether any agent has a tool that starts commands.
    pub fn has_commands(&self) -> bool {
        self.agents().flat_map(|agent| &agent.tools).any(|grant| starts_commands(&grant.name))
    }

    /// Everything that something of the run reaches: commands, those of subagents, and programs of tool servers.
    pub fn networks(&self) -> impl Iterator<Item = &Network> {
        let of_agents = self.agents().filter_map(|agent| agent.network.as_ref());
        let of_servers = self.mcp.values().filter(|server| server.is_program()).map(|server| &server.network);
        std::iter::once(&self.network).chain(of_agents).chain(of_servers)
    }

    /// Whether anything of the run reaches a list of hosts.
    pub fn has_hosts(&self) -> bool {
        self.networks().any(|network| network.hosts().is_some())
    }

    /// Whether any commands of the run are kept to a list of hosts.
    pub fn commands_have_hosts(&self) -> bool {
        let of_agents = self.agents().filter_map(|agent| agent.network.as_ref());
        std::iter::once(&self.network).chain(of_agents).any(|network| network.hosts().is_some())
    }

    /// Whether a subagent reaches less than the open network of the run.
    pub fn is_narrowed(&self) -> bool {
        let mut of_agents = self.agents().filter_map(|agent| agent.network.as_ref());
        self.network == Network::Open && of_agents.any(|network| *network != Network::Open)
    }

    /// Takes the network from commands, for a run without one.
    pub fn close_network(&mut self) {
        self.network = Network::None;
        self.subagents.values_mut().for_each(|agent| agent.network = None);
    }

    /// Whether any tool server is a program.
    pub fn starts_servers(&self) -> bool {
        self.mcp.values().any(ServerSpec::is_program)
    }

    /// The tools of servers that an agent can use, in the order of its list. Those of a server that hasn't started yet aren't
    /// known.
    pub fn server_tools(&self, agent: &PlannedAgent) -> Vec<ServerTool> {
        let mut tools = Vec::new();
        for grant in &agent.mcp {
            let Some(known) = self.mcp.get(&grant.server).and_then(|server| server.tools.as_ref()) else { continue };
            // A name for models depends on all tools of the server that any agent has, so that all agents know the same one.
            let names = model_tool_names(&grant.server, known.keys().map(String::as_str));
            for (tool, definition) in known.iter().filter(|(tool, _)| grant.allows(tool)) {
                let name = names.get(tool.as_str()).cloned().unwrap_or_default();
                tools.push(ServerTool::new(&grant.server, tool, name, definition));
            }
        }
        tools
    }

    /// Whether any agent can use a tool of a server.
    pub fn allows_server_tool(&self, server: &str, tool: &str) -> bool {
        self.agents().flat_map(|agent| &agent.mcp).any(|grant| grant.server == server && grant.allows(tool))
    }

    /// The names of a server's tools in the agents' allowlists, each once.
    pub fn allowed_server_tools(&self, server: &str) -> Vec<String> {
        let grants = self.agents().flat_map(|agent| &agent.mcp).filter(|grant| grant.server == server);
        let names: IndexSet<&String> = grants.flat_map(|grant| &grant.allow).collect();
        names.into_iter().cloned().collect()
    }

    /// An agent with more tools than providers accept in one request.
    pub fn too_many_tools(&self) -> Option<StartError> {
        let count = |agent: &PlannedAgent| agent.tools.len() + agent.outputs.len() + self.server_tools(agent).len();
        let agent = self.agents().find(|agent| !agent.mcp.is_empty() && count(agent) > MAX_TOOLS)?;
        let size =
            |grant: &&ServerGrant| self.mcp.get(&grant.server).and_then(|server| Some(server.tools.as_ref()?.len()));
        let largest = agent.mcp.iter().max_by_key(size);
        let why = format!(
            "and others give an agent {} tools, and models can have at most {MAX_TOOLS}: list fewer in `allow`",
            count(agent)
        );
        Some(StartError { server: largest?.server.clone(), why, is_time_up: false })
    }

    /// Takes the tools of a server that agents list.
    pub fn set_server_tools(&mut self, server: &str, mut tools: ToolDefinitions) {
        tools.retain(|tool, _| self.allows_server_tool(server, tool));
        if let Some(server) = self.mcp.get_mut(server) {
            server.tools = Some(tools);
        }
    }

    /// The same plan as it is before any server has started.
    #[must_use]
    pub fn without_server_tools(mut self) -> Self {
        self.mcp.values_mut().for_each(|server| (server.tools, server.missing) = (None, None));
        self
    }

    /// The tool `task` with the plan's subagents.
    pub fn task_tool(&self) -> Task {
        let described = self.subagents.iter().map(|(name, subagent)| {
            let description = subagent.description.as_deref().unwrap_or_default().trim();
            let data = if subagent.returns.is_some() { "(Its summary is data, as JSON.)" } else { "" };
            let copy = match subagent.workspace {
                SubagentWorkspace::Own => "(It works in a copy of the files; its changes are merged when it ends.)",
                SubagentWorkspace::Shared => "",
            };
            let notes = [description, data, copy].into_iter().filter(|note| !note.is_empty());
            (name.clone(), notes.collect::<Vec<_>>().join(" "))
        });
        Task::new(described)
    }

    /// The tool with which an agent submits its data; `None` for an agent that returns text.
    ///
    /// # Errors
    /// The schema is invalid. A plan that was made from a job has valid ones.
    pub fn submit_result(&self, agent: &PlannedAgent) -> Result<Option<SubmitResult>, String> {
        // Only the parent has a prompt. The size of its data is bounded by its replies.
        let most = agent.prompt.is_none().then_some(MAX_RETURNED);
        agent.returns.as_ref().map(|schema| SubmitResult::new(schema, most)).transpose()
    }

    /// Whether an agent has the tool that replaces the state: the parent, if the job keeps one.
    pub fn has_set_state(&self, agent: &PlannedAgent) -> bool {
        // Only the parent has a prompt.
        self.state.is_some() && agent.prompt.is_some()
    }

    /// The tool with which an agent replaces the state; `None` for one that can't.
    ///
    /// # Errors
    /// The schema is invalid. A plan that was made from a job has valid ones.
    pub fn set_state(&self, agent: &PlannedAgent) -> Result<Option<SetState>, String> {
        let state = self.state.as_ref().filter(|_| self.has_set_state(agent));
        state.map(|state| SetState::new(&state.schema, state.max_bytes)).transpose()
    }

    /// The tool with which an agent reads skills; `None` for an agent without skills.
    pub fn skill_tool(&self, agent: &PlannedAgent) -> Option<SkillTool> {
        let skills = self.files.skills_of(&agent.skills).map(|skill| SkillText {
            name: skill.name.clone(),
            folder: skill.folder.clone(),
            body: skill.body.clone(),
            allowed_tools: skill.allowed_tools.clone(),
        });
        Some(skills.collect::<Vec<_>>()).filter(|skills| !skills.is_empty()).map(SkillTool::new)
    }

    /// The tools with which an agent proposes outputs.
    ///
    /// # Errors
    /// The schema of a command's data is invalid. A plan that was made from a job has valid ones.
    pub fn output_tools(
        &self,
        agent: &PlannedAgent,
        id: &str,
        proposals: &Arc<Proposals>,
    ) -> Result<Vec<Box<dyn Tool>>, String> {
        let mut tools: Vec<Box<dyn Tool>> = Vec::new();
        for name in &agent.outputs {
            if name == NOTHING_TO_DO {
                tools.push(Box::new(NothingToDo::new(proposals)));
            } else if let Some(tool) = OutputTool::new(name, id, proposals)? {
                tools.push(Box::new(tool));
            }
        }
        Ok(tools)
    }

    /// The definitions of an agent's tools, in the order of the allowlist, then those of servers, `skill`, `submit_result`,
    /// `set_state` and outputs.
    ///
    /// # Errors
    /// A tool is unknown, or has unknown options. A plan that was made from a job has neither.
    pub fn tool_specs(&self, agent: &PlannedAgent) -> Result<Vec<ToolSpec>, String> {
        let granted = |grant: &ToolGrant| {
            if grant.name == Task::NAME {
                return Ok(Box::new(self.task_tool()) as Box<dyn Tool>);
            }
            let known = builtin(&grant.name);
            (known.ok_or_else(|| format!("there is no tool `{}`", grant.name))?.build)(&grant.options)
        };
        let mut tools = agent.tools.iter().map(granted).collect::<Result<Vec<_>, String>>()?;
        tools.extend(self.server_tools(agent).into_iter().map(|tool| Box::new(tool) as Box<dyn Tool>));
        tools.extend(self.skill_tool(agent).map(|tool| Box::new(tool) as Box<dyn Tool>));
        tools.extend(self.submit_result(agent)?.map(|tool| Box::new(tool) as Box<dyn Tool>));
        tools.extend(self.set_state(agent)?.map(|tool| Box::new(tool) as Box<dyn Tool>));
        if let Some(outputs) = &self.outputs {
            let proposals = Arc::new(Proposals::new(Arc::new(outputs.clone()), None, None));
            tools.extend(self.output_tools(agent, "", &proposals)?);
        }
        Ok(tools.iter().map(|tool| ToolSpec::with_git_rules(tool.as_ref(), Some(self.git))).collect())
    }

    /// Redacts secrets in all texts that models get and the record keeps. An input or a prompt file can contain one.
    #[must_use]
    pub fn redacted(mut self, mask: &Redactor) -> Self {
        if mask.is_empty() {
            return self;
        }
        let hide = |text: &mut String| *text = mask.redact(text).into_owned();
        let hide_json = |value: &mut Value| *value = mask.redact_json(std::mem::take(value));
        self.description.iter_mut().for_each(hide);
        self.inputs.values_mut().for_each(hide_json);
        self.attachments.iter_mut().map(|input| &mut input.path).for_each(hide);
        for agent in std::iter::once(&mut self.parent).chain(self.subagents.values_mut()) {
            agent.description.iter_mut().chain(&mut agent.prompt).for_each(hide);
            hide(&mut agent.system);
            agent.returns.iter_mut().for_each(hide_json);
        }
        for definition in
            self.mcp.values_mut().filter_map(|server| server.tools.as_mut()).flat_map(|tools| tools.values_mut())
        {
            hide(&mut definition.description);
            hide_json(&mut definition.input_schema);
        }
        self.state.iter_mut().for_each(|state| {
            hide_json(&mut state.schema);
            hide_json(&mut state.initial);
        });
        self.files.redact(mask);
        self.late.redact(mask);
        self.before.iter_mut().map(|step| &mut step.run).for_each(hide);
        self.checks.iter_mut().flat_map(|check| [&mut check.name, &mut check.run]).for_each(hide);
        self
    }

    /// The checks that run, in their order.
    pub fn active_checks(&self) -> impl Iterator<Item = &PlannedCheck> {
        self.checks.iter().filter(|check| !check.skipped)
    }
}

/// The value that a job keeps between its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedState {
    /// JSON Schema of the value, with all references resolved within it.
    pub schema: Value,
    /// The value of the first run.
    pub initial: Value,
    /// The longest value as JSON, in bytes.
    pub max_bytes: u64,
}

/// One agent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlannedAgent {
    /// The description that the parent's model reads; the parent itself has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The model.
    pub model: Model,
    /// The models that answer instead, in this order, if the model fails after all retries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<FallbackModel>,
    /// The rendered system prompt, without the context files and skills, which follow it.
    pub system: String,
    /// The entries of `context` whose files follow the system prompt, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// The entries of `skills` that it can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// The rendered prompt. A subagent gets its prompt with each `task` call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The tools that it can use.
    pub tools: Vec<ToolGrant>,
    /// The tools of servers that it can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<ServerGrant>,
    /// The outputs that it can propose, by name, and `nothing_to_do`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The greatest number of turns, at least 1.
    pub max_turns: u32,
    /// The greatest number of output tokens of one reply.
    pub max_tokens: u32,
    /// The folder that its tools work in. Default: the workspace.
    #[serde(default, skip_serializing_if = "is_default")]
    pub workspace: SubagentWorkspace,
    /// What its commands reach. Default: what the run's do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// JSON Schema of the data that it returns, with all references resolved within it. Absent: it returns text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<Value>,
}

impl PlannedAgent {
    /// Its own model, and then its fallbacks.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        std::iter::once(&self.model).chain(self.fallback.iter().map(|fallback| &fallback.model))
    }

    /// The model that a request was sent to: a fallback with that name, or else its own.
    pub fn model_named(&self, fallback: Option<&str>) -> &Model {
        let is_named = |model: &&Model| fallback.is_some_and(|name| model.to_string() == name);
        self.models().find(is_named).unwrap_or(&self.model)
    }

    /// The greatest number of output tokens of one reply of that model.
    pub fn max_tokens_of(&self, fallback: Option<&str>) -> u32 {
        let is_named = |model: &&FallbackModel| fallback.is_some_and(|name| model.model.to_string() == name);
        self.fallback.iter().find(is_named).map_or(self.max_tokens, |fallback| fallback.max_tokens)
    }
}

/// A model that answers if another one fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FallbackModel {
    /// The model.
    pub model: Model,
    /// The greatest number of output tokens of one reply.
    pub max_tokens: u32,
}

/// A step before the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    /// Its name. Templates use its output as `{{ before.NAME }}`.
    pub name: String,
    /// The script for `bash -e -o pipefail -c`, as the job has it. Inputs are environment variables.
    pub run: String,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// JSON Schema of the output, with all references resolved within it. Absent: the output is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Whether the run continues if it fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Whether a map runs it once for all rows, without inputs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedCheck {
    /// Its name.
    pub name: String,
    /// The script for `bash -e -o pipefail -c`, as the job has it. Inputs are environment variables.
    pub run: String,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// Whether its `when` is false, so that it doesn't run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// Limits of the whole run. `None`: no limit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlannedLimits {
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Tokens of prompts (cached or not) and replies.
    pub tokens: Option<u64>,
    /// Running time in milliseconds.
    pub wall_clock_ms: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// Subagents started.
    pub subagents: Option<u64>,
    /// Bytes that commands send to the hosts of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_bytes: Option<u64>,
    /// Subagents running at once, at least 1.
    pub parallel_subagents: u32,
}
