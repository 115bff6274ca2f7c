//! How far the parser comes.

use std::ops::Range;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, StructureStyle};

use super::super::MAX_NODES;
use super::super::parse::{clamp_range, options};
use super::open_delimiters::scan_open_delimiters;

/// Where and how the parser stopped.
pub(super) struct ParseFailure {
    pub(super) kind: ErrorKind,
    /// The byte that the parser names: where it was, or where what it couldn't read begins.
    pub(super) at: usize,
    /// The last scalar, alias or bracket before.
    pub(super) last_token: Range<usize>,
    pub(super) last_token_kind: LastTokenKind,
    /// Where the brackets that are open begin, the outermost first.
    pub(super) brackets: Vec<usize>,
    /// Whether the outermost of them follows the text of a block.
    pub(super) bracket_after_block: bool,
    /// The quoted string that is open, or that the failure follows.
    pub(super) quote: Option<usize>,
}

/// What came before the failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastTokenKind {
    Block,
    Alias,
    Closed,
    Other,
}

impl ParseFailure {
    /// The end of what the events have told.
    fn events_end(&self) -> usize {
        let bracket = self.brackets.last().map_or(0, |bracket| bracket + 1);
        self.last_token.end.max(bracket).min(self.at)
    }

    /// How much the parser has read.
    fn parsed_until(&self, text: &str) -> usize {
        if self.is_at_unclosed_opener() { text.len() } else { self.at }
    }

    /// How far a way to mend this failure leads, given what is met on it. A comma costs nothing, so it need only lead on:
    /// within brackets the parser looks ahead of what it reports, so that the next error may stand before this one.
    pub(super) fn progress_with(&self, next: Option<&Self>, is_comma: bool) -> usize {
        match next {
            None => usize::MAX,
            Some(next) if is_comma && next.at != self.at && !next.is_at_unclosed_opener() => usize::MAX,
            Some(next) => next.at,
        }
    }

    /// Whether the place is where something begins that isn't closed anywhere behind it.
    pub(super) fn is_at_unclosed_opener(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::UnclosedFlowCollection { .. }
                | ErrorKind::MismatchedFlowCollectionEnd { .. }
                | ErrorKind::UnclosedQuotedScalar
        )
    }
}

/// What parsing may cost, over all tries together.
pub(super) struct ParseBudget {
    bytes: usize,
    events: usize,
}

impl ParseBudget {
    /// About half a second.
    pub(super) fn new() -> Self {
        Self { bytes: 16 << 20, events: 1_000_000 }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.bytes == 0 || self.events == 0
    }
}

/// Parses the text's first document; `None` where nothing is wrong with its syntax, as far as it may hold values at all.
pub(super) fn probe(text: &str, purse: &mut ParseBudget) -> Option<ParseFailure> {
    let mut events = 0;
    let outcome = first_failure(text, &mut events);
    purse.bytes = purse.bytes.saturating_sub(outcome.as_ref().map_or(text.len(), |failure| failure.parsed_until(text)));
    purse.events = purse.events.saturating_sub(events);
    outcome
}

fn first_failure(text: &str, events: &mut usize) -> Option<ParseFailure> {
    let mut failure = ParseFailure {
        kind: ErrorKind::UnexpectedEof,
        at: 0,
        last_token: 0..0,
        last_token_kind: LastTokenKind::Other,
        brackets: Vec::new(),
        bracket_after_block: false,
        quote: None,
    };
    let mut open: Vec<bool> = Vec::new();
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options()) {
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
                // What the parser has looked at ahead of its events.
                let ahead = scan_open_delimiters(text, failure.events_end(), failure.at);
                if failure.brackets.is_empty() {
                    failure.bracket_after_block = failure.last_token_kind == LastTokenKind::Block;
                }
                failure.brackets.extend(ahead.brackets);
                failure.quote = ahead.quote;
                return Some(failure);
            }
        };
        let range = clamp_range(text, span.byte_range().unwrap_or(0..0));
        let last_is = match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return None;
                }
                continue;
            }
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => LastTokenKind::Block,
            Event::Scalar(..) if range.is_empty() => continue,
            Event::Scalar(..) => LastTokenKind::Other,
            Event::Alias(..) | Event::UnresolvedAlias(..) => LastTokenKind::Alias,
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                open.push(style == StructureStyle::Flow);
                if style == StructureStyle::Flow {
                    if failure.brackets.is_empty() {
                        failure.bracket_after_block = failure.last_token_kind == LastTokenKind::Block;
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
                LastTokenKind::Closed
            }
            _ => continue,
        };
        failure.last_token = range;
        failure.last_token_kind = last_is;
    }
    None
}
