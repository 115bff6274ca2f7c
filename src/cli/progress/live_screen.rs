//! Lines on a terminal that are drawn again and again: the live lines.
//!
//! indicatif makes the lines, and they are written here: it knows neither the output queue nor job control, and loses count of
//! the lines when the size of the terminal changes.

use std::io::{self, stderr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use console::truncate_str;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, TermLike};

use super::live_line::{LiveLine, line_style, style};
use super::suspend::erase_on_suspend;
use crate::cli::output_queue::{self, ERASE_LIVE_LINES};
use crate::process::job_control::is_in_background;
use crate::sync::IgnorePoison;
use crate::text::pluralize;

/// The least time between two redraws: at most 15 per second.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(67);

/// Without wrapping, a line that is too long for a terminal that has just become narrower is cut off.
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";

/// Columns and rows.
type Size = (usize, usize);

/// The live lines on stderr: one for each agent of a run or row of a map, as many as fit, and one for all.
///
/// Between redraws, the cursor is at the beginning of the first line. When the size of the terminal changes, some terminals
/// wrap the lines again and others cut them off. In both, everything from the cursor on is ours and can be erased, so no line
/// remains.
pub(super) struct LiveScreen {
    /// The line for all.
    pub(super) total: ProgressBar,
    /// The line that counts those that don't fit.
    more: ProgressBar,
    noun: &'static str,
    /// The template of the line for all in this many columns.
    total_template: fn(usize) -> String,
    bars: MultiProgress,
    canvas: Canvas,
    state: Mutex<ScreenState>,
}

#[derive(Default)]
struct ScreenState {
    /// The size of the terminal when the lines were drawn last.
    size: Size,
    bars: Vec<ProgressBar>,
    lines: Vec<String>,
    drawn_at: Option<Instant>,
    has_ended: bool,
}

impl LiveScreen {
    /// Without lines. `noun` is what a line is for, and `total` the bar for all, with its template for a number of columns.
    pub(super) fn start(noun: &'static str, total: ProgressBar, total_template: fn(usize) -> String) -> Self {
        erase_on_suspend();
        let canvas = Canvas::default();
        // The lines are drawn on request. What indicatif draws of its own accord costs time, and is limited to one a second.
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(canvas.clone()), 1);
        let bars = MultiProgress::with_draw_target(target);
        let (more, total) = (bars.add(hidden_bar().with_style(style("{msg}"))), bars.add(total));
        Self { total, more, noun, total_template, bars, canvas, state: Mutex::default() }
    }

    /// Draws the lines, as many as fit, and the one for all.
    pub(super) fn draw<'a>(&self, lines: impl ExactSizeIterator<Item = LiveLine<'a>>) {
        let size = terminal_size();
        let mut state = self.lock();
        if state.has_ended || is_in_background(stderr()) {
            return;
        }
        let erase = if state.size == size { "" } else { ERASE_LIVE_LINES };
        let lines = self.compose(&mut state, lines, size);
        if output_queue::write_live(format!("{erase}{}", frame(&lines)).as_bytes()) {
            state.size = size;
            state.lines = lines;
            state.drawn_at = Some(Instant::now());
        }
    }

    /// The text of the lines on a terminal of this size.
    fn compose<'a>(
        &self,
        state: &mut ScreenState,
        lines: impl ExactSizeIterator<Item = LiveLine<'a>>,
        size: Size,
    ) -> Vec<String> {
        // The last column and the last row stay free: nothing wraps or scrolls there.
        let (columns, rows) = (size.0.saturating_sub(1).max(1), size.1.saturating_sub(1).max(1));
        if std::mem::replace(&mut self.canvas.lock().columns, columns) != columns {
            state.bars.iter().for_each(|bar| bar.set_style(line_style(columns)));
            self.total.set_style(style(&(self.total_template)(columns)));
        }
        let (count, shown) = (lines.len(), lines_that_fit(lines.len(), rows - 1));
        state.bars.drain(shown.min(state.bars.len())..).for_each(|bar| self.bars.remove(&bar));
        let add = || self.bars.insert_before(&self.more, hidden_bar().with_style(line_style(columns)));
        state.bars.resize_with(shown, add);
        let lines: Vec<LiveLine<'_>> = lines.take(shown).collect();
        let id_columns = LiveLine::id_columns(&lines, columns);
        state.bars.iter().zip(lines).for_each(|(bar, line)| line.show(bar, id_columns, columns));
        // An empty line isn't drawn.
        self.more.set_message(match count - shown {
            hidden @ 1.. if rows > 1 => format!("  and {}", pluralize(hidden as u64, &format!("more {}", self.noun))),
            _ => String::new(),
        });
        self.total.force_draw();
        self.canvas.lock().lines.clone()
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

/// A bar that isn't drawn before it has a place on a screen.
pub(super) fn hidden_bar() -> ProgressBar {
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
}

/// The most lines that are shown of this many, so that together with a line that counts the others there are at most `rows`.
fn lines_that_fit(count: usize, rows: usize) -> usize {
    if count <= rows { count } else { rows.saturating_sub(1) }
}

/// The terminal on which indicatif draws. It keeps the lines of the last frame, cut to its columns, and moves no cursor.
#[derive(Debug, Clone, Default)]
struct Canvas(Arc<Mutex<CanvasState>>);

#[derive(Debug, Default)]
struct CanvasState {
    columns: usize,
    /// What was written since the last frame.
    writes: Vec<String>,
    lines: Vec<String>,
}

impl Canvas {
    fn lock(&self) -> MutexGuard<'_, CanvasState> {
        self.0.lock().ignore_poison()
    }
}

