//! The tools that a skill names are those of the agents that have it.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, rule};

use super::tool_aliases::{split_rule, tool_for_alias};
use super::{Lint, LintContext, join_names};

/// Checks the `allowed-tools` of skills.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "missing-skill-tool")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let mut reported = HashSet::new();
    for agent in job.agents() {
        for entry in job.skills_of(&agent) {
            let label = entry.value.label();
            let Some(skill) = subject.files.skills.get(&label) else { continue };
            let has = |tool: &str| agent.tools.iter().any(|entry| entry.value.name() == tool);
            // Tools that don't exist here can't be given to the agent.
            let named = skill.allowed_tools.iter().filter_map(|named| tool_for_alias(split_rule(named).0));
            let mut missing: Vec<&str> = named.map(|(tool, _)| tool).filter(|tool| !has(tool)).collect();
            missing.sort_unstable();
            missing.dedup();
            if missing.is_empty() || !reported.insert(label) {
                continue;
            }
            let whose = agent.name.map_or_else(|| "the parent".to_owned(), |name| format!("`{}`", name.value));
            let tools = join_names(missing);
            let message = format!("the skill `{}` uses {tools}, and {whose} doesn't have that", skill.name);
            let help = "a skill never adds tools: add them to the agent's `tools`, or give the skill to another agent";
            findings.push(Diagnostic::warning("missing-skill-tool", entry.place(), message).help(help));
        }
    }
}
