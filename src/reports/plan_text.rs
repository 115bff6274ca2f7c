//! A plan as text, for review before a run.

use super::display::{LineWriter, serialized_name};
use super::{DisplayOptions, run_stats};
use crate::job::{GitAccess, SubagentWorkspace};
use crate::outputs::{Kind, Outputs, Target};
use crate::plan::{CostBound, InputAttachment, Plan, PlannedAgent, PlannedLimits};
use crate::providers::Model;
use crate::text::{format_size, pluralize};

/// Columns for a label and the space after it.
const LABEL_WIDTH: usize = 12;
/// Columns for the label of a limit.
const LIMIT_LABEL_WIDTH: usize = 20;

/// What a dry run shows.
pub struct PlanPreview<'a> {
    /// What would run.
    pub plan: &'a Plan,
    /// The most that the run can cost.
    pub cost_bound: &'a CostBound,
    /// A short description of how tools would be confined.
    pub sandbox: &'a str,
    /// The file of the state, if the job keeps one.
    pub state: Option<StatePreview>,
    /// Whether to include the tool descriptions that the models get.
    pub verbose: bool,
    /// The reader's display.
    pub display: DisplayOptions,
}

/// The file of a job's state.
#[derive(Debug)]
pub struct StatePreview {
    /// Its path, absolute.
    pub path: String,
    /// The size of the value as JSON, in bytes; `None` if there is no file yet.
    pub size: Option<u64>,
}

/// Renders a plan: every agent with its prompts, tools and limits, then the limits and the maximum cost of the whole run.
pub(super) fn plan(preview: &PlanPreview<'_>) -> String {
    let plan = preview.plan;
    let mut page = LineWriter { text: String::new(), display: preview.display };
    page.field("", "job", &plan.job);
    if let Some(description) = &plan.description {
        page.field("", "description", description.trim());
    }
    page.field("", "workspace", &plan.workspace);
    for (name, value) in &plan.inputs {
        page.field("", "input", &format!("{name} = {value}"));
    }
    for InputAttachment { input, path, file } in &plan.attachments {
        let model = &plan.parent.model;
        let tokens = match model.media().takes(file.media_type) {
            true => format!("about {} in each request", pluralize(model.attachment_tokens(file), "token")),
            false => format!("left out: {model} doesn't take it"),
        };
        let (kind, digest) = (file.describe(), short_digest(Some(&file.digest)));
        page.field("", "attached", &format!("{input} = {path} ({kind}, {digest}; {tokens})"));
    }
    for name in &plan.secret_inputs {
        page.field("", "input", &format!("{name} = (secret; commands see $INPUT_{})", name.to_uppercase()));
    }
    page.agent("parent", &plan.parent, preview);
    for (name, subagent) in &plan.subagents {
        page.agent(&format!("subagent {name}"), subagent, preview);
    }
    page.servers(plan);
    page.steps(plan);
    page.checks(plan);
    let limits = &plan.limits;
    let count = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    page.heading("limits");
    page.limit("cost", &limits.cost_usd.map_or("none".to_owned(), |usd| run_stats::cost(Some(usd))));
    page.limit("tokens", &count(limits.tokens));
    page.limit("wall clock", &limits.wall_clock_ms.map_or("none".to_owned(), run_stats::duration));
    page.limit("tool calls", &count(limits.tool_calls));
    if let Some(bytes) = limits.upload_bytes {
        page.limit("upload", &pluralize(bytes, "byte"));
    }
    page.limit("subagents", &format!("{}, {} at once", count(limits.subagents), limits.parallel_subagents));
    page.text.push('\n');
    page.field("", "env", &if plan.env.is_empty() { "none".to_owned() } else { plan.env.join(", ") });
    page.field("", "network", &format!("{} (requested)", plan.network));
    if plan.git != GitAccess::default() {
        let git = serialized_name(&plan.git);
        page.field("", "git", &format!("{git} (commands may change objects, references, logs, the index and HEAD)"));
    }
    for (label, paths) in [("protect", &plan.protect), ("may change", &plan.allow_changes)] {
        if !paths.is_empty() {
            page.field("", label, &paths.join(", "));
        }
    }
    if let Some(outputs) = &plan.outputs {
        page.outputs(plan, outputs);
    }
    if let Some(StatePreview { path, size }) = &preview.state {
        let size = size.map_or("no file yet: the first value is `initial`".to_owned(), |size| pluralize(size, "byte"));
        let max = plan.state.as_ref().map_or(0, |state| state.max_bytes);
        page.field("", "state", &format!("{path} ({size}; at most {})", pluralize(max, "byte")));
    }
    page.field("", "sandbox", preview.sandbox);
    page.field("", "compaction", &serialized_name(&plan.compaction));
    page.field("", "keep", &serialized_name(&plan.keep));
    page.field("", "cost", &cost_bound(preview.cost_bound, &plan.limits));
    page.text
}

