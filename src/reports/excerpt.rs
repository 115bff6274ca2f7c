//! Excerpts of a source file around some spans: few, short and sanitized lines, however long the file or its lines are.

use std::ops::Range;

use crate::diagnostic::Source;
use crate::text::sanitize;

/// Characters shown before and after the start of the first span in a line.
const CHARS_BEFORE: usize = 200;
const CHARS_AFTER: usize = 600;
/// A span of more lines shows only its first line.
const MAX_LINES: usize = 8;

pub(super) struct Excerpt {
    /// The lines, joined with `\n`.
    pub(super) text: String,
    /// The 1-based number of the first line.
    pub(super) first_line: usize,
    /// The spans, as byte ranges of `text`.
    pub(super) spans: Vec<Range<usize>>,
}

/// The first and the last line that are shown of a span, 1-based.
pub(super) fn line_range(source: &Source, span: &Range<usize>) -> (usize, usize) {
    let first = source.position(span.start).0;
    let last = source.position(span.end.max(span.start)).0;
    (first, if last - first < MAX_LINES { last } else { first })
}

/// Takes the lines from the first span to the last.
pub(super) fn excerpt_around(source: &Source, spans: &[Range<usize>]) -> Excerpt {
    let covered: Vec<(usize, usize)> = spans.iter().map(|span| line_range(source, span)).collect();
    let first_line = covered.iter().map(|(first, _)| *first).min().unwrap_or(1);
    let last_line = covered.iter().map(|(_, last)| *last).max().unwrap_or(1);
    let mut text = String::new();
    let mut offsets: Vec<(usize, usize)> = Vec::new();
    for number in first_line..=last_line {
        let line = source.line_span(number);
        let here = spans.iter().map(|span| span.start).filter(|start| line.contains(start)).min();
        let kept = visible_range(&source.text, &line, here.unwrap_or(line.start));
        if kept.start > line.start {
            text.push('…');
        }
        for (at, letter) in source.text[kept.clone()].char_indices() {
            offsets.push((kept.start + at, text.len()));
            if letter == '[' && sanitize::opens_ci_command(&text) {
                text.push('\\');
            }
            text.push(sanitize::replacement_char(letter).unwrap_or(letter));
        }
        offsets.push((kept.end, text.len()));
        if kept.end < line.end {
            text.push('…');
        }
        text.push('\n');
    }
    text.pop();
    let found = |offset: usize| {
        let at = offsets.partition_point(|(source, _)| *source < offset);
        offsets.get(at).map_or(text.len(), |(_, shown)| *shown)
    };
    let spans = spans
        .iter()
        .zip(&covered)
        .map(|(span, (_, last))| {
            let end = span.end.min(source.line_span(*last).end).max(span.start);
            let start = found(span.start);
            start..found(end).max(start)
        })
        .collect();
    Excerpt { text, first_line, spans }
}

/// The part of a line that is shown around an offset.
fn visible_range(text: &str, line: &Range<usize>, offset: usize) -> Range<usize> {
    let before = &text[line.start..offset];
    let after = &text[offset..line.end];
    let start = before.char_indices().rev().nth(CHARS_BEFORE).map_or(line.start, |(at, _)| line.start + at);
    let end = after.char_indices().nth(CHARS_AFTER).map_or(line.end, |(at, _)| offset + at);
    start..end
}
