//! One line per finding, for editors and `grep`.

use super::DisplayOptions;
use crate::diagnostic::Diagnostic;
use crate::text::sanitize;

pub(super) fn findings(findings: &[Diagnostic], _: DisplayOptions) -> String {
    findings.iter().map(finding_line).collect()
}

/// `file:line:column: error[code]: message`.
pub(super) fn finding_line(finding: &Diagnostic) -> String {
    let (line, column) = finding.span.start();
    let (file, severity) = (sanitize::line_start(&finding.span.source.name), finding.severity.as_str());
    format!("{file}:{line}:{column}: {severity}[{}]: {}\n", finding.code, sanitize::line(&finding.message))
}
