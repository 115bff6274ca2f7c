//! Reads the patches that runs leave, and applies them to the exact text that they were made from.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::git::binary_patch::{self, BINARY_PATCH_LINE, LITERAL, MAX_UNPACKED_BYTES};
use crate::git::is_dot_git;

/// The mode of a file that isn't a program.
const FILE_MODE: &str = "100644";
/// The mode of a program.
pub(crate) const PROGRAM_MODE: &str = "100755";
/// The mode of a symbolic link.
pub(crate) const LINK_MODE: &str = "120000";

const CUT_OFF: &str = "the patch is cut off";

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// Its path, relative to the workspace.
    pub(crate) path: PathBuf,
    /// The state before; `None` if the file didn't exist.
    pub(crate) old: Option<PatchSide>,
    /// The state after; `None` if the file was deleted.
    pub(crate) new: Option<PatchSide>,
    hunks: Vec<Hunk>,
    /// The whole new content of a file that is binary on one side or on both; empty if it was deleted.
    binary: Option<Vec<u8>>,
}

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatchSide {
    /// The mode as git writes it; `None` if it is that of the other side.
    pub(crate) mode: Option<String>,
    /// The name of the content in git, in hexadecimal digits; `None` if the content didn't change.
    pub(crate) object: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk {
    /// The first line in the old text, counted from 0.
    start: usize,
    /// The lines with their signs. A line without a line end is the last one.
    lines: Vec<(char, String)>,
}

/// Why a patch can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatchError {
    /// The line of the patch, counted from 1.
    pub(crate) line: usize,
    /// What is wrong with it.
    pub(crate) why: &'static str,
}

impl FilePatch {
    /// Whether the file is a symbolic link afterwards.
    pub(crate) fn is_link(&self) -> bool {
        self.new.as_ref().is_some_and(|new| new.mode.as_deref() == Some(LINK_MODE))
    }

    /// Whether the file is binary before the change or after it, so that its content is replaced as a whole.
    pub(crate) fn is_binary(&self) -> bool {
        self.binary.is_some()
    }

    /// The lines of the old content that the patch changes, counted from 0. A range without lines is an insertion.
    pub(crate) fn changed_lines(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for hunk in &self.hunks {
            let mut at = hunk.start;
            for (sign, _) in &hunk.lines {
                let end = at + usize::from(*sign != '+');
                if *sign != ' ' {
                    match ranges.last_mut().filter(|last| last.end == at) {
                        Some(last) => last.end = end,
                        None => ranges.push(at..end),
                    }
                }
                at = end;
            }
        }
        ranges
    }

    /// The new content, if `base` is exactly the old content. That of a binary file doesn't depend on it.
    pub(crate) fn apply_exactly(&self, base: &[u8]) -> Option<Vec<u8>> {
        if let Some(content) = &self.binary {
            return Some(content.clone());
        }
        let lines: Vec<&[u8]> = base.split_inclusive(|byte| *byte == b'\n').collect();
        let (mut text, mut at) = (Vec::with_capacity(base.len()), 0);
        for hunk in &self.hunks {
            lines.get(at..hunk.start)?.iter().for_each(|line| text.extend_from_slice(line));
            at = hunk.start;
            for (sign, line) in &hunk.lines {
                if *sign != '+' {
                    if lines.get(at).copied() != Some(line.as_bytes()) {
                        return None;
                    }
                    at += 1;
                }
                if *sign != '-' {
                    text.extend_from_slice(line.as_bytes());
                }
            }
        }
        lines.get(at..)?.iter().for_each(|line| text.extend_from_slice(line));
        Some(text)
    }
}

