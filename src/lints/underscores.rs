//! Numbers with underscores are texts in YAML 1.2.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::yaml::Node;

use super::{Lint, Subject};

/// Texts that look like numbers of YAML 1.1. Where a number belongs they are errors already.
pub(super) struct Underscores;

const RULES: &[Rule] = &[rule!(Warning "number-with-underscores")];

impl Lint for Underscores {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
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
}

fn finding(node: &Node) -> Option<Diagnostic> {
    let text = node.as_str().filter(|text| text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')))?;
    let number = without_underscores(text)?;
    let place = node.place();
    // Whoever puts it in quotes means a text.
    (place.source.text.get(place.span.clone()) == Some(text)).then(|| {
        let message = format!("`{text}` is a text: a number of YAML 1.2 has no underscores");
        Diagnostic::warning("number-with-underscores", place, message)
            .help(format!("put into quotes what is meant: \"{number}\", or \"{text}\""))
    })
}

/// The number that is meant by `1_000` or `-1_000.5`.
pub(super) fn without_underscores(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = digits.len() <= 40
        && digits.contains('_')
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'.'))
        && digits.bytes().filter(|byte| *byte == b'.').count() <= 1;
    is_number.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_count() {
        for (text, number) in [("1_000", "1000"), ("-1_000.5", "-1000.5"), ("1__0", "10")] {
            assert_eq!(without_underscores(text).as_deref(), Some(number));
        }
        for text in ["1000", "_1", "1_", "1_a", "a_1", "1_0.0.0", "_", "", "-", "2026_01_"] {
            assert_eq!(without_underscores(text), None, "{text}");
        }
    }
}
