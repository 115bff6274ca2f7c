//! Changes as a unified diff in git's form, which `git apply` and `patch -p1` accept.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::file_stat::LINK_MODE;
use crate::event::WorkspaceChanged;
use crate::git::objects::object_id;
use crate::text::diff::{hunks, quote_header_path, quote_path};
use crate::text::hex;

/// A file before or after the change.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatchSide<'a> {
    pub(super) mode: u32,
    pub(super) text: &'a str,
}

/// The section of one file in a patch.
#[derive(Debug, Default)]
pub(super) struct FileDiff {
    pub(super) text: String,
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// The section of a file that existed before, exists after, or both; empty if nothing changed.
pub(super) fn section(path: &Path, before: Option<PatchSide<'_>>, after: Option<PatchSide<'_>>) -> FileDiff {
    match (before, after) {
        // Git has no line diff between a file and a link.
        (Some(old), Some(new)) if (old.mode == LINK_MODE) != (new.mode == LINK_MODE) => {
            let (deleted, created) = (file_section(path, before, None), file_section(path, None, after));
            FileDiff { text: deleted.text + &created.text, added: created.added, removed: deleted.removed }
        }
        _ => file_section(path, before, after),
    }
}

fn file_section(path: &Path, before: Option<PatchSide<'_>>, after: Option<PatchSide<'_>>) -> FileDiff {
    let mut section = FileDiff::default();
    let mut header = first_line(path);
    match (before, after) {
        (None, Some(new)) => header += &format!("new file mode {:o}\n", new.mode),
        (Some(old), None) => header += &format!("deleted file mode {:o}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            header += &format!("old mode {:o}\nnew mode {:o}\n", old.mode, new.mode);
        }
        (Some(old), Some(new)) if old.text == new.text => return section,
        (Some(_), Some(_)) => {}
        (None, None) => return section,
    }
    if before.zip(after).is_none_or(|(old, new)| old.text != new.text) {
        // From this line, `patch` tells a link from a file and an empty file from a missing one, and `git apply --3way`
        // finds the contents.
        let object = |side: Option<PatchSide<'_>>| match side {
            Some(side) => hex(&object_id(side.text.as_bytes(), false)),
            None => "0".repeat(40),
        };
        let mode = match (before, after) {
            (Some(old), Some(new)) if old.mode == new.mode => format!(" {:o}", new.mode),
            _ => String::new(),
        };
        header += &format!("index {}..{}{mode}\n", object(before), object(after));
    }
    let hunks = hunks(before.map_or("", |side| side.text), after.map_or("", |side| side.text));
    if !hunks.is_empty() {
        let header_path = |side: Option<PatchSide<'_>>, prefix: &[u8]| {
            side.map_or("/dev/null".to_owned(), |_| quote_header_path(&[prefix, path.as_os_str().as_bytes()].concat()))
        };
        header += &format!("--- {}\n+++ {}\n", header_path(before, b"a/"), header_path(after, b"b/"));
    }
    section.text = header;
    for hunk in hunks {
        section.text += &hunk.to_string();
        let count = |sign| hunk.lines.iter().filter(|(kind, _)| *kind == sign).count() as u64;
        section.added += count('+');
        section.removed += count('-');
    }
    section
}

/// The sections of a recorded patch, by the paths of the changes.
pub fn split_by_path(changed: &WorkspaceChanged) -> HashMap<String, String> {
    let paths: HashMap<String, &str> =
        changed.changes.iter().map(|change| (first_line(Path::new(&change.path)), change.path.as_str())).collect();
    let mut sections: HashMap<String, String> = HashMap::new();
    let mut path = None;
    for line in changed.patch.split_inclusive('\n') {
        // The lines of a file have a sign before them.
        if line.starts_with("diff --git ") || line.starts_with('#') {
            path = paths.get(line);
        }
        if let Some(path) = path {
            sections.entry((*path).to_owned()).or_default().push_str(line);
        }
    }
    sections
}

/// The first line of a file's section.
fn first_line(path: &Path) -> String {
    // A name with a space is quoted here, where nothing else marks its end.
    let quoted = |side: &[u8]| match quote_path(&[side, path.as_os_str().as_bytes()].concat()) {
        name if name.contains(' ') && !name.starts_with('"') => format!("\"{name}\""),
        name => name,
    };
    format!("diff --git {} {}\n", quoted(b"a/"), quoted(b"b/"))
}