/// Reads a patch that legwork wrote.
///
/// # Errors
/// If a line isn't part of such a patch, or a path leads out of the workspace or into a git folder.
pub(crate) fn read(patch: &str) -> Result<Vec<FilePatch>, PatchError> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut unpacked_bytes = 0;
    let mut lines = patch.split_inclusive('\n').enumerate().map(|(at, line)| (at + 1, line)).peekable();
    while let Some((number, line)) = lines.next() {
        let error = |why| PatchError { line: number, why };
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        if let Some(names) = line.strip_prefix("diff --git ") {
            let path = header_path(names.trim_end_matches('\n')).ok_or_else(|| error("the path can't be read"))?;
            check_path(&path).map_err(error)?;
            let side = || Some(PatchSide { mode: None, object: None });
            files.push(FilePatch { path, old: side(), new: side(), hunks: Vec::new(), binary: None });
            continue;
        }
        let file = files.last_mut().ok_or_else(|| error("it isn't a patch of legwork"))?;
        if let Some(ranges) = line.strip_prefix("@@ -") {
            let hunk = read_hunk(ranges, &mut lines).map_err(error)?;
            if file.binary.is_some() {
                return Err(error("a file is text and binary"));
            }
            if file.hunks.last().is_some_and(|last| last.start >= hunk.start) {
                return Err(error("the hunks aren't in order"));
            }
            file.hunks.push(hunk);
        } else if line.trim_end_matches('\n') == BINARY_PATCH_LINE {
            let content = read_literal(&mut lines, MAX_UNPACKED_BYTES - unpacked_bytes).map_err(error)?;
            unpacked_bytes += content.len();
            file.binary = Some(content);
            check_binary(file).map_err(error)?;
        } else {
            read_header(file, line.trim_end_matches('\n')).map_err(error)?;
        }
    }
    Ok(files)
}

fn read_header(file: &mut FilePatch, line: &str) -> Result<(), &'static str> {
    let with_mode = |mode: &str| {
        let mode = Some(checked_mode(mode)?.to_owned());
        Ok::<_, &'static str>(Some(PatchSide { mode, object: None }))
    };
    if let Some(mode) = line.strip_prefix("new file mode ") {
        (file.old, file.new) = (None, with_mode(mode)?);
    } else if let Some(mode) = line.strip_prefix("deleted file mode ") {
        (file.old, file.new) = (with_mode(mode)?, None);
    } else if let Some(mode) = line.strip_prefix("old mode ") {
        file.old = with_mode(mode)?;
    } else if let Some(mode) = line.strip_prefix("new mode ") {
        file.new = with_mode(mode)?;
    } else if let Some(names) = line.strip_prefix("index ") {
        let (names, mode) = names.split_once(' ').map_or((names, None), |(names, mode)| (names, Some(mode)));
        let mode = mode.map(checked_mode).transpose()?;
        let (old, new) = names.split_once("..").ok_or("the names of the contents can't be read")?;
        for (side, object) in [(&mut file.old, old), (&mut file.new, new)] {
            if let Some(side) = side {
                side.object = Some(object.to_owned());
                side.mode = side.mode.take().or_else(|| mode.map(str::to_owned));
            }
        }
    } else if !line.starts_with("--- ") && !line.starts_with("+++ ") {
        return Err("it isn't a patch of legwork");
    }
    Ok(())
}

/// Reads the whole content of a binary file.
fn read_literal<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, most: usize) -> Result<Vec<u8>, &'static str> {
    let (_, first) = lines.next().ok_or(CUT_OFF)?;
    let length = first.trim_end_matches('\n').strip_prefix(LITERAL).and_then(|length| length.parse::<usize>().ok());
    let length = length.ok_or("the binary file isn't there whole (`literal`)")?;
    if length > most {
        return Err("its binary files are too large together");
    }
    let mut packed = Vec::new();
    loop {
        let (_, line) = lines.next().ok_or(CUT_OFF)?;
        let line = line.trim_end_matches('\n');
        if line.is_empty() {
            return binary_patch::unpack(&packed, length).ok_or("the binary file can't be unpacked");
        }
        binary_patch::decode_line(line, &mut packed).ok_or("the binary file can't be read")?;
    }
}

