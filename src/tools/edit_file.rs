//! `edit_file`: replaces text in a file.

use std::borrow::Cow;
use std::fmt::Write;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::{FileCall, FileTool};
use super::input::{lenient_bool, reject_redacted_text};
use super::tool::Builtin;
use crate::message::ToolError;
use crate::redaction::Redactor;
use crate::text::look_alikes;
use crate::text::truncate::first;
use crate::text::utf16::Utf16;
use crate::workspace::atomic_write::MAX_FILE_BYTES;

pub(super) const BUILTIN: Builtin = TOOL.builtin("path", |_| Ok(Box::new(TOOL)));
const TOOL: FileTool<EditFileInput> = FileTool {
    name: "edit_file",
    description: "Replaces text in a file. `old_text` must match the file exactly, including white space and line breaks, but \
     without the line numbers that read_file adds. It must be unique in the file unless `replace_all` is true. If the \
     file has changed since you read it, read it again first.",
    reads_only: false,
    reads_content: false,
    run: edit,
};

/// How many occurrences of a text are listed if there are several.
const MAX_LISTED_OCCURRENCES: usize = 10;
/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;
/// The most lines of a change that are shown.
const MAX_SHOWN_LINES: usize = 40;
/// The largest file, in bytes, that is searched for text similar to `old_text`.
const MAX_SIMILAR_SEARCH_BYTES: usize = 1 << 20;
/// The most pairs of lines that are compared to find it.
const MAX_LINE_COMPARISONS: usize = 10_000_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditFileInput {
    /// Path of the file, relative to the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// The exact text to replace, with enough context to be unique in the file.
    #[serde(alias = "old_string", alias = "old_str")]
    old_text: String,
    /// The text to replace it with.
    #[serde(alias = "new_string", alias = "new_str")]
    new_text: String,
    /// Replace every occurrence. Default: false.
    #[serde(default, deserialize_with = "lenient_bool")]
    replace_all: Option<bool>,
}

fn edit(input: &EditFileInput, call: &FileCall) -> Result<String, ToolError> {
    let FileCall { workspace, state, redactor, .. } = call;
    reject_redacted_text(&input.path)?;
    reject_redacted_text(&input.old_text)?;
    reject_redacted_text(&input.new_text)?;
    if input.old_text.is_empty() {
        return Err(ToolError::new("`old_text` is empty; use write_file to create or replace a whole file"));
    }
    if input.old_text == input.new_text {
        return Err(ToolError::new("`old_text` and `new_text` are identical"));
    }
    let mut target = workspace.write_target(&input.path)?;
    let path = target.path.clone();
    let shown = path.display();
    workspace.with_path_lock(&path, || {
        let before = target.read()?;
        if state.has_changed(&target.path, &before) {
            return Err(ToolError(format!("`{shown}` has changed since you read it; read it again")));
        }
        let edit = replace(&before, input).map_err(|why| ToolError(format!("`{shown}`: {why}")))?;
        target.write(&edit.after)?;
        state.record_file(&target.path, &edit.after);
        Ok(edit.describe(&shown.to_string(), redactor))
    })
}

#[derive(Debug)]
struct Edit {
    after: Vec<u8>,
    /// Byte offset of the first replacement.
    offset: usize,
    /// Length of the new text in bytes.
    length: usize,
    /// How many occurrences were replaced.
    count: usize,
}

