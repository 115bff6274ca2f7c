//! Explains a syntax error: what to tell the author, what may repair it, and where the unreadable part begins.

use std::ops::Range;
use std::sync::Arc;

use granit_parser::ErrorKind;

use super::super::limits::clamp_range;
use super::super::parse_messages;
use super::super::scalar_spans::escape_length;
use super::edits::RecoveryEdit;
use super::lines::{Lines, word};
use super::parse_failure::ParseFailure;
use crate::diagnostic::{Diagnostic, Fix, Source, SourceSpan};

const ALIGN: &str = "align it with the keys or dashes of the same level";

/// How many lines with tabs are repaired together.
const MAX_TAB_LINES: usize = 1000;

/// Where the parser stopped, and the text around it.
pub(super) struct ErrorContext<'a> {
    pub(super) source: &'a Arc<Source>,
    pub(super) text: &'a str,
    pub(super) lines: Lines<'a>,
    pub(super) failure: &'a ParseFailure,
}

/// A syntax error in our words.
pub(super) struct Diagnosis {
    pub(super) finding: Diagnostic,
    /// Edits that lose less than the whole value.
    pub(super) repairs: Vec<Vec<RecoveryEdit>>,
    /// Where the part begins that has to go if no repair helps.
    pub(super) start: usize,
    /// The lines above this one, and what to report, if it is those that are wrong.
    pub(super) above: Option<(Diagnostic, Range<usize>)>,
}

impl Diagnosis {
    fn new(finding: Diagnostic, start: usize) -> Self {
        Self { finding, repairs: Vec::new(), start, above: None }
    }
}