fn model_with_options(model: &Model) -> String {
    let options = model.explicit_options().into_iter().map(|(key, value)| format!(", {key} {value}"));
    format!("{model}{}", options.collect::<String>())
}

fn cost_bound(bound: &CostBound, limits: &PlannedLimits) -> String {
    match bound {
        CostBound::Free => "free (all replies come from a script or a record)".to_owned(),
        CostBound::Limit(usd) => format!("at most {} (limits.cost_usd)", run_stats::cost(Some(*usd))),
        CostBound::Tokens { usd, rate, model, day } => format!(
            "at most {} (limits.tokens at {} per million, the highest rate of {model} on {day})",
            run_stats::cost(Some(*usd)),
            run_stats::cost(Some(*rate)),
        ),
        CostBound::Unknown(models) => {
            let limit = match limits.tokens {
                Some(_) => "limits.tokens still applies",
                None => "limits.cost_usd covers only models with a price",
            };
            format!("unknown: no price for {}; {limit}", models.join(", "))
        }
        CostBound::Unbounded => "unbounded: set limits.cost_usd or limits.tokens".to_owned(),
    }
}

/// Where a file is from, if that isn't the workspace.
fn origin(reference: Option<&str>, commit: Option<&str>) -> String {
    let commit = commit.and_then(|commit| commit.get(..12)).unwrap_or_default();
    reference.map(|reference| format!(" of {reference}, commit {commit}")).unwrap_or_default()
}

/// The first digits of a digest.
fn short_digest(sha256: Option<&str>) -> String {
    let digits = sha256.and_then(|digest| digest.get(..12));
    digits.map_or_else(|| "with a masked secret".to_owned(), |digits| format!("sha256 {digits}"))
}

impl LineWriter {
    /// A label and its value. A value of several lines goes below the label.
    fn field(&mut self, indent: &str, label: &str, value: &str) {
        if value.contains(['\n', '\r']) {
            self.block(indent, label, value);
        } else {
            self.line(&format!("{indent}{label:<LABEL_WIDTH$}{value}"));
        }
    }

    fn limit(&mut self, label: &str, value: &str) {
        self.line(&format!("  {label:<LIMIT_LABEL_WIDTH$}{value}"));
    }

    fn block(&mut self, indent: &str, title: &str, content: &str) {
        let content = content.trim_end();
        if content.is_empty() {
            return self.field(indent, title, "(empty)");
        }
        self.line(&format!("{indent}{title}"));
        for line in content.lines() {
            self.line(&format!("{indent}  | {line}"));
        }
    }