fn replace(before: &[u8], input: &EditFileInput) -> Result<Edit, String> {
    if let Some(encoding) = Utf16::of(before) {
        return Err(format!(
            "the file is in {encoding}, which can't be edited; write the whole file with write_file, which keeps its encoding, or \
             convert it with a command, such as `iconv -f UTF-16 -t UTF-8`"
        ));
    }
    let mut old = Cow::Borrowed(input.old_text.as_str());
    let mut new = Cow::Borrowed(input.new_text.as_str());
    let (mut count, mut offsets) = occurrences(before, old.as_bytes());
    if before.windows(2).any(|pair| pair == b"\r\n") {
        // Models see and write \n. Text that replaces lines with CRLF gets CRLF as well.
        let crlf = with_crlf(&old);
        if count == 0 && crlf != old {
            (count, offsets) = occurrences(before, crlf.as_bytes());
            old = Cow::Owned(crlf);
        }
        if uses_crlf_near(before, &offsets, old.len()) {
            new = Cow::Owned(with_crlf(&new));
        }
    }
    // A byte order mark stays, which models see and may leave out.
    const MARK: char = '\u{feff}';
    if before.starts_with(b"\xef\xbb\xbf") && old.starts_with(MARK) && !new.starts_with(MARK) {
        new = Cow::Owned(format!("{MARK}{new}"));
    }
    match count {
        0 => return Err(not_found(before, &input.old_text)),
        1 => {}
        _ if input.replace_all != Some(true) => {
            let lines = offsets.iter().map(|at| line_of(before, *at).to_string());
            let more = if count > MAX_LISTED_OCCURRENCES { ", ..." } else { "" };
            return Err(format!(
                "`old_text` occurs {count} times (lines {}{more}); add context to make it unique, or set \
                 `replace_all`",
                lines.collect::<Vec<_>>().join(", ")
            ));
        }
        _ => {}
    }
    if old == new {
        return Err("the edit would change nothing".to_owned());
    }
    // Checked before anything of this size is allocated.
    let size = (new.len() as u128 * count as u128) + (before.len() - old.len() * count) as u128;
    if size > u128::from(MAX_FILE_BYTES) {
        return Err(format!("the edited file would be larger than {} MB", MAX_FILE_BYTES >> 20));
    }
    let mut after = Vec::with_capacity(size as usize);
    let mut rest = 0;
    for at in memchr::memmem::find_iter(before, old.as_bytes()) {
        after.extend_from_slice(&before[rest..at]);
        after.extend_from_slice(new.as_bytes());
        rest = at + old.len();
    }
    after.extend_from_slice(&before[rest..]);
    Ok(Edit { after, offset: offsets[0], length: new.len(), count })
}

/// How many times a text occurs, without overlaps, and the byte offsets of the first [`MAX_LISTED_OCCURRENCES`].
fn occurrences(content: &[u8], text: &[u8]) -> (usize, Vec<usize>) {
    let found = || memchr::memmem::find_iter(content, text);
    (found().count(), found().take(MAX_LISTED_OCCURRENCES).collect())
}

/// A text in which every line ends in CRLF.
pub(super) fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Whether the line breaks at the first change are CRLF. Looks at one in the text, then the next one, then the one before.
fn uses_crlf_near(content: &[u8], found: &[usize], length: usize) -> bool {
    let Some(at) = found.first() else { return false };
    let next = content[*at..].iter().position(|byte| *byte == b'\n').map(|end| at + end);
    let end = next.or_else(|| content[..(at + length).min(content.len())].iter().rposition(|byte| *byte == b'\n'));
    end.is_some_and(|end| end > 0 && content[end - 1] == b'\r')
}

