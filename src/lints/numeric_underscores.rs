//! Numbers with underscores are strings in YAML 1.2.

use crate::diagnostic::{Diagnostic, rule};
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Checks for strings that are numbers in YAML 1.1. Where a number is expected, they are errors anyway.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "number-with-underscores")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let root = subject.root;
    let mut look = |node: Option<Node>| findings.extend(node.and_then(|node| finding(&node)));
    look(root.get("description"));
    let parent = root.get("parent");
    for key in ["prompt", "system"] {
        look(parent.as_ref().and_then(|parent| parent.get(key)));
    }
    for (_, input) in root.get("inputs").iter().flat_map(Node::entries) {
        look(input.get("description"));
        input.get("enum").iter().flat_map(Node::items).for_each(|choice| look(Some(choice)));
        let Some(default) = input.get("default") else { continue };
        match input.get("type").as_ref().and_then(Node::as_str) {
            Some("string" | "path") => look(Some(default)),
            Some("list") => default.items().for_each(|item| look(Some(item))),
            _ => {}
        }
    }
    for (_, subagent) in root.get("subagents").iter().flat_map(Node::entries) {
        for key in ["description", "system"] {
            look(subagent.get(key));
        }
    }
}

fn finding(node: &Node) -> Option<Diagnostic> {
    // In quotes, it is meant as a string.
    let number = node.without_underscores()?;
    let text = node.as_str()?;
    let message = format!("`{text}` is a string: numbers have no underscores in YAML 1.2");
    let finding = Diagnostic::warning("number-with-underscores", node.place(), message);
    Some(finding.help(format!("write \"{number}\" or \"{text}\", in quotes")))
}