/// A binary file is one section of its own, whose contents have names.
fn check_binary(file: &FilePatch) -> Result<(), &'static str> {
    let is_link = |side: &Option<PatchSide>| side.as_ref().is_some_and(|side| side.mode.as_deref() == Some(LINK_MODE));
    let has_name = |side: &Option<PatchSide>| side.as_ref().is_none_or(|side| side.object.is_some());
    match () {
        () if is_link(&file.old) || is_link(&file.new) => Err("a link isn't a binary file"),
        () if !has_name(&file.old) || !has_name(&file.new) => Err("the contents of the binary file have no names"),
        () if !file.hunks.is_empty() => Err("a file is text and binary"),
        () if file.new.is_none() && file.binary.as_ref().is_some_and(|content| !content.is_empty()) => {
            Err("a deleted file has a content")
        }
        () => Ok(()),
    }
}

/// Refuses modes that legwork doesn't write: a repository in the place of a file, or a program with more rights than a user's.
fn checked_mode(mode: &str) -> Result<&str, &'static str> {
    match [FILE_MODE, PROGRAM_MODE, LINK_MODE].contains(&mode) {
        true => Ok(mode),
        false => Err("the mode isn't that of a file (100644), a program (100755) or a link (120000)"),
    }
}

fn read_hunk<'a>(
    ranges: &str,
    lines: &mut std::iter::Peekable<impl Iterator<Item = (usize, &'a str)>>,
) -> Result<Hunk, &'static str> {
    const BROKEN: &str = "the hunk can't be read";
    let (old, rest) = ranges.split_once(" +").ok_or(BROKEN)?;
    let (new, _) = rest.split_once(" @@").ok_or(BROKEN)?;
    let range = |text: &str| -> Option<(usize, usize)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let ((old_start, mut old_left), (_, mut new_left)) = range(old).zip(range(new)).ok_or(BROKEN)?;
    // A range without lines names the line before it.
    let start = if old_left == 0 { old_start } else { old_start.checked_sub(1).ok_or(BROKEN)? };
    let mut hunk = Hunk { start, lines: Vec::new() };
    loop {
        if lines.peek().is_some_and(|(_, line)| line.starts_with('\\')) {
            lines.next();
            let (_, last) = hunk.lines.last_mut().ok_or(BROKEN)?;
            if last.ends_with('\n') {
                last.pop();
            }
            continue;
        }
        if old_left == 0 && new_left == 0 {
            return Ok(hunk);
        }
        let (_, line) = lines.next().ok_or(CUT_OFF)?;
        let sign = line.chars().next().ok_or(BROKEN)?;
        let taken = match sign {
            ' ' => [1, 1],
            '-' => [1, 0],
            '+' => [0, 1],
            _ => return Err(BROKEN),
        };
        old_left = old_left.checked_sub(taken[0]).ok_or(BROKEN)?;
        new_left = new_left.checked_sub(taken[1]).ok_or(BROKEN)?;
        hunk.lines.push((sign, line[1..].to_owned()));
    }
}

/// The path in the first line of a section, which names it twice.
fn header_path(names: &str) -> Option<PathBuf> {
    let one = names.get(..names.len() / 2)?;
    let Some(quoted) = one.strip_prefix("\"a/").and_then(|name| name.strip_suffix('"')) else {
        return one.strip_prefix("a/").map(PathBuf::from);
    };
    let mut bytes = Vec::new();
    let mut rest = quoted.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                digit @ b'0'..=b'7' => {
                    let value = [digit, rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&value).ok()?, 8).ok()?
                }
                other => other,
            },
            byte => byte,
        });
    }
    Some(PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes)))
}

fn check_path(path: &Path) -> Result<(), &'static str> {
    for part in path.components() {
        match part {
            Component::Normal(name) if is_dot_git(name) => return Err("the path leads into a git folder"),
            Component::Normal(_) => {}
            _ => return Err("the path leads out of the workspace"),
        }
    }
    if path.as_os_str().is_empty() { Err("the path is empty") } else { Ok(()) }
}