impl ErrorContext<'_> {
    pub(super) fn diagnose(&self) -> Diagnosis {
        use ErrorKind as E;
        let ParseFailure { kind, at, brackets, last_token, .. } = self.failure;
        let (at, line) = (*at, self.lines.of(*at));
        if let Some(line) = self.unindented_block_line() {
            return self.block_text(line);
        }
        match kind {
            _ if self.runs_out_of_brackets() => self.bracket(),
            _ if brackets.is_empty() && self.tab_in(line).is_some() => self.tab(),
            kind if parse_messages::is_tab_error(kind) => self.tab(),
            _ if self.failure.follows_quote() => self.after_quote(),
            E::UnclosedQuotedScalar => Diagnosis::new(self.unclosed_quote(at), at),
            E::MisplacedFlowCollectionEnd => self.unmatched_bracket(),
            E::UnexpectedCharacter { .. } => self.unexpected_character(),
            kind if parse_messages::is_escape_error(kind) => {
                let mut finding = self.parser_finding();
                finding.span.range = self.bad_escape(at).unwrap_or(finding.span.range);
                Diagnosis::new(finding, at)
            }
            _ if !brackets.is_empty() || matches!(kind, E::UnclosedFlowCollection { .. }) => self.bracket(),
            E::MappingValueNotAllowed => self.misplaced_colon(),
            E::SimpleKeyExpected | E::InvalidSimpleKey => self.missing_key(line),
            E::ExpectedBlockMappingKey | E::ExpectedBlockSequenceEntry => self.missing_entry(),
            E::ExpectedDocumentStart if last_token.end > 0 => self.misplaced_line(line),
            E::ExpectedDocumentStart if line > 1 => {
                Diagnosis::new(self.parser_finding(), self.lines.content(line - 1).start)
            }
            _ => Diagnosis::new(self.parser_finding(), at),
        }
    }

    fn place(&self, span: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range: clamp_range(&self.source.text, span) }
    }

    fn error(&self, span: Range<usize>, message: impl Into<String>, help: &str) -> Diagnostic {
        Diagnostic::error("yaml-syntax", self.place(span), message).help(help)
    }

    /// The parser's own error, in our words.
    fn parser_finding(&self) -> Diagnostic {
        parse_messages::finding(self.source, &self.failure.kind, self.failure.at)
    }

    // Quotes.

    fn unclosed_quote(&self, open: usize) -> Diagnostic {
        self.error(open..open + 1, "this quote is never closed", "close it; within single quotes, write `'` twice")
    }

    /// Something after a quoted string, or a line that can't be part of one.
    fn after_quote(&self) -> Diagnosis {
        let ParseFailure { kind, at, brackets, quote, .. } = self.failure;
        let open = quote.unwrap_or(*at);
        let (line, hit) = (self.lines.of(open), self.lines.of(*at));
        let is_trailing =
            matches!(kind, ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar);
        if is_trailing && !brackets.is_empty() && self.text[..*at].ends_with([' ', '\n', '\r']) {
            return self.missing_comma(open);
        }
        let is_outside =
            || self.lines.is_blank(hit) || self.lines.is_entry(hit) || self.lines.text(hit).starts_with("---");
        let finding = if is_trailing && hit == line {
            let help = "put the whole value in quotes; a quote inside them is written `\\\"`, or `''` in single quotes";
            self.error(self.rest(*at), "text follows the closing quote", help)
        } else if is_trailing || is_outside() {
            self.unclosed_quote(open)
        } else {
            self.parser_finding()
        };
        Diagnosis::new(finding, open)
    }

    /// The first escape that double-quoted strings don't have, or that lacks its hexadecimal digits.
    fn bad_escape(&self, open: usize) -> Option<Range<usize>> {
        let mut at = open + 1;
        loop {
            let start = at + self.text[at..].find('\\')?;
            match escape_length(&self.text[start..]) {
                Some(length) => at = start + length,
                None => return Some(start..start + 1 + self.text[start + 1..].chars().next()?.len_utf8()),
            }
        }
    }

    // Brackets.

    /// Something between brackets.
    fn bracket(&self) -> Diagnosis {
        let ParseFailure { kind, at, brackets, .. } = self.failure;
        let inner = brackets.last().copied().filter(|_| !self.failure.is_at_unclosed_opener()).unwrap_or(*at);
        match kind {
            kind if self.runs_out_of_brackets() || matches!(kind, ErrorKind::UnclosedFlowCollection { .. }) => {
                let message = format!("this `{}` is never closed", &self.text[inner..=inner]);
                let help = "close it, or put a text that holds it in quotes";
                Diagnosis::new(self.error(inner..inner + 1, message, help), inner)
            }
            ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => {
                self.missing_comma(inner)
            }
            _ => Diagnosis::new(self.parser_finding(), inner),
        }
    }

    /// Whether the parser stopped in lines that can't be between the open brackets: they are never closed.
    fn runs_out_of_brackets(&self) -> bool {
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

    /// Two values between brackets without a comma.
    fn missing_comma(&self, start: usize) -> Diagnosis {
        let at = self.failure.at;
        let last = self.failure.last_token.clone();
        let words = &self.text[last.clone()];
        let is_word = words.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if is_word && self.text[at..].starts_with(['[', '{']) && self.text[last.end..at].trim().is_empty() {
            let message = "a `: ` or a `,` is missing before this";
            return Diagnosis::new(self.error(at..at + 1, message, "write `key: [value]`"), last.start);
        }
        let next = match self.text[at..].starts_with(':') {
            // Of several words before the colon, the last one is the key.
            true if is_word => last.start + words.rfind([' ', '\n']).map_or(0, |space| space + 1),
            true => last.start,
            false => at,
        };
        let before = self.text[..next].trim_end().len();
        let end = if next < at { last.end } else { next + self.text[next..].chars().next().map_or(0, char::len_utf8) };
        let message = "a `,` is missing before this";
        let mut diagnosis =
            Diagnosis::new(self.error(next..end, message, "separate the values between brackets by commas"), start);
        if before < next && !self.text[..before].ends_with(['[', '{', ',']) {
            diagnosis.finding.fix = Some(Fix { span: self.place(before..before), replacement: ",".to_owned() });
            // There is white space to put it in.
            let comma = RecoveryEdit { span: before..before + 1, fill: b',', is_data_lost: false };
            diagnosis.repairs.push(vec![comma]);
        }
        diagnosis
    }

    /// A closing bracket without an opening one.
    fn unmatched_bracket(&self) -> Diagnosis {
        let at = self.failure.at;
        let message = format!("this `{}` has no opening bracket", &self.text[at..=at]);
        let finding = self.error(at..at + 1, message, "remove it, or put a text that holds it in quotes");
        let mut diagnosis = Diagnosis::new(finding, at);
        if self.lines.value_start(self.lines.of(at)) != Some(at) {
            diagnosis.repairs.push(vec![RecoveryEdit { is_data_lost: false, ..RecoveryEdit::blank(at..at + 1) }]);
        }
        diagnosis
    }

    // Values that need quotes.

    /// From a place to the end of its line, without a comment.
    fn rest(&self, at: usize) -> Range<usize> {
        let line = &self.text[at..self.lines.span(self.lines.of(at)).end.max(at)];
        let rest = line.find(" #").map_or(line, |comment| &line[..comment]).trim_end();
        at..at + rest.len()
    }

    /// Offers quotes around the rest of a line, if it is a whole value.
    fn with_quotes(&self, mut finding: Diagnostic, start: usize) -> Diagnostic {
        let span = self.rest(start);
        let line = self.lines.of(start);
        let column = self.lines.key_column(line);
        let continues =
            self.lines.end_while(line, |below| self.lines.indent(below) > column) > self.lines.span(line).end;
        let text = &self.source.text[span.clone()];
        let is_value = self.lines.value_start(line) == Some(start);
        if is_value && !continues && !text.is_empty() && !text.contains(['"', '\\', '\t']) {
            finding.fix = Some(Fix { replacement: format!("\"{text}\""), span: self.place(span) });
        }
        finding
    }

    fn unquoted_template(&self, start: usize) -> Diagnosis {
        let message = format!("a value that starts with `{}` needs quotes", &self.text[start..start + 2]);
        let finding = self.error(self.rest(start), message, "without quotes, `{` starts a mapping");
        Diagnosis::new(self.with_quotes(finding, start), start)
    }

    /// A character that no value starts with.
    fn unexpected_character(&self) -> Diagnosis {
        let ParseFailure { kind, at, brackets, .. } = self.failure;
        let is_template = *kind == ErrorKind::UnexpectedCharacter { character: '%' } && self.text[..*at].ends_with('{');
        match brackets.first() {
            Some(outer) if is_template && *outer == at - 1 => self.unquoted_template(at - 1),
            Some(_) => Diagnosis::new(self.parser_finding(), *at),
            None => Diagnosis::new(self.with_quotes(self.parser_finding(), *at), *at),
        }
    }

    /// Something that follows a value in the same line.
    fn trailing(&self, line: usize) -> Diagnosis {
        let at = self.failure.at;
        let Some(value) = self.lines.value_start(line).filter(|value| *value < at) else {
            return Diagnosis::new(self.parser_finding(), at);
        };
        let text = &self.text[value..];
        if text.starts_with("{{") || text.starts_with("{%") {
            return self.unquoted_template(value);
        }
        let finding = match text.chars().next() {
            Some('*') => {
                let help = "without quotes, `*` is an alias, and nothing can follow its name";
                let finding = self.error(self.rest(value), "a value that starts with `*` needs quotes", help);
                self.with_quotes(finding, value)
            }
            Some('&') => self.error(
                self.rest(value),
                "an anchor must be followed by a value",
                "put a string that starts with `&` in quotes",
            ),
            Some('[' | '{') => self.error(
                self.rest(at),
                "text follows the closing bracket",
                "remove it, or put the whole value in quotes",
            ),
            _ => self.parser_finding(),
        };
        Diagnosis::new(finding, value)
    }

    // Lines.

    /// From the first tab in a line's indentation to the end of the indentation.
    fn tab_in(&self, line: usize) -> Option<Range<usize>> {
        let text = self.lines.text(line);
        let white = text.len() - text.trim_start_matches([' ', '\t']).len();
        let start = self.lines.span(line).start;
        text[..white].find('\t').map(|first| start + first..start + white)
    }

    /// A tab in the indentation: in neighbouring lines, each tab may stand for one space.
    fn tab(&self) -> Diagnosis {
        let lines = self.lines;
        let at = lines.of(self.failure.at);
        let next = (at + 1..=lines.last()).find(|line| !lines.text(*line).trim().is_empty());
        let Some(first) = [Some(at), next].into_iter().flatten().find(|line| self.tab_in(*line).is_some()) else {
            return Diagnosis::new(self.parser_finding(), self.failure.at);
        };
        let rows = (first..=lines.last())
            .take(MAX_TAB_LINES)
            .take_while(|line| lines.is_blank(*line) || self.tab_in(*line).is_some());
        let tabs: Vec<Range<usize>> = rows.filter_map(|line| self.tab_in(line)).collect();
        let start = tabs.first().map_or(self.failure.at, |span| span.start);
        let last = tabs.last().map_or(first, |span| lines.of(span.start));
        let finding = self.error(start..start + 1, "a tab in the indentation", "indent with spaces");
        let spaces = tabs.into_iter().map(|span| RecoveryEdit { span, fill: b' ', is_data_lost: false });
        Diagnosis {
            repairs: vec![spaces.collect(), vec![RecoveryEdit::blank(lines.span(first).start..lines.span(last).end)]],
            ..Diagnosis::new(finding, lines.content(first).start)
        }
    }

    /// A `: ` where no key can be.
    fn misplaced_colon(&self) -> Diagnosis {
        let at = self.failure.at;
        let line = self.lines.of(at);
        let token_line = self.lines.of(self.failure.last_token.start);
        if token_line < line && !self.lines.is_entry(token_line) {
            return self.missing_key(token_line);
        }
        match self.lines.value_start(line).filter(|value| token_line == line && *value < at) {
            Some(value) if &self.text[value..at] == "file" => {
                let help = "a text of a file is written `{ file: PATH }`; put a value that holds `: ` in quotes";
                Diagnosis::new(self.parser_finding().help(help), value)
            }
            Some(value) => Diagnosis::new(self.parser_finding(), value),
            None => self.misplaced_line(line),
        }
    }

    /// A line whose indentation is wrong.
    fn misplaced_line(&self, line: usize) -> Diagnosis {
        let lines = self.lines;
        let span = lines.content(line);
        let text = &self.text[span.clone()];
        let is_item = text.starts_with("- ") || text == "-";
        let fits = (1..line).rev().any(|above| {
            !lines.is_blank(above) && lines.is_entry(above) && lines.key_column(above) == lines.indent(line)
        });
        let finding = if is_item && fits {
            let help = "indent it below a key that has no other value, or remove the dash";
            self.error(span.clone(), "a list item isn't allowed here", help)
        } else {
            self.error(span.clone(), "the indentation of this line matches no line above it", ALIGN)
        };
        // Perhaps the lines above are wrong: then all lines below fit this one.
        let opens = |above: &usize| {
            let written = &self.source.text[lines.span(*above)];
            lines.indent(*above) < lines.indent(line) && written.trim_end().ends_with(':')
        };
        let first = (1..line).rev().find(opens).map_or(1, |opener| opener + 1);
        let above = (first..line).find(|above| !lines.is_blank(*above)).map(|first| {
            let Range { start, end } = lines.content(first);
            let message = "the lines below aren't aligned with this one";
            (self.error(start..end, message, ALIGN), start..lines.span(line - 1).end)
        });
        Diagnosis { above, ..Diagnosis::new(finding, span.start) }
    }

    /// A line that neither starts an entry nor continues the value above it.
    fn missing_key(&self, line: usize) -> Diagnosis {
        let span = self.lines.content(line);
        let text = &self.text[span.clone()];
        let key = word(text);
        let insert = |at: usize, text: &str| Some(Fix { span: self.place(at..at), replacement: text.to_owned() });
        let after_key = text[key..].strip_prefix(':').unwrap_or_default();
        if key > 0 && !after_key.is_empty() && !after_key.starts_with([' ', '/']) {
            let colon = span.start + key;
            let mut finding =
                self.error(colon..colon + 1, "a space is missing after this `:`", "write `key: value`, with a space");
            finding.fix = insert(colon + 1, " ");
            let value = vec![RecoveryEdit::blank(colon + 1..span.end)];
            return Diagnosis { repairs: vec![value], ..Diagnosis::new(finding, span.start) };
        }
        let finding = if text == "-" || text.starts_with("- ") {
            return self.misplaced_line(line);
        } else if text.starts_with('-') && text.len() > 1 && !text.starts_with("--") {
            let dash = span.start;
            let mut finding =
                self.error(dash..dash + 1, "a space is missing after this `-`", "write `- item`, with a space");
            // `-5` may be a number.
            if !text[1..].starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
                finding.fix = insert(dash + 1, " ");
            }
            finding
        } else if key == text.len() && self.lines.opens_below(line) {
            let mut finding = self.error(span.clone(), "a `:` is missing after this key", "write `key:`");
            finding.fix = insert(span.end, ":");
            finding
        } else {
            parse_messages::missing_key(self.place(span.clone()))
        };
        Diagnosis::new(finding, span.start)
    }

    /// Something else where the next entry should start.
    fn missing_entry(&self) -> Diagnosis {
        let ParseFailure { at, last_token, is_after_block, .. } = self.failure;
        let line = self.lines.of(*at);
        let Range { start, end } = self.lines.content(line);
        if last_token.end > start && last_token.end <= *at && !is_after_block {
            return self.trailing(line);
        }
        if self.lines.is_entry(line) && self.lines.value_start(line) <= Some(end) {
            return self.misplaced_line(line);
        }
        self.missing_key(line)
    }

    // Block texts (`|` and `>`).

    /// The line on which the parser stopped after a block text, if it looks like a part of that text.
    fn unindented_block_line(&self) -> Option<usize> {
        let ParseFailure { at, brackets, quote, is_after_block, .. } = self.failure;
        let (start, follows) = match (brackets.first(), quote) {
            (Some(bracket), _) => (*bracket, self.failure.bracket_after_block),
            (None, Some(quote)) => (*quote, *is_after_block),
            (None, None) => (*at, *is_after_block),
        };
        let line = self.lines.of(start);
        let above = (1..line).rev().find(|above| !self.lines.is_blank(*above))?;
        let text = &self.text[self.lines.content(line)];
        let is_key = self.lines.is_entry(line) && !(self.lines.is_block_header(above) && text.starts_with('-'));
        let is_missing_space = text[word(text)..].starts_with(':');
        (follows && !is_key && !is_missing_space).then_some(line)
    }

    /// A line of a block text that isn't indented like the text.
    fn block_text(&self, line: usize) -> Diagnosis {
        let lines = self.lines;
        let span = lines.content(line);
        let Some(header) = (1..line).rev().find(|above| lines.is_block_header(*above)) else {
            return Diagnosis::new(self.parser_finding(), span.start);
        };
        let finding = if lines.indent(line) > lines.key_column(header) {
            let help = "indent every line of the text at least as deep as its first one";
            self.error(span, "this line is indented less than the text above it", help)
        } else {
            let help = "indent every line of the text deeper than its key";
            self.error(span, "this line isn't indented deeper than the key of the text above it", help)
        };
        let column = lines.key_column(header);
        let start = lines.value_start(header).unwrap_or(lines.span(header).start);
        let end = lines.end_while(line, |below| lines.indent(below) > column || !lines.is_usual_key(below));
        Diagnosis { repairs: vec![vec![RecoveryEdit::blank(start..end)]], ..Diagnosis::new(finding, start) }
    }
}
