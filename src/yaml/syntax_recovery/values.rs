//! Values that can't begin as they do without quotes.

use std::ops::Range;

use granit_parser::ErrorKind;

use super::{Diagnosis, ErrorContext, RecoveryEdit};
use crate::diagnostic::{Diagnostic, Fix};

impl ErrorContext<'_> {
    /// From a place to the end of what its line says; a comment is left out.
    pub(super) fn rest(&self, at: usize) -> Range<usize> {
        let line = &self.text[at..self.lines.span(self.lines.of(at)).end.max(at)];
        let said = line.find(" #").map_or(line, |comment| &line[..comment]).trim_end();
        at..at + said.len()
    }

    /// Offers quotes around a stretch of one line.
    pub(super) fn quoted(&self, mut finding: Diagnostic, span: Range<usize>) -> Diagnostic {
        let text = &self.source.text[span.clone()];
        let goes_on = {
            let line = self.lines.of(span.start);
            let column = self.lines.key_column(line);
            self.lines.end_while(line, |below| self.lines.indent(below) > column) > self.lines.span(line).end
        };
        if !goes_on && !text.is_empty() && !text.contains(['"', '\\', '\t']) {
            finding.fix = Some(Fix { replacement: format!("\"{text}\""), span: self.place(span) });
        }
        finding
    }

    /// A value that begins with a template.
    pub(super) fn template(&self, start: usize) -> Diagnosis {
        let span = self.rest(start);
        let opener = &self.text[start..start + 2];
        let message = format!("a value that starts with `{opener}` needs quotes");
        let finding = self.error(span.clone(), message, "without quotes `{` opens a mapping");
        let line = self.lines.of(start);
        let is_value = self.lines.value_start(line) == Some(start);
        let finding = if is_value { self.quoted(finding, span) } else { finding };
        Diagnosis::new(finding, self.without_value_at(line, start))
    }

    /// A character that no value begins with.
    pub(super) fn character(&self) -> Diagnosis {
        let at = self.failure.at;
        let before = &self.text[..at];
        let is_template =
            self.failure.kind == ErrorKind::UnexpectedCharacter { character: '%' } && before.ends_with('{');
        let outer = self.failure.brackets.first().copied();
        if is_template && outer == Some(at - 1) {
            return self.template(at - 1);
        }
        let line = self.lines.of(at);
        let finding = self.parser_finding();
        if let Some(outer) = outer {
            let line_end = self.lines.span(line).end;
            let end = self.text[at + 1..line_end].find([',', ']', '}']).map_or(line_end, |end| at + 1 + end);
            let mut ways = vec![RecoveryEdit::placeholder(at..end)];
            ways.extend(self.without_value_at(self.lines.of(outer), outer));
            return Diagnosis::new(finding, ways);
        }
        let is_value = self.lines.value_start(line) == Some(at);
        let finding = if is_value { self.quoted(finding, self.rest(at)) } else { finding };
        Diagnosis::new(finding, self.without_value_at(line, at))
    }

    /// Something that follows a value in its own line.
    pub(super) fn trailing(&self, line: usize) -> Diagnosis {
        let value = self.lines.value_start(line).filter(|value| *value < self.failure.at);
        let ways = self.without_value_at(line, self.failure.at);
        let Some(value) = value else { return Diagnosis::new(self.parser_finding(), ways) };
        let text = &self.text[value..];
        if text.starts_with("{{") || text.starts_with("{%") {
            return self.template(value);
        }
        let finding = match text.chars().next() {
            Some('*') => self.quoted(
                self.error(
                    self.rest(value),
                    "a value that starts with `*` needs quotes",
                    "without quotes `*` stands for the value of an anchor, and nothing can follow it",
                ),
                self.rest(value),
            ),
            Some('&') => self.error(
                self.rest(value),
                "an anchor needs one value behind it",
                "put a string that starts with `&` in quotes",
            ),
            Some('[' | '{') => self.error(
                self.rest(self.failure.at),
                "text follows the closing bracket",
                "remove it, or put the whole value in quotes",
            ),
            _ => self.parser_finding(),
        };
        Diagnosis::new(finding, ways)
    }
}
