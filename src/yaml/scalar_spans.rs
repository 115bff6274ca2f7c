//! Maps ranges of a scalar's decoded text to the source.

use std::ops::Range;

use super::scalar::Style;
use crate::diagnostic::SourceSpan;

/// A segment of decoded text and its source.
#[derive(Debug, Clone)]
struct SpanSegment {
    decoded: Range<usize>,
    source: Range<usize>,
    /// Whether both are the same bytes; if not (an escape, a folded line end), only the whole segments correspond.
    is_verbatim: bool,
}

/// The source places of one scalar's decoded text, computed once for any number of ranges.
#[derive(Debug, Clone)]
pub struct ScalarSpanMap {
    whole: SourceSpan,
    /// The segments in order, without gaps in the decoded text; none if they can't be matched.
    pieces: Option<Vec<SpanSegment>>,
}

impl ScalarSpanMap {
    /// The map of a value that isn't a scalar: every place is the whole.
    pub(super) fn of_whole(whole: SourceSpan) -> Self {
        Self { whole, pieces: None }
    }

    /// The map of a scalar at `whole` with the decoded text `text`.
    pub(super) fn of_scalar(whole: SourceSpan, text: &str, style: Style) -> Self {
        let (source, span) = (&*whole.source.text, &whole.range);
        let mut segments = SegmentBuilder { source, text, list: Vec::new(), decoded: 0 };
        let matched = match style {
            Style::Plain => segments.flow(span.clone(), style),
            Style::Single | Style::Double if span.len() >= 2 => segments.flow(span.start + 1..span.end - 1, style),
            Style::Single | Style::Double => None,
            Style::Literal | Style::Folded => segments.block(span),
        };
        let fits = matched.is_some() && segments.decoded == text.len();
        let pieces = fits.then_some(segments.list);
        Self { whole, pieces }
    }

    /// The place of a range of bytes of the decoded text: exact in plain, quoted, literal and folded scalars; an escape
    /// or a folded line end is taken as a whole. If the range can't be found, the place of the scalar.
    pub fn place_of(&self, range_in_decoded_text: Range<usize>) -> SourceSpan {
        let range = range_in_decoded_text;
        let SourceSpan { source, range: span } = &self.whole;
        let Some(list) = &self.pieces else { return self.whole.clone() };
        let at = |index: usize, offset: usize, end: bool| match list.get(index) {
            Some(piece) if piece.is_verbatim => piece.source.start + offset.saturating_sub(piece.decoded.start),
            Some(piece) if end => piece.source.end,
            Some(piece) => piece.source.start,
            None => list.last().map_or(if end { span.end } else { span.start }, |piece| piece.source.end),
        };
        let start = at(list.partition_point(|piece| piece.decoded.end <= range.start), range.start, false);
        let end = if range.end <= range.start {
            start
        } else {
            at(list.partition_point(|piece| piece.decoded.end < range.end), range.end, true).max(start)
        };
        SourceSpan { source: source.clone(), range: start..end }
    }
}

/// Matches the source of a scalar with its decoded text, from start to end.
struct SegmentBuilder<'a> {
    source: &'a str,
    text: &'a str,
    list: Vec<SpanSegment>,
    /// How much of the decoded text is matched.
    decoded: usize,
}

