//! Inputs, variables, network and time that a job declares are used.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Rule, Severity, SourceSpan, rule};
use crate::job::{Duration, Limit, Network, ToolEntry, WALL_CLOCK_SECONDS, input_variable, input_variables};
use crate::template::{TagPurpose, stray_tags};
use crate::yaml::Node;

use super::{Lint, LintContext, overlap};

/// Checks for declarations that have no effect.
pub(super) struct Unused;

const RULES: &[Rule] = &[
    rule!(Warning "unused-input"),
    rule!(Warning "unused-env"),
    rule!(Warning "unused-network"),
    rule!(Warning "timeout-beyond-limit"),
];

impl Lint for Unused {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        unused_inputs(subject, findings);
        timeouts_beyond_limit(subject, findings);
        unused_grants(subject, findings);
    }
}

fn unused_inputs(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let uses = &subject.prompts.templates.used_inputs;
    let commands = || subject.job.checks.iter().map(|check| &check.run);
    // A tag in a command is an error, and counts as the variable of an input.
    let are_commands_complete = commands().all(|run| {
        let has_tags = stray_tags(&run.value).iter().any(|tag| tag.purpose != TagPurpose::Other);
        !run.node.is_placeholder() && !run.node.is_incomplete() && !has_tags
    });
    if !subject.is_complete || !uses.is_complete() || !are_commands_complete {
        return;
    }
    let variables: HashSet<&str> =
        commands().flat_map(|run| input_variables(&run.value).into_iter().map(|it| &run.value[it.range])).collect();
    let has_bash = subject.job.agents().any(|agent| agent.tools.iter().any(|tool| tool.value.name() == "bash"));
    let has_commands = has_bash || !subject.job.checks.is_empty();
    for (name, input) in subject.job.inputs() {
        let (is_used, message, help) = match input.is_secret() {
            // A template that uses a secret is an error of its own.
            true => (
                has_commands || uses.has(&name.value),
                "no command can use the secret input",
                "remove it: only commands get secrets, and there are no checks and no agent with `bash`",
            ),
            false => (
                uses.has(&name.value) || variables.contains(input_variable(&name.value).as_str()),
                "nothing uses the input",
                "remove it, or use it in a prompt",
            ),
        };
        if !is_used {
            let message = format!("{message} `{}`", name.value);
            let help = match input.is_secret() {
                true => help.to_owned(),
                false => format!("{help}: `{{{{ inputs.{} }}}}`", name.value),
            };
            findings.push(Diagnostic::warning("unused-input", name.place(), message).help(help));
        }
    }
}

/// Reports variables and network access that no command can use.
fn unused_grants(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let runs_commands =
        !job.checks.is_empty() || job.agents().any(|agent| agent.tools.iter().any(|tool| tool.value.name() == "bash"));
    if runs_commands || !are_commands_known(subject) {
        return;
    }
    let nothing_runs = "no agent has `bash` and there are no checks";
    if let Some(env) = subject.root.get("env").filter(|_| !job.env.is_empty()) {
        let message = format!("only commands can see these variables, and {nothing_runs}");
        findings.push(
            Diagnostic::warning("unused-env", env.place(), message).help("remove `env`, or give an agent `bash`"),
        );
    }
    if let Some(network) = subject.root.get("network").filter(|_| job.network == Network::Open) {
        let message = format!("only commands can use the network, and {nothing_runs}");
        findings.push(
            Diagnostic::warning("unused-network", network.place(), message)
                .help("remove `network`, or give an agent `bash`"),
        );
    }
}

/// Keys whose errors don't affect which agents and checks there are.
const UNRELATED_KEYS: &[&str] =
    &["name", "description", "inputs", "model", "limits", "env", "network", "git", "result", "compaction", "keep"];

/// Whether all agents and checks could be read.
fn are_commands_known(subject: &LintContext<'_>) -> bool {
    let others: Vec<SourceSpan> =
        UNRELATED_KEYS.iter().filter_map(|key| subject.root.get(key)).map(|node| node.place()).collect();
    let is_unrelated = |finding: &Diagnostic| {
        finding.code != "yaml-syntax" && others.iter().any(|other| overlap(&finding.span, other))
    };
    let mut errors = subject.reported.iter().filter(|finding| finding.severity == Severity::Error);
    subject.is_complete || (!subject.root.is_incomplete() && errors.all(is_unrelated))
}

/// Reports timeouts of commands that are longer than the whole run.
fn timeouts_beyond_limit(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let limit = match job.limits.wall_clock.as_ref() {
        Some(limit) if limit.node.is_placeholder() => return,
        Some(limit) => match limit.value {
            Limit::Unlimited => return,
            Limit::Max(limit) => limit.get().as_secs(),
        },
        None => WALL_CLOCK_SECONDS,
    };
    let shown = Duration::from_seconds(limit).map(|limit| limit.to_string()).unwrap_or_default();
    let mut report = |place: Node, whose: &str| {
        let message = format!("{whose} may take longer than the whole run, which ends after {shown}");
        findings.push(
            Diagnostic::warning("timeout-beyond-limit", place.place(), message)
                .help("shorten it, or raise `wall_clock` in `limits`"),
        );
    };
    for check in &job.checks {
        let timeout = check.timeout.as_ref().filter(|timeout| !timeout.node.is_placeholder());
        if let Some(timeout) = timeout.filter(|timeout| timeout.value.get().as_secs() > limit) {
            report(timeout.node.clone(), "this check");
        }
    }
    for tool in job.agents().flat_map(|agent| agent.tools) {
        let ToolEntry::Options { name, options } = &tool.value else { continue };
        let timeout = options.get("timeout").filter(|_| name.value == "bash");
        let Some(timeout) = timeout else { continue };
        let seconds =
            timeout.as_str().and_then(|text| Duration::parse(text).ok()).map(|timeout| timeout.get().as_secs());
        if seconds.is_some_and(|seconds| seconds > limit) {
            report(timeout, "a command");
        }
    }
}
