//! A change as a unified diff in git's form, which `git apply` and `patch -p1` take.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use similar::{DiffOp, DiffTag, group_diff_ops};

use super::{git_object_id, hex};
use crate::plan::diff::diff_lines;

/// Lines that are shown around a change.
const CONTEXT_LINES: usize = 3;
/// How long the least difference of one file is looked for; then any difference does.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// A file before or after.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatchSide<'a> {
    pub(super) mode: &'a str,
    pub(super) text: &'a str,
}

/// What a file's diff comes to.
#[derive(Debug, Default)]
pub(super) struct FileDiff {
    pub(super) text: String,
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// The section of a file that was there before, is there after, or both. Nothing where they are the same.
pub(super) fn section(path: &Path, before: Option<PatchSide<'_>>, after: Option<PatchSide<'_>>) -> FileDiff {
    match (before, after) {
        // A link is no line of a file.
        (Some(old), Some(new)) if (old.mode == "120000") != (new.mode == "120000") => {
            let (gone, come) = (section(path, before, None), section(path, None, after));
            FileDiff { text: gone.text + &come.text, added: come.added, removed: gone.removed }
        }
        _ => one(path, before, after),
    }
}

fn one(path: &Path, before: Option<PatchSide<'_>>, after: Option<PatchSide<'_>>) -> FileDiff {
    let mut section = FileDiff::default();
    let name = |side: &str| quote_path(side, path);
    // A name with a space needs its quotes where no other line tells where it ends.
    let whole = |side: &str| match name(side) {
        name if name.contains(' ') && !name.starts_with('"') => format!("\"{name}\""),
        name => name,
    };
    let mut head = format!("diff --git {} {}\n", whole("a/"), whole("b/"));
    match (before, after) {
        (None, Some(new)) => head += &format!("new file mode {}\n", new.mode),
        (Some(old), None) => head += &format!("deleted file mode {}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            head += &format!("old mode {}\nnew mode {}\n", old.mode, new.mode);
        }
        (Some(old), Some(new)) if old.text == new.text => return section,
        (Some(_), Some(_)) => {}
        (None, None) => return section,
    }
    let (old, new) = (before.map_or("", |side| side.text), after.map_or("", |side| side.text));
    let (old, new) = (lines(old), lines(new));
    // By this line `patch` knows a link from a file, and an empty file from none; `git apply --3way` finds the contents.
    let object = |side: Option<PatchSide<'_>>| match side {
        Some(side) => hex(&git_object_id(side.text.as_bytes(), false)),
        None => "0".repeat(40),
    };
    let mode = match (before, after) {
        (Some(old), Some(new)) if old.mode == new.mode => format!(" {}", new.mode),
        _ => String::new(),
    };
    let index = format!("index {}..{}{mode}\n", object(before), object(after));
    let same = before.zip(after).is_some_and(|(old, new)| old.text == new.text);
    head += if same { "" } else { &index };
    let mut hunks = String::new();
    let end = Instant::now() + DIFF_TIMEOUT;
    for hunk in group_diff_ops(diff_lines(&old, &new, Some(end)), CONTEXT_LINES) {
        section.hunk(&mut hunks, &hunk, &old, &new);
    }
    if !hunks.is_empty() {
        // A name with a space ends where a tab stands.
        let named = |name: String| if name.contains(' ') && !name.starts_with('"') { name + "\t" } else { name };
        let side = |side: Option<PatchSide<'_>>, name: String| side.map_or("/dev/null".to_owned(), |_| named(name));
        head += &format!("--- {}\n+++ {}\n", side(before, name("a/")), side(after, name("b/")));
    }
    section.text = head + &hunks;
    section
}

/// The sections of a patch that was made here, by the files' paths.
pub fn split_by_path(patch: &str) -> HashMap<String, String> {
    let mut sections: HashMap<String, String> = HashMap::new();
    let mut path = None;
    for line in patch.split_inclusive('\n') {
        // Lines of a file have a sign before them.
        match line.strip_prefix("diff --git ") {
            Some(names) => path = header_path(names.trim_end_matches('\n')),
            None if line.starts_with('#') => path = None,
            None => {}
        }
        if let Some(path) = &path {
            sections.entry(path.clone()).or_default().push_str(line);
        }
    }
    sections
}

/// The path in the first line of a section, which has it twice.
fn header_path(names: &str) -> Option<String> {
    let one = names.get(..names.len() / 2)?;
    let Some(quoted) = one.strip_prefix("\"a/").and_then(|name| name.strip_suffix('"')) else {
        return one.strip_prefix("a/").map(str::to_owned);
    };
    let mut bytes = Vec::new();
    let mut rest = quoted.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'\\' => match rest.next()? {
                digit @ b'0'..=b'7' => {
                    let value = [digit, rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&value).ok()?, 8).ok()?
                }
                other => other,
            },
            other => other,
        };
        bytes.push(byte);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl FileDiff {
    fn hunk(&mut self, text: &mut String, hunk: &[DiffOp], old: &[&str], new: &[&str]) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
        let place = |range: Range<usize>| match range.len() {
            0 => format!("{},0", range.start),
            1 => format!("{}", range.start + 1),
            length => format!("{},{length}", range.start + 1),
        };
        let gone = place(first.old_range().start..last.old_range().end);
        let come = place(first.new_range().start..last.new_range().end);
        *text += &format!("@@ -{gone} +{come} @@\n");
        for operation in hunk {
            if operation.tag() == DiffTag::Equal {
                old[operation.old_range()].iter().for_each(|line| push(text, ' ', line));
                continue;
            }
            self.removed += operation.old_range().len() as u64;
            self.added += operation.new_range().len() as u64;
            old[operation.old_range()].iter().for_each(|line| push(text, '-', line));
            new[operation.new_range()].iter().for_each(|line| push(text, '+', line));
        }
    }
}

fn push(text: &mut String, sign: char, line: &str) {
    text.push(sign);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// A file's name as git writes it: in quotes with escapes where it holds what would end it, or bytes that are no text.
fn quote_path(side: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match path.to_str() {
        Some(name) if !name.contains(|letter: char| letter.is_control() || matches!(letter, '"' | '\\')) => {
            return format!("{side}{name}");
        }
        _ => {}
    }
    let mut text = format!("\"{side}");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text += &format!("\\{other:03o}"),
        }
    }
    text + "\""
}
