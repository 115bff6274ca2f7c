//! One line a finding, as compilers' messages are read by editors and by `grep`.

use super::{Format, Look, Subject, harmless};
use crate::diagnostic::Diagnostic;

pub(super) struct Concise;

impl Format for Concise {
    fn name(&self) -> &'static str {
        "concise"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Diagnostics]
    }

    fn diagnostics(&self, findings: &[Diagnostic], _: Look) -> Option<String> {
        Some(findings.iter().map(line).collect())
    }
}

/// `file:line:column: error[code]: message`.
pub(super) fn line(finding: &Diagnostic) -> String {
    let (line, column) = finding.place.start();
    let (file, severity) = (harmless::beginning(&finding.place.source.name), finding.severity.as_str());
    format!("{file}:{line}:{column}: {severity}[{}]: {}\n", finding.code, harmless::line(&finding.message))
}
