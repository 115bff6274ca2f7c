//! GitLab's Code Quality report (<https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format>).

use serde::Serialize;

use super::{Format, Look, Subject, fingerprint, harmless, path};
use crate::diagnostic::{Diagnostic, Severity};

pub(super) struct Gitlab;

#[derive(Serialize)]
struct Entry<'a> {
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

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Diagnostics]
    }

    fn diagnostics(&self, findings: &[Diagnostic], _: Look) -> Option<String> {
        let prints = fingerprint::fingerprints(findings);
        let entries: Vec<Entry<'_>> =
            findings.iter().zip(prints).map(|(finding, print)| entry(finding, print)).collect();
        let text = serde_json::to_string_pretty(&entries).ok()?;
        Some(harmless::json(&text) + "\n")
    }
}

/// GitLab's five severities go from `info` to `blocker`; a description is one line.
fn entry(finding: &Diagnostic, fingerprint: String) -> Entry<'_> {
    let severity = match finding.severity {
        Severity::Error => "major",
        Severity::Warning => "minor",
    };
    let message = harmless::line(&finding.message);
    let description = match &finding.help {
        Some(help) => format!("{message}: {}", harmless::line(help)),
        None => message,
    };
    let lines = Lines { begin: finding.place.start().0, end: finding.place.end().0 };
    let location = Location { path: path::plain(&finding.place.source.name), lines };
    Entry { description, check_name: finding.code, fingerprint, severity, location }
}
