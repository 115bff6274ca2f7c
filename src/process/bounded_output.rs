//! The output of a command: stripped of escape sequences, redacted and truncated as it arrives.

use std::borrow::Cow;

use crate::redaction::{Redactor, StreamRedactor};
use crate::text::truncate::HeadTail;

/// Collects a command's output in constant memory.
pub(crate) struct CommandOutput {
    state: EscapeState,
    redactor: StreamRedactor,
    text: HeadTail,
}

impl CommandOutput {
    /// Keeps the beginning and the end if the output has more than `max_chars`.
    pub(crate) fn new(redactor: &Redactor, max_chars: usize) -> Self {
        Self { state: EscapeState::default(), redactor: redactor.stream(), text: HeadTail::new(max_chars) }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let stripped = self.state.strip(bytes);
        self.text.push(&self.redactor.feed(&stripped));
    }

    pub(crate) fn finish(mut self) -> String {
        let rest = self.redactor.finish();
        self.text.push(&rest);
        self.text.finish()
    }
}

/// Where in an escape sequence (ECMA-48) the output is.
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

impl EscapeState {
    /// Removes escape sequences and all control characters except tab and line feed. A carriage return becomes a line break, so
    /// that the text it would overwrite is kept.
    fn strip<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let plain = |byte: &u8| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\n' || *byte == b'\t';
        if *self == Self::Text && bytes.iter().all(plain) {
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            *self = match (*self, *byte) {
                (Self::ControlString, b'\x07') => Self::Text,
                (Self::ControlString, b'\n') | (Self::ControlSequence, b'\n') | (Self::Escape, b'\n') => {
                    out.push(b'\n');
                    Self::Text
                }
                (_, b'\x1b') => Self::Escape,
                (Self::ControlString, _) => Self::ControlString,
                (Self::Escape, b'[') => Self::ControlSequence,
                (Self::Escape, b']' | b'P' | b'X' | b'^' | b'_') => Self::ControlString,
                (Self::Escape, b' '..=b'/') => Self::Escape,
                (Self::Escape, _) => Self::Text,
                (Self::ControlSequence, b'@'..=b'~') => Self::Text,
                (Self::ControlSequence, _) => Self::ControlSequence,
                (Self::CarriageReturn, b'\n') => Self::Text,
                (Self::CarriageReturn, b'\r') => Self::CarriageReturn,
                (_, b'\r') => {
                    out.push(b'\n');
                    Self::CarriageReturn
                }
                (_, byte) => {
                    if plain(&byte) {
                        out.push(byte);
                    }
                    Self::Text
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
