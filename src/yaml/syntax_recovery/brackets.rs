//! Brackets that aren't closed, or closed by others.

use std::ops::Range;

use granit_parser::ErrorKind;

use super::{Diagnosis, ErrorContext, RecoveryEdit};
use crate::diagnostic::Fix;

impl ErrorContext<'_> {
    /// Something within brackets.
    pub(super) fn bracket(&self) -> Diagnosis {
        let lines = self.lines;
        let at = self.failure.at;
        let is_opener = self.failure.is_at_unclosed_opener();
        let inner = self.failure.brackets.last().copied().filter(|_| !is_opener).unwrap_or(at);
        let outer = self.failure.brackets.first().copied().unwrap_or(at);
        let first = lines.of(outer);
        let mut whole = Vec::new();
        if inner > outer {
            let line_end = lines.span(lines.of(inner)).end;
            let length = self.text[inner..line_end].trim_end_matches([',', ' ']).len();
            whole.push(RecoveryEdit::placeholder(inner..inner + length));
        }
        whole.extend(self.without_value_at(first, outer));
        if self.runs_out_of_brackets() || matches!(self.failure.kind, ErrorKind::UnclosedFlowCollection { .. }) {
            let open = if is_opener { at } else { inner };
            let letter = &self.text[open..=open];
            let finding = self.error(
                open..open + 1,
                format!("this `{letter}` is never closed"),
                "close it, or put a text that holds it in quotes",
            );
            return Diagnosis::new(finding, whole);
        }
        match self.failure.kind {
            ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => self.comma(whole),
            _ => Diagnosis::new(self.parser_finding(), whole),
        }
    }

    /// Whether the failure lies in lines that can't belong to the open brackets: they are never closed.
    pub(super) fn runs_out_of_brackets(&self) -> bool {
        let Some(outer) = self.failure.brackets.first().filter(|_| !self.failure.is_at_unclosed_opener()) else {
            return false;
        };
        let lines = self.lines;
        let (first, hit) = (lines.of(*outer), lines.of(self.failure.at));
        let is_entry = lines.is_entry(first);
        let column = if is_entry { lines.key_column(first) } else { lines.indent(first) };
        (first + 1..=hit).any(|below| {
            let indent = lines.indent(below);
            lines.is_entry(below) && (indent < column || (is_entry && indent == column))
        })
    }

    /// Two values without a comma between them. There is white space to put it in.
    pub(super) fn comma(&self, whole: Vec<Vec<RecoveryEdit>>) -> Diagnosis {
        let at = self.failure.at;
        let last = self.failure.last_token.clone();
        if self.text[at..].starts_with(['[', '{'])
            && self.text[last.end..at].trim().is_empty()
            && last.end < at
            && self.is_word(&last)
        {
            return self.missing_colon(whole);
        }
        let next = match self.text[at..].starts_with(':') {
            // Of several words before the colon, the last one is the key.
            true if self.is_word(&last) => {
                let words = &self.text[last.clone()];
                last.start + words.rfind([' ', '\n']).map_or(0, |space| space + 1)
            }
            true => last.start,
            false => at,
        };
        let before = self.text[..next].trim_end().len();
        let length = self.text[next..].chars().next().map_or(0, char::len_utf8);
        let end = if next < at { self.failure.last_token.end } else { next + length };
        let mut finding =
            self.error(next..end, "a `,` is missing before this", "separate values in brackets by commas");
        let mut ways = whole;
        if before < next && !self.text[..before].ends_with(['[', '{', ',']) {
            finding.fix = Some(Fix { span: self.place(before..before), replacement: ",".to_owned() });
            ways.insert(0, vec![RecoveryEdit { span: before..before + 1, fill: b',', is_data_lost: false }]);
        }
        Diagnosis::new(finding, ways)
    }

    fn is_word(&self, span: &Range<usize>) -> bool {
        self.text[span.clone()].starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
    }

    /// A word within brackets, and its value without a `: ` between them.
    fn missing_colon(&self, whole: Vec<Vec<RecoveryEdit>>) -> Diagnosis {
        let at = self.failure.at;
        let finding = self.error(at..at + 1, "a `: ` or a `,` is missing before this", "write `key: [value]`");
        let line_end = self.lines.span(self.lines.of(at)).end;
        let close = if self.text[at..].starts_with('[') { ']' } else { '}' };
        let end = self.text[at..line_end].find(close).map_or(line_end, |close| at + close + 1);
        let mut ways = vec![RecoveryEdit::placeholder(self.failure.last_token.start..end)];
        ways.extend(whole);
        Diagnosis::new(finding, ways)
    }

    /// A closing bracket without an opening one.
    pub(super) fn stray_bracket(&self) -> Diagnosis {
        let at = self.failure.at;
        let line = self.lines.of(at);
        let letter = self.text[at..].chars().next().unwrap_or(']');
        let finding = self.error(
            at..at + letter.len_utf8(),
            format!("this `{letter}` closes nothing"),
            "remove it, or put a text that holds it in quotes",
        );
        let mut ways = Vec::new();
        let is_whole_value = self.lines.value_start(line) == Some(at);
        if !is_whole_value {
            ways.push(vec![RecoveryEdit { is_data_lost: false, ..RecoveryEdit::blank(at..at + letter.len_utf8()) }]);
        }
        ways.extend(self.without_value_at(line, at));
        Diagnosis::new(finding, ways)
    }
}
