//! JSON and JSON Lines, for programs. The fields are stable; incompatible changes raise `format`.

use serde_json::{Value, json};

use super::comparison::Comparison;
use super::display::to_json;
use super::{DisplayOptions, PlanPreview};
use crate::cases::{CaseReport, Failure, TestReport};
use crate::diagnostic::{Diagnostic, Rule, SourceSpan};
use crate::event::{JournalEntry, RunResult};
use crate::text::sanitize;

/// The output of `validate`.
pub(super) fn findings(findings: &[Diagnostic], _: DisplayOptions) -> String {
    to_json(&json!({ "format": 1, "diagnostics": findings.iter().map(finding).collect::<Vec<_>>() }))
}

/// A finding, with other places that explain it, and a fix that is certain to be right.
fn finding(finding: &Diagnostic) -> Value {
    let labels = finding.labels.iter().map(|label| at(&label.span, json!({ "text": label.text })));
    at(
        &finding.span,
        json!({
            "severity": finding.severity,
            "code": finding.code,
            "message": finding.message,
            "help": finding.help,
            "labels": labels.collect::<Vec<_>>(),
            "fix": finding.fix.as_ref().map(|fix| at(&fix.span, json!({ "with": fix.replacement }))),
        }),
    )
}

/// Puts a place in a file before other fields. Lines and columns are 1-based, columns count characters, and the end is
/// exclusive.
fn at(span: &SourceSpan, mut fields: Value) -> Value {
    let ((line, column), (end_line, end_column)) = (span.start(), span.end());
    let mut all = json!({
        "file": span.source.name, "line": line, "column": column, "end_line": end_line, "end_column": end_column,
    });
    if let (Some(all), Some(fields)) = (all.as_object_mut(), fields.as_object_mut()) {
        all.append(fields);
    }
    all
}

/// The output of `explain`. The pages are Markdown.
pub(super) fn rules(rules: &[&Rule], _: DisplayOptions) -> String {
    let entry = |rule: &&Rule| json!({ "code": rule.code, "severity": rule.severity, "summary": rule.summary(), "page": rule.page });
    to_json(&json!({ "format": 1, "rules": rules.iter().map(entry).collect::<Vec<_>>() }))
}

pub(super) fn plan(preview: &PlanPreview<'_>) -> String {
    to_json(preview.plan)
}

pub(super) fn plan_line(preview: &PlanPreview<'_>) -> String {
    sanitize::escape_json(&serde_json::to_string(preview.plan).unwrap_or_default())
}

/// An event as it happens, as one line.
pub fn event_line(entry: &JournalEntry) -> String {
    sanitize::escape_json(&entry.to_json().unwrap_or_default())
}

pub(super) fn answer(result: &RunResult) -> String {
    to_json(result)
}

pub(super) fn comparison(comparison: &Comparison, _: DisplayOptions) -> String {
    to_json(comparison)
}

/// The output of `test`.
pub(super) fn test_report(report: &TestReport, _: DisplayOptions) -> String {
    let failed = report.failed();
    to_json(&json!({
        "format": 1,
        "passed": report.cases.len() - failed,
        "failed": failed,
        "interrupted": report.interrupted,
        "duration_ms": report.duration_ms,
        "cases": report.cases.iter().map(case).collect::<Vec<_>>(),
    }))
}

fn case(case: &CaseReport) -> Value {
    json!({
        "name": case.name,
        "folder": case.folder,
        "passed": case.failures.is_empty(),
        "duration_ms": case.duration_ms,
        "failures": case.failures.iter().map(failure).collect::<Vec<_>>(),
        "renewed": case.updated_snapshots,
        "kept": case.kept_folder.as_ref().map(|kept| kept.to_string_lossy()),
    })
}

/// A failed expectation and its place in the case's files.
fn failure(failure: &Failure) -> Value {
    let place = failure.place.as_ref();
    json!({
        "file": place.map(|(file, ..)| file),
        "line": place.map(|(_, line, _)| line),
        "column": place.map(|(.., column)| column),
        "message": failure.message,
        "detail": failure.detail,
    })
}
