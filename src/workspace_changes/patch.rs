//! Changes as a unified diff in git's form, which `git apply` and `patch -p1` accept.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::file_stat::LINK_MODE;
use crate::event::WorkspaceChanged;
use crate::git::binary_patch;
use crate::git::objects::object_id;
use crate::text::diff::{hunks, quote_header_path, quote_path};
use crate::text::hex;

/// A file before or after the change.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatchSide<'a> {
    pub(super) mode: u32,
    pub(super) content: SideContent<'a>,
}

/// The content of a file on one side.
#[derive(Debug, Clone, Copy)]
pub(super) enum SideContent<'a> {
    Text(&'a str),
    Binary {
        /// Its name in git.
        object: &'a str,
        /// Its bytes, which are needed of the side after the change only.
        bytes: &'a [u8],
    },
}

impl<'a> PatchSide<'a> {
    fn text(&self) -> Option<&'a str> {
        match self.content {
            SideContent::Text(text) => Some(text),
            SideContent::Binary { .. } => None,
        }
    }

    /// The name of the content in git.
    fn object(&self) -> Cow<'a, str> {
        match self.content {
            SideContent::Text(text) => hex(&object_id(text.as_bytes(), false)).into(),
            SideContent::Binary { object, .. } => object.into(),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self.content {
            SideContent::Text(text) => text.as_bytes(),
            SideContent::Binary { bytes, .. } => bytes,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self.text(), other.text()) {
            (Some(one), Some(other)) => one == other,
            _ => self.object() == other.object(),
        }
    }
}

/// The section of one file in a patch.
#[derive(Debug, Default)]
pub(super) struct FileDiff {
    pub(super) text: String,
    /// How many lines were added and removed; `None` for binary files.
    pub(super) lines: Option<(u64, u64)>,
}

/// The section of a file that existed before, exists after, or both; empty if nothing changed.
pub(super) fn section(path: &Path, before: Option<PatchSide<'_>>, after: Option<PatchSide<'_>>) -> FileDiff {
    match (before, after) {
        // Git has no line diff between a file and a link.
        (Some(old), Some(new)) if (old.mode == LINK_MODE) != (new.mode == LINK_MODE) => {
            let (deleted, created) = (file_section(path, before, None), file_section(path, None, after));
            let lines = deleted.lines.zip(created.lines);
            FileDiff {
                text: deleted.text + &created.text,
                lines: lines.map(|((_, removed), (added, _))| (added, removed)),
            }
        }
        _ => file_section(path, before, after),
    }
}

fn file_section<'a>(path: &Path, before: Option<PatchSide<'a>>, after: Option<PatchSide<'a>>) -> FileDiff {
    let mut section = FileDiff { text: String::new(), lines: Some((0, 0)) };
    let mut header = first_line(path);
    match (before, after) {
        (None, Some(new)) => header += &format!("new file mode {:o}\n", new.mode),
        (Some(old), None) => header += &format!("deleted file mode {:o}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            header += &format!("old mode {:o}\nnew mode {:o}\n", old.mode, new.mode);
        }
        (Some(old), Some(new)) if old.is_same(&new) => return section,
        (Some(_), Some(_)) => {}
        (None, None) => return section,
    }
    let is_changed = before.zip(after).is_none_or(|(old, new)| !old.is_same(&new));
    if is_changed {
        // From this line, `patch` tells a link from a file and an empty file from a missing one, and `git apply --3way`
        // finds the contents.
        let object = |side: Option<PatchSide<'a>>| match side {
            Some(side) => side.object(),
            None => "0".repeat(40).into(),
        };
        let mode = match (before, after) {
            (Some(old), Some(new)) if old.mode == new.mode => format!(" {:o}", new.mode),
            _ => String::new(),
        };
        header += &format!("index {}..{}{mode}\n", object(before), object(after));
    }
    let text = |side: Option<PatchSide<'a>>| side.map_or(Some(""), |side| side.text());
    let Some((old_text, new_text)) = text(before).zip(text(after)) else {
        section.lines = None;
        // Without the content before: `git apply` and forges check its name.
        let content =
            if is_changed { binary_patch::encode(after.map_or(&[], |side| side.bytes())) } else { String::new() };
        section.text = header + &content;
        return section;
    };
    let hunks = hunks(old_text, new_text);
    if !hunks.is_empty() {
        let header_path = |side: Option<PatchSide<'_>>, prefix: &[u8]| {
            side.map_or("/dev/null".to_owned(), |_| quote_header_path(&[prefix, path.as_os_str().as_bytes()].concat()))
        };
        header += &format!("--- {}\n+++ {}\n", header_path(before, b"a/"), header_path(after, b"b/"));
    }
    section.text = header;
    let (mut added, mut removed) = (0, 0);
    for hunk in hunks {
        section.text += &hunk.to_string();
        let count = |sign| hunk.lines.iter().filter(|(kind, _)| *kind == sign).count() as u64;
        added += count('+');
        removed += count('-');
    }
    section.lines = Some((added, removed));
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
