//! Tabs in the indentation.

use std::ops::Range;

use super::{Diagnosis, ErrorContext, RecoveryEdit};

/// How far a tab may reach.
const TAB_STOPS: [usize; 3] = [2, 4, 8];

/// How many lines are taken together.
const MAX_ROWS: usize = 1000;

impl ErrorContext<'_> {
    /// From the first tab in a line's indentation to the end of the indentation.
    pub(super) fn tab_in(&self, line: usize) -> Option<Range<usize>> {
        let text = self.lines.text(line);
        let white = text.len() - text.trim_start_matches([' ', '\t']).len();
        let start = self.lines.span(line).start;
        text[..white].find('\t').map(|first| start + first..start + white)
    }

    /// Takes each tab for a space, over all lines in a row that have them; where that doesn't help, the lines go.
    pub(super) fn tab(&self) -> Diagnosis {
        let lines = self.lines;
        let at = lines.of(self.failure.at);
        let tabs = |line: usize| self.tab_in(line);
        let next = (at + 1..=lines.last()).find(|line| !lines.text(*line).trim().is_empty());
        let Some(first) = [Some(at), next].into_iter().flatten().find(|line| tabs(*line).is_some()) else {
            return Diagnosis::new(self.parser_finding(), self.without_value_at(at, self.failure.at));
        };
        let rows: Vec<usize> = (first..=lines.last())
            .take(MAX_ROWS)
            .take_while(|line| lines.is_blank(*line) || tabs(*line).is_some())
            .collect();
        let spaces: Vec<RecoveryEdit> = rows
            .iter()
            .filter_map(|line| tabs(*line))
            .map(|span| RecoveryEdit { span, fill: b' ', is_data_lost: false })
            .collect();
        let start = tabs(first).map_or(self.failure.at, |span| span.start);
        let end = lines.span(rows.last().copied().unwrap_or(first)).end;
        let finding = self.error(start..start + 1, "a tab in the indentation", "indent with spaces");
        let mut ways = vec![spaces];
        ways.extend(TAB_STOPS.iter().filter_map(|width| self.reindented(first, *width)));
        if rows.len() > 1 {
            ways.push(vec![RecoveryEdit::blank(lines.content(first).start..end)]);
        }
        ways.push(vec![RecoveryEdit::blank(lines.span(first).start..lines.span(first).end)]);
        ways.extend(self.without_line(first));
        Diagnosis::new(finding, ways)
    }

    /// The lines around one with tabs, each as deep as it looks where a tab reaches to the next multiple of `width`. No
    /// byte may move, so that a line can only get less deep: line ends take the place of the white space before it, and
    /// every level is as flat as YAML allows. `None` where a line has too little white space for that.
    fn reindented(&self, line: usize, width: usize) -> Option<Vec<RecoveryEdit>> {
        let lines = self.lines;
        let is_top = |line: &usize| !lines.is_blank(*line) && !lines.text(*line).starts_with([' ', '\t', '\n']);
        let first = (1..line).rev().find(is_top)?;
        let last = (line + 1..=lines.last()).find(is_top).map_or(lines.last(), |next| next - 1);
        // What a line looks like, and how deep it gets, for all that are open.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut edits = Vec::new();
        for line in first..=last.min(first + MAX_ROWS) {
            if lines.is_blank(line) {
                continue;
            }
            let text = lines.text(line);
            let white = text.len() - text.trim_start_matches([' ', '\t', '\n']).len();
            let looks = text[..white].chars().fold(0, |column, letter| match letter {
                '\t' => (column / width + 1) * width,
                _ => column + 1,
            });
            open.retain(|(column, _)| *column <= looks);
            let depth = match open.last() {
                Some((column, depth)) if *column == looks => *depth,
                Some((_, depth)) => depth + 1,
                None => 0,
            };
            // A list may begin in the column of its key.
            let is_item = text[white..].starts_with("- ");
            let depth = if is_item && depth == white + 1 { white } else { depth };
            if depth > white {
                return None;
            }
            if open.last().is_none_or(|(column, _)| *column < looks) {
                open.push((looks, depth));
            }
            // A key behind a dash is where the keys below it have to be.
            let behind = text[white..].len() - text[white..].trim_start_matches(['-', ' ']).len();
            if is_item {
                open.push((looks + behind, depth + behind));
            }
            let start = lines.span(line).start;
            let end = start + white;
            edits.push(RecoveryEdit { span: start..end - depth, fill: b'\n', is_data_lost: false });
            edits.push(RecoveryEdit { span: end - depth..end, fill: b' ', is_data_lost: false });
        }
        edits.retain(|edit| !edit.span.is_empty());
        Some(edits)
    }
}
