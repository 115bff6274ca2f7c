//! Where the parser stops, and which quotes and brackets are open there.

use std::ops::Range;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, StructureStyle};

use super::super::limits::{MAX_NODES, clamp_range, parser_options};

/// Where and how the parser stopped.
pub(super) struct ParseFailure {
    pub(super) kind: ErrorKind,
    /// The byte that the parser names: where it stopped, or where the part begins that it couldn't read.
    pub(super) at: usize,
    /// The last scalar, alias or bracket before that.
    pub(super) last_token: Range<usize>,
    /// Whether that is a block text.
    pub(super) is_after_block: bool,
    /// Where the open brackets are, the outermost first.
    pub(super) brackets: Vec<usize>,
    /// Whether the outermost of them follows a block text.
    pub(super) bracket_after_block: bool,
    /// The quoted string that is open, or that the failure follows.
    pub(super) quote: Option<usize>,
}

impl ParseFailure {
    /// The end of the last event.
    fn events_end(&self) -> usize {
        let bracket = self.brackets.last().map_or(0, |bracket| bracket + 1);
        self.last_token.end.max(bracket).min(self.at)
    }

    /// How much the parser has read.
    fn parsed_until(&self, text: &str) -> usize {
        if self.is_at_unclosed_opener() { text.len() } else { self.at }
    }

    /// How far the parser gets after an edit, given where it stops next. An inserted comma only has to change that place:
    /// between brackets the parser looks ahead, so the next error may be before this one.
    pub(super) fn progress(&self, next: Option<&Self>, is_comma: bool) -> usize {
        match next {
            None => usize::MAX,
            Some(next) if is_comma && next.at != self.at && !next.is_at_unclosed_opener() => usize::MAX,
            Some(next) => next.at,
        }
    }

    /// Whether the parser names the place where something begins that is never closed.
    pub(super) fn is_at_unclosed_opener(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::UnclosedFlowCollection { .. }
                | ErrorKind::MismatchedFlowCollectionEnd { .. }
                | ErrorKind::UnclosedQuotedScalar
        )
    }

    /// Whether the parser names a place in or after a quoted string, not its start.
    pub(super) fn follows_quote(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::InvalidQuotedScalarIndent
                | ErrorKind::DocumentIndicatorInQuotedScalar
                | ErrorKind::InvalidTrailingSingleQuotedScalar
                | ErrorKind::InvalidTrailingDoubleQuotedScalar
        )
    }
}

/// How much all attempts to parse a text may read: about half a second. An event counts as 16 bytes.
pub(super) const PARSE_BUDGET: usize = 16 << 20;

/// Parses the text's first document. `None` if its syntax is right, up to the greatest number of values.
pub(super) fn probe(text: &str, budget: &mut usize) -> Option<ParseFailure> {
    let mut events = 0;
    let outcome = first_failure(text, &mut events);
    let bytes = outcome.as_ref().map_or(text.len(), |failure| failure.parsed_until(text));
    *budget = budget.saturating_sub(bytes.max(16 * events));
    outcome
}

fn first_failure(text: &str, events: &mut usize) -> Option<ParseFailure> {
    let mut failure = ParseFailure {
        kind: ErrorKind::UnexpectedEof,
        at: 0,
        last_token: 0..0,
        is_after_block: false,
        brackets: Vec::new(),
        bracket_after_block: false,
        quote: None,
    };
    let mut open: Vec<bool> = Vec::new();
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, parser_options()) {
        *events += 1;
        if *events > 2 * MAX_NODES {
            return None;
        }
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(0);
                failure.at = clamp_range(text, at..at).start;
                failure.kind = error.kind().clone();
                // The scanner is ahead of the events.
                let (brackets, quote) = scan_open_delimiters(text, failure.events_end(), failure.at);
                if failure.brackets.is_empty() {
                    failure.bracket_after_block = failure.is_after_block;
                }
                failure.brackets.extend(brackets);
                failure.quote = quote;
                return Some(failure);
            }
        };
        let range = clamp_range(text, span.byte_range().unwrap_or(0..0));
        let is_block = match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return None;
                }
                continue;
            }
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => true,
            Event::Scalar(..) if range.is_empty() => continue,
            Event::Scalar(..) | Event::Alias(..) | Event::UnresolvedAlias(..) => false,
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                open.push(style == StructureStyle::Flow);
                if style == StructureStyle::Flow {
                    if failure.brackets.is_empty() {
                        failure.bracket_after_block = failure.is_after_block;
                    }
                    failure.brackets.push(range.start);
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if open.pop() != Some(true) {
                    continue;
                }
                failure.brackets.pop();
                false
            }
            _ => continue,
        };
        failure.last_token = range;
        failure.is_after_block = is_block;
    }
    None
}

/// Scans `text[from..to]`, which starts outside of quotes and comments: where the brackets are that are open at its end, the
/// outermost first, and the quoted string that isn't closed, or that it ends with.
fn scan_open_delimiters(text: &str, from: usize, to: usize) -> (Vec<usize>, Option<usize>) {
    let bytes = &text.as_bytes()[..to.max(from)];
    let (mut brackets, mut open_quote) = (Vec::new(), None);
    let mut at = from;
    while at < bytes.len() {
        let spaces = bytes[..at].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let before = bytes[..at - spaces].last().copied().unwrap_or(b'\n');
        let begins = matches!(before, b':' | b',' | b'-' | b'?' | b'[' | b'{' | b'\n' | b'\r') || at - spaces <= from;
        match bytes[at] {
            b'#' if spaces > 0 || matches!(before, b'\n' | b'\r') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
            }
            quote @ (b'"' | b'\'') if begins || !brackets.is_empty() => {
                let end = closing_quote(bytes, at, quote);
                let is_last = end.is_none_or(|end| bytes[end..].trim_ascii().is_empty());
                if is_last {
                    open_quote = Some(at);
                }
                at = end.unwrap_or(bytes.len());
                continue;
            }
            // Within brackets no plain text can hold one.
            b'[' | b'{' if begins || !brackets.is_empty() => brackets.push(at),
            b']' | b'}' => drop(brackets.pop()),
            _ => {}
        }
        at += 1;
    }
    (brackets, open_quote)
}

/// The end of a quoted string, its closing quote included.
pub(super) fn closing_quote(bytes: &[u8], open: usize, quote: u8) -> Option<usize> {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 1,
            byte if byte == quote => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_delimiters_are_found() {
        for (text, brackets, quote) in [
            ("a: [b, {c: d}, [", &[3, 15][..], None),
            ("a: \"x", &[], Some(3)),
            ("a: \"x\\\" y\" ", &[], Some(3)),
            ("a: 'it''s' b", &[], None),
            ("it's # \"no\n b: 'c", &[], Some(15)),
            ("{\"a\": [\"b\" ", &[0, 6], Some(7)),
            ("x[1] y", &[], None),
            ("[ x {{ y }} ", &[0], None),
        ] {
            assert_eq!(scan_open_delimiters(text, 0, text.len()), (brackets.to_vec(), quote), "{text}");
        }
    }
}
