//! Checks the declarations of checks: their names, commands and conditions, and the number of repairs.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, rule};
use crate::job::{Job, MAX_CHECKS, MAX_REPAIRS, input_variable, input_variables};
use crate::yaml::Spanned;

use super::{Lint, LintContext};

/// Checks and repairs.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Error "empty-check"),
        rule!(Error "duplicate-check"),
        rule!(Error "bad-condition"),
        rule!(Warning "repairs-without-checks"),
    ],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let mut earlier: HashMap<&str, &Spanned<String>> = HashMap::new();
    for check in &job.checks {
        let texts = [
            ("name", Some(&check.name), "write in a few words what it checks"),
            ("run", Some(&check.run), "write the command that must pass"),
            ("when", check.when.as_ref(), "remove the key if the check always runs"),
        ];
        for (key, text, help) in texts {
            if let Some(text) = text.filter(|text| text.value.trim().is_empty() && !text.node.is_placeholder()) {
                let message = format!("the check's `{key}` is empty");
                findings.push(Diagnostic::error("empty-check", text.place(), message).help(help));
            }
        }
        if !subject.prompts.variables.inputs_incomplete {
            check_variables(job, &check.run, findings);
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
                    .help("give each check its own name: the result identifies it by that"),
            );
        }
    }
    if let (Some(beyond), Some(checks)) = (job.checks.get(MAX_CHECKS), subject.root.get("checks")) {
        let place = if beyond.name.node.is_placeholder() { checks.place() } else { beyond.name.place() };
        let message = format!("there are {} checks, and a job can have {MAX_CHECKS}", job.checks.len());
        let help = "combine several commands in one check";
        findings.push(Diagnostic::error("out-of-range", place, message).help(help));
    }
    let Some(repairs) = job.repairs.as_ref().filter(|repairs| !repairs.node.is_placeholder()) else { return };
    if repairs.value > MAX_REPAIRS {
        let message = format!("`repairs` must be from 0 to {MAX_REPAIRS}");
        let help = format!("write a number from 0 to {MAX_REPAIRS}, or remove the key for no repairs");
        findings.push(Diagnostic::error("out-of-range", repairs.place(), message).help(help));
    } else if repairs.value > 0 && job.checks.is_empty() && subject.is_complete {
        findings.push(
            Diagnostic::warning("repairs-without-checks", repairs.place(), "`repairs` has no effect without checks")
                .help("add `checks`, or remove `repairs`"),
        );
    }
}

/// Reports variables such as `$INPUT_TOPIC` that no input sets, the environment doesn't have and the command doesn't set.
pub(super) fn check_variables(job: &Job, run: &Spanned<String>, findings: &mut Vec<Diagnostic>) {
    let mentions = input_variables(&run.value);
    let declared: Vec<String> = job.inputs().map(|(name, _)| input_variable(&name.value)).collect();
    for mention in mentions.iter().filter(|mention| mention.is_needed) {
        let name = &run.value[mention.range.clone()];
        let is_set = mentions.iter().any(|other| !other.is_needed && run.value[other.range.clone()] == *name);
        if is_set || declared.iter().any(|known| known == name) || job.env.iter().any(|known| known.value == name) {
            continue;
        }
        let place = run.node.place_of_range(mention.range.clone());
        let finding = Diagnostic::error("undefined-variable", place, format!("no input sets the variable `{name}`"));
        let known = declared.iter().map(String::as_str);
        findings.push(finding.suggest(name, known, "declare the input, or list the variable in `env`"));
    }
}

/// The value of a rendered condition. Templates print `True`, people write `true`.
pub fn parse_condition(rendered: &str) -> Option<bool> {
    match rendered.trim() {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => None,
    }
}

/// What is wrong with a condition that rendered to something else.
pub fn condition_mistake(key: &str, rendered: &str) -> String {
    let shown: String = rendered.trim().chars().take(60).collect();
    match shown.is_empty() {
        true => format!("`{key}` must render to `true` or `false`, and is empty"),
        false => format!("`{key}` must render to `true` or `false`, not `{}`", shown.replace('\n', " ")),
    }
}

/// The finding for a condition that rendered to something else.
pub fn ambiguous_condition(condition: &Spanned<String>, key: &str, rendered: &str) -> Diagnostic {
    Diagnostic::error("bad-condition", condition.place(), condition_mistake(key, rendered))
        .help("compare the value with something, as in `{{ inputs.style == 'numpy' }}`")
}
