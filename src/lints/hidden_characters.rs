//! What an agent reads in context files and skills is what people see in them.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::text::sanitize;

use super::{Lint, LintContext};

/// Checks for characters that people don't see.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "hidden-characters")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let mut reported = HashSet::new();
    let mut warn = |place: SourceSpan, path: &str, text: &str| {
        if let Some((line, letter)) = first_hidden(text)
            && reported.insert(path.to_owned())
        {
            let code = u32::from(letter);
            let message =
                format!("`{path}` has a character that people don't see, U+{code:04X} in line {line} of its text");
            let help = "remove it: it can hide instructions from reviewers, and models read it";
            findings.push(Diagnostic::warning("hidden-characters", place, message).help(help));
        }
    };
    for entry in job.context.iter().chain(job.agents().flat_map(|agent| agent.own_context)) {
        for file in subject.files.context.get(&entry.value.label()).into_iter().flatten() {
            warn(entry.place(), &file.path, &file.text);
        }
    }
    for entry in job.skills.iter().chain(job.agents().flat_map(|agent| agent.own_skills)) {
        if let Some(skill) = subject.files.skills.get(&entry.value.label()) {
            warn(entry.place(), &skill.folder, &format!("{}\n{}", skill.description, skill.body));
        }
    }
}

/// The first hidden character of a text, with its line. Joiners are part of emoji and of some scripts.
fn first_hidden(text: &str) -> Option<(usize, char)> {
    text.lines().zip(1..).find_map(|(line, number)| {
        let before = std::iter::once('\n').chain(line.chars());
        let is_hidden = |(before, letter): &(char, char)| {
            !matches!(letter, '\u{200c}' | '\u{200d}') && sanitize::is_hidden(*before, *letter)
        };
        let (_, hidden) = before.zip(line.chars()).find(is_hidden)?;
        Some((number, hidden))
    })
}