    fn agent(&mut self, title: &str, agent: &PlannedAgent, preview: &PlanPreview<'_>) {
        self.heading(title);
        if let Some(description) = &agent.description {
            self.field("  ", "description", description.trim());
        }
        self.field("  ", "model", &model_with_options(&agent.model));
        for (number, fallback) in agent.fallback.iter().enumerate() {
            let label = if number == 0 { "fallback" } else { "" };
            let tokens = match fallback.max_tokens == agent.max_tokens {
                true => String::new(),
                false => format!(", max_tokens {}", fallback.max_tokens),
            };
            self.field("  ", label, &format!("{}{tokens}", model_with_options(&fallback.model)));
        }
        self.field("  ", "max_turns", &agent.max_turns.to_string());
        self.field("  ", "max_tokens", &agent.max_tokens.to_string());
        if agent.workspace != SubagentWorkspace::default() {
            let workspace = serialized_name(&agent.workspace);
            let note = "a copy; its changes are merged when the subagent ends";
            self.field("  ", "workspace", &format!("{workspace} ({note})"));
        }
        self.tools(agent, preview);
        if let Some(schema) = &agent.returns {
            self.block("  ", "result schema", &format!("{schema:#}"));
        }
        let files = &preview.plan.files;
        for (number, file) in files.context_of(&agent.context).enumerate() {
            let label = if number == 0 { "context" } else { "" };
            let origin = origin(file.reference.as_deref(), file.commit.as_deref());
            let size = pluralize(file.text.len() as u64, "byte");
            self.field(
                "  ",
                label,
                &format!("{}{origin} ({size}, {})", file.path, short_digest(file.sha256.as_deref())),
            );
        }
        for (number, skill) in files.skills_of(&agent.skills).enumerate() {
            let label = if number == 0 { "skills" } else { "" };
            let origin = origin(skill.reference.as_deref(), skill.commit.as_deref());
            let (name, folder, digest) = (&skill.name, &skill.folder, short_digest(skill.sha256.as_deref()));
            self.field("  ", label, &format!("{name} in {folder}{origin} ({digest})"));
        }
        if let Some(network) = &agent.network {
            self.field("  ", "network", &network.to_string());
        }
        self.block("  ", "system", &preview.plan.system_prompt(agent));
        if let Some(prompt) = &agent.prompt {
            self.block("  ", "prompt", prompt);
        }
    }

    fn servers(&mut self, plan: &Plan) {
        for (name, server) in &plan.mcp {
            self.heading(&format!("tool server {name}"));
            match &server.url {
                Some(url) => self.field("  ", "url", url),
                None => {
                    let words: Vec<String> = server.command.iter().map(|word| format!("{word:?}")).collect();
                    self.field("  ", "command", &words.join(" "));
                    self.field("  ", "network", &server.network.to_string());
                }
            }
            let variables: Vec<&str> = server.variables().collect();
            if !variables.is_empty() {
                self.field("  ", "variables", &variables.join(", "));
            }
            self.field("  ", "required", if server.required { "yes" } else { "no" });
            self.field("  ", "timeout", &run_stats::duration(server.timeout_ms));
            let tools = server.tools.as_ref().map(|tools| tools.keys().cloned().collect::<Vec<_>>().join(", "));
            self.field(
                "  ",
                "tools",
                tools.as_deref().unwrap_or("not known: there is no lock file (`legwork mcp lock`)"),
            );
        }
    }

