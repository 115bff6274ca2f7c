//! Lines on a terminal that are drawn again and again: the live lines.

use std::io::stderr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use unicode_width::UnicodeWidthChar;

use super::suspend::erase_on_suspend;
use crate::cli::output_queue::{self, ERASE_LIVE_LINES};
use crate::process::job_control::is_in_background;
use crate::sync::IgnorePoison;

/// The least time between two redraws: at most 15 per second.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(67);

/// Without wrapping, a line that is too long for a terminal that has just become narrower is cut off.
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";

/// Columns and rows.
pub(super) type Size = (usize, usize);

/// The live lines on stderr.
///
/// Between redraws, the cursor is at the beginning of the first line. When the size of the terminal changes, some terminals
/// wrap the lines again and others cut them off. In both, everything from the cursor on is ours and can be erased, so no line
/// remains.
#[derive(Debug, Default)]
pub(super) struct LiveScreen {
    state: Mutex<ScreenState>,
}

#[derive(Debug, Default)]
struct ScreenState {
    /// The size of the terminal when the lines were drawn last.
    size: Size,
    lines: Vec<String>,
    drawn_at: Option<Instant>,
    has_ended: bool,
}

impl LiveScreen {
    /// Without lines.
    pub(super) fn start() -> Self {
        erase_on_suspend();
        Self::default()
    }

    /// Draws the lines that `build` makes for the size of the terminal. Lines that don't fit are left out: `build` says so.
    pub(super) fn draw(&self, build: impl FnOnce(Size) -> Vec<String>) {
        let (columns, rows) = terminal_size();
        let mut state = self.lock();
        if state.has_ended || is_in_background(stderr()) {
            return;
        }
        // The last column and the last row stay free: nothing wraps or scrolls there.
        let space = (columns.saturating_sub(1).max(1), rows.saturating_sub(1).max(1));
        let mut lines = build(space);
        lines.truncate(space.1);
        lines.iter_mut().for_each(|line| *line = fit(line, space.0));
        let erase = if state.size == (columns, rows) { "" } else { ERASE_LIVE_LINES };
        let text = format!("{erase}{}", frame(&lines));
        if output_queue::write_live(text.as_bytes()) {
            state.size = (columns, rows);
            state.lines = lines;
            state.drawn_at = Some(Instant::now());
        }
    }

    /// Prints a line above the live lines.
    pub(super) fn print_above(&self, line: &str) {
        let mut state = self.lock();
        let is_due = state.drawn_at.is_none_or(|at| at.elapsed() >= MIN_REDRAW_INTERVAL);
        // Else the next tick draws them.
        if is_due && !state.has_ended && !state.lines.is_empty() {
            let text = format!("{ERASE_LIVE_LINES}{line}\n{}", frame(&state.lines));
            if output_queue::write_live(text.as_bytes()) {
                state.drawn_at = Some(Instant::now());
                return;
            }
        }
        output_queue::write(output_queue::Stream::Stderr, format!("{line}\n").as_bytes());
    }

    /// Erases the lines. No more are drawn. Returns false if they had ended before.
    pub(super) fn end(&self) -> bool {
        let had_ended = std::mem::replace(&mut self.lock().has_ended, true);
        // This erases them if there are any.
        output_queue::write(output_queue::Stream::Stderr, b"");
        !had_ended
    }

    fn lock(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().ignore_poison()
    }
}

/// The text that draws lines from the cursor on, erases what was behind and below them, and returns to where it began.
fn frame(lines: &[String]) -> String {
    let mut text = WRAP_OFF.to_owned();
    for (number, line) in lines.iter().enumerate() {
        text.push_str(if number == 0 { "\r" } else { "\u{1b}[K\n\r" });
        text.push_str(line);
    }
    text.push_str("\u{1b}[J\r");
    match lines.len() {
        0 | 1 => {}
        count => text.push_str(&format!("\u{1b}[{}A", count - 1)),
    }
    text.push_str(WRAP_ON);
    text
}

/// The columns and rows of the terminal.
fn terminal_size() -> Size {
    let size = rustix::termios::tcgetwinsize(stderr()).ok();
    let (columns, rows) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
    (usize::from(if columns == 0 { 80 } else { columns }), usize::from(if rows == 0 { 24 } else { rows }))
}

/// The columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|char| char.width().unwrap_or(0)).sum()
}

/// A text that takes at most this many columns. One that is longer ends with an ellipsis.
pub(super) fn fit(text: &str, columns: usize) -> String {
    if text.len() <= columns || width(text) <= columns {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut left = columns.saturating_sub(1);
    for char in text.chars() {
        let Some(rest) = left.checked_sub(char.width().unwrap_or(0)) else { break };
        left = rest;
        fitted.push(char);
    }
    if columns > 0 {
        fitted.push('…');
    }
    fitted
}

/// A text in exactly this many columns. The middle of a longer one is left out, so that a number at its end is kept.
pub(super) fn pad(text: &str, columns: usize) -> String {
    let taken = width(text);
    if taken <= columns {
        return format!("{text}{}", " ".repeat(columns - taken));
    }
    let tail_columns = columns / 3;
    let mut tail: Vec<char> = Vec::new();
    let mut left = tail_columns;
    for char in text.chars().rev() {
        let Some(rest) = left.checked_sub(char.width().unwrap_or(0)) else { break };
        left = rest;
        tail.push(char);
    }
    let tail: String = tail.into_iter().rev().collect();
    let head = fit(text, columns - width(&tail));
    let spare = columns.saturating_sub(width(&head) + width(&tail));
    format!("{head}{tail}{}", " ".repeat(spare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_it_began() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(frame(&lines), "\u{1b}[?7l\ra\u{1b}[K\n\rb\u{1b}[J\r\u{1b}[1A\u{1b}[?7h");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("abc", 0), "");
        assert_eq!([fit("e\u{301}e\u{301}e\u{301}", 3), fit("abcd", 3)], ["e\u{301}e\u{301}e\u{301}", "ab…"]);
    }

    #[test]
    fn ids_fit_a_column_and_keep_their_number() {
        assert_eq!(pad("parent", 16), "parent          ");
        assert_eq!(pad("a-very-long-name-12", 16), "a-very-lon…me-12");
        for text in ["日本語日本語日本語日本語", "x", &"x".repeat(70)] {
            for columns in 1..20 {
                assert_eq!(width(&pad(text, columns)), columns, "{text} in {columns}");
            }
        }
    }
}
