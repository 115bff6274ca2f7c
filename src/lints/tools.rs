//! Allowlists name tools that there are, with options that these know.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Rule, SourceSpan, rule};
use crate::job::ToolEntry;
use crate::tools::TOOLS;
use crate::yaml::{Node, Spanned};

use super::{Lint, LintContext, unknown_tools};

/// The tools of all agents.
pub(super) struct Tools;

const RULES: &[Rule] = &[
    rule!(Error "unknown-tool"),
    rule!(Error "duplicate-tool"),
    rule!(Error "task-in-subagent"),
    rule!(Error "unknown-subagent"),
    rule!(Warning "unused-subagents"),
];

impl Lint for Tools {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        for agent in subject.job.agents() {
            let mut earlier = HashMap::new();
            for entry in agent.tools {
                let name = entry.value.name();
                let place = name_place(entry);
                let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else { continue };
                if let Some(first) = earlier.insert(name, entry) {
                    findings.push(
                        Diagnostic::error("duplicate-tool", place, format!("`{name}` stands in this list twice"))
                            .label(name_place(first), "first here")
                            .help("remove one of the two"),
                    );
                } else if tool.parent_only && agent.name.is_some() {
                    findings.push(
                        Diagnostic::error("task-in-subagent", place, format!("a subagent can't have `{name}`"))
                            .help("only the parent delegates; remove it"),
                    );
                }
                let options = match &entry.value {
                    ToolEntry::Name(_) => None,
                    ToolEntry::Options { options, .. } => Some(options),
                };
                findings.extend((tool.parse_options)(options).findings);
            }
            unknown_tools::check(subject.job, &agent, findings);
        }
        let own = &subject.job.parent.tools;
        let is_known = |entry: &Spanned<ToolEntry>| TOOLS.iter().any(|tool| tool.name == entry.value.name());
        let is_sure = !own.node.is_placeholder() && !own.node.is_incomplete() && own.value.iter().all(is_known);
        if let Some(first) = subject.job.subagents.keys().next().filter(|_| is_sure && !subject.job.delegates()) {
            findings.push(
                Diagnostic::warning("unused-subagents", first.place(), "no agent can hand work to the subagents")
                    .help("put `task` into the parent's `tools`"),
            );
        }
    }
}

pub(super) fn name_node(entry: &Spanned<ToolEntry>) -> &Node {
    match &entry.value {
        ToolEntry::Name(_) => &entry.node,
        ToolEntry::Options { name, .. } => &name.node,
    }
}

pub(super) fn name_place(entry: &Spanned<ToolEntry>) -> SourceSpan {
    name_node(entry).place()
}
