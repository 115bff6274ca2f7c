//! Allowlists name existing tools, with valid options.

use std::collections::{HashMap, HashSet};

use crate::diagnostic::{Diagnostic, Severity, SourceSpan, rule, suggest, suggest_name};
use crate::job::{Agent, Job, ToolEntry};
use crate::tools::set_state::SetState;
use crate::tools::skill::SkillTool;
use crate::tools::submit_result::SubmitResult;
use crate::tools::{self, Builtin, TOOLS, starts_commands};
use crate::yaml::{Node, Spanned};

use super::foreign_names::help_for_tool;
use super::tool_aliases::{bash_entry, split_rule, tool_for_alias};
use super::{Lint, LintContext, MAX_FINDINGS, fix_place, join_names, listed_twice};

/// Checks the tools of all agents.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Error "unknown-tool"),
        rule!(Error "duplicate-tool"),
        rule!(Error "task-in-subagent"),
        rule!(Error "unknown-subagent"),
        rule!(Warning "unused-subagents"),
    ],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    for agent in subject.job.agents() {
        let mut earlier = HashMap::new();
        for entry in agent.tools {
            let name = entry.value.name();
            let place = name_place(entry);
            let Some(tool) = builtin(entry) else { continue };
            if let Some(first) = earlier.insert(name, entry) {
                findings.push(listed_twice(Severity::Error, "duplicate-tool", name, place, name_place(first)));
            } else if tool.parent_only && agent.name.is_some() {
                let finding = Diagnostic::error("task-in-subagent", place, format!("a subagent can't have `{name}`"));
                findings.push(finding.help("only the parent can delegate; remove it"));
            }
            let options = match &entry.value {
                ToolEntry::Name(_) | ToolEntry::Server(_) | ToolEntry::Outputs(_) => None,
                ToolEntry::Options { options, .. } => Some(options),
            };
            findings.extend((tool.parse_options)(options).findings);
        }
        report_unknown(subject.job, &agent, findings);
    }
    let granted = &subject.job.parent.tools;
    let are_known = granted.value.iter().all(is_known);
    let is_sure = !granted.node.is_placeholder() && !granted.node.is_incomplete() && are_known;
    if let Some(first) = subject.job.subagents.keys().next().filter(|_| is_sure && !subject.job.delegates()) {
        let finding = Diagnostic::warning("unused-subagents", first.place(), "no agent can use the subagents");
        findings.push(finding.help("add `task` to the parent's `tools`"));
    }
}

fn builtin(entry: &Spanned<ToolEntry>) -> Option<&'static Builtin> {
    tools::builtin(entry.value.name())
}

/// Whether an entry names a built-in tool, or is for a tool server or outputs.
fn is_known(entry: &Spanned<ToolEntry>) -> bool {
    builtin(entry).is_some() || matches!(entry.value, ToolEntry::Server(_) | ToolEntry::Outputs(_))
}

fn name_node(entry: &Spanned<ToolEntry>) -> &Node {
    match &entry.value {
        ToolEntry::Name(_) | ToolEntry::Server(_) | ToolEntry::Outputs(_) => &entry.node,
        ToolEntry::Options { name, .. } => &name.node,
    }
}

pub(super) fn name_place(entry: &Spanned<ToolEntry>) -> SourceSpan {
    name_node(entry).place()
}

/// How many rules of other entries a help message repeats.
const MAX_RULES: usize = 20;

/// The state of checking one list.
struct ToolList<'a> {
    job: &'a Job,
    is_parent: bool,
    /// The tools that are in the list, or that an earlier entry is an alias of.
    listed_tools: HashSet<&'static str>,
    /// The rules of all its `Bash(...)` entries.
    rules: Vec<&'a str>,
    has_reported_rules: bool,
}

/// Reports every entry of an agent's allowlist that isn't a tool.
fn report_unknown(job: &Job, agent: &Agent<'_>, findings: &mut Vec<Diagnostic>) {
    let mut unknown = agent.tools.iter().filter(|entry| !is_known(entry)).peekable();
    if unknown.peek().is_none() {
        return;
    }
    let bash_rules = agent.tools.iter().filter_map(|entry| match split_rule(entry.value.name()) {
        (name, Some(rule)) if tool_for_alias(name).is_some_and(|(tool, _)| starts_commands(tool)) => Some(rule),
        _ => None,
    });
    let mut list = ToolList {
        job,
        is_parent: agent.name.is_none(),
        listed_tools: agent.tools.iter().filter_map(builtin).map(|tool| tool.name).collect(),
        rules: bash_rules.collect(),
        has_reported_rules: false,
    };
    for (count, entry) in unknown.enumerate() {
        findings.push(match count < 2 * MAX_FINDINGS {
            true => list.finding(entry),
            // Further help isn't shown.
            false => unknown_tool(entry),
        });
    }
}

fn unknown_tool(entry: &Spanned<ToolEntry>) -> Diagnostic {
    let name = entry.value.name();
    Diagnostic::error("unknown-tool", name_place(entry), format!("there is no tool `{name}`"))
}

