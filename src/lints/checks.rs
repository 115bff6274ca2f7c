//! What must hold after the last answer can be told apart, and says something.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::job::{MAX_CHECKS, MAX_REPAIRS};
use crate::yaml::Spanned;

use super::{Lint, LintContext};

/// The job's own checks, and repairs.
pub(super) struct Checks;

const RULES: &[Rule] = &[
    rule!(Error "empty-check"),
    rule!(Error "duplicate-check"),
    rule!(Error "bad-condition"),
    rule!(Warning "repairs-without-checks"),
];

impl Lint for Checks {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        let mut earlier: HashMap<&str, &Spanned<String>> = HashMap::new();
        for check in &job.checks {
            let texts = [
                ("name", Some(&check.name), "say in a few words what it looks at"),
                ("run", Some(&check.run), "write the command that must pass"),
                ("when", check.when.as_ref(), "leave the key out for a check that is always run"),
            ];
            for (key, text, help) in texts {
                if let Some(text) = text.filter(|text| text.value.trim().is_empty() && !text.node.is_placeholder()) {
                    let message = format!("the check's `{key}` is empty");
                    findings.push(Diagnostic::error("empty-check", text.place(), message).help(help));
                }
            }
            let name = &check.name;
            if name.value.trim().is_empty() || name.node.is_placeholder() {
                continue;
            }
            if let Some(first) = earlier.insert(name.value.trim(), name) {
                let message = format!("two checks have the name `{}`", name.value.trim());
                findings.push(
                    Diagnostic::error("duplicate-check", name.place(), message)
                        .label(first.place(), "first here")
                        .help("give each its own: the result tells them apart by it"),
                );
            }
        }
        if let (Some(beyond), Some(checks)) = (job.checks.get(MAX_CHECKS), subject.root.get("checks")) {
            let place = if beyond.name.node.is_placeholder() { checks.place() } else { beyond.name.place() };
            let message = format!("there are {} checks, and a job can have {MAX_CHECKS}", job.checks.len());
            let help = "let one command do what several do, one after the other";
            findings.push(Diagnostic::error("out-of-range", place, message).help(help));
        }
        let Some(repairs) = job.repairs.as_ref().filter(|repairs| !repairs.node.is_placeholder()) else { return };
        if repairs.value > MAX_REPAIRS {
            let message = format!("`repairs` must be from 0 to {MAX_REPAIRS}");
            let help = format!("write a number from 0 to {MAX_REPAIRS}, or leave the key out for none");
            findings.push(Diagnostic::error("out-of-range", repairs.place(), message).help(help));
        } else if repairs.value > 0 && job.checks.is_empty() && subject.is_complete {
            findings.push(
                Diagnostic::warning("repairs-without-checks", repairs.place(), "there are no checks to repair for")
                    .help("say under `checks` what must pass, or remove `repairs`"),
            );
        }
    }
}

/// What a condition has come to, as its tags print it or as a person writes it.
pub fn parse_condition(rendered: &str) -> Option<bool> {
    match rendered.trim() {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => None,
    }
}

/// What to say of a condition that is neither.
pub fn ambiguous_condition(when: &Spanned<String>, rendered: &str) -> Diagnostic {
    let shown: String = rendered.trim().chars().take(60).collect();
    let message = match shown.is_empty() {
        true => "`when` must come to `true` or `false`, and is empty".to_owned(),
        false => format!("`when` must come to `true` or `false`, not `{}`", shown.replace('\n', " ")),
    };
    Diagnostic::error("bad-condition", when.place(), message)
        .help("compare the value with something, as in `{{ inputs.style == 'numpy' }}`")
}
