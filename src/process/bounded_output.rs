//! The output of a command: stripped of escape sequences, redacted and truncated as it arrives.

use std::borrow::Cow;

use crate::redaction::{Redactor, StreamRedactor};
use crate::text::truncate::HeadTail;

/// Collects a command's output in constant memory.
pub(crate) struct CommandOutput {
    stripper: EscapeStripper,
    redactor: StreamRedactor,
    text: HeadTail,
}

impl CommandOutput {
    /// Keeps the beginning and the end if the output has more than `max_chars`.
    pub(crate) fn new(redactor: &Redactor, max_chars: usize) -> Self {
        Self { stripper: EscapeStripper::default(), redactor: redactor.stream(), text: HeadTail::new(max_chars) }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let stripped = self.stripper.feed(bytes);
        self.text.push(&self.redactor.feed(&stripped));
    }

    pub(crate) fn finish(mut self) -> String {
        let rest = self.redactor.finish();
        self.text.push(&rest);
        self.text.finish()
    }
}

/// Removes escape sequences (ECMA-48) and all control characters except tab and line feed. A carriage return becomes a
/// line break, so that the text it would overwrite is kept.
#[derive(Default)]
struct EscapeStripper {
    state: EscapeState,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After a carriage return, for which a line break was written.
    CarriageReturn,
    /// After ESC.
    Escape,
    /// In a control sequence, up to its final byte.
    ControlSequence,
    /// In a control string, up to BEL, ESC `\` or the end of the line.
    ControlString,
}

impl EscapeStripper {
    fn feed<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let plain = |byte: &u8| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\n' || *byte == b'\t';
        if self.state == EscapeState::Text && bytes.iter().all(plain) {
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.state = match (self.state, *byte) {
                (EscapeState::ControlString, b'\x07') => EscapeState::Text,
                (EscapeState::ControlString, b'\n')
                | (EscapeState::ControlSequence, b'\n')
                | (EscapeState::Escape, b'\n') => {
                    out.push(b'\n');
                    EscapeState::Text
                }
                (_, b'\x1b') => EscapeState::Escape,
                (EscapeState::ControlString, _) => EscapeState::ControlString,
                (EscapeState::Escape, b'[') => EscapeState::ControlSequence,
                (EscapeState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => EscapeState::ControlString,
                (EscapeState::Escape, b' '..=b'/') => EscapeState::Escape,
                (EscapeState::Escape, _) => EscapeState::Text,
                (EscapeState::ControlSequence, b'@'..=b'~') => EscapeState::Text,
                (EscapeState::ControlSequence, _) => EscapeState::ControlSequence,
                (EscapeState::CarriageReturn, b'\n') => EscapeState::Text,
                (EscapeState::CarriageReturn, b'\r') => EscapeState::CarriageReturn,
                (_, b'\r') => {
                    out.push(b'\n');
                    EscapeState::CarriageReturn
                }
                (_, byte) => {
                    if plain(&byte) {
                        out.push(byte);
                    }
                    EscapeState::Text
                }
            };
        }
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(text: &str, size: usize) -> String {
        let mut output = CommandOutput::new(&Redactor::default(), 1000);
        text.as_bytes().chunks(size).for_each(|piece| output.push(piece));
        output.finish()
    }

    #[test]
    fn only_text_is_left_however_the_output_is_split() {
        let text = "a\0b\x1b[1;31mred\x1b[0m\r\n10%\r20%\r\r\n\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\ \x1b(Bé\tz\x08\x1b]open\nend";
        for size in 1..text.len() {
            assert_eq!(stripped(text, size), "abred\n10%\n20%\nxlink é\tz\nend", "pieces of {size}");
        }
    }

    #[test]
    fn a_secret_with_colour_codes_is_redacted() {
        let (redactor, _) = Redactor::new(&[("KEY".into(), "hunter2-hunter2".into())]);
        let mut output = CommandOutput::new(&redactor, 1000);
        output.push(b"key: hunter2\x1b[1m-hun");
        output.push(b"ter2.");
        assert_eq!(output.finish(), "key: [masked:KEY].");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut output = CommandOutput::new(&Redactor::default(), 1000);
        output.push(b"caf\xe9 ok");
        assert_eq!(output.finish(), "caf\u{fffd} ok");
    }
}