impl<'a> SegmentBuilder<'a> {
    /// The decoded text that isn't matched yet.
    fn left(&self) -> &'a str {
        &self.text[self.decoded..]
    }

    /// Adds decoded text that is equal to its source.
    fn push_verbatim(&mut self, at: Range<usize>) -> Option<()> {
        let start = self.decoded;
        self.decoded += self.left().starts_with(&self.source[at.clone()]).then_some(at.len())?;
        match self.list.last_mut() {
            Some(last) if last.is_verbatim && last.source.end == at.start => {
                last.source.end = at.end;
                last.decoded.end = self.decoded;
            }
            _ => self.list.push(SpanSegment { decoded: start..self.decoded, source: at, is_verbatim: true }),
        }
        Some(())
    }

    /// Adds so many bytes of decoded text, which differ from their source.
    fn push_decoded(&mut self, length: usize, at: Range<usize>) {
        if length > 0 {
            let start = self.decoded;
            self.decoded += length;
            self.list.push(SpanSegment { decoded: start..self.decoded, source: at, is_verbatim: false });
        }
    }

    /// Maps plain and quoted scalars: `body` is the text between the quotes.
    fn flow(&mut self, body: Range<usize>, style: Style) -> Option<()> {
        let mut at = body.start;
        while at < body.end {
            let rest = &self.source[at..body.end];
            let white = white_length(rest);
            let length = if white > 0 && line_ends(&rest[..white]) > 0 {
                // One line end becomes a space, and each further one a line end.
                let decoded = line_ends(&rest[..white]).saturating_sub(1).max(1);
                self.push_decoded(decoded, at..at + white);
                white
            } else if style == Style::Single && rest.starts_with("''") {
                self.push_decoded(1, at..at + 2);
                2
            } else if style == Style::Double && rest.starts_with('\\') && rest[1..].starts_with(['\r', '\n']) {
                let length = 1 + white_length(&rest[1..]);
                self.push_decoded(line_ends(&rest[1..length]).saturating_sub(1), at..at + length);
                length
            } else if style == Style::Double && rest.starts_with('\\') {
                let length = escape_length(rest)?;
                self.push_decoded(self.left().chars().next()?.len_utf8(), at..at + length);
                length
            } else {
                let first = rest.chars().next().map_or(1, char::len_utf8);
                let special = [' ', '\t', '\r', '\n', '\'', '\\'];
                let length = white.max(first + rest[first..].find(special).unwrap_or(rest.len() - first));
                self.push_verbatim(at..at + length)?;
                length
            };
            at += length;
        }
        Some(())
    }

    /// Maps literal and folded scalars. The decoded text shows how line ends were folded and removed; the lines between
    /// them differ only in indentation.
    fn block(&mut self, span: &Range<usize>) -> Option<()> {
        let (source, text) = (self.source, self.text);
        let end = source.len();
        let first_start = first_line(source, span.start);
        let written = indentation(lines(source, first_start..end).map(|line| &source[line]))?;
        let kept = indentation(text.split('\n'))?;
        let indent = written.checked_sub(kept)?;
        let mut gap_start = None;
        for line in lines(source, first_start..end) {
            if self.left().is_empty() {
                break;
            }
            let spaces = source[line.clone()].bytes().take_while(|byte| *byte == b' ').count().min(indent);
            let content = line.start + spaces..line.end;
            if content.is_empty() {
                continue;
            }
            let left = self.left();
            let mut gap = left.len() - left.trim_start_matches('\n').len();
            if gap == 0 && left.starts_with(' ') && !source[content.clone()].starts_with(' ') {
                gap = 1;
            }
            self.push_decoded(gap, gap_start.unwrap_or(first_start)..content.start);
            if self.push_verbatim(content.clone()).is_none() {
                break;
            }
            gap_start = Some(content.end);
        }
        let left = self.left();
        let tail = gap_start?;
        let rest = &source[tail..];
        let breaks = rest.len() - rest.trim_start_matches(['\n', '\r']).len();
        left.bytes().all(|byte| byte == b'\n').then(|| self.push_decoded(left.len(), tail..tail + breaks))
    }
}

/// The start of a block scalar's first line, blank ones included, given a place in its first line of content.
fn first_line(source: &str, inside: usize) -> usize {
    let line_start = |at: usize| source[..at].rfind(['\n', '\r']).map_or(0, |end| end + 1);
    let mut start = line_start(inside);
    while start > 0 {
        let before = source[..start].strip_suffix('\n').unwrap_or(&source[..start]);
        let before = before.strip_suffix('\r').unwrap_or(before).len();
        let earlier = line_start(before);
        if !source[earlier..before].trim_matches([' ', '\t']).is_empty() {
            break;
        }
        start = earlier;
    }
    start
}

/// The spaces before the first line that holds more than spaces.
fn indentation<'a>(lines: impl Iterator<Item = &'a str>) -> Option<usize> {
    lines.map(|line| (line.len() - line.trim_start_matches(' ').len(), line)).find_map(|(spaces, line)| {
        let blank = spaces == line.len();
        (!blank).then_some(spaces)
    })
}

/// The ranges of the lines, without their ends.
fn lines(source: &str, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let start = at;
        let rest = &source[at..range.end];
        let length = rest.find(['\n', '\r']).unwrap_or(rest.len());
        let line_end = if rest[length..].starts_with("\r\n") { 2 } else { 1 };
        at = start + length + line_end;
        Some(start..start + length)
    })
}

/// How many line ends there are in white space.
fn line_ends(white: &str) -> usize {
    let bytes = white.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(at, byte)| **byte == b'\n' || (**byte == b'\r' && bytes.get(at + 1) != Some(&b'\n')))
        .count()
}

/// The length of the white space that a text begins with.
fn white_length(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t', '\r', '\n']).len()
}

/// The length of an escape, which may be a pair of surrogates; `None` if there is no such escape.
pub(super) fn escape_length(text: &str) -> Option<usize> {
    let hex = |from: usize, digits: usize| u32::from_str_radix(text.get(from..from + digits)?, 16).ok();
    match text[1..].chars().next()? {
        'x' => hex(2, 2).map(|_| 4),
        'u' if matches!(hex(2, 4)?, 0xd800..0xdc00) => hex(8, 4).map(|_| 12),
        'u' => char::from_u32(hex(2, 4)?).map(|_| 6),
        'U' => char::from_u32(hex(2, 8)?).map(|_| 10),
        letter => "0abt\tnvfre \"/\\N_LP\n\r".contains(letter).then_some(1 + letter.len_utf8()),
    }
}
