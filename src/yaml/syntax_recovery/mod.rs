//! Continues after a syntax error.
//!
//! The part that the parser can't read is blanked out, byte for byte, so that all places stay true, and the text is
//! parsed again: first with the repairs that fit the error, then without the value, the line, or all lines up to the next
//! key or item of the same level. The edit after which the parser gets farthest is kept.

mod diagnosis;
mod edits;
pub(super) mod lines;
mod merge_conflicts;
mod parse_failure;

use std::sync::Arc;

use granit_parser::ErrorKind;

use self::diagnosis::{Diagnosis, ErrorContext};
use self::edits::{RecoveryEdit, apply_edits};
use self::lines::Lines;
use self::parse_failure::{PARSE_BUDGET, ParseFailure, closing_quote, probe};
use super::parse_messages;
use crate::diagnostic::{Diagnostic, Source};

pub(super) use self::edits::{RecoveryGap, blank_gaps};

/// How many errors are reported; the text after the next one is dropped.
const MAX_ROUNDS: usize = 20;

/// A text that the parser accepts.
pub(super) struct RecoveredText {
    /// As long as the source, and the same outside of the gaps.
    pub(super) text: String,
    pub(super) gaps: Vec<RecoveryGap>,
    pub(super) found: Vec<Diagnostic>,
    /// Whether there may be more errors in the last gap, which reaches to the end.
    pub(super) is_truncated: bool,
}

/// Blanks out what the parser doesn't accept.
///
/// # Errors
/// The finding after which nothing can be read.
pub(super) fn recover_syntax(source: &Arc<Source>, text: String) -> Result<RecoveredText, Box<Diagnostic>> {
    let mut recovered = RecoveredText { text, gaps: Vec::new(), found: Vec::new(), is_truncated: false };
    let mut budget = PARSE_BUDGET;
    let mut failure = probe(&recovered.text, &mut budget);
    if failure.is_some() {
        for (finding, edits) in merge_conflicts::conflicts(source, &recovered.text) {
            recovered.found.push(finding);
            recovered.apply(&edits);
        }
        if !recovered.found.is_empty() {
            failure = probe(&recovered.text, &mut budget);
        }
    }
    for round in 0.. {
        let Some(current) = failure else { break };
        if current.kind == ErrorKind::RecursionLimitExceeded {
            return Err(Box::new(parse_messages::finding(source, &current.kind, current.at)));
        }
        let text = recovered.text.as_str();
        let context = ErrorContext { source, text, lines: Lines { source, text }, failure: &current };
        let Diagnosis { finding, repairs, start, above } = context.diagnose();
        if round >= MAX_ROUNDS || budget == 0 {
            let from = context.lines.content(context.lines.of(start.min(current.at))).start;
            recovered.report(finding);
            recovered.apply(&[RecoveryEdit::blank(from..recovered.text.len())]);
            recovered.is_truncated = true;
            if probe(&recovered.text, &mut budget).is_some() {
                recovered.apply(&[RecoveryEdit::blank(0..recovered.text.len())]);
            }
            break;
        }
        let (above, lines_above) = above.unzip();
        let mut candidates = repairs;
        candidates.extend(removals(&context, start));
        candidates.extend(lines_above.map(|span| vec![RecoveryEdit::blank(span)]));
        let count = candidates.len();
        let mut best: Option<(usize, usize, Option<ParseFailure>)> = None;
        for (number, edits) in candidates.iter().enumerate() {
            let next = probe(&apply_edits(text, edits), &mut budget);
            let reached = current.progress(next.as_ref(), edits.iter().all(|edit| edit.fill == b','));
            if best.as_ref().is_none_or(|(farthest, ..)| reached > *farthest) {
                best = Some((reached, number, next));
            }
            if reached == usize::MAX || budget == 0 {
                break;
            }
        }
        failure = match best {
            Some((_, number, next)) => {
                recovered.report(above.filter(|_| number + 1 == count).unwrap_or(finding));
                recovered.apply(&candidates[number]);
                next
            }
            None => Some(current),
        };
    }
    Ok(recovered)
}

/// Edits that leave out the part that begins at `start`: an item between brackets, a value, a line; with the lines below
/// that belong to it.
fn removals(context: &ErrorContext<'_>, start: usize) -> Vec<Vec<RecoveryEdit>> {
    let ErrorContext { text, lines, failure, .. } = *context;
    let line_end = lines.span(lines.of(start)).end;
    let mut edits = Vec::new();
    let quote = text.as_bytes().get(start).copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let quoted = quote.and_then(|quote| closing_quote(&text.as_bytes()[..line_end], start, quote));
    edits.extend(quoted.filter(|_| !failure.follows_quote()).map(|end| RecoveryEdit::null(start..end)));
    let outer = failure.brackets.first().copied().unwrap_or(start).min(start);
    if !failure.brackets.is_empty() && (quote.is_some() || start > outer) {
        let rest = &text[start..line_end];
        let length = match rest.as_bytes().first() {
            Some(b'"' | b'\'') => rest.trim_end_matches([']', '}', ',', ' ']).len(),
            Some(b'[' | b'{') => rest.trim_end_matches([',', ' ']).len(),
            _ => rest.find([',', ']', '}']).unwrap_or(rest.len()),
        };
        edits.push(RecoveryEdit::null(start..start + length.max(1)));
    }
    let line = lines.of(outer);
    let value = lines.value_start(line).filter(|value| *value <= outer);
    let column = if value.is_some() { lines.key_column(line) } else { lines.indent(line) };
    let from = value.unwrap_or(lines.content(line).start);
    let is_deeper = |below| lines.indent(below) > column;
    let deeper = lines.end_while(line, is_deeper);
    let text_only = lines.end_while(line, |below| is_deeper(below) && !lines.is_entry(below));
    let up_to_entry = lines.end_while(line, |below| is_deeper(below) || !lines.is_entry(below));
    let ends = match value {
        // A string holds no entries: what is indented below its start is part of it.
        Some(_) if quote.is_some() => [deeper, text_only, up_to_entry],
        Some(_) => [text_only, deeper, up_to_entry],
        None if lines.opens_block(line) => [deeper, lines.content(line).end, up_to_entry],
        None => [lines.content(line).end, deeper, up_to_entry],
    };
    let mut seen = Vec::new();
    for end in ends {
        if end > from && !seen.contains(&end) {
            seen.push(end);
            edits.push(vec![RecoveryEdit::blank(from..end)]);
        }
    }
    edits
}

impl RecoveredText {
    /// Adds a finding, unless it is about something that is gone already.
    fn report(&mut self, finding: Diagnostic) {
        let range = &finding.span.range;
        let is_gone = self.gaps.iter().any(|gap| gap.span.start <= range.start && range.end <= gap.span.end);
        if !is_gone {
            self.found.push(finding);
        }
    }

    fn apply(&mut self, edits: &[RecoveryEdit]) {
        self.text = apply_edits(&self.text, edits);
        self.gaps
            .extend(edits.iter().map(|edit| RecoveryGap { span: edit.span.clone(), is_data_lost: edit.is_data_lost }));
    }
}
