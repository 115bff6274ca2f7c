//! One live line: an agent of a run, or a row of a map.

use std::time::{Duration, Instant};

use super::live_screen::{fit, pad, width};
use super::run_status::short_duration;

/// Below this width, figures are left out.
const MIN_COLUMNS_FOR_FIGURES: usize = 60;
/// The most columns of an id.
const MAX_ID_COLUMNS: usize = 16;
const MAX_ID_COLUMNS_IF_NARROW: usize = 10;

/// The time for which a spinner shows one picture.
const SPINNER_MS: u128 = 120;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What a live line shows.
pub(super) struct LiveLine<'a> {
    /// The agent or the row.
    pub(super) id: &'a str,
    /// Its turn.
    pub(super) turn: u32,
    /// Its tokens and cost.
    pub(super) spent: String,
    /// How long it has run.
    pub(super) elapsed: Duration,
    /// What it is for; may be empty.
    pub(super) description: &'a str,
    /// What it does.
    pub(super) action: String,
}

/// The lines in the columns of a terminal. `started` is when the spinners began.
pub(super) fn live_lines(lines: &[LiveLine<'_>], started: Instant, columns: usize) -> Vec<String> {
    let is_narrow = columns < MIN_COLUMNS_FOR_FIGURES;
    let max_id = if is_narrow { MAX_ID_COLUMNS_IF_NARROW } else { MAX_ID_COLUMNS };
    let id_columns = lines.iter().map(|line| width(line.id)).max().unwrap_or_default().min(max_id);
    let spinner = spinner(started);
    let line = |line: &LiveLine<'_>| {
        let mut text = format!("{spinner} {} ", pad(line.id, id_columns));
        if !is_narrow {
            let elapsed = short_duration(line.elapsed);
            text.push_str(&format!("turn {:<2}  {:<12}  {elapsed:<10}  ", line.turn, line.spent));
        }
        if !line.description.is_empty() && !is_narrow {
            // What it does is at least as important.
            let left = columns.saturating_sub(width(&text) + 2);
            text.push_str(&format!(
                "{}: ",
                fit(line.description, left.saturating_sub(width(&line.action)).max(left / 2))
            ));
        }
        text + &line.action
    };
    lines.iter().map(line).collect()
}

fn spinner(started: Instant) -> char {
    let number = usize::try_from(started.elapsed().as_millis() / SPINNER_MS).unwrap_or_default();
    SPINNER[number % SPINNER.len()]
}

/// The most lines that are shown of this many, so that together with a line that counts the others there are at most `rows`.
pub(super) fn lines_that_fit(count: usize, rows: usize) -> usize {
    if count <= rows { count } else { rows.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_description_leaves_room_for_the_action() {
        let description = "Find every place where a token is parsed, and list it";
        let shown = |columns: usize, action: &str| {
            let line = LiveLine {
                id: "explorer-1",
                turn: 3,
                spent: "12.3k $0.02".to_owned(),
                elapsed: Duration::from_secs(20),
                description,
                action: action.to_owned(),
            };
            let text = live_lines(&[line], Instant::now(), columns).remove(0);
            fit(&text, columns).trim_start_matches(SPINNER).to_owned()
        };
        assert_eq!(
            shown(120, "thinking"),
            " explorer-1 turn 3   12.3k $0.02   20 s        Find every place where a token is parsed, and list it: thinking"
        );
        assert_eq!(
            shown(90, "bash cargo test"),
            " explorer-1 turn 3   12.3k $0.02   20 s        Find every place where a…: bash cargo test"
        );
        assert_eq!(shown(30, "bash cargo test"), " explorer-1 bash cargo test");
        assert_eq!(shown(20, "bash cargo test"), " explorer-1 bash c…");
    }

    #[test]
    fn lines_beyond_the_rows_are_counted_in_one_more() {
        assert_eq!([(3, 3), (4, 3), (4, 1), (1, 0)].map(|(count, rows)| lines_that_fit(count, rows)), [3, 2, 0, 0]);
    }
}
