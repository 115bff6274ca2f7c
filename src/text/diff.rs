//! Two texts, line by line.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// Lines that are shown around a change.
const CONTEXT_LINES: usize = 3;

/// How long a short way from one text to the other is looked for.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Lines that follow one another, of which some differ.
#[derive(Debug)]
pub struct Hunk<'t> {
    /// Which lines of the old text they are, from 0.
    pub old: Range<usize>,
    /// Which lines of the new text.
    pub new: Range<usize>,
    /// Each with its line end, and whether it is in both (` `), gone (`-`) or new (`+`).
    pub lines: Vec<(char, &'t str)>,
}

impl Hunk<'_> {
    /// Where it is: `@@ -7,7 +7,8 @@`.
    pub fn header(&self) -> String {
        format!("@@ -{} +{} @@", numbers(&self.old), numbers(&self.new))
    }
}

/// What differs between two texts, with three lines around it; empty where they are the same. Of texts with very much that
/// differs it may be more than had to be said.
pub fn hunks<'t>(before: &'t str, after: &'t str) -> Vec<Hunk<'t>> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let groups = group_diff_ops(diff_lines(&old, &new, Some(Instant::now() + DIFF_TIMEOUT)), CONTEXT_LINES);
    let hunk = |group: Vec<DiffOp>| {
        let (first, last) = (group.first()?, group.last()?);
        let mut lines = Vec::new();
        for operation in &group {
            let signed = |sign, lines: &[&'t str]| lines.iter().map(|line| (sign, *line)).collect::<Vec<_>>();
            if operation.tag() == DiffTag::Equal {
                lines.extend(signed(' ', &old[operation.old_range()]));
            } else {
                lines.extend(signed('-', &old[operation.old_range()]));
                lines.extend(signed('+', &new[operation.new_range()]));
            }
        }
        let (old, new) = (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
        Some(Hunk { old, new, lines })
    };
    groups.into_iter().filter_map(hunk).collect()
}

/// The hunks of a unified diff, without the names of files above them; empty where the texts are the same. Each line
/// ends with a line end. Where only one of the two texts ends with one, that is said.
pub fn unified(before: &str, after: &str) -> String {
    let mut text = String::new();
    let is_noted = before.ends_with('\n') != after.ends_with('\n');
    for hunk in hunks(before, after) {
        text += &format!("{}\n", hunk.header());
        for (sign, line) in hunk.lines {
            text.push(sign);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push_str(if is_noted { "\n\\ No newline at end of text\n" } else { "\n" });
            }
        }
    }
    text
}

/// What makes one list of lines the other, in order. After `end` any way will do, not only a short one.
pub fn diff_lines(old: &[&str], new: &[&str], end: Option<Instant>) -> Vec<DiffOp> {
    let found = capture_diff_slices_deadline(Algorithm::Myers, old, new, end);
    // The place in the other list that comes with a removal or an addition isn't always where it happens.
    let (mut old_index, mut new_index) = (0, 0);
    let placed = found.into_iter().map(|operation| {
        let (old_len, new_len) = (operation.old_range().len(), operation.new_range().len());
        let placed = match operation.tag() {
            DiffTag::Equal => DiffOp::Equal { old_index, new_index, len: old_len },
            DiffTag::Delete => DiffOp::Delete { old_index, old_len, new_index },
            DiffTag::Insert => DiffOp::Insert { old_index, new_index, new_len },
            DiffTag::Replace => DiffOp::Replace { old_index, old_len, new_index, new_len },
        };
        (old_index, new_index) = (old_index + old_len, new_index + new_len);
        placed
    });
    placed.collect()
}

fn numbers(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn a_hunk_has_three_lines_around() {
        let before: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let after = before.replace("\n10\n", "\nten\n");
        assert_eq!(unified(&before, &after), "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n");
        assert_eq!(unified("same", "same"), "");
        assert_eq!(unified("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
    }

    #[test]
    fn texts_of_which_everything_differs_take_no_longer_than_allowed() {
        let lines = |sign: char| (0..300_000).map(|at| format!("{sign}{at}\n")).collect::<String>();
        let begin = std::time::Instant::now();
        let diff = unified(&lines('a'), &lines('b'));
        assert_eq!(diff.lines().count(), 600_001);
        assert!(begin.elapsed() < super::DIFF_TIMEOUT * 20, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_missing_line_end_is_told() {
        let none = "\\ No newline at end of text\n";
        assert_eq!(unified("b", "a"), "@@ -1 +1 @@\n-b\n+a\n");
        assert_eq!(unified("a", "a\n"), format!("@@ -1 +1 @@\n-a\n{none}+a\n"));
    }
}
