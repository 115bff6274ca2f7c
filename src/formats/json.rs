//! For programs.

use serde::Serialize;

use super::comparison::Comparison;
use super::{Format, Look, Preview, Subject, harmless};
use crate::cases::{CaseReport, Failure, Report};
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

/// What `test` prints. Its fields are a promise, too.
#[derive(Serialize)]
struct Cases<'a> {
    format: u32,
    passed: usize,
    failed: usize,
    interrupted: bool,
    duration_ms: u64,
    cases: Vec<Case<'a>>,
}

#[derive(Serialize)]
struct Case<'a> {
    name: &'a str,
    folder: &'a str,
    passed: bool,
    duration_ms: u64,
    failures: Vec<Unexpected<'a>>,
    renewed: &'a [String],
    kept: Option<String>,
}

/// Something that isn't as expected, and where the expectation stands.
#[derive(Serialize)]
struct Unexpected<'a> {
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
    detail: &'a str,
}

impl<'a> From<&'a CaseReport> for Case<'a> {
    fn from(case: &'a CaseReport) -> Self {
        Self {
            name: &case.name,
            folder: &case.folder,
            passed: case.failures.is_empty(),
            duration_ms: case.duration_ms,
            failures: case.failures.iter().map(Unexpected::from).collect(),
            renewed: &case.renewed,
            kept: case.kept.as_ref().map(|kept| kept.to_string_lossy().into_owned()),
        }
    }
}

impl<'a> From<&'a Failure> for Unexpected<'a> {
    fn from(failure: &'a Failure) -> Self {
        let place = failure.place.as_ref();
        Self {
            file: place.map(|(file, ..)| file.as_str()),
            line: place.map(|(_, line, _)| *line),
            column: place.map(|(.., column)| *column),
            message: &failure.message,
            detail: &failure.detail,
        }
    }
}

impl Format for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Diagnostics, Subject::Rules, Subject::Run, Subject::Comparison, Subject::Cases]
    }

    fn plan(&self, preview: &Preview<'_>) -> Option<String> {
        serde_json::to_string_pretty(preview.plan).ok().map(|text| harmless::json(&text))
    }

    fn answer(&self, result: &RunResult) -> Option<String> {
        serde_json::to_string_pretty(result).ok().map(|text| harmless::json(&text))
    }

    fn comparison(&self, comparison: &Comparison, _: Look) -> Option<String> {
        written(comparison)
    }

    fn cases(&self, report: &Report, _: Look) -> Option<String> {
        let failed = report.failed();
        written(&Cases {
            format: 1,
            passed: report.cases.len() - failed,
            failed,
            interrupted: report.interrupted,
            duration_ms: report.duration_ms,
            cases: report.cases.iter().map(Case::from).collect(),
        })
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
