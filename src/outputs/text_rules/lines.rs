//! Lines of Markdown, and what may stand before their text: quotes, list markers, spaces.

use std::ops::Range;

/// The lines of a text without their ends.
pub(super) fn lines(source: &str) -> Vec<Range<usize>> {
    let mut begins = 0;
    source
        .split_inclusive('\n')
        .map(|line| {
            let range = begins..begins + line.trim_end_matches(['\n', '\r']).len();
            begins += line.len();
            range
        })
        .collect()
}

/// The index of the line that a byte is in.
pub(super) fn line_of(lines: &[Range<usize>], at: usize) -> usize {
    lines.partition_point(|line| line.start <= at).saturating_sub(1)
}

/// The markers before the text of a line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Its length in bytes.
    pub(super) length: usize,
    /// The columns of white space at its end.
    pub(super) indent: usize,
    /// Whether it has the marker of a list item or a footnote.
    pub(super) has_marker: bool,
    /// How many quotes and markers it has.
    pub(super) depth: usize,
}

/// The markers before the text of a line, if every quote and marker that could be one is one.
pub(super) fn prefix(line: &str) -> Prefix {
    let mut prefix = Prefix::default();
    loop {
        let rest = &line[prefix.length..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        prefix.indent = rest[..blank].bytes().map(|byte| if byte == b'\t' { 4 } else { 1 }).sum();
        prefix.length += blank;
        let marker = if rest[blank..].starts_with('>') {
            Some(1)
        } else {
            let marker = list_marker(&rest[blank..]);
            prefix.has_marker |= marker.is_some();
            marker
        };
        let Some(marker) = marker else { return prefix };
        prefix.length += marker;
        prefix.depth += 1;
    }
}

/// The length of the marker of a list item, or of a footnote's text.
fn list_marker(text: &str) -> Option<usize> {
    let is_blank_or_end = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\t']);
    if let Some(rest) = text.strip_prefix("[^") {
        let end = rest.find("]:")?;
        return (!rest[..end].contains([' ', ']', '['])).then_some(2 + end + 2);
    }
    let digits = text.bytes().take(9).take_while(u8::is_ascii_digit).count();
    let marker = match text.as_bytes().get(digits)? {
        b'-' | b'*' | b'+' if digits == 0 => 1,
        b'.' | b')' if digits > 0 => digits + 1,
        _ => return None,
    };
    is_blank_or_end(&text[marker..]).then_some(marker)
}

/// A line without the spaces and quotes at its beginning.
pub(super) fn unquoted(line: &str) -> &str {
    line.trim_start_matches([' ', '\t', '>'])
}

/// The mark and the length of the run of backticks or tildes that a text begins with, if it could begin a fence.
pub(super) fn fence_run(text: &str) -> Option<(char, usize)> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = text.len() - text.trim_start_matches(mark).len();
    (length >= 3).then_some((mark, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_loosely() {
        for (line, length, indent, has_marker) in [
            ("a", 0, 0, false),
            ("  > > a", 6, 1, false),
            (">>a", 2, 0, false),
            ("- a", 2, 1, true),
            ("-a", 0, 0, false),
            ("> 12) - \ta", 9, 5, true),
            ("-", 1, 0, true),
            ("[^a]: b", 6, 1, true),
            ("[^a b]: b", 0, 0, false),
            ("1234567890. a", 0, 0, false),
            ("", 0, 0, false),
        ] {
            let prefix = prefix(line);
            assert_eq!((prefix.length, prefix.indent, prefix.has_marker), (length, indent, has_marker), "{line}");
        }
        assert_eq!(lines("a\r\n\nb"), [0..1, 3..3, 4..5]);
        assert_eq!([0, 2, 3, 4, 5].map(|at| line_of(&lines("a\r\n\nb"), at)), [0, 0, 1, 2, 2]);
    }
}
