//! JSON, for programs.

use serde::Serialize;

use super::comparison::Comparison;
use super::{DisplayOptions, Format, PlanPreview, Subject};
use crate::cases::{CaseReport, Failure, TestReport};
use crate::diagnostic::{Diagnostic, Fix, Label, Rule, Severity, SourceSpan};
use crate::event::RunResult;
use crate::text::sanitize;

pub(super) struct Json;

/// The output of `validate`. The fields are stable; incompatible changes raise `format`.
#[derive(Serialize)]
struct DiagnosticsOutput<'a> {
    format: u32,
    diagnostics: Vec<DiagnosticEntry<'a>>,
}

/// A finding.
#[derive(Serialize)]
struct DiagnosticEntry<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    severity: Severity,
    code: &'static str,
    message: &'a str,
    help: Option<&'a str>,
    labels: Vec<LabelEntry<'a>>,
    fix: Option<FixEntry<'a>>,
}

/// A place in a file. Lines and columns are 1-based, columns count characters, and the end is exclusive.
#[derive(Serialize)]
struct Place<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
}

/// Another place that explains the finding.
#[derive(Serialize)]
struct LabelEntry<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    text: &'a str,
}

/// A fix that is certain to be right: replace the span by `with`.
#[derive(Serialize)]
struct FixEntry<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    with: &'a str,
}

impl<'a> From<&'a SourceSpan> for Place<'a> {
    fn from(span: &'a SourceSpan) -> Self {
        let ((line, column), (end_line, end_column)) = (span.start(), span.end());
        Self { file: &span.source.name, line, column, end_line, end_column }
    }
}

impl<'a> From<&'a Diagnostic> for DiagnosticEntry<'a> {
    fn from(finding: &'a Diagnostic) -> Self {
        let label = |label: &'a Label| LabelEntry { place: Place::from(&label.span), text: &label.text };
        let fix = |fix: &'a Fix| FixEntry { place: Place::from(&fix.span), with: &fix.replacement };
        Self {
            place: Place::from(&finding.span),
            severity: finding.severity,
            code: finding.code,
            message: &finding.message,
            help: finding.help.as_deref(),
            labels: finding.labels.iter().map(label).collect(),
            fix: finding.fix.as_ref().map(fix),
        }
    }
}

/// The output of `explain`. The fields are stable.
#[derive(Serialize)]
struct RulesOutput<'a> {
    format: u32,
    rules: Vec<RuleEntry<'a>>,
}

/// A rule. The page is Markdown.
#[derive(Serialize)]
struct RuleEntry<'a> {
    code: &'a str,
    severity: Severity,
    summary: String,
    page: &'a str,
}

/// The output of `test`. The fields are stable.
#[derive(Serialize)]
struct TestOutput<'a> {
    format: u32,
    passed: usize,
    failed: usize,
    interrupted: bool,
    duration_ms: u64,
    cases: Vec<CaseEntry<'a>>,
}

#[derive(Serialize)]
struct CaseEntry<'a> {
    name: &'a str,
    folder: &'a str,
    passed: bool,
    duration_ms: u64,
    failures: Vec<FailureEntry<'a>>,
    renewed: &'a [String],
    kept: Option<String>,
}

/// A failed expectation and its place in the case's files.
#[derive(Serialize)]
struct FailureEntry<'a> {
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
    detail: &'a str,
}

impl<'a> From<&'a CaseReport> for CaseEntry<'a> {
    fn from(case: &'a CaseReport) -> Self {
        Self {
            name: &case.name,
            folder: &case.folder,
            passed: case.failures.is_empty(),
            duration_ms: case.duration_ms,
            failures: case.failures.iter().map(FailureEntry::from).collect(),
            renewed: &case.updated_snapshots,
            kept: case.kept_folder.as_ref().map(|kept| kept.to_string_lossy().into_owned()),
        }
    }
}

impl<'a> From<&'a Failure> for FailureEntry<'a> {
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

    fn subjects(&self) -> &'static [Subject] {
        &[Subject::Diagnostics, Subject::Rules, Subject::Run, Subject::Comparison, Subject::Cases]
    }

    fn plan(&self, preview: &PlanPreview<'_>) -> Option<String> {
        serde_json::to_string_pretty(preview.plan).ok().map(|text| sanitize::escape_json(&text))
    }

    fn run_result(&self, result: &RunResult) -> Option<String> {
        serde_json::to_string_pretty(result).ok().map(|text| sanitize::escape_json(&text))
    }

    fn comparison(&self, comparison: &Comparison, _: DisplayOptions) -> Option<String> {
        to_sanitized_json(comparison)
    }

    fn test_report(&self, report: &TestReport, _: DisplayOptions) -> Option<String> {
        let failed = report.failed();
        to_sanitized_json(&TestOutput {
            format: 1,
            passed: report.cases.len() - failed,
            failed,
            interrupted: report.interrupted,
            duration_ms: report.duration_ms,
            cases: report.cases.iter().map(CaseEntry::from).collect(),
        })
    }

    fn diagnostics(&self, findings: &[Diagnostic], _: DisplayOptions) -> Option<String> {
        let diagnostics = findings.iter().map(DiagnosticEntry::from).collect();
        to_sanitized_json(&DiagnosticsOutput { format: 1, diagnostics })
    }

    fn rule_pages(&self, rules: &[&Rule], _: DisplayOptions) -> Option<String> {
        let entry = |rule: &&Rule| RuleEntry {
            code: rule.code,
            severity: rule.severity,
            summary: rule.summary(),
            page: rule.page,
        };
        to_sanitized_json(&RulesOutput { format: 1, rules: rules.iter().map(entry).collect() })
    }

    fn rule_list(&self, rules: &[&Rule], display: DisplayOptions) -> Option<String> {
        self.rule_pages(rules, display)
    }
}

/// Serializes output as JSON in which control characters are escaped.
fn to_sanitized_json(output: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string_pretty(output).ok()?;
    Some(sanitize::escape_json(&text) + "\n")
}