impl ToolList<'_> {
    fn finding(&mut self, entry: &Spanned<ToolEntry>) -> Diagnostic {
        let written = entry.value.name();
        let (name, rule) = split_rule(written);
        let subagents = || self.job.subagents.keys().map(|name| name.value.as_str());
        if name == SubmitResult::NAME {
            let asked = if self.is_parent { "`result`" } else { "`returns`" };
            return Diagnostic::error("unknown-tool", name_place(entry), format!("`{name}` can't be in `tools`"))
                .help(format!("it is added by {asked}; remove it"));
        }
        if name == SetState::NAME && rule.is_none() {
            let finding = Diagnostic::error("unknown-tool", name_place(entry), format!("`{name}` can't be in `tools`"));
            return finding.help(if self.is_parent {
                "it is added by `state`; remove it"
            } else {
                "only the parent has it; remove it"
            });
        }
        if name == SkillTool::NAME && rule.is_none() && !subagents().any(|subagent| subagent == name) {
            return Diagnostic::error("unknown-tool", name_place(entry), format!("`{name}` can't be in `tools`"))
                .help("it is added by `skills`; remove it");
        }
        if rule.is_none() && subagents().any(|subagent| subagent == name) {
            return self.subagent_as_tool(entry, name);
        }
        let known = || TOOLS.iter().map(|tool| tool.name);
        let near = || {
            let near = suggest(name, known()).map(|near| (near.name, near.is_certain));
            near.filter(|(_, is_certain)| *is_certain || help_for_tool(name).is_none())
        };
        match (tool_for_alias(name).or_else(near), rule) {
            (Some(("task", _)), Some(rule)) if !rule.is_empty() && rule != "*" => self.task_entry(entry, rule),
            (Some((tool, _)), Some(_)) if starts_commands(tool) => self.bash_rules_entry(entry, tool),
            (Some((tool, _)), Some(_)) => unknown_tool(entry)
                .help(format!("its name here is `{tool}`, and it takes no rules: write only the name")),
            (Some((tool, is_certain)), None) => self.tool(entry, tool, is_certain),
            (None, _) if matches!(written, "*" | "all") => {
                unknown_tool(entry).help(format!("name every tool: {}", join_names(known())))
            }
            (None, _) => unknown_tool(entry).help(match help_for_tool(name) {
                Some(help) => help,
                None => format!("expected one of {}", join_names(known())),
            }),
        }
    }

    /// An alias or a misspelling of a tool.
    fn tool(&mut self, entry: &Spanned<ToolEntry>, tool: &'static str, is_certain: bool) -> Diagnostic {
        let finding = unknown_tool(entry);
        if tool == "task" && !self.is_parent {
            finding.help("only the parent can delegate; remove it")
        } else if !self.listed_tools.insert(tool) {
            finding.help(format!("its name here is `{tool}`, which is in this list already; remove it"))
        } else {
            let finding = finding.help(format!("did you mean `{tool}`?"));
            if is_certain { finding.replace_at(fix_place(name_node(entry)), tool) } else { finding }
        }
    }

    /// The name of a subagent.
    fn subagent_as_tool(&mut self, entry: &Spanned<ToolEntry>, subagent: &str) -> Diagnostic {
        let finding = unknown_tool(entry);
        if !self.is_parent {
            return finding.help("it is a subagent, and only the parent can delegate; remove it");
        }
        let called = format!("`{subagent}` is a subagent, and the parent calls subagents with `task`");
        match self.listed_tools.insert("task") {
            // `task` would also give access to the other subagents.
            true if self.job.subagents.len() > 1 => finding.help(format!("{called}: write that")),
            true => finding.help(format!("{called}: write that")).replace_at(fix_place(name_node(entry)), "task"),
            false => finding.help(format!("{called}, which is in this list already; remove it")),
        }
    }

    /// `Task(name)`.
    fn task_entry(&mut self, entry: &Spanned<ToolEntry>, named: &str) -> Diagnostic {
        let is_general = |name: &str| name == "general" && self.job.subagents.is_empty();
        let is_declared = |name: &str| self.job.subagents.keys().any(|known| known.value == name) || is_general(name);
        let mut names = named.split(',').map(str::trim).filter(|name| !name.is_empty());
        if let Some(name) = names.find(|name| !is_declared(name)).filter(|_| self.is_parent) {
            let written = entry.value.name();
            let at = written.find('(').and_then(|open| written[open..].find(name).map(|at| open + at)).unwrap_or(0);
            let place = name_node(entry).place_of_range(at..at + name.len());
            let known = || self.job.subagents.keys().map(|known| known.value.as_str()).take(2 * MAX_FINDINGS);
            let finding = Diagnostic::error("unknown-subagent", place, format!("there is no subagent `{name}`"));
            return match suggest_name(name, known()) {
                Some(near) => finding.help(format!("did you mean `{near}`? The parent calls subagents with `task`")),
                None if self.job.subagents.is_empty() => {
                    finding.help("declare it under `subagents`, and write `task` here")
                }
                None => finding.help(format!(
                    "declared are {}; the parent calls subagents with `task`",
                    join_names(known().take(MAX_RULES))
                )),
            };
        }
        self.subagent_as_tool(entry, named)
    }

    /// `Bash(rule)`.
    fn bash_rules_entry(&mut self, entry: &Spanned<ToolEntry>, tool: &'static str) -> Diagnostic {
        let finding = unknown_tool(entry);
        let rules = &self.rules[..self.rules.len().min(MAX_RULES)];
        let several = self.rules.len() > 1;
        if std::mem::replace(&mut self.has_reported_rules, true) {
            return finding.help("its rule belongs in the single entry for `bash`");
        }
        let is_new = self.listed_tools.insert(tool);
        let Some(whole) = bash_entry(rules) else {
            let help = "allow commands like this: `bash: { allow: [\"git diff *\"] }`; `*` can only be the last word";
            return finding.help(help);
        };
        match (is_new, several, &entry.value) {
            (true, false, ToolEntry::Name(_)) => {
                let place = entry.place();
                let is_bare = !place.source.text[place.range.clone()].starts_with(['&', '*', '!', '|', '>']);
                // Empty brackets don't say what is allowed.
                let is_bare = is_bare && rules != [""];
                let finding = finding.help(format!("write it as `{whole}`"));
                if is_bare { finding.replace_at(place, whole) } else { finding }
            }
            (true, true, _) => finding.help(format!("write all of them as one entry: `{whole}`")),
            _ => finding.help(format!("write `bash` once, with all its rules: `{whole}`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::diagnostic::Source;
    use crate::lints::check;

    /// The text that each fix replaces, and its replacement.
    fn fixes(tools: &str) -> Vec<(String, String)> {
        let text = format!(
            "model: anthropic/x\nlimits: {{ tokens: 9 }}\nsubagents: {{ reader: {{ tools: [] }} }}\n\
             parent: {{ prompt: x, tools: {tools} }}\n"
        );
        let findings = check(&Source::new("job.yaml", text.as_str()), None).findings;
        assert!(!findings.is_empty());
        findings
            .into_iter()
            .filter_map(|it| it.fix)
            .map(|fix| (text[fix.span.range].to_owned(), fix.replacement))
            .collect()
    }

    fn one(there: &str, with: &str) -> Vec<(String, String)> {
        vec![(there.to_owned(), with.to_owned())]
    }

    #[test]
    fn a_fix_leaves_quotes_and_options_alone() {
        for written in [r#"["Read"]"#, "['Read']", "[Read]", r#"[{ "Read": null }]"#, "[&r Read]"] {
            assert_eq!(fixes(written), one("Read", "read_file"), "{written}");
        }
        assert_eq!(fixes("[{ Bash: { timeout: 2m } }]"), one("Bash", "bash"));
    }

    #[test]
    fn rules_replace_the_quotes_too() {
        let entry = "bash: { allow: [\"git diff *\"] }";
        assert_eq!(fixes("[Bash(git diff:*)]"), one("Bash(git diff:*)", entry));
        assert_eq!(fixes("['Bash(git diff:*)']"), one("'Bash(git diff:*)'", entry));
        assert_eq!(fixes("[Bash(*)]"), one("Bash(*)", "bash"));
    }

    #[test]
    fn fixes_are_valid() {
        let head = "model: replay/x.yaml\nsubagents: { reader: { description: x, tools: [] } }\nparent:\n  prompt: x\n  tools:";
        for tools in [
            "\n    - Bash(git diff:*)\n    - \"Task\"\n",
            " [ 'Bash(git log --format=\"%h %s\":*)', reader ]\n",
            " [Bash(cargo test), Task(reader), Read,Edit]\n",
        ] {
            let fixed = crate::lints::autofix::fix_job(
                &Source::new("job.yaml", format!("{head}{tools}")),
                None,
                &crate::lints::UserConfig::default(),
            );
            assert!(fixed.findings.is_empty(), "{}\n{:?}", fixed.text, fixed.findings);
        }
    }

    #[test]
    fn only_certain_guesses_are_fixes() {
        for written in [
            "[ls]",
            "[Agent]",
            "['Read(*)']",
            "[' Read']",
            "[nonsense]",
            "['Bash(git diff:*)', 'Bash(git log:*)']",
            "['Bash(git diff:*)', bash]",
            "['Bash(npm run test*)']",
        ] {
            assert_eq!(fixes(written), [], "{written}");
        }
    }

    #[test]
    fn no_tool_is_added_twice() {
        assert_eq!(fixes("[Edit, MultiEdit]"), one("Edit", "edit_file"));
        assert_eq!(fixes("[Read, read_file]"), []);
        assert_eq!(fixes("[reader, Task]"), one("reader", "task"));
        assert_eq!(fixes("[task, Task(reader)]"), []);
    }
}
