//! Names are valid in paths, ids and templates.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, rule};
use crate::job::{INPUT_NAME_FORM, Job, NAME_FORM, is_input_name, is_name};
use crate::yaml::Spanned;

use super::valid_job::name_of;
use super::{Lint, LintContext};

/// Checks the names of the job, its subagents and its inputs.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "bad-name"), rule!(Error "confusable-names")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    if let Some(name) = job.name.as_ref().filter(|name| !is_name(&name.value)) {
        findings.push(bad_name(name, NAME_FORM, &suggestion(&name.value, '-', is_name)));
    }
    if name_of(job, subject.source).is_none() {
        let place = crate::diagnostic::SourceSpan { source: subject.source.clone(), range: 0..0 };
        let finding = Diagnostic::error("bad-name", place, "no name can be made from the file's name");
        findings.push(finding.help("name the job: `name: my-job`"));
    }
    let subagents = NameGroup { kind: "subagents", form: NAME_FORM, separator: '-', is_valid: is_name };
    subagents.check(job.subagents.keys().collect(), findings);
    let inputs = NameGroup { kind: "inputs", form: INPUT_NAME_FORM, separator: '_', is_valid: is_input_name };
    inputs.check(job.inputs().map(|(name, _)| name).collect(), findings);
    check_secret_variables(job, findings);
}

/// Names of one kind, which must differ.
struct NameGroup {
    kind: &'static str,
    form: &'static str,
    separator: char,
    is_valid: fn(&str) -> bool,
}

impl NameGroup {
    fn check(&self, names: Vec<&Spanned<String>>, findings: &mut Vec<Diagnostic>) {
        if names.iter().all(|name| (self.is_valid)(&name.value)) {
            return;
        }
        // Valid names are in lower case, and can't differ only in case.
        let mut alike: HashMap<String, Vec<&Spanned<String>>> = HashMap::new();
        for name in &names {
            alike.entry(name.value.to_lowercase()).or_default().push(name);
        }
        for name in names {
            let folded = name.value.to_lowercase();
            let group = &alike[&folded];
            let first = group[0];
            if first.value != name.value {
                let message = format!("two {} differ only in case", self.kind);
                findings.push(
                    Diagnostic::error("confusable-names", name.place(), message)
                        .label(first.place(), "the other")
                        .help("rename one of them, to avoid confusion"),
                );
                continue;
            }
            // Renaming one of two also fixes the case of the other.
            let is_fixed_with_other = group.len() > 1 && (self.is_valid)(&folded);
            if !is_fixed_with_other && !(self.is_valid)(&name.value) {
                findings.push(bad_name(name, self.form, &suggestion(&name.value, self.separator, self.is_valid)));
            }
        }
    }
}

/// A secret input has a variable of its own for commands.
fn check_secret_variables(job: &Job, findings: &mut Vec<Diagnostic>) {
    if job.env.is_empty() {
        return;
    }
    let secret = job.inputs().filter(|(_, input)| input.is_secret());
    let given: HashMap<String, _> =
        secret.map(|(name, _)| (format!("INPUT_{}", name.value.to_uppercase()), name)).collect();
    for name in &job.env {
        if let Some(input) = given.get(&name.value) {
            let message = format!("`{}` is the variable of the secret input `{}`", name.value, input.value);
            findings.push(
                Diagnostic::error("confusable-names", name.place(), message)
                    .label(input.place(), "the input")
                    .help("remove it from `env`: commands can see the input anyway; or rename the input"),
            );
        }
    }
}

fn bad_name(name: &Spanned<String>, form: &str, suggestion: &str) -> Diagnostic {
    let finding = Diagnostic::error("bad-name", name.place(), format!("`{}` isn't a valid name", name.value));
    match suggestion {
        "" => finding.help(form),
        suggestion => finding.help(format!("{form}: `{suggestion}`")),
    }
}

/// The nearest valid name, or an empty string.
fn suggestion(name: &str, joint: char, fits: fn(&str) -> bool) -> String {
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut joined = words.join(&joint.to_string());
    joined.truncate(64);
    if fits(&joined) { joined } else { String::new() }
}
