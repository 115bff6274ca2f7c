//! Allowlists name tools that there are, with options that these know.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Place, Rule, nearest, rule};
use crate::job::ToolEntry;
use crate::tools::TOOLS;
use crate::yaml::Spanned;

use super::{Lint, Subject, listed};

/// The tools of all agents.
pub(super) struct Tools;

/// What other programs call a tool, and what it is called here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("agent", "task"),
    ("cat", "read_file"),
    ("create_file", "write_file"),
    ("edit", "edit_file"),
    ("execute", "bash"),
    ("find", "glob"),
    ("ls", "glob"),
    ("list_files", "glob"),
    ("multiedit", "edit_file"),
    ("notebookedit", "edit_file"),
    ("read", "read_file"),
    ("rg", "grep"),
    ("run_command", "bash"),
    ("search", "grep"),
    ("shell", "bash"),
    ("str_replace", "edit_file"),
    ("str_replace_based_edit_tool", "edit_file"),
    ("subagent", "task"),
    ("terminal", "bash"),
    ("todo_write", "todo"),
    ("todowrite", "todo"),
    ("view", "read_file"),
    ("write", "write_file"),
];

const RULES: &[Rule] = &[
    rule!(Error "unknown-tool"),
    rule!(Error "duplicate-tool"),
    rule!(Error "task-in-subagent"),
    rule!(Warning "unused-subagents"),
];

impl Lint for Tools {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        for agent in subject.job.agents() {
            let mut earlier = HashMap::new();
            for entry in agent.tools {
                let name = entry.value.name();
                let place = name_place(entry);
                let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
                    findings.push(unknown(name, place));
                    continue;
                };
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
                findings.extend((tool.options)(options).findings);
            }
        }
        let own = &subject.job.parent.tools;
        let is_known = |entry: &Spanned<ToolEntry>| TOOLS.iter().any(|tool| tool.name == entry.value.name());
        let is_sure = !own.node.is_made_up() && own.value.iter().all(is_known);
        if let Some(first) = subject.job.subagents.keys().next().filter(|_| is_sure && !subject.job.delegates()) {
            findings.push(
                Diagnostic::warning("unused-subagents", first.place(), "no agent can hand work to the subagents")
                    .help("put `task` into the parent's `tools`"),
            );
        }
    }
}

fn name_place(entry: &Spanned<ToolEntry>) -> Place {
    match &entry.value {
        ToolEntry::Name(_) => entry.place(),
        ToolEntry::Options { name, .. } => name.place(),
    }
}

fn unknown(written: &str, place: Place) -> Diagnostic {
    let finding = Diagnostic::error("unknown-tool", place, format!("there is no tool `{written}`"));
    let name = written.split('(').next().unwrap_or(written).trim();
    let lower = name.to_lowercase();
    let known = || TOOLS.iter().map(|tool| tool.name);
    let meant = ELSEWHERE
        .iter()
        .find(|(elsewhere, _)| *elsewhere == lower)
        .map(|(_, here)| *here)
        .or_else(|| known().find(|known| *known == lower))
        .or_else(|| nearest(name, known()));
    let rule = written.split_once('(').map(|(_, rule)| rule.trim_end_matches(')').trim());
    match (meant, rule) {
        (Some("bash"), Some(rule)) if !rule.is_empty() => {
            let rule = rule.replace(":*", " *");
            finding.help(format!("commands are allowed like this: `bash: {{ allow: [\"{rule}\"] }}`"))
        }
        (Some(meant), Some(_)) => finding.help(format!("it is called `{meant}` here, and takes no rules")),
        (Some(meant), None) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
        (None, _) if matches!(written, "*" | "all") => {
            finding.help(format!("every tool is named: {}", listed(known())))
        }
        (None, _) if lower.starts_with("web") => {
            finding.help("no tool reaches the web; with `network: open`, `bash` can run `curl`")
        }
        (None, _) => finding.help(format!("there are {}", listed(known()))),
    }
}
