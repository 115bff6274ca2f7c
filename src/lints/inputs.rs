//! Declarations of inputs are consistent.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, rule};
use crate::job::value::{check_value, with_article};
use crate::job::{Input, InputType};

use super::{Lint, LintContext};

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
            findings.push(match (input.kind.value, default.text()) {
                (InputType::String | InputType::Path, Some(text)) if default.as_str().is_none() => {
                    finding.help(format!("put it in quotes: \"{text}\""))
                }
                (InputType::Integer | InputType::Number, _) if default.without_underscores().is_some() => {
                    let number = default.without_underscores().unwrap_or_default();
                    finding.help("numbers have no underscores").replace_with(number)
                }
                (InputType::Path, _) => finding.help("a path is relative to the workspace and stays below it"),
                (InputType::String, _) if input.choices.is_some() => {
                    finding.help("use a value of the enum, or add this one to it")
                }
                (kind, _) => finding.help(format!("write {}, or leave out the default", with_article(kind.noun()))),
            });
        }
    }
}

/// Whether the enum, if there is one, is valid.
fn check_enum(input: &Input, findings: &mut Vec<Diagnostic>) -> bool {
    let Some(choices) = &input.choices else { return true };
    if input.kind.value != InputType::String {
        let message = format!("only a string can have an enum, not {}", with_article(input.kind.value.noun()));
        findings.push(
            Diagnostic::error("bad-enum", choices.place(), message).help("remove the enum, or write `type: string`"),
        );
        return false;
    }
    if choices.value.is_empty() {
        findings.push(
            Diagnostic::error("bad-enum", choices.place(), "an enum needs values")
                .help("add a value, or remove the enum"),
        );
        return false;
    }
    let mut earlier = HashMap::new();
    for choice in &choices.value {
        if let Some(first) = earlier.insert(&choice.value, choice) {
            findings.push(
                Diagnostic::error("bad-enum", choice.place(), format!("`{}` is listed twice", choice.value))
                    .label(first.place(), "first here")
                    .help("remove one of the two"),
            );
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
    if let Some(default) = &input.default {
        // The default may be the secret itself: report its key, and never show it.
        let place = default.own_key().map_or_else(|| default.place(), |key| key.place());
        findings.push(Diagnostic::error("bad-secret", place, "a secret doesn't belong in a job file").help(&*give));
    }
    if let Some(choices) = &input.choices {
        let place = choices.node.own_key().map_or_else(|| choices.place(), |key| key.place());
        findings.push(Diagnostic::error("bad-secret", place, "a secret doesn't belong in a job file").help(give));
    }
}
