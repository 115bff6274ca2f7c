//! Two texts, line by line.

use std::ops::Range;
use std::time::Instant;

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// Lines that are shown around a change.
const AROUND: usize = 3;

/// The hunks of a unified diff, without the names of files above them; empty where the texts are the same. Each line
/// ends with a line end. Where only one of the two texts ends with one, that is said.
pub fn unified(before: &str, after: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let mut text = String::new();
    let is_noted = before.ends_with('\n') != after.ends_with('\n');
    for hunk in group_diff_ops(operations(&old, &new, None), AROUND) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let gone = numbers(first.old_range().start..last.old_range().end);
        let come = numbers(first.new_range().start..last.new_range().end);
        text += &format!("@@ -{gone} +{come} @@\n");
        for operation in hunk {
            if operation.tag() == DiffTag::Equal {
                put(&mut text, ' ', &old[operation.old_range()], is_noted);
            } else {
                put(&mut text, '-', &old[operation.old_range()], is_noted);
                put(&mut text, '+', &new[operation.new_range()], is_noted);
            }
        }
    }
    text
}

/// What makes one list of lines the other, in order. After `end` any way will do, not only a short one.
pub fn operations(old: &[&str], new: &[&str], end: Option<Instant>) -> Vec<DiffOp> {
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

fn put(text: &mut String, sign: char, lines: &[&str], is_noted: bool) {
    for line in lines {
        text.push(sign);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str(if is_noted { "\n\\ No newline at end of text\n" } else { "\n" });
        }
    }
}

fn numbers(range: Range<usize>) -> String {
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
    }

    #[test]
    fn a_missing_line_end_is_told() {
        let none = "\\ No newline at end of text\n";
        assert_eq!(unified("b", "a"), "@@ -1 +1 @@\n-b\n+a\n");
        assert_eq!(unified("a", "a\n"), format!("@@ -1 +1 @@\n-a\n{none}+a\n"));
    }
}
