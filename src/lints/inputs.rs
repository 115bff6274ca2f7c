//! Declarations of inputs are consistent.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Severity, rule};
use crate::job::value::check_value;
use crate::job::{Input, InputType, with_article};
use crate::yaml::NodeKind;

use super::{Lint, LintContext, listed_twice};

/// Checks defaults, enums and secrets.
pub(super) const LINT: Lint =
    Lint { rules: &[rule!(Error "bad-default"), rule!(Error "bad-enum"), rule!(Error "bad-secret")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    for (name, input) in subject.job.inputs().filter(|(_, input)| !input.kind.node.is_placeholder()) {
        let enum_fits = check_enum(input, findings);
        if input.is_secret() {
            check_secret(&name.value, input, findings);
        } else if let Some(default) = input.default.as_ref().filter(|_| enum_fits)
            && let Err(why) = check_value(input, default.to_json(), None)
        {
            let finding = Diagnostic::error("bad-default", default.place(), format!("the default {why}"));
            let kind = input.kind.value;
            findings.push(match (kind, default.text(), default.without_underscores()) {
                (InputType::String | InputType::Path | InputType::Image, Some(text), _)
                    if default.as_str().is_none() =>
                {
                    finding.help(format!("put it in quotes: \"{text}\""))
                }
                (InputType::Integer | InputType::Number, _, Some(number)) => {
                    finding.help("numbers have no underscores").replace_with(number)
                }
                (InputType::Path | InputType::Image, ..) => {
                    finding.help("a path is relative to the workspace and stays below it")
                }
                (InputType::String, ..) if input.choices.is_some() => {
                    finding.help("use a value of the enum, or add this one to it")
                }
                (InputType::Boolean, ..) => finding.help("write `true` or `false`, or leave out the default"),
                _ => finding.help(format!("write {}, or leave out the default", with_article(kind.noun()))),
            });
        }
    }
}

/// Whether the enum, if there is one, is valid.
fn check_enum(input: &Input, findings: &mut Vec<Diagnostic>) -> bool {
    let Some(choices) = &input.choices else { return true };
    let mut refuse = |message: String, help| {
        findings.push(Diagnostic::error("bad-enum", choices.place(), message).help(help));
        false
    };
    if choices.value.is_empty() && (choices.node.kind() != NodeKind::List || choices.node.items().next().is_some()) {
        // Its values are wrong, which is reported.
        return false;
    }
    if choices.value.is_empty() {
        return refuse("an enum needs values".to_owned(), "add a value, or remove the enum");
    }
    let mut earlier = HashMap::new();
    if choices.value.iter().any(|choice| choice.node.is_placeholder()) {
        return false;
    }
    for choice in &choices.value {
        if let Some(first) = earlier.insert(&choice.value, choice) {
            findings.push(listed_twice(Severity::Error, "bad-enum", &choice.value, choice.place(), first.place()));
        }
    }
    true
}

fn check_secret(name: &str, input: &Input, findings: &mut Vec<Diagnostic>) {
    if input.kind.value != InputType::String {
        let message = format!("a secret is a string, not {}", with_article(input.kind.value.noun()));
        findings.push(Diagnostic::error("bad-secret", input.kind.place(), message).help("write `type: string`"));
    }
    let give = format!("set it when you start the job: `--set-env {name}=VARIABLE`");
    for node in input.default.iter().chain(input.choices.iter().map(|choices| &choices.node)) {
        // It may be the secret itself: report its key, and never show it.
        let place = node.own_key().map_or_else(|| node.place(), |key| key.place());
        findings.push(Diagnostic::error("bad-secret", place, "a secret doesn't belong in a job file").help(&*give));
    }
}
