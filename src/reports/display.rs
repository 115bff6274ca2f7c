//! The reader's display, and what several formats share.

use serde::Serialize;

use crate::diagnostic::{Diagnostic, OmittedFindings, Severity};
use crate::text::sanitize;

/// What the reader's display is capable of.
#[derive(Debug, Clone, Copy)]
pub struct DisplayOptions {
    /// Whether to use escape sequences for colours.
    pub colour: bool,
    /// Columns per line. Longer source lines are cut on both sides of the relevant part.
    pub width: usize,
}

impl DisplayOptions {
    /// Colours text with the parameters of an SGR escape sequence, such as `1;31`, if the display has colours.
    pub fn paint(self, text: &str, sgr: &str) -> String {
        if self.colour { format!("\u{1b}[{sgr}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Writes sanitized lines: text can't control a terminal or pass for another line.
pub(crate) struct LineWriter {
    pub(crate) text: String,
    pub(crate) display: DisplayOptions,
}

impl LineWriter {
    pub(crate) fn line(&mut self, line: &str) {
        self.text += sanitize::line(line).trim_end();
        self.text.push('\n');
    }

    /// A title in bold after an empty line.
    pub(crate) fn heading(&mut self, title: &str) {
        self.text += &format!("\n{}\n", self.display.paint(&sanitize::line(title), "1"));
    }
}

/// The name of a value in JSON, such as that of an option in the job file.
pub(super) fn serialized_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => other.unwrap_or_default().to_string(),
    }
}

/// The number of findings of a severity, including those that were omitted.
pub(super) fn count(findings: &[Diagnostic], severity: Severity) -> usize {
    let mut all = OmittedFindings::default();
    findings.iter().for_each(|finding| all.add(finding));
    match severity {
        Severity::Error => all.errors,
        Severity::Warning => all.warnings,
    }
}

/// A code fence that is longer than any run of backticks in the text, so that the text can't end the block.
pub(super) fn code_fence(text: &str) -> String {
    // Most texts have no backtick.
    let from_first = memchr::memchr(b'`', text.as_bytes()).map_or("", |at| &text[at..]);
    let longest_run = from_first.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest_run.max(2) + 1)
}

/// Serializes output as indented JSON in which control characters are escaped.
pub(crate) fn to_json(output: &impl Serialize) -> String {
    sanitize::escape_json(&serde_json::to_string_pretty(output).unwrap_or_default()) + "\n"
}
