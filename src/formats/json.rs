//! For programs.

use serde::Serialize;

use super::{Format, Look, Preview, Subject, harmless};
use crate::diagnostic::{Diagnostic, Fix, Label, Rule, Severity};
use crate::event::RunResult;

pub(super) struct Json;

/// The whole output. Its fields are a promise; a change of theirs is a new `format`.
#[derive(Serialize)]
struct Output<'a> {
    format: u32,
    diagnostics: Vec<Entry<'a>>,
}

/// One finding: lines and columns 1-based, columns in characters, the end exclusive.
#[derive(Serialize)]
struct Entry<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    severity: Severity,
    code: &'static str,
    message: &'a str,
    help: Option<&'a str>,
    labels: Vec<Labelled<'a>>,
    fix: Option<Replacement<'a>>,
}

/// A further place that explains the finding.
#[derive(Serialize)]
struct Labelled<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    text: &'a str,
}

/// What mends the finding for certain: `with` instead of what stands there.
#[derive(Serialize)]
struct Replacement<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    with: &'a str,
}

impl<'a> From<&'a Diagnostic> for Entry<'a> {
    fn from(finding: &'a Diagnostic) -> Self {
        let ((line, column), (end_line, end_column)) = (finding.place.start(), finding.place.end());
        Self {
            file: &finding.place.source.name,
            line,
            column,
            end_line,
            end_column,
            severity: finding.severity,
            code: finding.code,
            message: &finding.message,
            help: finding.help.as_deref(),
            labels: finding.labels.iter().map(Labelled::from).collect(),
            fix: finding.fix.as_ref().map(Replacement::from),
        }
    }
}

impl<'a> From<&'a Label> for Labelled<'a> {
    fn from(label: &'a Label) -> Self {
        let ((line, column), (end_line, end_column)) = (label.place.start(), label.place.end());
        Self { file: &label.place.source.name, line, column, end_line, end_column, text: &label.text }
    }
}

impl<'a> From<&'a Fix> for Replacement<'a> {
    fn from(fix: &'a Fix) -> Self {
        let ((line, column), (end_line, end_column)) = (fix.place.start(), fix.place.end());
        Self { file: &fix.place.source.name, line, column, end_line, end_column, with: &fix.with }
    }
}

/// What `explain` prints. Its fields are a promise, too.
#[derive(Serialize)]
struct Rules<'a> {
    format: u32,
    rules: Vec<Explained<'a>>,
}

/// A rule; the page is Markdown.
#[derive(Serialize)]
struct Explained<'a> {
    code: &'a str,
    severity: Severity,
    summary: String,
    page: &'a str,
}

impl Format for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Diagnostics, Subject::Rules, Subject::Run]
    }

    fn plan(&self, preview: &Preview<'_>) -> Option<String> {
        serde_json::to_string_pretty(preview.plan).ok().map(|text| harmless::json(&text))
    }

    fn answer(&self, result: &RunResult) -> Option<String> {
        serde_json::to_string_pretty(result).ok().map(|text| harmless::json(&text))
    }

    fn diagnostics(&self, findings: &[Diagnostic], _: Look) -> Option<String> {
        let diagnostics = findings.iter().map(Entry::from).collect();
        written(&Output { format: 1, diagnostics })
    }

    fn pages(&self, rules: &[&Rule], _: Look) -> Option<String> {
        let explained = |rule: &&Rule| Explained {
            code: rule.code,
            severity: rule.severity,
            summary: rule.summary(),
            page: rule.page,
        };
        written(&Rules { format: 1, rules: rules.iter().map(explained).collect() })
    }

    fn list(&self, rules: &[&Rule], look: Look) -> Option<String> {
        self.pages(rules, look)
    }
}

/// The whole output, in harmless characters.
fn written(output: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string_pretty(output).ok()?;
    Some(harmless::json(&text) + "\n")
}
