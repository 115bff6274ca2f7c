//! Texts that are no templates have no tags.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::template::first_tag;
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Tags in texts that nothing renders.
pub(super) struct NotTemplates;

const RULES: &[Rule] = &[rule!(Error "not-a-template")];

impl Lint for NotTemplates {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        walk(subject, subject.root, "this text", findings);
    }
}

/// Looks at a value and all that is in it; `of` says what it is.
fn walk(subject: &LintContext<'_>, node: &Node, of: &str, findings: &mut Vec<Diagnostic>) {
    for item in node.items() {
        walk(subject, &item, of, findings);
    }
    for (key, value) in node.entries() {
        // A misplaced or misspelt key is reported already; its text may be a template once that is right.
        let is_unknown = |found: &Diagnostic| {
            let place = key.place();
            Arc::ptr_eq(&found.span.source, &place.source) && found.span.range == place.range
        };
        if subject.reported.iter().any(is_unknown) {
            continue;
        }
        let of = key.text().map_or_else(|| of.to_owned(), |key| format!("`{key}`"));
        walk(subject, &value, &of, findings);
    }
    let Some(text) = node.as_str().filter(|_| !node.is_placeholder()) else { return };
    if let Some(range) = first_tag(text)
        && !subject.prompts.templates.contains_place(&node.place())
    {
        // Whatever else is wrong with the text, the tag is why.
        let whole = node.place();
        findings.retain(|finding| {
            let is_within = whole.range.start <= finding.span.range.start && finding.span.range.end <= whole.range.end;
            !(is_within && Arc::ptr_eq(&whole.source, &finding.span.source))
        });
        findings.push(
            Diagnostic::error(
                "not-a-template",
                node.place_of_range(range),
                format!("{of} isn't a template: this tag stays as it is"),
            )
            .help("write the text without tags; prompts, and `run` and `when` of a check, can have them"),
        );
    }
}
