//! Where a forge accepts comments on lines: in the hunks that it shows of a pull request. One other line makes it refuse the
//! whole review.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use serde_json::Value;

use crate::text::sanitize;

/// The most files or lines that an error names.
const MAX_NAMED: usize = 10;

/// A file that a pull request changes, as the forge sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Its path.
    pub path: String,
    /// Its path before.
    pub old_path: String,
    /// Its hunks; `None` if the forge shows none.
    pub hunks: Option<String>,
}

/// A comment on lines of a review, at a place that the forge accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineComment {
    /// The file.
    pub path: String,
    /// Its path before the change.
    pub old_path: String,
    /// The last line.
    pub line: u64,
    /// The line in the other version, if it is in both.
    pub other_line: Option<u64>,
    /// The first line, if there are several.
    pub start_line: Option<u64>,
    /// Whether the lines are those before the change.
    pub is_old: bool,
    /// The text.
    pub body: String,
}

/// A comment as it was proposed.
#[derive(Debug, Clone, Deserialize)]
pub struct ProposedComment {
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
#[derive(Debug, Default)]
pub struct ReviewLines(HashMap<String, FileLines>);

impl ReviewLines {
    /// Reads the hunks of the changed files.
    pub fn new(files: &[ChangedFile]) -> Self {
        let lines = files.iter().map(|file| (file.path.clone(), FileLines::read(file)));
        Self(lines.collect())
    }

    /// Splits comments into those that have a place, and a text with those that have none any more.
    pub fn place(&self, comments: Vec<ProposedComment>) -> (Vec<LineComment>, String) {
        let (mut placed, mut rest) = (Vec::new(), String::new());
        for comment in comments {
            match self.find(&comment) {
                Some(comment) => placed.push(comment),
                None => rest += &as_text(&comment),
            }
        }
        (placed, rest)
    }

    /// Checks the comments of a call against what the forge will show.
    ///
    /// # Errors
    /// Says to the model which comment has no place, and where the nearest ones are.
    pub fn check(&self, comments: &Value) -> Result<(), String> {
        let comments: Vec<ProposedComment> =
            serde_json::from_value(comments.clone()).map_err(|error| format!("`comments`: {error}"))?;
        for (number, comment) in comments.iter().enumerate() {
            if self.find(comment).is_none() {
                return Err(format!("`comments[{number}]`: {}", self.describe(comment)));
            }
        }
        Ok(())
    }

    /// Why a comment has no place.
    fn describe(&self, comment: &ProposedComment) -> String {
        let path = sanitize::line(&comment.path);
        let Some(file) = self.0.get(&comment.path) else {
            let mut files: Vec<&String> = self.0.keys().collect();
            files.sort();
            let named: Vec<String> = files.iter().take(MAX_NAMED).map(|file| sanitize::line(file)).collect();
            let more = files.len().saturating_sub(MAX_NAMED);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            return match named.is_empty() {
                true => "the pull request changes no file: write it in the review's `body`".to_owned(),
                false => format!("the pull request doesn't change `{path}`; it changes {}{rest}", named.join(", ")),
            };
        };
        let (lines, other, version) = match comment.is_old() {
            true => (&file.old, &file.new, " before the change (`side: LEFT`)"),
            false => (&file.new, &file.old, ""),
        };
        if lines.is_empty() {
            return match other.is_empty() {
                true => format!(
                    "no lines of `{path}` are shown, so they can't be commented on: write it in the review's `body`"
                ),
                false => {
                    let side = if comment.is_old() { "RIGHT" } else { "LEFT" };
                    format!("`{path}` has lines only on the other side: write `side: {side}`")
                }
            };
        }
        let nearest = |line: u64| {
            let before = lines.range(..line).next_back().map(|(line, _)| *line);
            let after = lines.range(line..).next().map(|(line, _)| *line);
            let named: Vec<String> = before.into_iter().chain(after).map(|line| line.to_string()).collect();
            named.join(" and ")
        };
        let shown = shown_lines(lines);
        let missing =
            [comment.start_line, Some(comment.line)].into_iter().flatten().find(|line| !lines.contains_key(line));
        match (missing, comment.start_line) {
            (Some(line), _) => format!(
                "line {line} of `{path}`{version} isn't in the diff of the pull request; the nearest there: {}; it shows {shown}",
                nearest(line)
            ),
            (None, Some(start)) => {
                format!(
                    "lines {start} to {} of `{path}`{version} aren't in one part of the diff; it shows {shown}",
                    comment.line
                )
            }
            (None, None) => {
                format!("line {} of `{path}`{version} can't be commented on; it shows {shown}", comment.line)
            }
        }
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

/// The lines of each hunk: `1 to 4, 11 to 12`.
fn shown_lines(lines: &BTreeMap<u64, HunkLine>) -> String {
    let mut hunks: Vec<(usize, u64, u64)> = Vec::new();
    for (line, HunkLine { hunk, .. }) in lines {
        match hunks.last_mut() {
            Some((last, _, end)) if last == hunk => *end = *line,
            _ => hunks.push((*hunk, *line, *line)),
        }
    }
    let more = hunks.len().saturating_sub(MAX_NAMED);
    let range = |(_, first, last): &(usize, u64, u64)| {
        if first == last { first.to_string() } else { format!("{first} to {last}") }
    };
    let named: Vec<String> = hunks.iter().take(MAX_NAMED).map(range).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
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

    #[test]
    fn an_error_names_the_nearest_lines() {
        let hunks = "@@ -1,3 +1,4 @@ def\n a\n-b\n+B\n+C\n d\n@@ -10,2 +11,2 @@\n x\n y\n";
        let file = |path: &str, hunks: &str| {
            let path = path.to_owned();
            ChangedFile { old_path: path.clone(), path, hunks: Some(hunks.to_owned()) }
        };
        let lines =
            ReviewLines::new(&[file("a.py", hunks), file("binary", ""), file("gone", "@@ -1,2 +0,0 @@\n-a\n-b\n")]);
        let check = |comment: Value| lines.check(&serde_json::json!([comment])).unwrap_err();
        let at = |path: &str, line: u64| serde_json::json!({ "path": path, "line": line, "body": "x" });
        assert_eq!(
            check(at("a.py", 7)),
            "`comments[0]`: line 7 of `a.py` isn't in the diff of the pull request; the nearest there: 4 and 11; it shows 1 to 4, 11 to 12"
        );
        assert!(check(at("a.py", 99)).contains("the nearest there: 12;"));
        assert!(check(at("b.py", 1)).ends_with("doesn't change `b.py`; it changes a.py, binary, gone"));
        assert!(check(at("binary", 1)).contains("no lines of `binary` are shown"));
        assert!(check(at("gone", 1)).ends_with("write `side: LEFT`"));
        let several = serde_json::json!({ "path": "a.py", "line": 11, "start_line": 2, "body": "x" });
        assert!(check(several).contains("lines 2 to 11 of `a.py` aren't in one part of the diff"));
        let old = serde_json::json!({ "path": "a.py", "line": 4, "side": "LEFT", "body": "x" });
        assert!(check(old).contains(
            "before the change (`side: LEFT`) isn't in the diff of the pull request; the nearest there: 3 and 10"
        ));
        assert_eq!(lines.check(&serde_json::json!([at("a.py", 2)])), Ok(()));
        assert!(
            ReviewLines::default().check(&serde_json::json!([at("a", 1)])).unwrap_err().contains("changes no file")
        );
    }
}