impl TermLike for Canvas {
    fn width(&self) -> u16 {
        // In a single column, indicatif panics at a character that takes two.
        u16::try_from(self.lock().columns).unwrap_or(u16::MAX).max(2)
    }

    fn height(&self) -> u16 {
        // What doesn't fit isn't drawn. indicatif would leave out the last lines.
        u16::MAX
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.write_str("")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.lock().writes.push(text.to_owned());
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.lock();
        let writes = std::mem::take(&mut state.writes);
        let columns = state.columns;
        // Each line is written as its text, and then as the blanks to the end of the row.
        state.lines = writes.iter().step_by(2).map(|line| truncate_str(line, columns, "…").into_owned()).collect();
        Ok(())
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

#[cfg(test)]
mod tests {
    use console::measure_text_width;

    use super::*;

    fn screen() -> LiveScreen {
        let total = hidden_bar();
        total.set_message("$0.10");
        LiveScreen::start("agent", total, |_| "  {msg}".to_owned())
    }

    fn line<'a>(id: &'a str, description: &'a str, action: &str) -> LiveLine<'a> {
        let (spent, action) = ("12.3k $0.02".to_owned(), action.to_owned());
        LiveLine { id, turn: 3, spent, elapsed: Duration::from_secs(20), description: description.to_owned(), action }
    }

    /// The lines without their spinners, in this many columns and rows.
    fn compose<'a>(
        screen: &LiveScreen,
        lines: impl Into<Vec<LiveLine<'a>>>,
        columns: usize,
        rows: usize,
    ) -> Vec<String> {
        let lines = screen.compose(&mut screen.lock(), lines.into().into_iter(), (columns + 1, rows + 1));
        let is_spinner = |char| ('⠀'..='⣿').contains(&char);
        lines.iter().map(|line| line.trim_start_matches(is_spinner).to_owned()).collect()
    }

    #[test]
    fn a_frame_ends_where_it_began() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(frame(&lines), "\u{1b}[?7l\ra\u{1b}[K\n\rb\u{1b}[J\r\u{1b}[1A\u{1b}[?7h");
    }

    #[test]
    fn a_long_description_leaves_room_for_the_action() {
        let description = "Find every place where a token is parsed, and list it";
        let screen = screen();
        let shown = |columns: usize, action: &str| {
            compose(&screen, [line("explorer-1", description, action)], columns, 9).remove(0)
        };
        let figures = " explorer-1 turn 3   12.3k $0.02   00:00:20  ";
        assert_eq!(shown(120, "thinking"), format!("{figures}{description}: thinking"));
        assert_eq!(shown(90, "bash cargo test"), format!("{figures}Find every place where a t…: bash cargo test"));
        assert_eq!(shown(30, "bash cargo test"), " explorer-1 bash cargo test");
        assert_eq!(shown(20, "bash cargo test"), " explorer-1 bash c…");
    }

    #[test]
    fn agents_come_and_go_in_their_order_and_those_that_do_not_fit_are_counted() {
        let screen = screen();
        let shown = |ids: &[&str], rows: usize| {
            let lines: Vec<LiveLine<'_>> = ids.iter().map(|id| line(id, "", "x")).collect();
            compose(&screen, lines, 30, rows)
        };
        assert_eq!(shown(&["a", "c"], 9), [" a x", " c x", "  $0.10"]);
        assert_eq!(shown(&["a", "b", "c"], 9), [" a x", " b x", " c x", "  $0.10"]);
        assert_eq!(shown(&["a", "b", "c"], 3), [" a x", "  and 2 more agents", "  $0.10"]);
        assert_eq!(shown(&["a", "b", "c"], 2), ["  and 3 more agents", "  $0.10"]);
        assert_eq!(shown(&["a", "b", "c"], 1), ["  $0.10"]);
        assert_eq!(shown(&["b", "c"], 3), [" b x", " c x", "  $0.10"]);
        assert_eq!(shown(&[], 3), ["  $0.10"]);
    }

    #[test]
    fn each_line_takes_one_row_of_any_terminal() {
        let texts =
            ["日本語", "👍\u{1f3fd}\u{1f3fd}", "e\u{301}e\u{301}", "{msg} {{", "👩\u{200d}👩\u{200d}👧", "a\tb"];
        let screen = screen();
        for (columns, rows) in (0..80).map(|number| (number / 4, number % 4)).chain([(70, 9), (200, 9)]) {
            for text in texts.map(|text| text.repeat(40)) {
                let lines = compose(&screen, [line(&text, &text, &text), line("x", &text, "y")], columns, rows);
                assert!((1..=rows.max(1)).contains(&lines.len()), "{lines:?} in {columns} x {rows}");
                assert!(columns < 7 || lines.last().is_some_and(|line| line == "  $0.10"), "{lines:?}");
                assert!(!lines.concat().contains('\t'), "{lines:?}");
                let longest = lines.iter().map(|line| measure_text_width(line)).max();
                assert!(longest <= Some(columns.max(1)), "{lines:?} in {columns} x {rows}");
            }
        }
    }
}
