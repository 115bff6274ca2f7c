//! Quotes that aren't closed, or hold what they can't.

use granit_parser::ErrorKind;

use super::open_delimiters::closing_quote;
use super::{Diagnosis, ErrorContext, RecoveryEdit};

impl ErrorContext<'_> {
    /// Where the quoted string begins that couldn't be read: the parser names that place, or where it gave up.
    fn opening_quote(&self) -> usize {
        if self.is_at_quote() { self.failure.at } else { self.failure.quote.unwrap_or(self.failure.at) }
    }

    fn is_at_quote(&self) -> bool {
        !matches!(
            self.failure.kind,
            ErrorKind::InvalidQuotedScalarIndent
                | ErrorKind::DocumentIndicatorInQuotedScalar
                | ErrorKind::InvalidTrailingSingleQuotedScalar
                | ErrorKind::InvalidTrailingDoubleQuotedScalar
        )
    }

    pub(super) fn quote(&self) -> Diagnosis {
        let open = self.opening_quote();
        let (line, hit) = (self.lines.of(open), self.lines.of(self.failure.at));
        let never_closed = || {
            self.error(open..open + 1, "this quote is never closed", "close it; within single quotes, write `'` twice")
        };
        let ways = self.without_quoted(open, line);
        let is_trailing = matches!(
            self.failure.kind,
            ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar
        );
        if is_trailing && !self.failure.brackets.is_empty() && self.text[..self.failure.at].ends_with([' ', '\n', '\r'])
        {
            return self.comma(ways);
        }
        let finding = match &self.failure.kind {
            ErrorKind::UnclosedQuotedScalar => never_closed(),
            ErrorKind::InvalidTrailingSingleQuotedScalar if hit == line => self.error(
                self.rest(self.failure.at),
                "text follows the closing quote",
                "within single quotes, write `'` twice",
            ),
            ErrorKind::InvalidTrailingDoubleQuotedScalar if hit == line => self.error(
                self.rest(self.failure.at),
                "text follows the closing quote",
                "put the whole value in quotes; within double quotes, write `\\\"` for a quote",
            ),
            ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
                never_closed()
            }
            ErrorKind::InvalidQuotedScalarIndent | ErrorKind::DocumentIndicatorInQuotedScalar
                if self.lines.is_blank(hit) || self.lines.is_entry(hit) || self.lines.text(hit).starts_with("---") =>
            {
                never_closed()
            }
            ErrorKind::UnknownQuotedScalarEscape
            | ErrorKind::InvalidQuotedScalarHexEscape
            | ErrorKind::InvalidUnicodeEscape
            | ErrorKind::InvalidLowSurrogateHexEscape
            | ErrorKind::InvalidLowSurrogate
            | ErrorKind::MissingLowSurrogate
            | ErrorKind::UnpairedLowSurrogate => {
                let mut finding = self.parser_finding();
                finding.span.range = self.bad_escape(open).unwrap_or(finding.span.range);
                finding
            }
            _ => self.parser_finding(),
        };
        Diagnosis::new(finding, ways)
    }

    fn without_quoted(&self, open: usize, line: usize) -> Vec<Vec<RecoveryEdit>> {
        let end = self.lines.span(line).end;
        let is_escape = self.is_at_quote() && self.failure.kind != ErrorKind::UnclosedQuotedScalar;
        let mut ways = Vec::new();
        let bytes = &self.text.as_bytes()[..end];
        if is_escape && let Some(close) = closing_quote(bytes, open, b'"') {
            ways.push(RecoveryEdit::placeholder(open..close));
        }
        if let Some(bracket) = self.failure.brackets.first() {
            let before_brackets = self.text[open..end].trim_end_matches([']', '}', ',', ' ']).len();
            ways.push(RecoveryEdit::placeholder(open..open + before_brackets.max(1)));
            ways.extend(self.without_value_at(self.lines.of(*bracket), *bracket));
        } else {
            let mut whole = self.without_value_at(line, open);
            // A string holds no entries: what is indented below its start belongs to it.
            let is_value = self.lines.value_start(line).is_some_and(|start| start <= open);
            if is_value && whole.len() > 1 {
                whole.swap(0, 1);
            }
            ways.extend(whole);
        }
        ways
    }

    /// The first escape that double-quoted strings don't know, or that lacks its hexadecimal digits.
    fn bad_escape(&self, open: usize) -> Option<std::ops::Range<usize>> {
        let mut letters = self.text[open + 1..].char_indices();
        while let Some((at, letter)) = letters.next() {
            if letter != '\\' {
                continue;
            }
            let (next, escaped) = letters.next()?;
            let end = open + 1 + next + escaped.len_utf8();
            let wanted = match escaped {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            let digits: String = self.text[end..].chars().take_while(char::is_ascii_hexdigit).take(wanted).collect();
            let is_letter =
                wanted == 0 || u32::from_str_radix(&digits, 16).is_ok_and(|code| char::from_u32(code).is_some());
            if digits.len() < wanted || !is_letter || !"0abt\tnvfre \"/\\N_LPxuU\n\r".contains(escaped) {
                return Some(open + 1 + at..end + digits.len());
            }
        }
        None
    }
}
