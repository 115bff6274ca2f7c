//! Where a forge accepts comments on lines: in the hunks that it shows of a pull request. One other line makes it refuse the
//! whole review.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::forge::{ChangedFile, LineComment};
use crate::text::sanitize;

/// A comment as it was proposed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ProposedComment {
    path: String,
    line: u64,
    #[serde(default)]
    start_line: Option<u64>,
    #[serde(default)]
    side: Option<String>,
    body: String,
}

/// A line in a hunk: which hunk it is in, and its number in the other version.
#[derive(Debug, Clone, Copy)]
struct HunkLine {
    hunk: usize,
    other: Option<u64>,
}

/// The lines of one file that can be commented on.
#[derive(Debug, Default)]
struct FileLines {
    old_path: String,
    old: BTreeMap<u64, HunkLine>,
    new: BTreeMap<u64, HunkLine>,
}

/// The lines of a pull request that can be commented on.
#[derive(Debug)]
pub(super) struct ReviewLines(HashMap<String, FileLines>);

impl ReviewLines {
    /// Reads the hunks of the changed files.
    pub(super) fn new(files: &[ChangedFile]) -> Self {
        let lines = files.iter().map(|file| (file.path.clone(), FileLines::read(file)));
        Self(lines.collect())
    }

    /// Splits comments into those that have a place, and a text with those that have none any more.
    pub(super) fn place(&self, comments: Vec<ProposedComment>) -> (Vec<LineComment>, String) {
        let (mut placed, mut rest) = (Vec::new(), String::new());
        for comment in comments {
            match self.find(&comment) {
                Some(comment) => placed.push(comment),
                None => rest += &as_text(&comment),
            }
        }
        (placed, rest)
    }

    fn find(&self, comment: &ProposedComment) -> Option<LineComment> {
        let file = self.0.get(&comment.path)?;
        let is_old = comment.is_old();
        let lines = if is_old { &file.old } else { &file.new };
        let last = lines.get(&comment.line)?;
        let start_line = comment.start_line.filter(|start| *start != comment.line);
        if let Some(start) = start_line
            && (start > comment.line || lines.get(&start)?.hunk != last.hunk)
        {
            return None;
        }
        Some(LineComment {
            path: comment.path.clone(),
            old_path: file.old_path.clone(),
            line: comment.line,
            other_line: last.other,
            start_line,
            is_old,
            body: comment.body.clone(),
        })
    }
}

impl ProposedComment {
    fn is_old(&self) -> bool {
        self.side.as_deref().is_some_and(|side| side.eq_ignore_ascii_case("left") || side.eq_ignore_ascii_case("old"))
    }
}

/// A comment without a place, as a part of the review's text.
fn as_text(comment: &ProposedComment) -> String {
    let lines = match comment.start_line.filter(|start| *start < comment.line) {
        Some(start) => format!("lines {start} to {}", comment.line),
        None => format!("line {}", comment.line),
    };
    let version = if comment.is_old() { " before the change" } else { "" };
    format!("\n\n{}, {lines}{version}:\n\n{}", sanitize::inline_code(&comment.path), comment.body.trim_end())
}

impl FileLines {
    fn read(file: &ChangedFile) -> Self {
        let mut lines = Self { old_path: file.old_path.clone(), ..Self::default() };
        let (mut hunk, mut old, mut new) = (0, 0_u64, 0_u64);
        for line in file.hunks.as_deref().unwrap_or_default().split('\n') {
            if let Some(starts) = hunk_starts(line) {
                (old, new) = starts;
                hunk += 1;
                continue;
            }
            if hunk == 0 {
                continue;
            }
            let kind = line.as_bytes().first();
            if matches!(kind, Some(b' ' | b'-')) {
                let other = (kind == Some(&b' ')).then_some(new);
                lines.old.insert(old, HunkLine { hunk, other });
            }
            if matches!(kind, Some(b' ' | b'+')) {
                let other = (kind == Some(&b' ')).then_some(old);
                lines.new.insert(new, HunkLine { hunk, other });
            }
            old = old.saturating_add(u64::from(matches!(kind, Some(b' ' | b'-'))));
            new = new.saturating_add(u64::from(matches!(kind, Some(b' ' | b'+'))));
        }
        lines
    }
}

/// The first lines of both versions in the head of a hunk.
fn hunk_starts(line: &str) -> Option<(u64, u64)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let start = |range: &str| range.split(',').next()?.parse().ok();
    Some((start(old)?, start(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(line: u64, start_line: Option<u64>, side: Option<&str>) -> ProposedComment {
        let side = side.map(str::to_owned);
        ProposedComment { path: "a.py".to_owned(), line, start_line, side, body: "text".to_owned() }
    }

    #[test]
    fn only_lines_of_hunks_have_a_place() {
        let hunks = "@@ -1,3 +1,4 @@ def\n a\n-b\n+B\n+C\n d\n@@ -10,2 +11,2 @@\n x\n y\n\\ No newline at end of file";
        let file =
            ChangedFile { path: "a.py".to_owned(), old_path: "old.py".to_owned(), hunks: Some(hunks.to_owned()) };
        let lines = ReviewLines::new(&[file]);
        let find = |line, start, side| lines.find(&comment(line, start, side)).map(|found| found.other_line);
        assert_eq!(find(1, None, None), Some(Some(1)));
        assert_eq!(find(2, None, None), Some(None));
        assert_eq!(find(4, None, None), Some(Some(3)));
        assert_eq!(find(5, None, None), None);
        assert_eq!(find(2, None, Some("LEFT")), Some(None));
        assert_eq!(find(4, Some(1), None), Some(Some(3)));
        assert_eq!(find(11, Some(4), None), None, "two hunks");
        assert_eq!(find(1, Some(4), None), None, "the wrong way round");
        assert_eq!(find(13, None, None), None);
        let (placed, rest) = lines.place(vec![comment(2, None, None), comment(99, Some(97), None)]);
        assert_eq!(placed.len(), 1);
        assert_eq!(rest, "\n\n`a.py`, lines 97 to 99:\n\ntext");
        assert!(ReviewLines::new(&[]).find(&comment(1, None, None)).is_none());
    }
}
