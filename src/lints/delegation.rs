//! Agents have enough turns to use their tools, and subagents that the parent can choose from.

use crate::diagnostic::{Diagnostic, rule};
use crate::job::SubagentWorkspace;
use crate::tools::may_change_files;
use crate::yaml::NodeKind;

use super::{Lint, LintContext};

/// Checks turns and subagents.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Warning "single-turn-with-tools"),
        rule!(Warning "empty-subagents"),
        rule!(Warning "no-description"),
        rule!(Warning "unused-own-workspace"),
    ],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    for agent in subject.job.agents().filter(|agent| !agent.tools.is_empty() || agent.returns.is_some()) {
        if let Some(turns) = agent.max_turns.filter(|turns| turns.value == 1 && !turns.node.is_placeholder()) {
            let (message, help) = match agent.returns {
                None => (
                    "with one turn, the agent never sees its tools' results",
                    "give it at least 2 turns, or `tools: []`",
                ),
                Some(_) => (
                    "submitting its data takes the agent's only turn, so it can't finish",
                    "give it at least 3 turns, one of them to fix data that doesn't fit",
                ),
            };
            findings.push(Diagnostic::warning("single-turn-with-tools", turns.place(), message).help(help));
        }
    }
    unused_own_workspaces(subject, findings);
    let written = subject.root.get("subagents");
    for (name, _) in subject.job.subagents.iter().filter(|(_, subagent)| subagent.description.is_none()) {
        let node = written.as_ref().and_then(|all| all.get(&name.value));
        // An unknown key may be meant as the description.
        let is_missing = node.is_some_and(|node| {
            let is_within = |found: &Diagnostic| found.code == "unknown-key" && found.span.overlaps(&node.place());
            let is_written = node.get("description").is_some();
            let is_whole = !node.is_incomplete() && !is_written;
            node.kind() == NodeKind::Mapping && is_whole && !subject.reported.iter().any(is_within)
        });
        if is_missing {
            let message = format!("the parent's model knows nothing about `{}` but its name", name.value);
            let finding = Diagnostic::warning("no-description", name.place(), message);
            findings.push(finding.help("add a `description` of the tasks to give to it"));
        }
    }
    let task = subject.job.parent.tools.value.iter().find(|tool| tool.value.name() == "task");
    let declared = written.filter(|all| all.kind() == NodeKind::Mapping);
    if let (Some(task), Some(declared)) = (task, declared)
        && declared.entries().next().is_none()
        && !declared.is_incomplete()
    {
        let message = "`task` can only use the built-in subagent, because `subagents` is empty";
        findings.push(
            Diagnostic::warning("empty-subagents", task.place(), message)
                .label(declared.place(), "no subagents here")
                .help("remove `task`; or remove `subagents`, if you mean the built-in `general`"),
        );
    }
}

/// Reports copies of the workspace in which nothing can change. An unknown tool may be one that writes.
fn unused_own_workspaces(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    for agent in subject.job.agents().filter(|_| subject.is_complete) {
        let setting = agent.workspace.filter(|workspace| workspace.value == SubagentWorkspace::Own);
        let is_unused = !agent.tools.iter().any(|tool| may_change_files(tool.value.name()));
        if let Some(setting) = setting.filter(|_| is_unused) {
            let message = "a copy of the workspace has no effect, because no tool of the subagent can change files";
            findings.push(
                Diagnostic::warning("unused-own-workspace", setting.place(), message)
                    .help("remove `workspace: own`, or give the subagent a tool that writes"),
            );
        }
    }
}
