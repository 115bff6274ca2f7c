//! A key that is there has a value.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Keys with nothing behind them: `cost_usd:` looks like a limit and would be none.
pub(super) struct EmptyValues;

const RULES: &[Rule] = &[rule!(Error "empty-value")];

impl Lint for EmptyValues {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        walk(subject.root, findings);
    }
}

fn walk(mapping: &Node, findings: &mut Vec<Diagnostic>) {
    for (key, value) in mapping.entries() {
        let name = key.text().unwrap_or_default();
        // A value may stick to a colon without a space, and be part of the key: that is said of the key.
        if value.is_null() && name.contains(':') {
            continue;
        }
        if value.is_null() {
            findings.push(
                Diagnostic::error("empty-value", value.place(), format!("`{name}` has no value"))
                    .help("give it one, or leave the key out"),
            );
        } else if name == "tools" {
            // A tool's name with nothing behind it is the tool without options.
            let options =
                value.items().flat_map(|entry| entry.entries().map(|(_, options)| options).collect::<Vec<_>>());
            options.for_each(|options| walk(&options, findings));
        } else {
            walk(&value, findings);
        }
    }
}
