//! Texts of models and tools as escaped HTML: bounded, with long ones folded and diffs coloured.

use std::fmt::Write;

use super::escape::escape;
use super::inert_markdown;
use crate::conversation::Text;
use crate::text::diff::hunks;
use crate::text::{pluralize, truncate};

/// Longer texts are folded: the beginning and the end are shown, the part between them opens on a click.
const MAX_OPEN_LINES: usize = 30;
const MAX_OPEN_CHARS: usize = 4_000;
/// What is shown of a folded text at each end.
const END_LINES: usize = 10;
const END_CHARS: usize = 1_000;
/// The most lines of an edit, both sides together, for which the shortest diff is computed.
const MAX_DIFF_LINES: usize = 400;

/// How texts are cut, and where they are complete.
#[derive(Clone, Copy)]
pub(super) struct TextLimit<'a> {
    /// The most characters that are shown.
    pub(super) chars: usize,
    /// The file that has the rest.
    pub(super) file: &'a str,
}

impl TextLimit<'_> {
    /// The part of a text that is shown, and the sentence about the rest.
    fn cut<'t>(&self, text: &'t str, omitted: u64) -> (&'t str, String) {
        let shown = truncate::first(text, self.chars);
        match omitted.saturating_add(text[shown.len()..].chars().count() as u64) {
            0 => (shown, String::new()),
            more => {
                let note = format!("{} in {}", pluralize(more, "more character"), self.file);
                (shown, format!("<p class=\"cut\">{}</p>", escape(&note)))
            }
        }
    }

    /// A text as it is, in lines.
    pub(super) fn block(&self, text: &Text) -> String {
        let (shown, note) = self.cut(&text.shown, text.omitted_chars);
        let is_diff = looks_like_diff(shown);
        format!("{}{note}", fold(shown, if is_diff { diff_lines } else { escape }))
    }

    /// A text that isn't part of the conversation.
    pub(super) fn plain(&self, text: &str) -> String {
        let (shown, note) = self.cut(text, 0);
        format!("{}{note}", fold(shown, escape))
    }

    /// A patch, coloured.
    pub(super) fn patch(&self, text: &str) -> String {
        let (shown, note) = self.cut(text, 0);
        format!("<pre class=\"diff\">{}</pre>{note}", diff_lines(shown))
    }

    /// Text of a model, as inert Markdown.
    pub(super) fn markdown(&self, text: &str, omitted: u64) -> String {
        let (shown, note) = self.cut(text, omitted);
        format!("<div class=\"md\">{}</div>{note}", inert_markdown::render(shown))
    }

    /// The change that an edit makes.
    pub(super) fn edit(&self, old: &str, new: &str) -> String {
        let (old, old_note) = self.cut(old, 0);
        let (new, new_note) = self.cut(new, 0);
        let mut diff = String::new();
        let mut line = |sign: char, line: &str| {
            let _ = writeln!(diff, "{sign}{}", line.strip_suffix('\n').unwrap_or(line));
        };
        if old.lines().count() + new.lines().count() <= MAX_DIFF_LINES {
            hunks(old, new).iter().flat_map(|hunk| &hunk.lines).for_each(|(sign, text)| line(*sign, text));
        } else {
            old.split_inclusive('\n').for_each(|text| line('-', text));
            new.split_inclusive('\n').for_each(|text| line('+', text));
        }
        let note = if old_note.is_empty() { new_note } else { old_note };
        format!("{}{note}", fold(&diff, diff_lines))
    }
}

/// A text in `<pre>`, folded if it is long.
fn fold(text: &str, render: fn(&str) -> String) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let chars = text.chars().count();
    let lines = text.split('\n').count();
    if chars <= MAX_OPEN_CHARS && lines <= MAX_OPEN_LINES {
        return if text.is_empty() {
            "<p class=\"cut\">(empty)</p>".to_owned()
        } else {
            format!("<pre>{}</pre>", render(text))
        };
    }
    let head = truncate::first(text, END_CHARS).len();
    let head = text.split_inclusive('\n').take(END_LINES).map(str::len).sum::<usize>().min(head);
    let tail = text.char_indices().rev().nth(END_CHARS).map_or(0, |(at, _)| at);
    let tail = text.rmatch_indices('\n').nth(END_LINES - 1).map_or(0, |(at, _)| at + 1).max(tail).max(head);
    let middle = &text[head..tail];
    let size = match middle.matches('\n').count() {
        0 => format!("{} more", pluralize(middle.chars().count() as u64, "character")),
        lines => format!("{} more ({} in all)", pluralize(lines as u64, "line"), pluralize(chars as u64, "character")),
    };
    format!(
        "<pre>{}</pre><details class=\"fold\"><summary>{size}</summary><pre>{}</pre></details><pre>{}</pre>",
        render(&text[..head]),
        render(middle),
        render(&text[tail..]),
    )
}

/// Whether a text is a unified diff.
fn looks_like_diff(text: &str) -> bool {
    let mut lines = text.lines().take(2_000);
    lines.any(|line| line.starts_with("--- "))
        && lines.next().is_some_and(|line| line.starts_with("+++ "))
        && lines.next().is_some_and(|line| line.starts_with("@@ "))
}

/// The lines of a diff, each escaped and marked by its first character.
fn diff_lines(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 2);
    for line in text.split_inclusive('\n') {
        let tag = match line.as_bytes() {
            [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => "b",
            [b'+', ..] => "ins",
            [b'-', ..] => "del",
            [b'@', b'@', ..] => "i",
            _ if line.starts_with("diff ") => "b",
            _ => "",
        };
        let _ = match tag {
            "" => write!(html, "{}", escape(line)),
            tag => write!(html, "<{tag}>{}</{tag}>", escape(line)),
        };
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: TextLimit<'static> = TextLimit { chars: 10_000, file: "events.jsonl" };

    fn text(shown: &str, omitted_chars: u64) -> Text {
        Text { shown: shown.to_owned(), omitted_chars }
    }

    #[test]
    fn a_cut_text_says_how_much_is_missing_and_where_it_is() {
        let html = LIMIT.block(&text(&"<".repeat(10_005), 20));
        assert!(html.contains("25 more characters in events.jsonl"), "{html}");
        assert_eq!(html.matches("&lt;").count(), 10_000);
    }

    #[test]
    fn long_texts_are_folded_and_complete() {
        let lines: String = (0..100).map(|number| format!("line {number}.\n")).collect();
        for long in [lines, "x".repeat(9_000), format!("{}\n{}", "ä".repeat(5_000), "b\n".repeat(40))] {
            let html = LIMIT.block(&text(&long, 0));
            assert_eq!(html.matches("<details").count(), 1, "{html}");
            let plain: String = html
                .split('<')
                .filter_map(|part| part.split_once('>'))
                .map(|(tag, text)| if tag == "summary" { "" } else { text })
                .collect();
            assert_eq!(plain, long.trim_end());
        }
    }

    #[test]
    fn edits_and_diffs_are_coloured() {
        assert_eq!(LIMIT.edit("a\nb\nc", "a\nB\nc"), "<pre> a\n<del>-b\n</del><ins>+B\n</ins> c</pre>");
        let html = LIMIT.block(&text("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<a>\n+b\n", 0));
        assert!(html.contains("<del>-&lt;a&gt;\n</del><ins>+b</ins>"), "{html}");
        assert!(!LIMIT.block(&text("- a\n- b\n--- c\n", 0)).contains("<del>"));
    }
}
