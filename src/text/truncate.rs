//! Truncates text in the middle, as a whole or as a stream.

/// Characters reserved for the line that says how much was left out.
const NOTICE_CHARS: usize = 60;

/// Shortens a text to `max_chars` characters: its beginning and its end, with a line between them that says how much was
/// left out.
pub fn truncate_middle(text: String, max_chars: usize) -> String {
    // A text has at least as many bytes as characters.
    if text.len() <= max_chars {
        return text;
    }
    let chars = text.chars().count();
    if chars <= max_chars {
        return text;
    }
    let half = max_chars.saturating_sub(NOTICE_CHARS) / 2;
    join(first(&text, half), chars - 2 * half, last(&text, half))
}

fn join(head: &str, left_out: usize, tail: &str) -> String {
    format!("{head}\n[... {left_out} characters left out ...]\n{tail}")
}

/// The first `count` characters.
pub(crate) fn first(text: &str, count: usize) -> &str {
    if text.len() <= count {
        return text;
    }
    // Most texts are ASCII, where a character is a byte.
    if text.as_bytes()[..count].is_ascii() {
        return &text[..count];
    }
    text.char_indices().nth(count).map_or(text, |(at, _)| &text[..at])
}

/// The text; if it is longer than `max_chars` characters, its beginning and an ellipsis.
pub(crate) fn ellipsize(text: &str, max_chars: usize) -> String {
    let head = first(text, max_chars);
    if head.len() < text.len() { format!("{head}…") } else { head.to_owned() }
}

fn last(text: &str, count: usize) -> &str {
    let at = text.len().saturating_sub(count);
    if text.as_bytes()[at..].is_ascii() {
        return &text[at..];
    }
    match count.checked_sub(1) {
        None => "",
        Some(count) => text.char_indices().rev().nth(count).map_or(text, |(at, _)| &text[at..]),
    }
}

/// Keeps the beginning and the end of a byte stream, in constant memory.
pub(crate) struct HeadTail {
    /// How many characters of each end are kept, at up to four bytes each.
    half: usize,
    head: Vec<u8>,
    /// The latest bytes, trimmed when they are twice as long as needed.
    tail: Vec<u8>,
    /// The number of characters in the stream.
    chars: u64,
    /// Whether anything between head and tail was dropped.
    dropped: bool,
}

impl HeadTail {
    /// Keeps as much as a text of `max_chars` characters can show.
    pub(crate) fn new(max_chars: usize) -> Self {
        let half = max_chars.saturating_sub(NOTICE_CHARS) / 2;
        Self { half, head: Vec::new(), tail: Vec::new(), chars: 0, dropped: false }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.chars += bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64;
        let kept = self.half * 4;
        let (head, rest) = bytes.split_at(bytes.len().min(kept - self.head.len()));
        self.head.extend_from_slice(head);
        bytes = rest;
        if bytes.len() > kept {
            self.dropped = true;
            self.tail.clear();
            bytes = &bytes[bytes.len() - kept..];
        } else if self.tail.len() + bytes.len() > 2 * kept {
            self.dropped = true;
            self.tail.drain(..self.tail.len() - kept);
        }
        self.tail.extend_from_slice(bytes);
    }

    /// The truncated text. Invalid UTF-8 is replaced.
    pub(crate) fn finish(self) -> String {
        let mut head = self.head;
        if !self.dropped {
            head.extend_from_slice(&self.tail);
            let text = String::from_utf8(head);
            let text = text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
            return truncate_middle(text, 2 * self.half + NOTICE_CHARS);
        }
        let head = String::from_utf8_lossy(&head);
        let tail = String::from_utf8_lossy(&self.tail);
        let left_out = self.chars.saturating_sub(2 * self.half as u64);
        join(first(&head, self.half), usize::try_from(left_out).unwrap_or(usize::MAX), last(&tail, self.half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_stays_the_same() {
        assert_eq!(truncate_middle("äöü".repeat(33), 99), "äöü".repeat(33));
    }

    #[test]
    fn a_long_text_keeps_its_ends_and_a_note() {
        let text = truncate_middle(format!("{}{}{}", "ä".repeat(50), "x".repeat(900), "ö".repeat(50)), 160);
        assert_eq!(text, format!("{}\n[... 900 characters left out ...]\n{}", "ä".repeat(50), "ö".repeat(50)));
        assert!(text.chars().count() <= 160);
    }

    #[test]
    fn a_stream_is_truncated_like_the_whole_text() {
        for length in [0, 10, 159, 160, 161, 400, 900, 5000] {
            let text: String = ('a'..='z').chain(['ä', '€', '\n']).cycle().take(length).collect();
            for size in [1, 7, 100, 10_000] {
                let mut stream = HeadTail::new(160);
                for piece in text.as_bytes().chunks(size) {
                    stream.push(piece);
                }
                assert!(stream.head.len() + stream.tail.len() <= 3 * 50 * 4);
                assert_eq!(
                    stream.finish(),
                    truncate_middle(text.clone(), 160),
                    "{length} characters in pieces of {size}"
                );
            }
        }
    }
}