    /// What could be published, where, and how much of it.
    fn outputs(&mut self, plan: &Plan, outputs: &Outputs) {
        let trigger = outputs.trigger.as_ref().and_then(|trigger| trigger.number);
        let trigger = trigger.map_or("<trigger>".to_owned(), |number| format!("#{number}"));
        for (number, (name, output)) in outputs.allowed.iter().enumerate() {
            let label = if number == 0 { "outputs" } else { "" };
            let target = match output.target {
                None => String::new(),
                Some(Target::Trigger) => format!(" for {trigger}"),
                Some(Target::Any) => " for any number".to_owned(),
                Some(Target::Number(number)) => format!(" for #{number}"),
            };
            let is_used = plan.agents().any(|agent| agent.outputs.contains(name));
            let limit = if is_used { format!("at most {}", output.max) } else { "not in this run".to_owned() };
            let labels = match &output.kind {
                Kind::Labels { add, remove } => {
                    let listed = |what: &str, labels: &[String]| match labels {
                        [] => String::new(),
                        labels => format!(", {what} {}", labels.join(" ")),
                    };
                    listed("add", add) + &listed("remove", remove)
                }
                Kind::PullRequest { patch, .. } | Kind::Push { patch } => {
                    let paths = match patch.paths.as_slice() {
                        [] => String::new(),
                        paths => format!(", only {}", paths.join(" ")),
                    };
                    let binary = if patch.binary { ", with binary files" } else { "" };
                    let size = format_size(patch.max_bytes);
                    format!(
                        "{paths}, {} and a patch of {size} at most{binary}",
                        pluralize(patch.max_files.into(), "file")
                    )
                }
                _ => String::new(),
            };
            self.field("", label, &format!("{name}: {}{target}, {limit}{labels}", output.kind.name().name()));
        }
        if outputs.rules.required {
            self.field("", "", "one of them is required, or `nothing_to_do`");
        }
    }

    fn steps(&mut self, plan: &Plan) {
        if plan.before.is_empty() && plan.skip_if().is_none() {
            return;
        }
        self.heading("before the agent");
        for step in &plan.before {
            let mut notes = vec![format!("at most {}", run_stats::duration(step.timeout_ms))];
            notes.extend(step.schema.is_some().then(|| "JSON".to_owned()));
            notes.extend(step.optional.then(|| "optional".to_owned()));
            notes.extend(step.once.then(|| "once for all rows of a map".to_owned()));
            self.line(&format!("  {} ({})", step.name, notes.join(", ")));
            for line in step.run.trim_end().lines() {
                self.line(&format!("    | {line}"));
            }
        }
        if let Some(condition) = plan.skip_if() {
            self.field("  ", "skip_if", condition);
        }
    }

    fn checks(&mut self, plan: &Plan) {
        if plan.checks.is_empty() {
            return;
        }
        self.heading("checks");
        for check in &plan.checks {
            let note = match check.skipped {
                true => "skipped: `when` is false".to_owned(),
                false => format!("at most {}", run_stats::duration(check.timeout_ms)),
            };
            self.line(&format!("  {} ({note})", check.name));
            for line in check.run.trim_end().lines() {
                self.line(&format!("    | {line}"));
            }
        }
        let repairs = match plan.repairs {
            0 => "none: a failed check ends the run".to_owned(),
            count => format!("{count} (how many times failed checks go back to the parent)"),
        };
        self.field("  ", "repairs", &repairs);
    }

    fn tools(&mut self, agent: &PlannedAgent, preview: &PlanPreview<'_>) {
        let sets_state = preview.plan.has_set_state(agent);
        if agent.tools.is_empty() && agent.mcp.is_empty() && agent.outputs.is_empty() && !sets_state {
            self.field("  ", "tools", "none");
        }
        for (number, tool) in agent.tools.iter().enumerate() {
            let label = if number == 0 { "tools" } else { "" };
            let options = if tool.options.is_null() { String::new() } else { format!(" {}", tool.options) };
            self.field("  ", label, &format!("{}{options}", tool.name));
        }
        for (number, grant) in agent.mcp.iter().enumerate() {
            let label = if number == 0 && agent.tools.is_empty() { "tools" } else { "" };
            self.field("  ", label, &format!("{} of the server {}", grant.allow.join(", "), grant.server));
        }
        if !agent.outputs.is_empty() {
            self.field("  ", "proposes", &agent.outputs.join(", "));
        }
        if sets_state {
            self.field("  ", "keeps", "the state, with `set_state`");
        }
        let specs = if preview.verbose { preview.plan.tool_specs(agent).unwrap_or_default() } else { Vec::new() };
        for tool in specs {
            self.block("  ", &format!("tool {}", tool.name), &tool.description);
            self.block("  ", &format!("input of {}", tool.name), &format!("{:#}", tool.input_schema));
        }
    }
}
