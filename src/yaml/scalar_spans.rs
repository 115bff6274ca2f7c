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
        let mut pieces = SegmentBuilder { list: Vec::new(), decoded: String::with_capacity(text.len()) };
        let matched = match style {
            Style::Plain => pieces.flow(source, span.clone(), style),
            Style::Single | Style::Double if span.len() >= 2 => {
                pieces.flow(source, span.start + 1..span.end - 1, style)
            }
            Style::Single | Style::Double => None,
            Style::Literal | Style::Folded => pieces.block(source, span, text),
        };
        let fits = matched.is_some() && pieces.decoded == text;
        Self { whole, pieces: fits.then_some(pieces.list) }
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

struct SegmentBuilder {
    list: Vec<SpanSegment>,
    decoded: String,
}

impl SegmentBuilder {
    /// Adds decoded text that is equal to its source.
    fn push_verbatim(&mut self, source: &str, at: Range<usize>) {
        let start = self.decoded.len();
        self.decoded.push_str(&source[at.clone()]);
        let end = self.decoded.len();
        match self.list.last_mut() {
            Some(last) if last.is_verbatim && last.source.end == at.start => {
                last.source.end = at.end;
                last.decoded.end = end;
            }
            _ => self.list.push(SpanSegment { decoded: start..end, source: at, is_verbatim: true }),
        }
    }

    /// Adds decoded text that differs from its source.
    fn push_decoded(&mut self, decoded: &str, at: Range<usize>) {
        if decoded.is_empty() {
            return;
        }
        let start = self.decoded.len();
        self.decoded.push_str(decoded);
        self.list.push(SpanSegment { decoded: start..self.decoded.len(), source: at, is_verbatim: false });
    }

    /// Maps plain and quoted scalars: `body` is the text between the quotes.
    fn flow(&mut self, source: &str, body: Range<usize>, style: Style) -> Option<()> {
        let mut at = body.start;
        while at < body.end {
            let rest = &source[at..body.end];
            let white = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if white > 0 {
                match line_ends(&rest[..white]) {
                    0 => self.push_verbatim(source, at..at + white),
                    1 => self.push_decoded(" ", at..at + white),
                    count => self.push_decoded(&"\n".repeat(count - 1), at..at + white),
                }
                at += white;
            } else if style == Style::Single && rest.starts_with("''") {
                self.push_decoded("'", at..at + 2);
                at += 2;
            } else if style == Style::Double && rest.starts_with('\\') {
                let (letter, length) = escape(rest)?;
                match letter {
                    Some(letter) => self.push_decoded(letter.encode_utf8(&mut [0; 4]), at..at + length),
                    None => {
                        let white = rest[1..].len() - rest[1..].trim_start_matches([' ', '\t', '\r', '\n']).len();
                        let blank_lines = line_ends(&rest[1..=white]).saturating_sub(1);
                        self.push_decoded(&"\n".repeat(blank_lines), at..at + 1 + white);
                        at += white;
                    }
                }
                at += length;
            } else {
                let first = rest.chars().next().map_or(1, char::len_utf8);
                let special = [' ', '\t', '\r', '\n', '\'', '\\'];
                let length = first + rest[first..].find(special).unwrap_or(rest.len() - first);
                self.push_verbatim(source, at..at + length);
                at += length;
            }
        }
        Some(())
    }

    /// Maps literal and folded scalars. The decoded text shows how line ends were folded and removed; the lines between
    /// them differ only in indentation.
    fn block(&mut self, source: &str, span: &Range<usize>, text: &str) -> Option<()> {
        let end = source.len();
        let first_start = first_line(source, span.start);
        let written = indentation(lines(source, first_start..end).map(|line| &source[line]))?;
        let kept = indentation(text.split('\n'))?;
        let indent = written.checked_sub(kept)?;
        let mut gap_start = None;
        for line in lines(source, first_start..end) {
            if self.decoded.len() == text.len() {
                break;
            }
            let spaces = source[line.clone()].bytes().take_while(|byte| *byte == b' ').count().min(indent);
            let content = line.start + spaces..line.end;
            if content.is_empty() {
                continue;
            }
            if let Some(gap_start) = gap_start.or(Some(first_start)) {
                let left = &text[self.decoded.len()..];
                let mut gap = left.len() - left.trim_start_matches('\n').len();
                if gap == 0 && left.starts_with(' ') && !source[content.clone()].starts_with(' ') {
                    gap = 1;
                }
                let decoded = &left[..gap];
                self.push_decoded(decoded, gap_start..content.start);
            }
            if !text[self.decoded.len()..].starts_with(&source[content.clone()]) {
                break;
            }
            gap_start = Some(content.end);
            self.push_verbatim(source, content);
        }
        let left = &text[self.decoded.len()..];
        let tail = gap_start?;
        let rest = &source[tail..];
        let breaks = rest.len() - rest.trim_start_matches(['\n', '\r']).len();
        left.bytes().all(|byte| byte == b'\n').then(|| self.push_decoded(left, tail..tail + breaks))
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

/// The character of an escape and its length in bytes; an escaped line end has no character.
fn escape(text: &str) -> Option<(Option<char>, usize)> {
    let hex = |from: usize, digits: usize| u32::from_str_radix(text.get(from..from + digits)?, 16).ok();
    let letter = text[1..].chars().next()?;
    let simple = match letter {
        '0' => '\0',
        'a' => '\x07',
        'b' => '\x08',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\x0b',
        'f' => '\x0c',
        'r' => '\r',
        'e' => '\x1b',
        ' ' | '"' | '/' | '\\' => letter,
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        '\n' | '\r' => return Some((None, 1)),
        'x' => return Some((Some(char::from_u32(hex(2, 2)?)?), 4)),
        'U' => return Some((Some(char::from_u32(hex(2, 8)?)?), 10)),
        'u' => {
            let high = hex(2, 4)?;
            if !(0xd800..0xdc00).contains(&high) {
                return Some((Some(char::from_u32(high)?), 6));
            }
            let low = hex(8, 4).filter(|low| (0xdc00..0xe000).contains(low))?;
            return Some((Some(char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?), 12));
        }
        _ => return None,
    };
    Some((Some(simple), 2))
}
