//! One live line: an agent of a run, or a row of a map.

use std::time::Duration;

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use indicatif::{FormattedDuration, ProgressBar, ProgressStyle};

/// Below this width, figures are left out.
const MIN_COLUMNS_FOR_FIGURES: usize = 60;
/// The most columns of an id.
const MAX_ID_COLUMNS: usize = 16;
const MAX_ID_COLUMNS_IF_NARROW: usize = 10;

/// The pictures of a spinner. The last one is for a bar that has ended, which isn't shown.
const SPINNER: &str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ";

/// The columns of a line with figures that are the same in each: the spinner, blanks, and what is behind a description.
const FIXED_COLUMNS: usize = 8;

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
    pub(super) description: String,
    /// What it does.
    pub(super) action: String,
}

impl LiveLine<'_> {
    /// The columns of the ids of all lines in this many columns.
    pub(super) fn id_columns(lines: &[Self], columns: usize) -> usize {
        let most = if is_narrow(columns) { MAX_ID_COLUMNS_IF_NARROW } else { MAX_ID_COLUMNS };
        lines.iter().map(|line| measure_text_width(line.id)).max().unwrap_or_default().min(most)
    }

    /// Shows it in a bar with [`line_style`].
    pub(super) fn show(self, bar: &ProgressBar, id_columns: usize, columns: usize) {
        let mut prefix = pad_id(self.id, id_columns);
        let mut message = self.action;
        if !is_narrow(columns) {
            prefix.push_str(&format!(" turn {:<2}  {:<12}", self.turn, self.spent));
            if !self.description.is_empty() {
                // What it does is at least as important.
                let elapsed = FormattedDuration(self.elapsed).to_string();
                let left = columns.saturating_sub(measure_text_width(&prefix) + elapsed.len() + FIXED_COLUMNS);
                let most = left.saturating_sub(measure_text_width(&message)).max(left / 2);
                message = format!("{}: {message}", truncate_str(&self.description, most, "…"));
            }
        }
        bar.set_elapsed(self.elapsed);
        if bar.prefix() != prefix {
            bar.set_prefix(prefix);
        }
        if bar.message() != message {
            bar.set_message(message);
        }
        bar.tick();
    }
}

/// The style of the lines in this many columns.
pub(super) fn line_style(columns: usize) -> ProgressStyle {
    match is_narrow(columns) {
        true => style("{spinner} {prefix} {msg}"),
        false => style("{spinner} {prefix}  {elapsed_precise}  {msg}"),
    }
}

/// The style of a template.
pub(super) fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    style.tick_chars(SPINNER).progress_chars("━╌")
}

fn is_narrow(columns: usize) -> bool {
    columns < MIN_COLUMNS_FOR_FIGURES
}

/// An id in exactly this many columns. The middle of a longer one is left out, so that a number at its end is kept.
pub(super) fn pad_id(id: &str, columns: usize) -> String {
    if measure_text_width(id) <= columns {
        return pad_str(id, columns, Alignment::Left, None).into_owned();
    }
    let fits = |at: &usize| measure_text_width(&id[*at..]) <= columns / 3;
    let tail = id.char_indices().map(|(at, _)| at).find(fits).map_or("", |at| &id[at..]);
    let head = truncate_str(id, columns - measure_text_width(tail), "…");
    pad_str(&format!("{head}{tail}"), columns, Alignment::Left, None).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_a_column_and_keep_their_number() {
        assert_eq!(pad_id("parent", 16), "parent          ");
        assert_eq!(pad_id("a-very-long-name-12", 16), "a-very-lon…me-12");
        for text in ["日本語日本語日本語日本語", "x", &"x".repeat(70)] {
            for columns in 1..20 {
                assert_eq!(measure_text_width(&pad_id(text, columns)), columns, "{text} in {columns}");
            }
        }
    }
}
