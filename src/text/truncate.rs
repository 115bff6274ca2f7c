//! Text that keeps its head and its tail, whole or as a stream.

/// Room for the line that says how much was left out, in characters.
const NOTICE: usize = 60;

/// The text if it has at most `max` characters; else as much of its head and tail as fits, with a line between them
/// that says how much was left out.
pub fn truncate_middle(text: String, max: usize) -> String {
    // No text has more characters than bytes.
    if text.len() <= max {
        return text;
    }
    let chars = text.chars().count();
    if chars <= max {
        return text;
    }
    let half = max.saturating_sub(NOTICE) / 2;
    join(first(&text, half), chars - 2 * half, last(&text, half))
}

fn join(head: &str, left_out: usize, tail: &str) -> String {
    format!("{head}\n[... {left_out} characters left out ...]\n{tail}")
}

/// The first `count` characters.
pub(crate) fn first(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(at, _)| &text[..at])
}

fn last(text: &str, count: usize) -> &str {
    match count.checked_sub(1) {
        None => "",
        Some(count) => text.char_indices().rev().nth(count).map_or(text, |(at, _)| &text[at..]),
    }
}

/// A stream of bytes of which only the ends are kept, in memory that doesn't grow.
pub(crate) struct HeadTail {
    /// What one end may show, in characters; four times as many bytes are kept of it.
    half: usize,
    head: Vec<u8>,
    /// The newest bytes; trimmed when it holds twice what is needed.
    tail: Vec<u8>,
    /// Characters that came in.
    chars: u64,
    /// Whether anything was dropped between head and tail.
    dropped: bool,
}

impl HeadTail {
    /// Keeps what a text of `max` characters can show.
    pub(crate) fn new(max: usize) -> Self {
        let half = max.saturating_sub(NOTICE) / 2;
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

    /// At most `max` characters; bytes that are no UTF-8 are replaced.
    pub(crate) fn finish(self) -> String {
        let mut head = self.head;
        if !self.dropped {
            head.extend_from_slice(&self.tail);
            return truncate_middle(String::from_utf8_lossy(&head).into_owned(), 2 * self.half + NOTICE);
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
    fn a_text_within_its_bound_stays_whole() {
        assert_eq!(truncate_middle("äöü".repeat(33), 99), "äöü".repeat(33));
    }

    #[test]
    fn a_longer_text_keeps_its_ends_and_says_what_is_missing() {
        let text = truncate_middle(format!("{}{}{}", "ä".repeat(50), "x".repeat(900), "ö".repeat(50)), 160);
        assert_eq!(text, format!("{}\n[... 900 characters left out ...]\n{}", "ä".repeat(50), "ö".repeat(50)));
        assert!(text.chars().count() <= 160);
    }

    #[test]
    fn a_stream_is_bounded_as_the_whole_text_is_whatever_its_pieces() {
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
