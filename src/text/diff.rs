//! Line diffs in unified format.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::sanitize;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;

/// How long to look for a minimal diff. After that, any diff will do.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

const NO_NEWLINE: &str = "\n\\ No newline at end of file\n";

/// Consecutive lines, some of which differ. Displayed as in a patch that `git apply` and `patch` accept.
#[derive(Debug)]
pub struct Hunk<'t> {
    old: Range<usize>,
    new: Range<usize>,
    /// Each line with its line ending, and ` ` if both texts have it, `-` if it was removed, `+` if it was added.
    pub lines: Vec<(char, &'t str)>,
}

impl fmt::Display for Hunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "@@ -{} +{} @@", line_range(&self.old), line_range(&self.new))?;
        for (sign, line) in &self.lines {
            write!(f, "{sign}{line}")?;
            if !line.ends_with('\n') {
                f.write_str(NO_NEWLINE)?;
            }
        }
        Ok(())
    }
}

fn line_range(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    }
}

/// The differences between two texts, with three lines of context; empty if they are equal.
pub fn hunks<'t>(before: &'t str, after: &'t str) -> Vec<Hunk<'t>> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let hunk = |operations: Vec<DiffOp>| {
        let (first, last) = (operations.first()?, operations.last()?);
        let mut lines = Vec::new();
        for operation in &operations {
            let (removed, added) = (&old[operation.old_range()], &new[operation.new_range()]);
            if operation.tag() == DiffTag::Equal {
                lines.extend(removed.iter().map(|line| (' ', *line)));
            } else {
                lines.extend(removed.iter().map(|line| ('-', *line)));
                lines.extend(added.iter().map(|line| ('+', *line)));
            }
        }
        let (old, new) = (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
        Some(Hunk { old, new, lines })
    };
    group_diff_ops(diff_lines(&old, &new), CONTEXT_LINES).into_iter().filter_map(hunk).collect()
}

/// The hunks between two texts as one string, without file names; empty if the texts are equal. A missing newline at the
/// end is noted only if the other text has one.
pub fn unified(before: &str, after: &str) -> String {
    let diff: String = hunks(before, after).iter().map(Hunk::to_string).collect();
    match before.ends_with('\n') == after.ends_with('\n') {
        true => diff.replace(NO_NEWLINE, "\n"),
        false => diff,
    }
}

pub(super) fn diff_lines(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let found = capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(Instant::now() + DIFF_TIMEOUT));
    // The index that `similar` gives for the other side of a removal or an addition isn't always where it happens.
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

/// A patch for a terminal: control characters are replaced, and lines are coloured by their kind if `colour` is set.
pub fn for_terminal(patch: &str, colour: bool) -> String {
    let mut text = String::new();
    let mut in_hunk = false;
    for line in patch.lines() {
        in_hunk |= line.starts_with("@@");
        let code = match line.chars().next() {
            _ if !in_hunk => "1",
            Some('@') => "36",
            Some('-') => "31",
            Some('+') => "32",
            _ => "0",
        };
        let line = sanitize::line(line);
        text += &if colour { format!("\u{1b}[{code}m{line}\u{1b}[0m\n") } else { line + "\n" };
    }
    text
}

/// A path as git writes it in a patch: in quotes, with escapes, if it holds quotes, backslashes, control characters or
/// invalid UTF-8.
pub(crate) fn quote_path(path: &[u8]) -> String {
    match str::from_utf8(path) {
        Ok(path) if !path.contains(|char: char| char.is_control() || matches!(char, '"' | '\\')) => {
            return path.to_owned();
        }
        _ => {}
    }
    let mut text = String::from("\"");
    for byte in path {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text += &format!("\\{other:03o}"),
        }
    }
    text + "\""
}

/// A path for a `---` or `+++` line. A tab marks the end of an unquoted path that contains a space.
pub(crate) fn quote_header_path(path: &[u8]) -> String {
    match quote_path(path) {
        quoted if quoted.contains(' ') && !quoted.starts_with('"') => quoted + "\t",
        quoted => quoted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunk_has_three_lines_of_context() {
        let before: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let after = before.replace("\n10\n", "\nten\n");
        assert_eq!(unified(&before, &after), "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n");
        assert_eq!(unified("same", "same"), "");
        assert_eq!(unified("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
    }

    #[test]
    fn entirely_different_texts_take_no_longer_than_the_timeout() {
        let lines = |sign: char| (0..300_000).map(|at| format!("{sign}{at}\n")).collect::<String>();
        let begin = std::time::Instant::now();
        let diff = unified(&lines('a'), &lines('b'));
        assert_eq!(diff.lines().count(), 600_001);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_missing_newline_is_noted_where_only_one_text_has_it() {
        let note = "\\ No newline at end of file\n";
        assert_eq!(unified("b", "a"), "@@ -1 +1 @@\n-b\n+a\n");
        assert_eq!(unified("", "a"), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified("a", "a\n"), format!("@@ -1 +1 @@\n-a\n{note}+a\n"));
        assert_eq!(hunks("b", "a")[0].to_string(), format!("@@ -1 +1 @@\n-b\n{note}+a\n{note}"));
    }

    #[test]
    fn a_terminal_gets_colours_and_no_control_characters() {
        let patch = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-x\r\n+y\r\n \u{1b}[2J\r\n";
        let shown = for_terminal(patch, true);
        assert!(shown.contains("\u{1b}[31m-x\u{1b}[0m\n\u{1b}[32m+y\u{1b}[0m\n"), "{shown:?}");
        assert!(shown.starts_with("\u{1b}[1m--- a/a\u{1b}[0m\n"), "{shown:?}");
        assert!(shown.contains("␛[2J") && !shown.contains('\r'), "{shown:?}");
        assert_eq!(for_terminal("--- a\n", false), "--- a\n");
    }

    #[test]
    fn paths_are_quoted_as_git_quotes_them() {
        assert_eq!(quote_header_path(b"a/b c"), "a/b c\t");
        assert_eq!(quote_path("a/\"x\"\n\\ä".as_bytes()), "\"a/\\\"x\\\"\\012\\\\\\303\\244\"");
        assert_eq!(quote_path(b"\xff"), "\"\\377\"");
    }
}
