//! GitLab's Code Quality report (<https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format>).

use serde::Serialize;

use super::{DisplayOptions, Format, Subject, fingerprint, uri};
use crate::diagnostic::{Diagnostic, Severity};
use crate::text::sanitize;

pub(super) struct Gitlab;

#[derive(Serialize)]
struct CodeQualityIssue<'a> {
    description: String,
    check_name: &'a str,
    fingerprint: String,
    severity: &'a str,
    location: Location<'a>,
}

#[derive(Serialize)]
struct Location<'a> {
    path: &'a str,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: usize,
    end: usize,
}

impl Format for Gitlab {
    fn name(&self) -> &'static str {
        "gitlab"
    }

    fn subjects(&self) -> &'static [Subject] {
        &[Subject::Diagnostics]
    }

    fn diagnostics(&self, findings: &[Diagnostic], _: DisplayOptions) -> Option<String> {
        let fingerprints = fingerprint::fingerprints(findings);
        let entries: Vec<CodeQualityIssue<'_>> = findings
            .iter()
            .zip(fingerprints)
            .map(|(finding, fingerprint)| code_quality_issue(finding, fingerprint))
            .collect();
        let text = serde_json::to_string_pretty(&entries).ok()?;
        Some(sanitize::escape_json(&text) + "\n")
    }
}

/// One issue. GitLab has five severities, from `info` to `blocker`, and expects descriptions of one line.
fn code_quality_issue(finding: &Diagnostic, fingerprint: String) -> CodeQualityIssue<'_> {
    let severity = match finding.severity {
        Severity::Error => "major",
        Severity::Warning => "minor",
    };
    let message = sanitize::line(&finding.message);
    let description = match &finding.help {
        Some(help) => format!("{message}: {}", sanitize::line(help)),
        None => message,
    };
    let lines = Lines { begin: finding.span.start().0, end: finding.span.end().0 };
    let location = Location { path: uri::strip_dot_slash(&finding.span.source.name), lines };
    CodeQualityIssue { description, check_name: finding.code, fingerprint, severity, location }
}
