//! Lines that stand where they can't.

use std::ops::Range;

use super::lines::word;
use super::{Diagnosis, ErrorContext, LastTokenKind, ParseFailure, RecoveryEdit, blanks, merge_conflicts};
use crate::diagnostic::Fix;

const ALIGN: &str = "align it with the keys or dashes that it belongs to";

impl ErrorContext<'_> {
    /// A `: ` where there can be no key.
    pub(super) fn colon(&self) -> Diagnosis {
        let at = self.failure.at;
        let line = self.lines.of(at);
        let begun = self.lines.of(self.failure.last_token.start);
        if begun < line && !self.lines.is_entry(begun) {
            return self.missing_key(begun);
        }
        match self.lines.value_start(line).filter(|value| begun == line && *value < at) {
            Some(value) => Diagnosis::new(self.parser_finding(), self.without_value(line, value)),
            None => self.misplaced_line(line),
        }
    }

    /// A line that fits none before it.
    pub(super) fn misplaced_line(&self, line: usize) -> Diagnosis {
        let span = self.lines.content(line);
        let is_item = self.text[span.clone()].starts_with("- ") || &self.text[span.clone()] == "-";
        let fits = (1..line).rev().any(|above| {
            !self.lines.is_blank(above)
                && self.lines.is_entry(above)
                && self.lines.key_column(above) == self.lines.indent(line)
        });
        let finding = if is_item && fits {
            let help = "indent it below a key that has no other value, or remove the dash";
            self.error(span, "there can be no list item here", help)
        } else {
            self.error(span, "the indentation of this line fits none before it", ALIGN)
        };
        let mut diagnosis = Diagnosis::new(finding, self.without_line(line));
        // Perhaps the lines before it are those that stand wrong: all below fit this one, then.
        let opens = |above: &usize| {
            let written = &self.source.text[self.lines.span(*above)];
            self.lines.indent(*above) < self.lines.indent(line) && written.trim_end().ends_with(':')
        };
        let first = (1..line).rev().find(opens).map_or(1, |opener| opener + 1);
        if let Some(first) = (first..line).find(|above| !self.lines.is_blank(*above)) {
            let span = self.lines.content(first);
            let end = self.lines.span(line - 1).end;
            diagnosis.fallback_finding = Some(self.error(span.clone(), "the lines below this one don't fit it", ALIGN));
            diagnosis.candidates.push(vec![RecoveryEdit::blank(span.start..end)]);
        }
        diagnosis
    }

    /// A line that neither begins an entry nor goes on with the value before it.
    pub(super) fn missing_key(&self, line: usize) -> Diagnosis {
        let span = self.lines.content(line);
        let text = &self.text[span.clone()];
        let key = word(text);
        let behind = text[key..].strip_prefix(':').unwrap_or_default();
        if key > 0 && !behind.is_empty() && !behind.starts_with([' ', '/']) {
            let colon = span.start + key;
            let mut finding =
                self.error(colon..colon + 1, "a space is missing after this `:`", "write `key: value`, with a space");
            finding.fix = Some(Fix { span: self.place(colon + 1..colon + 1), replacement: " ".to_owned() });
            return Diagnosis::new(finding, self.without_value(line, colon + 1));
        }
        if text.starts_with('-') && text.len() > 1 && !text.starts_with("--") && !text.starts_with("- ") {
            let dash = span.start;
            let mut finding =
                self.error(dash..dash + 1, "a space is missing after this `-`", "write `- item`, with a space");
            // `-5` may be a number, too.
            if !text[1..].starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
                finding.fix = Some(Fix { span: self.place(dash + 1..dash + 1), replacement: " ".to_owned() });
            }
            return Diagnosis::new(finding, self.without_line(line));
        }
        if text == "-" || text.starts_with("- ") {
            return self.misplaced_line(line);
        }
        if merge_conflicts::is_marker(text) {
            let help = "keep one side of the conflict, and remove the lines with the markers";
            let finding = self.error(span, "a marker of a merge conflict", help);
            return Diagnosis::new(finding, self.without_line(line));
        }
        let opens = key == text.len()
            && self.below(line).is_some_and(|below| self.lines.indent(below) > self.lines.indent(line));
        let finding = if opens {
            let mut finding = self.error(span.clone(), "a `:` is missing after this key", "write `key:`");
            finding.fix = Some(Fix { span: self.place(span.end..span.end), replacement: ":".to_owned() });
            finding
        } else {
            let help = "write `key: value`, or indent the line";
            self.error(span, "this is neither a key nor part of the value before it", help)
        };
        Diagnosis::new(finding, self.without_line(line))
    }

    fn below(&self, line: usize) -> Option<usize> {
        (line + 1..=self.lines.last()).find(|below| !self.lines.is_blank(*below))
    }

    /// The line that the parser met behind the text of a block, where it looks like a part of that text.
    pub(super) fn block_line(&self) -> Option<usize> {
        let ParseFailure { at, brackets, quote, .. } = self.failure;
        let (begun, follows) = match (brackets.first(), quote) {
            (Some(bracket), _) => (*bracket, self.failure.bracket_after_block),
            (None, Some(quote)) => (*quote, self.failure.last_token_kind == LastTokenKind::Block),
            (None, None) => (*at, self.failure.last_token_kind == LastTokenKind::Block),
        };
        let line = self.lines.of(begun);
        let before = (1..line).rev().find(|above| !self.lines.is_blank(*above))?;
        let is_empty = self.is_header(before);
        let text = &self.text[self.lines.content(line)];
        let is_key = self.lines.is_entry(line) && !(is_empty && text.starts_with('-'));
        let is_missing_space = text[word(text)..].starts_with(':');
        (follows && !is_key && !is_missing_space && !merge_conflicts::is_marker(text)).then_some(line)
    }

    /// Whether a line ends with the `|` or `>` behind which a text begins.
    fn is_header(&self, line: usize) -> bool {
        let value = self.lines.value_start(line).map(|value| &self.text[value..self.lines.span(line).end]);
        value.is_some_and(|value| value.starts_with(['|', '>']))
    }

    /// A line of a text behind `|` or `>` that isn't indented as the text is.
    pub(super) fn block_text(&self, line: usize) -> Diagnosis {
        let lines = self.lines;
        let Some(header) = (1..line).rev().find(|above| self.is_header(*above)) else {
            return Diagnosis::new(self.parser_finding(), self.without_line(line));
        };
        let column = lines.key_column(header);
        let start = lines.value_start(header).unwrap_or(lines.span(header).start);
        let span = lines.content(line);
        let finding = if lines.indent(line) > column {
            let help = "indent all lines of the text at least as deep as its first one";
            self.error(span, "this line is indented less than the text before it", help)
        } else {
            let help = "indent all lines of the text deeper than its key";
            self.error(span, "this line belongs to no text: it isn't indented deeper than the key above", help)
        };
        let end = lines.end_while(line, |below| lines.indent(below) > column || !lines.is_usual_key(below));
        Diagnosis::new(finding, blanks(start, [end, lines.span(line).end]))
    }

    /// Something else where the next entry should begin.
    pub(super) fn missing_entry(&self) -> Diagnosis {
        let line = self.lines.of(self.failure.at);
        let Range { start, end } = self.lines.content(line);
        let last = self.failure.last_token.end;
        if last > start && last <= self.failure.at && self.failure.last_token_kind != LastTokenKind::Block {
            return self.trailing(line);
        }
        if self.lines.is_entry(line) && self.lines.value_start(line) <= Some(end) {
            return self.misplaced_line(line);
        }
        self.missing_key(line)
    }
}
