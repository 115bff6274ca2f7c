//! Turns and subagents are enough for what the tools are there for.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::yaml::NodeKind;

use super::key_aliases::is_alias_of;
use super::{Lint, LintContext};

/// Agents whose tools can't do what they are there for.
pub(super) struct Delegation;

const RULES: &[Rule] =
    &[rule!(Warning "single-turn-with-tools"), rule!(Warning "empty-subagents"), rule!(Warning "no-description")];

impl Lint for Delegation {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        for agent in subject.job.agents().filter(|agent| !agent.tools.is_empty() || agent.returns.is_some()) {
            if let Some(turns) = agent.max_turns.filter(|turns| turns.value == 1 && !turns.node.is_placeholder()) {
                let (message, help) = match agent.returns {
                    None => (
                        "after its one turn the agent never sees what its tools answer",
                        "give it at least 2 turns, or `tools: []`",
                    ),
                    Some(_) => (
                        "submitting its data takes the agent's one turn, so that it can't come to its end",
                        "give it at least 3 turns: one more to mend what doesn't fit",
                    ),
                };
                findings.push(Diagnostic::warning("single-turn-with-tools", turns.place(), message).help(help));
            }
        }
        let written = subject.root.get("subagents");
        for (name, subagent) in &subject.job.subagents {
            let node = written.as_ref().and_then(|all| all.get(&name.value));
            // A key that is written wrongly may have been meant to be one.
            let is_whole = node.as_ref().is_some_and(|node| {
                node.kind() == NodeKind::Mapping
                    && !node.is_incomplete()
                    && !node.entries().any(|(key, _)| is_alias_of(key.text().unwrap_or_default(), "description"))
            });
            let is_misspelt = || {
                let is_here = |found: &Diagnostic| {
                    found.code == "unknown-key"
                        && node.as_ref().is_some_and(|node| super::overlap(&found.span, &node.place()))
                };
                subject.reported.iter().any(is_here)
            };
            if subagent.description.is_none() && is_whole && !is_misspelt() {
                let message = format!("the parent's model is told nothing about `{}` but its name", name.value);
                findings.push(
                    Diagnostic::warning("no-description", name.place(), message)
                        .help("say in a `description` what to hand to it"),
                );
            }
        }
        let task = subject.job.parent.tools.value.iter().find(|tool| tool.value.name() == "task");
        let declared = subject.root.get("subagents").filter(|all| all.kind() == NodeKind::Mapping);
        if let (Some(task), Some(declared)) = (task, declared)
            && declared.entries().next().is_none()
            && !declared.is_incomplete()
        {
            let message = "`task` has no subagent to hand work to but one that the job doesn't declare";
            findings.push(
                Diagnostic::warning("empty-subagents", task.place(), message)
                    .label(declared.place(), "declares none")
                    .help("remove `task`; or remove the empty `subagents`, if the built-in `general` is meant"),
            );
        }
    }
}
