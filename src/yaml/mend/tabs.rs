//! Tabs in the indentation.

use std::ops::Range;

use super::{Diagnosis, Edit, Spot};

/// How many lines are taken together.
const MAX_ROWS: usize = 1000;

impl Spot<'_> {
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
            return Diagnosis::new(self.said(), self.without_value_at(at, self.failure.at));
        };
        let rows: Vec<usize> = (first..=lines.last())
            .take(MAX_ROWS)
            .take_while(|line| lines.is_blank(*line) || tabs(*line).is_some())
            .collect();
        let spaces: Vec<Edit> =
            rows.iter().filter_map(|line| tabs(*line)).map(|span| Edit { span, with: b' ', lost: false }).collect();
        let start = tabs(first).map_or(self.failure.at, |span| span.start);
        let end = lines.span(rows.last().copied().unwrap_or(first)).end;
        let finding = self.error(start..start + 1, "a tab in the indentation", "indent with spaces");
        let mut ways = vec![spaces];
        if rows.len() > 1 {
            ways.push(vec![Edit::blank(lines.content(first).start..end)]);
        }
        ways.extend(self.without_line(first));
        Diagnosis::new(finding, ways)
    }
}