fn line_of(content: &[u8], at: usize) -> usize {
    content[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Describes what in the file is similar to a text that doesn't occur.
fn not_found(bytes: &[u8], text: &str) -> String {
    // The comparison takes time for each pair of lines and memory for each line.
    let bytes = if bytes.len() + text.len() > MAX_SIMILAR_SEARCH_BYTES { &[] } else { bytes };
    let content = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = content.lines().collect();
    let wanted: Vec<&str> = text.trim_matches(['\n', '\r']).lines().collect();
    let find_lines = |same: fn(&str, &str) -> bool| {
        if lines.len().saturating_mul(wanted.len()) > MAX_LINE_COMPARISONS {
            return None;
        }
        if wanted.is_empty() || wanted.iter().all(|line| line.trim().is_empty()) {
            return None;
        }
        lines.windows(wanted.len()).position(|lines| lines.iter().zip(&wanted).all(|(line, wanted)| same(line, wanted)))
    };
    let hint = if text.contains('\u{fffd}') && matches!(content, Cow::Owned(_)) {
        "the file contains bytes that are not UTF-8, shown as `\u{fffd}`, which `old_text` can't match; choose text without \
         them, or use a command"
            .to_owned()
    } else if let Some(at) = find_lines(|line, wanted| line == wanted) {
        format!("the lines from {} on differ only in line breaks or surrounding empty lines", at + 1)
    } else if let Some(at) = find_lines(|line, wanted| collapse_whitespace(line) == collapse_whitespace(wanted)) {
        format!("the lines from {} on differ only in white space", at + 1)
    } else if let Some(found) = look_alikes::describe(&content, text) {
        format!("{found}; write `old_text` with the characters of the file")
    } else if text.lines().all(has_line_number) && !text.trim().is_empty() {
        "leave out the line numbers that read_file adds".to_owned()
    } else if let Some(escapes) = extra_escapes(&content, text) {
        format!("the file has this text without {escapes}; write the characters themselves")
    } else {
        "read the file again and copy the text exactly".to_owned()
    };
    format!("`old_text` not found; {hint}")
}

/// The escapes that a text has and the content hasn't: models write those of JSON twice, or those of HTML.
fn extra_escapes(content: &str, text: &str) -> Option<&'static str> {
    const BACKSLASHES: &[(&str, &str)] =
        &[("\\n", "\n"), ("\\t", "\t"), ("\\\"", "\""), ("\\'", "'"), ("\\/", "/"), ("\\\\", "\\")];
    const ENTITIES: &[(&str, &str)] =
        &[("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&amp;", "&")];
    [(BACKSLASHES, "its backslashes"), (ENTITIES, "escapes such as `&lt;`")].into_iter().find_map(|(escapes, name)| {
        let plain = escapes.iter().fold(text.to_owned(), |text, (escape, letter)| text.replace(escape, letter));
        (plain != text && !plain.trim().is_empty() && content.contains(&plain)).then_some(name)
    })
}

fn collapse_whitespace(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has_line_number(line: &str) -> bool {
    line.trim_start().split_once('\t').is_some_and(|(number, _)| number.parse::<u64>().is_ok())
}

impl Edit {
    /// The changed lines with some context, numbered.
    fn describe(&self, path: &str, redactor: &Redactor) -> String {
        let text = String::from_utf8_lossy(&self.after);
        let first_line = line_of(&self.after, self.offset);
        let last_line = line_of(&self.after, (self.offset + self.length).max(self.offset + 1) - 1);
        let start = first_line.saturating_sub(CONTEXT_LINES + 1);
        let count = (last_line + CONTEXT_LINES - start).min(MAX_SHOWN_LINES);
        let mut report = match self.count {
            1 => format!("edited `{path}`; it now reads:\n"),
            count => format!("replaced {count} occurrences in `{path}`; the first now reads:\n"),
        };
        for (index, line) in text.lines().enumerate().skip(start).take(count) {
            // Writing to a String can't fail.
            let _ = writeln!(report, "{:>6}\t{}", index + 1, first(&redactor.redact(line), 500));
        }
        report.pop();
        report
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::toolbox::tests::ToolHarness;

    fn input(path: &str, old: &str, new: &str, all: bool) -> String {
        serde_json::json!({ "path": path, "old_text": old, "new_text": new, "replace_all": all }).to_string()
    }

    fn harness(content: &str) -> ToolHarness {
        let harness = ToolHarness::new(&["edit_file", "read_file", "write_file"]);
        harness.write("f", content);
        harness
    }

    #[tokio::test]
    async fn a_single_occurrence_is_replaced_and_shown() {
        let harness = harness("a\nb\nc\nd\ne\nf\ng\n");
        let text = harness.ok("edit_file", &input("f", "d\n", "D1\nD2\n", false)).await;
        assert_eq!(
            text,
            "edited `f`; it now reads:\n     1\ta\n     2\tb\n     3\tc\n     4\tD1\n     5\tD2\n     6\te\n     7\tf\n     8\tg"
        );
        assert_eq!(harness.text("f"), "a\nb\nc\nD1\nD2\ne\nf\ng\n");
    }

    #[tokio::test]
    async fn several_occurrences_need_replace_all() {
        let harness = harness("x = 1\ny = x\nx\n");
        let text = harness.refused("edit_file", &input("f", "x", "z", false)).await;
        assert!(text.contains("occurs 3 times (lines 1, 2, 3)"), "{text}");
        harness.ok("edit_file", r#"{"path": "f", "old_text": "x", "new_text": "xx", "replace_all": "True"}"#).await;
        assert_eq!(harness.text("f"), "xx = 1\ny = xx\nxx\n");
    }

    #[tokio::test]
    async fn a_missing_text_is_explained() {
        let harness = harness("fn a() {\n    b();\n}\n");
        for (old, why) in [
            ("fn a() {\n  b();\n}", "the lines from 1 on differ only in white space"),
            ("     2\t    b();", "leave out the line numbers"),
            ("nothing", "read the file again"),
            ("", "`old_text` is empty"),
            ("[masked:X]", "placeholder of a masked secret"),
        ] {
            let text = harness.refused("edit_file", &input("f", old, "x", false)).await;
            assert!(text.contains(why), "{old:?}: {text}");
        }
        assert!(harness.refused("edit_file", &input("f", "b", "b", false)).await.contains("are identical"));
        assert!(harness.refused("edit_file", &input("g", "b", "c", false)).await.contains("does not exist"));
        assert_eq!(harness.text("f"), "fn a() {\n    b();\n}\n");
    }

    #[tokio::test]
    async fn a_result_that_would_be_too_large_is_refused() {
        let harness = harness(&"a".repeat(1 << 20));
        let text = harness.refused("edit_file", &input("f", "a", &"y".repeat(17), true)).await;
        assert!(text.contains("would be larger than 16 MB"), "{text}");
        harness.ok("edit_file", &input("f", "a", &"y".repeat(16), true)).await;
        assert_eq!(harness.text("f").len(), 16 << 20);
    }

    #[tokio::test]
    async fn crlf_is_matched_and_kept() {
        let harness = harness("a\r\nb\r\nc\r\n");
        harness.ok("edit_file", &input("f", "a\nb\n", "1\n2\n3\n", false)).await;
        harness.ok("edit_file", &input("f", "c", "4\n5", false)).await;
        assert_eq!(harness.text("f"), "1\r\n2\r\n3\r\n4\r\n5\r\n");
    }

    #[tokio::test]
    async fn in_a_mixed_file_each_place_keeps_its_line_ends() {
        let harness = harness("a\r\nb\nc\n");
        harness.ok("edit_file", &input("f", "b\n", "x\ny\n", false)).await;
        harness.ok("edit_file", &input("f", "a\n", "1\n2\n", false)).await;
        assert_eq!(harness.text("f"), "1\r\n2\r\nx\ny\nc\n");
    }

    #[tokio::test]
    async fn a_file_that_changed_since_it_was_read_is_refused() {
        let harness = harness("one\n");
        harness.ok("edit_file", &input("f", "one", "two", false)).await;
        harness.ok("edit_file", &input("f", "two", "three", false)).await;
        harness.write("f", "three and more\n");
        let text = harness.refused("edit_file", &input("f", "three", "x", false)).await;
        assert!(text.contains("changed since you read it"), "{text}");
        harness.ok("read_file", r#"{"path": "./f"}"#).await;
        harness.ok("edit_file", &input("f", "three", "x", false)).await;
        assert_eq!(harness.text("f"), "x and more\n");
    }

    #[tokio::test]
    async fn characters_that_look_alike_are_named() {
        let harness = harness("say \u{201c}hi\u{201d} now\n");
        let text = harness.refused("edit_file", &input("f", "say \"hi\"", "x", false)).await;
        assert!(text.contains("has U+201C (curly quote) where `old_text` has U+0022"), "{text}");
        harness.write("f", "p\u{430}th \u{ab}x\u{bb}\n");
        let text = harness.refused("edit_file", &input("f", "path \"x\"", "x", false)).await;
        assert!(text.contains("has U+0430"), "{text}");
        harness.write("f", "say \"hi\"\nif a < b\n");
        for (old, escapes) in [("say \\\"hi\\\"\\n", "without its backslashes"), ("a &lt; b", "such as `&lt;`")] {
            let text = harness.refused("edit_file", &input("f", old, "x", false)).await;
            assert!(text.contains(escapes), "{text}");
        }
        harness.write("f", "\u{feff}first\nb\n");
        harness.ok("edit_file", &input("f", "\u{feff}first", "second", false)).await;
        assert_eq!(harness.text("f"), "\u{feff}second\nb\n");
        harness.write("u", b"\xff\xfea\0\n\0");
        let text = harness.refused("edit_file", &input("u", "a", "b", false)).await;
        assert!(text.contains("is in UTF-16, little-endian, which can't be edited"), "{text}");
        let text = harness.ok("read_file", r#"{"path": "u"}"#).await;
        assert!(text.starts_with("     1\ta\n(UTF-16, little-endian; edit_file can't change it"), "{text}");
        assert_eq!(harness.refused("edit_file", &input("u", "a", "b", false)).await.matches("iconv").count(), 1);
    }

    #[tokio::test]
    async fn invalid_utf8_is_preserved() {
        let harness = ToolHarness::new(&["edit_file"]);
        harness.write("f", b"caf\xe9 = 1\n");
        harness.ok("edit_file", &input("f", "= 1", "= 2", false)).await;
        assert_eq!(std::fs::read(harness.path("f")).unwrap(), b"caf\xe9 = 2\n");
        harness.write("g", b"a\r\nb\r\ncaf\xe9 = 2\r\nd\r\n");
        for old in ["caf\u{fffd} = 2\n", "af\u{fffd}", "b\ncaf\u{fffd} = 2\nd"] {
            let text = harness.refused("edit_file", &input("g", old, "x", false)).await;
            assert!(text.contains("contains bytes that are not UTF-8"), "{old:?}: {text}");
        }
    }

    #[tokio::test]
    async fn concurrent_edits_are_all_kept() {
        let harness = harness(&(0..40).map(|line| format!("line-{line}.\n")).collect::<String>());
        let edits = (0..40).map(|line| {
            let input = input("f", &format!("line-{line}."), &format!("edited-{line}."), false);
            let harness = &harness;
            async move { harness.ok("edit_file", &input).await }
        });
        futures_util::future::join_all(edits).await;
        assert_eq!(harness.text("f"), (0..40).map(|line| format!("edited-{line}.\n")).collect::<String>());
    }
}
