//! The output of a command as it looks on a terminal: without escape sequences, each line in its last state; redacted and
//! truncated as it arrives.

use std::collections::VecDeque;

use crate::redaction::{Redactor, StreamRedactor};
use crate::text::truncate::HeadTail;

/// The longest line that can still be overwritten, in bytes. Lines of progress are much shorter.
const MAX_OPEN_LINE: usize = 16 << 10;
/// The most text before the last line that can still be changed, in bytes and in lines: programs that draw several lines of
/// progress move up to the first one.
const MAX_ABOVE: usize = 16 << 10;
const MAX_LINES_UP: usize = 200;
/// The longest parameters of a control sequence that are read, in bytes.
const MAX_PARAMETERS: usize = 16;

/// Collects a command's output in constant memory.
pub(crate) struct CommandOutput {
    secrets: Redactor,
    max_chars: usize,
    screen: LineScreen,
    redactor: StreamRedactor,
    text: HeadTail,
}

impl CommandOutput {
    /// Keeps the beginning and the end if the output has more than `max_chars`.
    pub(crate) fn new(redactor: &Redactor, max_chars: usize) -> Self {
        Self {
            secrets: redactor.clone(),
            max_chars,
            screen: LineScreen::default(),
            redactor: redactor.stream(),
            text: HeadTail::new(max_chars),
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(&self.secrets, self.max_chars);
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let Self { screen, redactor, text, .. } = self;
        screen.feed(bytes, &mut |shown| text.push(&redactor.feed(shown)));
    }

    pub(crate) fn finish(mut self) -> String {
        let line = self.screen.finish();
        self.text.push(&self.redactor.feed(&line));
        let rest = self.redactor.finish();
        self.text.push(&rest);
        self.text.finish()
    }
}

/// A text as it looks on a terminal: without escape sequences, each line in its last state.
pub(crate) fn as_shown(text: String) -> String {
    if !text.bytes().any(|byte| matches!(byte, b'\r' | 0x08 | 0x1b)) {
        return text;
    }
    let (mut screen, mut shown) = (LineScreen::default(), Vec::new());
    screen.feed(text.as_bytes(), &mut |bytes| shown.extend_from_slice(bytes));
    shown.extend(screen.finish());
    String::from_utf8_lossy(&shown).into_owned()
}

/// Where in an escape sequence (ECMA-48) the output is.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// In a control sequence, up to its final byte.
    ControlSequence,
    /// In a control string, up to BEL, ESC `\` or the end of the line.
    ControlString,
}

/// The last lines of a terminal. The lines before can't change any more.
#[derive(Default)]
struct LineScreen {
    /// The lines above that of the cursor that aren't passed on.
    above: Vec<u8>,
    /// The lines below that of the cursor, the next one first. The last one has no end yet.
    below: VecDeque<Vec<u8>>,
    state: EscapeState,
    /// The parameters of the control sequence so far.
    parameters: Vec<u8>,
    /// The part of the line that isn't passed on yet.
    line: Vec<u8>,
    /// Whether the start of the line was passed on, because it is too long.
    is_long: bool,
    /// Whether the cursor is at the start of the line. The next text replaces the line, and all of it: what programs write over
    /// is a former state of the same thing.
    is_at_start: bool,
    /// How many characters before its end the cursor is.
    back: usize,
}

impl LineScreen {
    /// Takes the next bytes and passes on the lines that can't change any more.
    fn feed(&mut self, bytes: &[u8], out: &mut dyn FnMut(&[u8])) {
        let plain = |byte: &u8| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\n' || *byte == b'\t';
        let mut rest = bytes;
        while !rest.is_empty() {
            // Most output has nothing to interpret.
            let is_pending =
                self.state != EscapeState::Text || self.is_at_start || self.back > 0 || !self.below.is_empty();
            let count = if is_pending { 0 } else { rest.iter().position(|byte| !plain(byte)).unwrap_or(rest.len()) };
            if count > 0 {
                self.add(&rest[..count], out);
                rest = &rest[count..];
                continue;
            }
            self.take(rest[0], out);
            rest = &rest[1..];
        }
    }

