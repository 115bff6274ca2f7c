//! The terminal that the live lines are drawn on.

use std::io::{self, stderr};
use std::sync::{Mutex, PoisonError};

use indicatif::TermLike;

use crate::cli::output_queue::{self, Stream};

/// Columns on the right that stay free for the echo of a pressed key (`^C`). If the echo wrapped, clearing the lines would
/// miss one.
const RIGHT_MARGIN: u16 = 4;

/// Stderr as a terminal. Frames are buffered and written at once. indicatif pads lines with blanks to the full width; this
/// ends them with a line feed instead, as full lines would wrap when the terminal gets narrower.
#[derive(Debug, Default)]
pub(super) struct StderrTerm {
    frame: Mutex<Frame>,
}

#[derive(Debug, Default)]
struct Frame {
    text: String,
    /// Whether a line has ended, so that more text starts a new one.
    line_ended: bool,
}

impl StderrTerm {
    fn add(&self, text: &str) -> io::Result<()> {
        self.frame.lock().unwrap_or_else(PoisonError::into_inner).text.push_str(text);
        Ok(())
    }

    fn add_move(&self, by: usize, direction: char) -> io::Result<()> {
        if by == 0 { Ok(()) } else { self.add(&format!("\u{1b}[{by}{direction}")) }
    }
}

impl TermLike for StderrTerm {
    fn width(&self) -> u16 {
        let size = rustix::termios::tcgetwinsize(stderr()).ok();
        size.map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(80).saturating_sub(RIGHT_MARGIN).max(1)
    }

    fn height(&self) -> u16 {
        let size = rustix::termios::tcgetwinsize(stderr()).ok();
        size.map(|size| size.ws_row).filter(|rows| *rows > 0).unwrap_or(24)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.add_move(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.add_move(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.add_move(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.add_move(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(text)?;
        self.add("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let line = text.trim_end_matches(' ');
        if line.is_empty() {
            frame.line_ended = true;
            return Ok(());
        }
        if std::mem::take(&mut frame.line_ended) {
            frame.text.push('\n');
        }
        frame.text.push_str(line);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\u{1b}[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let frame = std::mem::take(&mut *self.frame.lock().unwrap_or_else(PoisonError::into_inner));
        output_queue::write(Stream::Stderr, frame.text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arent_padded() {
        let screen = StderrTerm::default();
        screen.move_cursor_up(1).unwrap();
        screen.move_cursor_down(0).unwrap();
        screen.clear_line().unwrap();
        for part in ["⠂ a  b   ", "", "⠂ c", "      "] {
            screen.write_str(part).unwrap();
        }
        assert_eq!(screen.frame.lock().unwrap().text, "\u{1b}[1A\r\u{1b}[2K⠂ a  b\n⠂ c");
    }
}
