//! A text line by line: indentation, keys and values as they look, without a parser.

use std::ops::Range;

use crate::diagnostic::Source;

/// The lines of a source, as they read in a text of the same length.
#[derive(Clone, Copy)]
pub(in super::super) struct Lines<'a> {
    pub(in super::super) source: &'a Source,
    pub(in super::super) text: &'a str,
}

impl<'a> Lines<'a> {
    /// The number of the line that holds a byte, from 1.
    pub(super) fn of(self, offset: usize) -> usize {
        self.source.position(offset).0
    }

    /// The number of the last line.
    pub(in super::super) fn last(self) -> usize {
        self.of(self.text.len())
    }

    /// The bytes of a line without its line end.
    pub(in super::super) fn span(self, line: usize) -> Range<usize> {
        self.source.line_span(line)
    }

    pub(in super::super) fn text(self, line: usize) -> &'a str {
        &self.text[self.span(line)]
    }

    /// The number of spaces that a line starts with.
    pub(super) fn indent(self, line: usize) -> usize {
        indent(self.text(line))
    }

    /// The line without white space around it.
    pub(super) fn content(self, line: usize) -> Range<usize> {
        let span = self.span(line);
        let text = &self.text[span.clone()];
        let start = span.start + (text.len() - text.trim_start().len());
        start..start.max(span.start + text.trim_end().len())
    }

    /// Whether there is nothing but white space or a comment.
    pub(super) fn is_blank(self, line: usize) -> bool {
        let text = self.text(line).trim_start();
        text.is_empty() || text.starts_with('#')
    }

    /// Where the value begins in `key: value`, `- value` or `- key: value`.
    pub(super) fn value_start(self, line: usize) -> Option<usize> {
        value_offset(self.text(line)).map(|value| self.span(line).start + value)
    }

    /// Whether a line begins an entry of a mapping or a list.
    pub(super) fn is_entry(self, line: usize) -> bool {
        self.value_start(line).is_some()
    }

    /// Whether a line starts with a key as people write them in job files.
    pub(super) fn is_usual_key(self, line: usize) -> bool {
        let text = self.text(line).trim_start();
        key(text).is_some() && text.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '"')
    }

    /// The column, from 0, of a line's key after any dashes; of its dash, if there is no key.
    pub(super) fn key_column(self, line: usize) -> usize {
        let text = self.text(line);
        let (at, dashes) = after_dashes(text);
        match key(&text[at..]) {
            None if dashes => indent(text),
            _ => at,
        }
    }

    /// Whether a line's value is on the lines below it.
    pub(super) fn opens_block(self, line: usize) -> bool {
        let end = self.content(line).end;
        self.value_start(line).is_none_or(|value| {
            let value = self.text[value..end.max(value)].trim_end();
            value.is_empty() || value.starts_with(['|', '>']) || value.ends_with(':')
        })
    }

    /// Whether a line ends with the `|` or `>` of a block text.
    pub(super) fn is_block_header(self, line: usize) -> bool {
        self.value_start(line).is_some_and(|value| self.text[value..self.span(line).end].starts_with(['|', '>']))
    }

    /// Whether the next line with text is indented deeper.
    pub(super) fn opens_below(self, line: usize) -> bool {
        let next = (line + 1..=self.last()).find(|below| !self.is_blank(*below));
        next.is_some_and(|next| self.indent(next) > self.indent(line))
    }

    /// The end of a line, or of the last of the lines below that `belongs` to it. A blank line belongs to it if the next
    /// line with text does.
    pub(super) fn end_while(self, line: usize, belongs: impl Fn(usize) -> bool) -> usize {
        let mut end = self.span(line).end;
        for below in line + 1..=self.last() {
            if self.is_blank(below) {
                continue;
            }
            if !belongs(below) {
                break;
            }
            end = self.span(below).end;
        }
        end
    }
}

/// Whether a line begins an entry, and whether a block text follows it.
pub(in super::super) fn is_entry_or_header(text: &str) -> (bool, bool) {
    let value = value_offset(text);
    (value.is_some(), value.is_some_and(|value| text[value..].starts_with(['|', '>'])))
}

/// Where the value begins in a line that begins an entry.
fn value_offset(text: &str) -> Option<usize> {
    let (at, dashes) = after_dashes(text);
    match key(&text[at..]) {
        Some(length) => Some(after_white(text, at + length + 1)),
        None => dashes.then_some(at),
    }
}

pub(super) fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\n']).len()
}

fn after_white(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start_matches([' ', '\t']).len()
}

/// Where the text after the dashes of list items starts, and whether there are dashes.
fn after_dashes(text: &str) -> (usize, bool) {
    let mut at = indent(text);
    let mut dashes = false;
    while text[at..].starts_with("- ") || &text[at..] == "-" {
        at = after_white(text, at + 1);
        dashes = true;
    }
    (at, dashes)
}

/// The length of the key that a text begins with, if a `: ` or a `:` at the end follows.
fn key(text: &str) -> Option<usize> {
    let length = match text.chars().next()? {
        quote @ ('"' | '\'') => text[1..].find(quote)? + 2,
        _ => word(text),
    };
    let rest = text[length..].strip_prefix(':')?;
    (length > 0 && (rest.is_empty() || rest.starts_with([' ', '\t']))).then_some(length)
}

/// The length of the single word that a text begins with.
pub(super) fn word(text: &str) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/');
    if text.starts_with('-') { 0 } else { text.find(|letter| !is_part(letter)).unwrap_or(text.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_values_and_indentation_of_lines() {
        let text = "a: 1\n  - b\n  - c: \"d\"\n- - x\ne f: g\n'h: i': j\nk:\nl:m\n\n # n\nO: p\n";
        let source = Source::new("f.yaml", text);
        let lines = Lines { source: &source, text };
        let value = |line| lines.value_start(line).map(|at| &text[at..lines.span(line).end]);
        let values = [Some("1"), Some("b"), Some("\"d\""), Some("x"), None, Some("j"), Some(""), None];
        assert_eq!((1..=8).map(value).collect::<Vec<_>>(), values);
        assert_eq!([1, 2, 3, 4].map(|line| lines.key_column(line)), [0, 2, 4, 0]);
        assert_eq!([8, 9, 10, 12].map(|line| lines.is_blank(line)), [false, true, true, true]);
        assert_eq!([1, 2, 11].map(|line| lines.is_usual_key(line)), [true, false, false]);
        assert_eq!(lines.end_while(1, |line| lines.indent(line) > 0), lines.span(3).end);
    }
}
