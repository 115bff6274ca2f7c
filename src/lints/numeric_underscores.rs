//! Numbers with underscores are strings in YAML 1.2.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Checks for strings that are numbers in YAML 1.1. Where a number is expected, they are errors anyway.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "number-with-underscores")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let mut found = Vec::new();
    check_node(subject.root, &mut found);
    let is_wrong =
        |place: &SourceSpan| subject.reported.iter().chain(&*findings).any(|error| error.span.is_within(place));
    found.retain(|finding| !is_wrong(&finding.span));
    findings.extend(found);
}

fn check_node(node: &Node, found: &mut Vec<Diagnostic>) {
    node.items().for_each(|item| check_node(&item, found));
    node.entries().for_each(|(_, value)| check_node(&value, found));
    // In quotes, it is meant as a string.
    if let (Some(number), Some(text)) = (node.without_underscores(), node.as_str()) {
        let message = format!("`{text}` is a string: numbers have no underscores in YAML 1.2");
        let finding = Diagnostic::warning("number-with-underscores", node.place(), message);
        found.push(finding.help(format!("write \"{number}\" or \"{text}\", in quotes")));
    }
}
