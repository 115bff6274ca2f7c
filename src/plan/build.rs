//! Makes a plan from a valid job.

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use super::resolve_inputs::{self, ResolvedInputs};
use super::{
    FORMAT, FallbackModel, InputValues, LateTemplates, Plan, PlannedAgent, PlannedCheck, PlannedLimits, PlannedState,
    PlannedStep, SecretInputs, checks, default_prompts, outputs, steps,
};
use crate::diagnostic::Diagnostic;
use crate::job::{
    self, Agent, ContextEntry, Duration, GENERAL_SUBAGENT, Job, Limit, Limits, PARALLEL_SUBAGENTS, PARENT_TOKENS,
    PARENT_TURNS, SUBAGENT_TOKENS, SUBAGENT_TURNS, SUBAGENTS, Size, SkillEntry, SubagentWorkspace, TOOL_CALLS,
    ToolEntry, UPLOAD_BYTES, WALL_CLOCK_SECONDS,
};
use crate::json_schema::{enum_inputs, with_enum_values};
use crate::lints::{ValidJob, ambiguous_condition, parse_condition, resolve};
use crate::mcp::{ServerGrant, ServerSpec};
use crate::outputs::Trigger;
use crate::providers::Model;
use crate::template::{Engine, Template};
use crate::tools::{TOOLS, ToolGrant};
use crate::yaml::{Node, Spanned};

/// The tools of the subagent `general` if the parent has no tool but `task`.
const GENERAL_TOOLS: &[&str] = &["read_file", "glob", "grep"];

/// What a plan depends on in addition to the job and its inputs.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The folder that the tools work in, absolute.
    pub workspace: String,
    /// The folder below which an absolute path is a path of the workspace, too: a row's workspace is a copy of the one in which
    /// the inputs are given, and the workspace of an interrupted run may have been another.
    pub inputs_from: Option<String>,
    /// The value of `{{ run.id }}`; `<run.id>` in a dry run.
    pub run_id: String,
    /// The value of `{{ run.date }}`, `YYYY-MM-DD`; `<run.date>` in a dry run.
    pub run_date: String,
    /// A model that replaces that of every agent.
    pub model_override: Option<Model>,
    /// What started the run on a forge, if anything is known about it.
    pub trigger: Option<Trigger>,
}

impl Plan {
    /// Makes the plan of a run: checks the inputs, renders every prompt, resolves every tool. The values of secret inputs
    /// are returned separately. The same job, inputs and context give the same plan, byte for byte.
    ///
    /// # Errors
    /// All errors in the inputs; or, if there are none, every text that can't be rendered with them.
    pub fn new(
        job: &ValidJob,
        given: &InputValues,
        context: &RunContext,
    ) -> Result<(Self, SecretInputs), Vec<Diagnostic>> {
        let values = resolve_inputs::resolve(job, given, &context.workspace, context.inputs_from.as_deref())?;
        let mut builder = PlanBuilder {
            valid: job,
            context,
            inputs: &values,
            engine: job.prompts().templates.plan_engine(&variables(job, &values.plain, context)),
            findings: Vec::new(),
        };
        let mut parent = builder.parent();
        let mut subagents = builder.subagents(parent.as_ref());
        let before = builder.steps();
        let state = builder.state();
        let mut late = LateTemplates { date: context.run_date.clone(), ..LateTemplates::default() };
        builder.late_templates(&mut late);
        let checks = builder.checks(&mut late);
        let mut findings = builder.findings;
        let outputs = outputs::resolve(job, &values.plain, context.trigger.clone()).unwrap_or_else(|found| {
            findings.extend(found);
            None
        });
        let left_out = outputs.as_ref().map(|outputs| outputs::left_out(job, outputs)).unwrap_or_default();
        for agent in parent.iter_mut().chain(subagents.values_mut()) {
            agent.outputs.retain(|name| !left_out.contains(&name.as_str()));
        }
        let declared = job.job();
        let env: IndexSet<String> = declared.env.iter().map(|name| name.value.clone()).collect();
        match parent {
            Some(parent) if findings.is_empty() => {
                let mut plan = Self {
                    format: FORMAT,
                    job: job.name().to_owned(),
                    description: declared.description.clone(),
                    workspace: context.workspace.clone(),
                    secret_inputs: values.secrets.pairs().iter().map(|(name, _)| name.clone()).collect(),
                    inputs: values.plain,
                    attachments: values.attachments,
                    parent,
                    subagents,
                    mcp: IndexMap::new(),
                    files: job.files().clone(),
                    limits: limits(&declared.limits),
                    env: env.into_iter().collect(),
                    network: job.hosts().network(declared),
                    git: declared.git,
                    protect: declared.protect.iter().map(|path| path.value.clone()).collect(),
                    allow_changes: declared.allow_changes.iter().map(|path| path.value.clone()).collect(),
                    outputs,
                    state,
                    before,
                    late,
                    checks,
                    repairs: job::value_or(declared.repairs.as_ref(), 0),
                    compaction: declared.compaction,
                    keep: declared.keep,
                };
                plan.mcp = servers(job, &plan);
                plan.limits.upload_bytes = upload(&declared.limits, plan.has_hosts());
                Ok((plan, values.secrets))
            }
            _ => Err(findings),
        }
    }
}

