//! One line per finding, for editors and `grep`.

use super::{DisplayOptions, Format, Subject};
use crate::diagnostic::Diagnostic;
use crate::text::sanitize;

pub(super) struct Concise;

impl Format for Concise {
    fn name(&self) -> &'static str {
        "concise"
    }

    fn subjects(&self) -> &'static [Subject] {
        &[Subject::Diagnostics]
    }

    fn diagnostics(&self, findings: &[Diagnostic], _: DisplayOptions) -> Option<String> {
        Some(findings.iter().map(finding_line).collect())
    }
}

/// `file:line:column: error[code]: message`.
pub(super) fn finding_line(finding: &Diagnostic) -> String {
    let (line, column) = finding.span.start();
    let (file, severity) = (sanitize::line_start(&finding.span.source.name), finding.severity.as_str());
    format!("{file}:{line}:{column}: {severity}[{}]: {}\n", finding.code, sanitize::line(&finding.message))
}
