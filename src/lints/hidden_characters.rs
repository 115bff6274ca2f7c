//! What an agent reads in a job, its prompts, context files and skills is what people see in them.

use std::collections::HashSet;

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Source, SourceSpan, rule};
use crate::text::sanitize;

use super::{Lint, LintContext};

/// Checks for characters that people don't see.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "hidden-characters")], check };

const HELP: &str = "remove it: it can hide instructions from reviewers, and models read it";

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    check_sources(subject, findings);
    let job = subject.job;
    let mut reported = HashSet::new();
    let mut warn = |place: SourceSpan, path: &str, text: &str| {
        if let Some((line, letter)) = first_hidden(text)
            && reported.insert(path.to_owned())
        {
            let code = u32::from(letter);
            let message =
                format!("`{path}` has a character that people don't see, U+{code:04X} in line {line} of its text");
            findings.push(Diagnostic::warning("hidden-characters", place, message).help(HELP));
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

/// Reports the first hidden character of each file of the job itself.
fn check_sources(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    let files = subject.prompts.templates.sources().chain(&subject.schemas.sources);
    for source in std::iter::once(subject.source).chain(files).filter(|source| seen.insert(source.name.clone())) {
        let Some((letter, place)) = first_in_source(source) else { continue };
        let message = format!("this has a character that people don't see, U+{:04X}", u32::from(letter));
        findings.push(Diagnostic::warning("hidden-characters", place, message).help(HELP));
    }
}

fn first_in_source(source: &Arc<Source>) -> Option<(char, SourceSpan)> {
    // A mark at the beginning says how the file is encoded.
    let start = if source.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let (number, _) = first_hidden(&source.text[start..])?;
    let mut at = start;
    for line in source.text[start..].lines().take(number - 1) {
        at += line.len();
        at += source.text[at..].find('\n').map_or(0, |end| end + 1);
    }
    let (offset, letter) = hidden_in_line(source.text[at..].lines().next()?)?;
    let range = at + offset..at + offset + letter.len_utf8();
    Some((letter, SourceSpan { source: Arc::clone(source), range }))
}

/// The first hidden character of a text, with its line. Joiners are part of emoji and of some scripts.
fn first_hidden(text: &str) -> Option<(usize, char)> {
    text.lines().zip(1..).find_map(|(line, number)| Some((number, hidden_in_line(line)?.1)))
}

/// The first hidden character of a line, with its place.
fn hidden_in_line(line: &str) -> Option<(usize, char)> {
    let before = std::iter::once('\n').chain(line.chars());
    let is_hidden = |(before, (_, letter)): &(char, (usize, char))| {
        !matches!(letter, '\u{200c}' | '\u{200d}' | '\t') && sanitize::is_hidden(*before, *letter)
    };
    before.zip(line.char_indices()).find(is_hidden).map(|(_, found)| found)
}