/// The variables of templates.
fn variables(job: &ValidJob, inputs: &IndexMap<String, Value>, context: &RunContext) -> Value {
    serde_json::json!({
        "inputs": inputs,
        "workspace": context.workspace,
        "job": { "name": job.name() },
        "run": { "id": context.run_id, "date": context.run_date },
    })
}

/// The servers that agents of the plan use, with the locked tools that they list.
fn servers(job: &ValidJob, plan: &Plan) -> IndexMap<String, ServerSpec> {
    let is_used = |name: &str| plan.agents().flat_map(|agent| &agent.mcp).any(|grant| grant.server == name);
    let declared = job.job().mcp.iter().filter(|(name, _)| is_used(&name.value));
    let servers = declared.map(|(name, server)| {
        let locked = job.tool_lock().and_then(|lock| lock.tools(&name.value));
        let listed = locked.map(|mut tools| {
            tools.retain(|tool, _| plan.allows_server_tool(&name.value, tool));
            tools
        });
        (
            name.value.clone(),
            ServerSpec {
                tools: listed,
                ..ServerSpec::new(server, job.hosts().of_server(&name.value, server.network.as_ref()))
            },
        )
    });
    servers.collect()
}

fn limits(limits: &Limits) -> PlannedLimits {
    let count =
        |limit: &Option<Spanned<Limit<u64>>>, default| job::value_or(limit.as_ref(), Limit::Max(default)).as_option();
    PlannedLimits {
        cost_usd: limits.cost_usd.as_ref().map(|cost| cost.value),
        tokens: limits.tokens.as_ref().map(|tokens| tokens.value),
        wall_clock_ms: match &limits.wall_clock {
            Some(limit) => limit.value.as_option().map(Duration::milliseconds),
            None => Some(WALL_CLOCK_SECONDS * 1000),
        },
        tool_calls: count(&limits.tool_calls, TOOL_CALLS),
        subagents: count(&limits.subagents, SUBAGENTS),
        upload_bytes: None,
        parallel_subagents: job::value_or(limits.parallel_subagents.as_ref(), PARALLEL_SUBAGENTS),
    }
}

/// What commands may send: a limit that is declared, or with a list of hosts the default.
fn upload(limits: &Limits, has_hosts: bool) -> Option<u64> {
    match &limits.upload {
        Some(limit) => limit.value.as_option().map(Size::bytes),
        None => has_hosts.then_some(UPLOAD_BYTES),
    }
}

struct PlanBuilder<'a> {
    valid: &'a ValidJob,
    context: &'a RunContext,
    inputs: &'a ResolvedInputs,
    engine: Engine<'a>,
    findings: Vec<Diagnostic>,
}

