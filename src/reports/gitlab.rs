//! GitLab's Code Quality report (<https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format>).

use serde_json::{Value, json};

use super::display::to_json;
use super::{DisplayOptions, fingerprint, uri};
use crate::diagnostic::{Diagnostic, Severity};
use crate::text::sanitize;

pub(super) fn findings(findings: &[Diagnostic], _: DisplayOptions) -> String {
    let fingerprints = fingerprint::fingerprints(findings);
    let issues = findings.iter().zip(fingerprints).map(|(finding, fingerprint)| issue(finding, &fingerprint));
    to_json(&issues.collect::<Vec<_>>())
}

/// One issue. GitLab has five severities, from `info` to `blocker`, and expects descriptions of one line.
fn issue(finding: &Diagnostic, fingerprint: &str) -> Value {
    let message = sanitize::line(&finding.message);
    json!({
        "description": match &finding.help {
            Some(help) => format!("{message}: {}", sanitize::line(help)),
            None => message,
        },
        "check_name": finding.code,
        "fingerprint": fingerprint,
        "severity": match finding.severity {
            Severity::Error => "major",
            Severity::Warning => "minor",
        },
        "location": {
            "path": uri::strip_dot_slash(&finding.span.source.name),
            "lines": { "begin": finding.span.start().0, "end": finding.span.end().0 },
        },
    })
}