    /// The lines at the end of the output.
    fn finish(&mut self) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.above);
        text.append(&mut self.line);
        for line in std::mem::take(&mut self.below) {
            text.push(b'\n');
            text.extend(line);
        }
        text
    }

    /// Adds text without control characters other than line feeds and tabs.
    fn add(&mut self, text: &[u8], out: &mut dyn FnMut(&[u8])) {
        let (ended, open) = text.split_at(memchr::memrchr(b'\n', text).map_or(0, |end| end + 1));
        if !ended.is_empty() {
            self.is_long = false;
            self.above.append(&mut self.line);
            // Only the last lines of a long text can still change.
            let start = ended.len().saturating_sub(MAX_ABOVE);
            let start = memchr::memrchr(b'\n', &ended[..start]).map_or(0, |end| end + 1);
            if start > 0 {
                out(&self.above);
                out(&ended[..start]);
                self.above.clear();
            }
            self.above.extend_from_slice(&ended[start..]);
            if self.above.len() > 2 * MAX_ABOVE {
                let most = self.above.len() - MAX_ABOVE;
                let passed = memchr::memrchr(b'\n', &self.above[..most]).map_or(0, |end| end + 1);
                out(&self.above[..passed]);
                self.above.drain(..passed);
            }
        }
        self.line.extend_from_slice(open);
        if self.line.len() > MAX_OPEN_LINE {
            self.pass_on(out);
            self.is_long = true;
        }
    }

    fn pass_on(&mut self, out: &mut dyn FnMut(&[u8])) {
        if !self.above.is_empty() {
            out(&self.above);
            self.above.clear();
        }
        if !self.line.is_empty() {
            out(&self.line);
            self.line.clear();
        }
    }

    fn take(&mut self, byte: u8, out: &mut dyn FnMut(&[u8])) {
        use EscapeState::{ControlSequence, ControlString, Escape, Text};
        self.state = match (self.state, byte) {
            (ControlString, b'\x07') => Text,
            (_, b'\n') => {
                (self.is_at_start, self.back) = (false, 0);
                self.add(b"\n", out);
                self.enter_line_below();
                Text
            }
            (_, b'\x1b') => Escape,
            (ControlString, _) => ControlString,
            (Escape, b'[') => {
                self.parameters.clear();
                ControlSequence
            }
            (Escape, b']' | b'P' | b'X' | b'^' | b'_') => ControlString,
            (Escape, b' '..=b'/') => Escape,
            // Reverse index.
            (Escape, b'M') => {
                self.go_up(1);
                Text
            }
            (Escape, _) => Text,
            (ControlSequence, b'@'..=b'~') => {
                self.control(byte, out);
                Text
            }
            (ControlSequence, _) => {
                if self.parameters.len() < MAX_PARAMETERS {
                    self.parameters.push(byte);
                }
                ControlSequence
            }
            (Text, b'\r') => {
                self.go_to_start(out);
                Text
            }
            (Text, b'\x08') => {
                self.back = self.back.saturating_add(1);
                Text
            }
            (Text, byte) => {
                if (byte >= b' ' && byte != 0x7f) || byte == b'\t' {
                    self.make_room();
                    self.add(&[byte], out);
                }
                Text
            }
        };
    }

    /// Moves the cursor to the start of the line.
    fn go_to_start(&mut self, out: &mut dyn FnMut(&[u8])) {
        self.back = 0;
        if self.is_long {
            // Its start can't be replaced any more.
            self.add(b"\n", out);
        } else {
            self.is_at_start = !self.line.is_empty();
        }
    }

    /// Obeys a control sequence that moves the cursor in the line or erases it.
    fn control(&mut self, name: u8, out: &mut dyn FnMut(&[u8])) {
        let number = std::str::from_utf8(&self.parameters).ok().and_then(|text| text.parse::<usize>().ok());
        match (name, number) {
            // To a column, of which only the first one is known, and back by some.
            (b'G', None | Some(0 | 1)) => self.go_to_start(out),
            (b'D', count) => self.back = self.back.saturating_add(count.unwrap_or(1).max(1)),
            // The whole line, or from the cursor on.
            (b'K', Some(2)) => self.line.clear(),
            (b'K', None | Some(0)) if self.is_at_start => self.line.clear(),
            (b'K', None | Some(0)) => self.remove_back(),
            (b'A' | b'F', count) => self.go_up(count.unwrap_or(1).max(1)),
            (b'B' | b'E', count) => {
                for _ in 0..count.unwrap_or(1).clamp(1, MAX_LINES_UP) {
                    if self.below.is_empty() {
                        break;
                    }
                    self.add(b"\n", out);
                    self.enter_line_below();
                }
            }
            // Everything from the cursor on.
            (b'J', None | Some(0)) => {
                self.below.clear();
                if self.is_at_start {
                    self.line.clear();
                } else {
                    self.remove_back();
                }
            }
            _ => {}
        }
    }

    /// Moves the cursor to the start of a line above. Lines that were passed on stay as they are.
    fn go_up(&mut self, count: usize) {
        self.back = 0;
        for _ in 0..count.min(MAX_LINES_UP) {
            if self.above.pop().is_none() || self.below.len() >= MAX_LINES_UP {
                break;
            }
            let start = memchr::memrchr(b'\n', &self.above).map_or(0, |end| end + 1);
            let line = self.above.split_off(start);
            self.below.push_front(std::mem::replace(&mut self.line, line));
            self.is_long = false;
        }
        self.is_at_start = !self.line.is_empty();
    }

    /// Makes the line below that of the cursor, if there is one, the one that is written.
    fn enter_line_below(&mut self) {
        if let Some(line) = self.below.pop_front() {
            self.line = line;
            self.is_at_start = !self.line.is_empty();
        }
    }

    /// Removes what the next character replaces.
    fn make_room(&mut self) {
        if std::mem::take(&mut self.is_at_start) {
            self.line.clear();
        }
        self.remove_back();
    }

    /// Removes the characters after the cursor.
    fn remove_back(&mut self) {
        for _ in 0..std::mem::take(&mut self.back) {
            // Invalid UTF-8 may have no first byte.
            let start = self.line.iter().rposition(|byte| *byte & 0xc0 != 0x80);
            self.line.truncate(start.unwrap_or(0));
            if self.line.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, size: usize) -> String {
        let mut output = CommandOutput::new(&Redactor::default(), 1000);
        text.as_bytes().chunks(size).for_each(|piece| output.push(piece));
        output.finish()
    }

    #[test]
    fn only_text_is_left_however_the_output_is_split() {
        let text = "a\0b\x1b[1;31mred\x1b[0m\r\n10%\r20%\r\r\n\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\ \x1b(B\u{e9}\tz\x1b]open\nend";
        for size in 1..text.len() {
            assert_eq!(shown(text, size), "abred\n20%\nxlink \u{e9}\tz\nend", "pieces of {size}");
        }
    }

    #[test]
    fn a_line_has_its_last_state() {
        for (text, expected) in [
            ("one\r\ntwo\r\n", "one\ntwo\n"),
            ("1 of 3\r2 of 3\r3 of 3\ndone", "3 of 3\ndone"),
            ("\r1 of 3\r2 of 3", "2 of 3"),
            ("100%\r", "100%"),
            ("50%\r\x1b[K100%\n", "100%\n"),
            ("50%\r\x1b[K\nnext", "\nnext"),
            ("50%\x1b[2K\x1b[1Gdone", "done"),
            ("a 1\nb 1\n\x1b[2Aa 2\nb 2\n\x1b[2Aa 3\nb 3\nend\n", "a 3\nb 3\nend\n"),
            ("a 1\nb 1\r\n\x1b[2Fa 2\x1b[K\r\nb 2\x1b[K\r\n", "a 2\nb 2\n"),
            ("first\na 1\nb 1\nc 1\x1b[2A\ra 2\x1b[2B\rc 2\nlast", "first\na 2\nb 1\nc 2\nlast"),
            ("layer 1\n\x1b[1A\x1b[2Klayer 2\n\x1b[1A\x1b[2Kdone\n", "done\n"),
            ("a\nb\nc\n\x1b[3A\x1b[Jdone\n", "done\n"),
            ("a\n\x1bMb\n", "b\n"),
            ("a\x1b[5Ab\n", "b\n"),
            ("|\x08/\x08-\x08\\", "\\"),
            ("10%\x08\x08\x08\u{e9}20%", "\u{e9}20%"),
            ("\u{e9}\u{e9}\x08x", "\u{e9}x"),
            ("N\x08NA\x08A", "NA"),
            ("abc\x1b[2DX", "aX"),
            ("abc\x08\x08", "abc"),
            ("\x08\x08a\x1b[99999999999999999999Db", "b"),
            ("a\x1b[999Db", "b"),
            ("caf\u{e9}\r\n", "caf\u{e9}\n"),
        ] {
            for size in 1..=text.len() {
                assert_eq!(shown(text, size), expected, "{text:?} in pieces of {size}");
            }
            assert_eq!(as_shown(text.to_owned()), expected);
        }
    }

    #[test]
    fn a_long_line_takes_constant_memory() {
        let mut screen = LineScreen::default();
        let mut passed = 0;
        for _ in 0..1000 {
            screen.feed(&[b'x'; 1000], &mut |bytes| passed += bytes.len());
            assert!(screen.line.len() <= MAX_OPEN_LINE);
        }
        screen.feed(b"\ry", &mut |bytes| passed += bytes.len());
        let rest = screen.finish();
        assert_eq!(passed + rest.len(), 1_000_002);
        assert!(rest.len() < 4 * MAX_OPEN_LINE && rest.ends_with(b"x\ny"), "{}", rest.len());
        for _ in 0..1000 {
            screen.feed(&b"a line\n".repeat(100), &mut |_| {});
            assert!(screen.above.len() <= 2 * MAX_ABOVE);
        }
        for _ in 0..1000 {
            screen.feed(b"\x1b[9999A\x1b[K\n\n", &mut |_| {});
            assert!(screen.below.len() <= MAX_LINES_UP + 1);
        }
        let progress: String = (0..100_000).map(|number| format!("\r{number} of 100000")).collect();
        assert_eq!(shown(&progress, 4096), "99999 of 100000");
    }

    #[test]
    fn a_secret_with_colour_codes_is_redacted() {
        let (redactor, _) = Redactor::new(&[("KEY".into(), "hunter2-hunter2".into())]);
        let mut output = CommandOutput::new(&redactor, 1000);
        output.push(b"key: hunter2\x1b[1m-hun");
        output.push(b"ter2.\nx\rhunter2-huntex\x08r2.");
        assert_eq!(output.finish(), "key: [masked:KEY].\n[masked:KEY].");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut output = CommandOutput::new(&Redactor::default(), 1000);
        output.push(b"caf\xe9 ok");
        assert_eq!(output.finish(), "caf\u{fffd} ok");
    }
}
