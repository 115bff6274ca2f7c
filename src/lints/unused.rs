//! Inputs, variables, network and time that a job declares are used.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Severity, SourceSpan, rule};
use crate::job::{Duration, InputType, Job, Limit, ToolEntry, WALL_CLOCK_SECONDS, input_variable, input_variables};
use crate::template::{TagPurpose, stray_tags};
use crate::tools::starts_commands;
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Checks for declarations that have no effect.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Warning "unused-input"),
        rule!(Warning "unused-env"),
        rule!(Warning "unused-network"),
        rule!(Warning "timeout-beyond-limit"),
    ],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    unused_inputs(subject, findings);
    timeouts_beyond_limit(subject, findings);
    unused_grants(subject, findings);
}

fn unused_inputs(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let uses = &subject.prompts.templates.used_inputs;
    let commands = || subject.job.scripts();
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
    let has_commands = has_commands(subject.job);
    // A template that uses a secret is an error of its own.
    for (name, input) in subject.job.inputs().filter(|(name, _)| !uses.has(&name.value)) {
        let (is_used, message, help) = match input.is_secret() {
            true => (
                has_commands,
                format!("no command can use the secret input `{}`", name.value),
                "remove it: only commands get secrets, and there are no steps, no checks and no agent with `bash`"
                    .to_owned(),
            ),
            false => (
                input.kind.value == InputType::Image || variables.contains(input_variable(&name.value).as_str()),
                format!("nothing uses the input `{}`", name.value),
                format!("remove it, or use it in a prompt: `{{{{ inputs.{} }}}}`", name.value),
            ),
        };
        if !is_used {
            findings.push(Diagnostic::warning("unused-input", name.place(), message).help(help));
        }
    }
}

/// Whether any agent or check runs commands.
fn has_commands(job: &Job) -> bool {
    job.scripts().next().is_some()
        || job.agents().any(|agent| agent.tools.iter().any(|tool| starts_commands(tool.value.name())))
}

/// Reports variables and network access that no command can use.
fn unused_grants(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    for agent in job.agents() {
        let Some(network) = agent.network.filter(|network| subject.is_complete && network.value.is_some()) else {
            continue;
        };
        if !agent.tools.iter().any(|tool| starts_commands(tool.value.name())) {
            let message = "only commands can use the network, and this subagent has no `bash`";
            let finding = Diagnostic::warning("unused-network", network.place(), message);
            findings.push(finding.help("remove `network`, or give the subagent `bash`"));
        }
    }
    if has_commands(job) || !are_commands_known(subject) {
        return;
    }
    for (key, is_granted, code, what) in [
        ("env", !job.env.is_empty(), "unused-env", "see these variables"),
        ("network", job.network.is_some(), "unused-network", "use the network"),
    ] {
        if let Some(grant) = subject.root.get(key).filter(|_| is_granted) {
            let message =
                format!("only commands can {what}, and no agent has `bash` and there are no steps and no checks");
            let help = format!("remove `{key}`, or give an agent `bash`");
            findings.push(Diagnostic::warning(code, grant.place(), message).help(help));
        }
    }
}

/// Keys whose errors don't affect which agents and checks there are.
const UNRELATED_KEYS: &[&str] =
    &["name", "description", "inputs", "model", "limits", "env", "network", "git", "result", "compaction", "keep"];

/// Whether all agents and checks could be read.
fn are_commands_known(subject: &LintContext<'_>) -> bool {
    let others: Vec<SourceSpan> =
        UNRELATED_KEYS.iter().filter_map(|key| subject.root.get(key)).map(|node| node.place()).collect();
    let is_unrelated =
        |finding: &Diagnostic| finding.code != "yaml-syntax" && others.iter().any(|other| finding.span.overlaps(other));
    let mut errors = subject.reported.iter().filter(|finding| finding.severity == Severity::Error);
    subject.is_complete || (!subject.root.is_incomplete() && errors.all(is_unrelated))
}

/// Reports timeouts of commands that are longer than the whole run.
fn timeouts_beyond_limit(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let limit = match job.limits.wall_clock.as_ref().map(|limit| (limit.node.is_placeholder(), limit.value)) {
        Some((false, Limit::Max(limit))) => limit.get().as_secs(),
        Some(_) => return,
        None => WALL_CLOCK_SECONDS,
    };
    let shown = Duration::from_seconds(limit).map(|limit| limit.to_string()).unwrap_or_default();
    let mut report = |place: Node, whose: &str| {
        let message = format!("{whose} may take longer than the whole run, which ends after {shown}");
        let finding = Diagnostic::warning("timeout-beyond-limit", place.place(), message);
        findings.push(finding.help("shorten it, or raise `wall_clock` in `limits`"));
    };
    let checks = job.checks.iter().map(|check| (&check.timeout, "this check"));
    for (timeout, whose) in job.before.iter().map(|step| (&step.timeout, "this step")).chain(checks) {
        let timeout = timeout.as_ref().filter(|timeout| !timeout.node.is_placeholder());
        if let Some(timeout) = timeout.filter(|timeout| timeout.value.get().as_secs() > limit) {
            report(timeout.node.clone(), whose);
        }
    }
    for tool in job.agents().flat_map(|agent| agent.tools) {
        let ToolEntry::Options { name, options } = &tool.value else { continue };
        let Some(timeout) = options.get("timeout").filter(|_| starts_commands(&name.value)) else { continue };
        let duration = timeout.as_str().and_then(|text| Duration::parse(text).ok());
        if duration.is_some_and(|duration| duration.get().as_secs() > limit) {
            report(timeout, "a command");
        }
    }
}
