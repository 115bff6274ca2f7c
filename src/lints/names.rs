//! Names have a form that fits paths, ids and templates.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::job::{is_input_name, is_name};
use crate::yaml::Spanned;

use super::valid::name_of;
use super::{Lint, MAX_FINDINGS, Subject};

/// Names of the job, its subagents and its inputs.
pub(super) struct Names;

const RULES: &[Rule] = &[rule!(Error "bad-name")];

impl Lint for Names {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        const NAME: &str = "a name is 1 to 64 of `a-z`, `0-9` and `-`, and begins with a letter or digit";
        const INPUT_NAME: &str = "an input's name is 1 to 64 of `a-z`, `0-9` and `_`, and begins with no digit";
        if let Some(name) = job.name.as_ref().filter(|name| !is_name(&name.value)) {
            findings.push(bad(name, NAME, &suggestion(&name.value, '-', is_name)));
        }
        if name_of(job, subject.source).is_none() {
            let place = crate::diagnostic::Place { source: subject.source.clone(), span: 0..0 };
            findings.push(
                Diagnostic::error("bad-name", place, "no name can be made from the file's name")
                    .help("give the job one: `name: my-job`"),
            );
        }
        for name in job.subagents.keys().filter(|name| !is_name(&name.value)).take(2 * MAX_FINDINGS) {
            findings.push(alike(bad(name, NAME, &suggestion(&name.value, '-', is_name)), name, job.subagents.keys()));
        }
        for (name, _) in job.inputs().filter(|(name, _)| !is_input_name(&name.value)).take(2 * MAX_FINDINGS) {
            let finding = bad(name, INPUT_NAME, &suggestion(&name.value, '_', is_input_name));
            findings.push(alike(finding, name, job.inputs().map(|(name, _)| name)));
        }
    }
}

fn bad(name: &Spanned<String>, form: &str, suggestion: &str) -> Diagnostic {
    let finding = Diagnostic::error("bad-name", name.place(), format!("`{}` doesn't fit as a name", name.value));
    match suggestion {
        "" => finding.help(form),
        suggestion => finding.help(format!("{form}: `{suggestion}`")),
    }
}

/// Points to a name that is the same but for the case of its letters.
fn alike<'a>(
    finding: Diagnostic,
    name: &Spanned<String>,
    others: impl Iterator<Item = &'a Spanned<String>>,
) -> Diagnostic {
    let folded = name.value.to_lowercase();
    let mut others = others.filter(|other| other.value != name.value && other.value.to_lowercase() == folded);
    match others.next() {
        Some(other) => finding.label(other.place(), "differs only in the case of its letters"),
        None => finding,
    }
}

/// The nearest thing that fits, or nothing.
fn suggestion(name: &str, joint: char, fits: fn(&str) -> bool) -> String {
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut joined = words.join(&joint.to_string());
    joined.truncate(64);
    if fits(&joined) { joined } else { String::new() }
}
