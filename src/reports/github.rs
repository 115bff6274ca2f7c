//! Annotations on a pull request, as GitHub workflow commands
//! (<https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>).

use super::display::count;
use super::{DisplayOptions, concise, uri};
use crate::diagnostic::{Diagnostic, Severity};
use crate::text::pluralize;
use crate::text::sanitize;

/// GitHub shows ten annotations of each level per step. The tenth says how many more there are in the log.
const MAX_ANNOTATIONS_PER_LEVEL: usize = 9;

pub(super) fn findings(findings: &[Diagnostic], _: DisplayOptions) -> String {
    let mut text = String::new();
    let mut log = String::new();
    for severity in [Severity::Error, Severity::Warning] {
        let of_severity = || findings.iter().filter(|finding| finding.severity == severity);
        of_severity().take(MAX_ANNOTATIONS_PER_LEVEL).for_each(|finding| text += &annotation(finding));
        of_severity().skip(MAX_ANNOTATIONS_PER_LEVEL).for_each(|finding| log += &concise::finding_line(finding));
        let rest = count(findings, severity).saturating_sub(of_severity().count().min(MAX_ANNOTATIONS_PER_LEVEL));
        if rest > 0 {
            let word = severity.as_str();
            let more = pluralize(rest as u64, &format!("more {word}"));
            text += &format!("::{word}::{more} in the log of this step\n");
        }
    }
    text + &log
}

/// One annotation, on one line. GitHub accepts columns only for spans within one line.
fn annotation(finding: &Diagnostic) -> String {
    let ((line, column), (end_line, end_column)) = (finding.span.start(), finding.span.end());
    let file = escape_property(uri::strip_dot_slash(&finding.span.source.name));
    let columns = if line == end_line { format!(",col={column},endColumn={end_column}") } else { String::new() };
    let title = escape_property(finding.code);
    let help = finding.help.as_deref().map(|help| format!("\n{}", sanitize::line(help))).unwrap_or_default();
    let message = escape_data(&format!("{}{help}", sanitize::line(&finding.message)));
    let word = finding.severity.as_str();
    format!("::{word} file={file},line={line},endLine={end_line}{columns},title={title}::{message}\n")
}

/// Escapes a message, as GitHub's toolkit does.
fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property, such as `file`.
fn escape_property(text: &str) -> String {
    escape_data(&sanitize::line(text)).replace(':', "%3A").replace(',', "%2C")
}