impl PlanBuilder<'_> {
    fn job(&self) -> &Job {
        self.valid.job()
    }

    fn render(&mut self, template: &Template) -> Option<String> {
        match self.engine.render(template) {
            Ok(text) => Some(text),
            Err(finding) => {
                self.findings.push(*finding);
                None
            }
        }
    }

    /// Renders a prompt with placeholders for what isn't known yet. Where that doesn't work, it is shown as the template.
    fn render_prompt(&mut self, template: &Template) -> Option<String> {
        let templates = &self.valid.prompts().templates;
        match self.engine.render(template) {
            Err(_) if templates.is_late(template) => templates.with_includes(template).remove(template.name()),
            Ok(text) => Some(text),
            Err(finding) => {
                self.findings.push(*finding);
                None
            }
        }
    }

    /// Collects what is rendered when the run has started.
    fn late_templates(&mut self, late: &mut LateTemplates) {
        let prompts = self.valid.prompts();
        let templates = &prompts.templates;
        if let Some(prompt) = prompts.prompt.as_ref().filter(|prompt| templates.is_late(prompt)) {
            late.add_prompt(templates, prompt);
        }
        let (Some(template), Some(declared)) = (&prompts.skip_if, &self.valid.job().skip_if) else { return };
        late.add_skip_if(templates, template);
        if !templates.is_late(template)
            && let Some(rendered) = self.render(template)
            && parse_condition(&rendered).is_none()
        {
            self.findings.push(ambiguous_condition(declared, "skip_if", &rendered));
        }
    }

    /// The steps before the agent.
    fn steps(&mut self) -> Vec<PlannedStep> {
        let valid = self.valid;
        let mut planned = Vec::new();
        for step in &valid.job().before {
            let schema = self.schema(valid.schemas().before.get(&step.name.value), step.schema.as_ref());
            match steps::plan_step(step, schema, self.inputs) {
                Ok(step) => planned.push(step),
                Err(finding) => self.findings.push(*finding),
            }
        }
        planned
    }

    /// The value that is kept between runs.
    fn state(&mut self) -> Option<PlannedState> {
        let valid = self.valid;
        let declared = &valid.job().state.as_ref()?.value;
        let schema = self.schema(valid.schemas().state.as_ref(), Some(&declared.schema))?;
        let initial = declared.initial.as_ref().map(Node::to_json).unwrap_or_default();
        Some(PlannedState { schema, initial, max_bytes: declared.max_bytes() })
    }

    fn parent(&mut self) -> Option<PlannedAgent> {
        let prompt = self.valid.prompts().prompt.as_ref().and_then(|prompt| self.render_prompt(prompt));
        if prompt.as_ref().is_some_and(|prompt| prompt.trim().is_empty()) {
            let place = self.job().parent.prompt.place();
            self.findings.push(
                Diagnostic::error("empty-prompt", place, "with these inputs, the prompt is empty")
                    .help("add text that doesn't depend on inputs"),
            );
        }
        let declared = self.valid.job().agents().next()?;
        let valid = self.valid;
        let system = valid.prompts().system.as_ref();
        let returns = self.schema(valid.schemas().result.as_ref(), valid.job().result.as_ref().map(|it| &it.schema));
        let agent = self.agent(&declared, system, returns, (PARENT_TURNS, PARENT_TOKENS))?;
        let notes: String = self.inputs.attachments.iter().map(|input| format!("\n\n{}", input.note())).collect();
        Some(PlannedAgent { prompt: Some(prompt? + &notes), ..agent })
    }

    fn subagents(&mut self, parent: Option<&PlannedAgent>) -> IndexMap<String, PlannedAgent> {
        let valid = self.valid;
        let mut planned = IndexMap::new();
        if let Some(parent) = parent.filter(|_| valid.job().subagents.is_empty() && valid.job().delegates()) {
            planned.insert(GENERAL_SUBAGENT.to_owned(), self.general(parent));
        }
        for (declared, (name, subagent)) in valid.job().agents().skip(1).zip(&valid.job().subagents) {
            let system = valid.prompts().subagents.get(&name.value);
            let returns =
                self.schema(valid.schemas().returns.get(&name.value), subagent.returns.as_ref().map(|it| &it.schema));
            let Some(agent) = self.agent(&declared, system, returns, (SUBAGENT_TURNS, SUBAGENT_TOKENS)) else {
                continue;
            };
            let description = subagent.description.as_ref().map(|description| description.value.clone());
            planned.insert(name.value.clone(), PlannedAgent { description, ..agent });
        }
        planned
    }

    /// A schema with the values of the inputs that its enums name.
    fn schema(&mut self, schema: Option<&Value>, declared: Option<&Node>) -> Option<Value> {
        let schema = schema?;
        let list = |name: &str| self.inputs.plain.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let named = enum_inputs(schema);
        if let (Some(name), Some(declared)) = (named.iter().find(|name| list(name).is_empty()), declared) {
            let message = format!("the input `{name}` is an empty list, so no value is allowed where `enum` names it");
            let finding = Diagnostic::error("bad-input", declared.place(), message);
            self.findings.push(finding.help(format!("give values: `--set {name}=a,b`")));
        }
        Some(with_enum_values(schema, list).into_owned())
    }

    /// Plans a declared agent, without its description and prompt.
    fn agent(
        &mut self,
        declared: &Agent<'_>,
        system: Option<&Template>,
        returns: Option<Value>,
        (default_turns, default_tokens): (u32, u32),
    ) -> Option<PlannedAgent> {
        let grant = |entry: &Spanned<ToolEntry>| match &entry.value {
            ToolEntry::Name(name) => grant(name, None),
            ToolEntry::Options { name, options } => grant(&name.value, Some(options)),
            ToolEntry::Server(_) | ToolEntry::Outputs(_) => None,
        };
        let outputs = declared.tools.iter().flat_map(|entry| entry.value.outputs()).map(|name| name.value.clone());
        let outputs: Vec<String> = outputs.collect();
        let tools: Vec<ToolGrant> = declared.tools.iter().filter_map(grant).collect();
        let granted = declared.tools.iter().filter_map(|entry| entry.value.server()).map(|entry| ServerGrant {
            server: entry.server.value.clone(),
            allow: entry.allow.value.iter().map(|tool| tool.value.clone()).collect(),
        });
        let mcp: Vec<ServerGrant> = granted.filter(|grant| !grant.allow.is_empty()).collect();
        let sets_state = declared.name.is_none() && self.job().state.is_some();
        let has_tools = !tools.is_empty() || !mcp.is_empty() || !outputs.is_empty();
        let workspace = &self.context.workspace;
        let access = declared.workspace.map_or(SubagentWorkspace::Shared, |access| access.value);
        let system = match (system, declared.name) {
            (Some(system), _) => self.render(system)?,
            (None, None) => default_prompts::parent_prompt(workspace, &tools, has_tools, returns.is_some(), sets_state),
            (None, Some(_)) => default_prompts::subagent_prompt(workspace, has_tools, returns.is_some(), access),
        };
        let valid = self.valid;
        let job = valid.job();
        let model = self.model(declared.model)?;
        Some(PlannedAgent {
            description: None,
            max_tokens: self.max_tokens(declared.max_tokens, declared.model, model.default_max_tokens(default_tokens)),
            model,
            fallback: self.fallback(declared.max_tokens, declared.model, default_tokens),
            system,
            context: self.context(job.context_of(declared)),
            skills: self.skills(job.skills_of(declared)),
            prompt: None,
            tools,
            mcp,
            outputs,
            max_turns: job::value_or(declared.max_turns, default_turns),
            workspace: access,
            network: declared.name.and_then(|name| valid.hosts().of_subagent(&name.value, declared.network)),
            returns,
        })
    }

    fn checks(&mut self, late: &mut LateTemplates) -> Vec<PlannedCheck> {
        let mut planned = Vec::new();
        let prompts = self.valid.prompts();
        for (check, when) in self.valid.job().checks.iter().zip(&prompts.conditions) {
            let (late_when, when) = match when.as_ref() {
                Some(when) if prompts.templates.is_late(when) => (Some(when), None),
                when => (None, when),
            };
            if let Some(when) = late_when {
                late.add_condition(check.name.value.trim(), &prompts.templates, when);
            }
            match checks::plan_check(&mut self.engine, check, when, self.inputs) {
                Ok(check) => planned.push(check),
                Err(finding) => self.findings.push(*finding),
            }
        }
        planned
    }

    fn general(&self, parent: &PlannedAgent) -> PlannedAgent {
        let for_all = |grant: &&ToolGrant| TOOLS.iter().any(|tool| tool.name == grant.name && !tool.parent_only);
        let mut tools: Vec<ToolGrant> = parent.tools.iter().filter(for_all).cloned().collect();
        if tools.is_empty() && parent.mcp.is_empty() {
            tools = GENERAL_TOOLS.iter().filter_map(|name| grant(name, None)).collect();
        }
        PlannedAgent {
            description: Some("Carries out any self-contained task and reports what it found or did.".to_owned()),
            model: parent.model.clone(),
            fallback: self.fallback(None, None, SUBAGENT_TOKENS),
            system: default_prompts::subagent_prompt(&self.context.workspace, true, false, SubagentWorkspace::Shared),
            context: self.context(self.job().context.iter()),
            skills: self.skills(self.job().skills.iter()),
            prompt: None,
            tools,
            mcp: parent.mcp.clone(),
            outputs: Vec::new(),
            max_turns: SUBAGENT_TURNS,
            max_tokens: self.max_tokens(None, None, parent.model.default_max_tokens(SUBAGENT_TOKENS)),
            workspace: SubagentWorkspace::Shared,
            network: None,
            returns: None,
        }
    }

    /// The entries whose files were read, each once.
    fn context<'e>(&self, entries: impl Iterator<Item = &'e Spanned<ContextEntry>>) -> Vec<String> {
        let labels: IndexSet<String> = entries.map(|entry| entry.value.label()).collect();
        labels.into_iter().filter(|label| self.valid.files().context.contains_key(label)).collect()
    }

    /// The entries whose skills were read, each once.
    fn skills<'e>(&self, entries: impl Iterator<Item = &'e Spanned<SkillEntry>>) -> Vec<String> {
        let labels: IndexSet<String> = entries.map(|entry| entry.value.label()).collect();
        labels.into_iter().filter(|label| self.valid.files().skills.contains_key(label)).collect()
    }

    /// The context window that the job declares for a model.
    fn declared_window(&self, model: &Model) -> Option<u64> {
        let job = self.job();
        let specs = std::iter::once(&job.model).chain(job.agents().filter_map(|agent| agent.model));
        let mut models = specs.filter_map(|spec| resolve(spec, self.valid.servers()).ok());
        models.find_map(|declared| declared.context.filter(|_| declared.is_same(model)))
    }

    /// The output tokens of one reply of an agent's own model. The first two are the keys of the agent's mapping.
    fn max_tokens(
        &self,
        max_tokens: Option<&Spanned<u32>>,
        model: Option<&Spanned<job::ModelSpec>>,
        default: u32,
    ) -> u32 {
        let declared = self.job().models(max_tokens, model).next();
        job::value_or(declared.and_then(|declared| declared.max_tokens), default)
    }

    /// The fallbacks of an agent. A model from the command line has none.
    fn fallback(
        &self,
        max_tokens: Option<&Spanned<u32>>,
        model: Option<&Spanned<job::ModelSpec>>,
        default: u32,
    ) -> Vec<FallbackModel> {
        if self.context.model_override.is_some() {
            return Vec::new();
        }
        let fallbacks = self.job().models(max_tokens, model).skip(1);
        let planned = fallbacks.filter_map(|fallback| {
            let model = resolve(fallback.spec, self.valid.servers()).ok()?;
            let max_tokens = job::value_or(fallback.max_tokens, model.default_max_tokens(default));
            Some(FallbackModel { model, max_tokens })
        });
        planned.collect()
    }

    fn model(&self, declared: Option<&Spanned<job::ModelSpec>>) -> Option<Model> {
        match &self.context.model_override {
            Some(model) => Some(Model { context: self.declared_window(model).or(model.context), ..model.clone() }),
            None => resolve(declared.unwrap_or(&self.job().model), self.valid.servers()).ok(),
        }
    }
}

/// A tool with all its options. In a valid job, every tool exists and its options are valid.
fn grant(name: &str, options: Option<&Node>) -> Option<ToolGrant> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    let options = (tool.parse_options)(options).value?;
    Some(ToolGrant { name: name.to_owned(), options })
}
