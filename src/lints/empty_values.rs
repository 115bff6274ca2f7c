//! Keys, prompts and descriptions that are written aren't empty.

use crate::diagnostic::{Diagnostic, rule};
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Checks for keys without a value (`cost_usd:` looks like a limit but isn't one), and for empty texts.
pub(super) const LINT: Lint =
    Lint { rules: &[rule!(Error "empty-value"), rule!(Error "empty-prompt"), rule!(Error "empty-description")], check };

/// The keys with lists of mappings. In lists of a schema, nulls are data.
const LISTS_OF_MAPPINGS: [&str; 5] = ["before", "checks", "context", "fallback", "skills"];

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let mut found = Vec::new();
    empty_keys(subject.root, &mut found);
    let is_unknown = |finding: &Diagnostic| {
        let is_key = |other: &&Diagnostic| other.code == "unknown-key" && finding.span.is_within(&other.span);
        subject.reported.iter().any(|other| is_key(&other))
    };
    findings.extend(found.into_iter().filter(|finding| !is_unknown(finding)));
    empty_texts(subject, findings);
}

fn empty_keys(mapping: &Node, findings: &mut Vec<Diagnostic>) {
    for (key, value) in mapping.entries() {
        let name = key.text().unwrap_or_default();
        // Without a space after the colon, the value is part of the key, which is reported as unknown.
        if value.is_null() && name.contains(':') {
            continue;
        }
        if value.is_null() {
            let finding = Diagnostic::error("empty-value", value.place(), format!("`{name}` has no value"));
            findings.push(finding.help("give it one, or leave the key out"));
        } else if name == "tools" {
            // A tool's name without a value is the tool without options.
            let options =
                value.items().flat_map(|entry| entry.entries().map(|(_, options)| options).collect::<Vec<_>>());
            options.for_each(|options| empty_keys(&options, findings));
        } else if name == "initial" && mapping.path() == ["state"] {
            // It is data, in which a null is a value.
        } else {
            empty_keys(&value, findings);
            if LISTS_OF_MAPPINGS.contains(&name) {
                value.items().for_each(|entry| empty_keys(&entry, findings));
            }
        }
    }
}

fn empty_texts(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let prompts = subject.prompts;
    let prompt = &subject.job.parent.prompt;
    let is_blank = prompts.prompt.as_ref().is_some_and(|prompt| prompts.templates.is_blank(prompt));
    // Its text may be lost in a syntax error, or be an unknown key because it isn't indented.
    let is_text =
        |found: &Diagnostic| found.code == "unknown-key" && found.span.range.start >= prompt.place().range.end;
    let is_lost = prompt.node.is_block()
        && (subject.root.get("parent").is_some_and(|parent| parent.is_incomplete())
            || subject.reported.iter().any(is_text));
    if is_blank && !prompt.node.is_placeholder() && !is_lost {
        let finding = Diagnostic::error("empty-prompt", prompt.place(), "the prompt is empty");
        findings.push(finding.help("write what the job should do"));
    }
    for description in subject.job.subagents.values().filter_map(|subagent| subagent.description.as_ref()) {
        if description.value.trim().is_empty() && !description.node.is_placeholder() {
            findings
                .push(Diagnostic::error("empty-description", description.place(), "the description is empty").help(
                    "write which tasks to give to this subagent: the parent's model knows nothing else about it",
                ));
        }
    }
}
