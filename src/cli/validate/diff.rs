//! Unified diffs for `git apply` and `patch -p1`.

use std::path::{Component, Path, PathBuf};

use crate::formats::DisplayOptions;
use crate::plan::diff::hunks;
use crate::text::sanitize;

/// The reader of a diff.
#[derive(Debug, Clone, Copy)]
pub(super) enum DiffTarget {
    /// A program, which gets every byte unchanged.
    Patch,
    /// A person, who gets sanitized text.
    Terminal(DisplayOptions),
}

/// The diff of one file; empty if nothing changed. `name` is relative to the current folder.
pub(super) fn unified(name: &str, before: &str, after: &str, reader: DiffTarget) -> String {
    let mut text = String::new();
    for hunk in hunks(before, after) {
        if text.is_empty() {
            text += &reader.coloured_line("1", &format!("--- {}", git_quoted(&format!("a/{name}"))));
            text += &reader.coloured_line("1", &format!("+++ {}", git_quoted(&format!("b/{name}"))));
        }
        text += &reader.coloured_line("36", &hunk.header());
        hunk.lines.into_iter().for_each(|(sign, line)| text += &reader.content_line(sign, line));
    }
    text
}

impl DiffTarget {
    /// A line of the diff's own, in a colour.
    fn coloured_line(self, colour: &str, line: &str) -> String {
        match self {
            Self::Terminal(DisplayOptions { colour: true, .. }) => {
                format!("\u{1b}[{colour}m{}\u{1b}[0m\n", sanitize::line(line))
            }
            Self::Terminal(_) => format!("{}\n", sanitize::line(line)),
            Self::Patch => format!("{line}\n"),
        }
    }

    /// A line of the file, with its line end if it has one.
    fn content_line(self, sign: char, line: &str) -> String {
        let whole = match self {
            Self::Patch if line.ends_with('\n') => return format!("{sign}{line}"),
            Self::Patch => format!("{sign}{line}\n"),
            Self::Terminal(_) => {
                let colour = match sign {
                    '-' => "31",
                    '+' => "32",
                    _ => "0",
                };
                self.coloured_line(colour, &format!("{sign}{}", line.trim_end_matches(['\n', '\r'])))
            }
        };
        if line.ends_with('\n') { whole } else { format!("{whole}\\ No newline at end of file\n") }
    }
}

/// Writes a file name as git does: quoted and escaped if it has special characters, and followed by a tab if it has spaces.
fn git_quoted(name: &str) -> String {
    if !name.contains(|letter: char| letter.is_control() || matches!(letter, '"' | '\\')) {
        return if name.contains(' ') { format!("{name}\t") } else { name.to_owned() };
    }
    let mut text = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            other => text += &format!("\\{other:03o}"),
        }
    }
    text + "\""
}

/// A file's name relative to the current folder, by way of no link, as `git apply` wants it. Outside of the folder it
/// is the path without what can't be in a diff.
pub(super) fn diff_path(path: &Path, current: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| current.join(path));
    let current = current.canonicalize().unwrap_or_else(|_| current.to_owned());
    let shown = real.strip_prefix(&current).unwrap_or(&real);
    let plain: PathBuf = shown.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    plain.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunk_has_three_lines_around() {
        let before: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let after = before.replace("\n10\n", "\nten\n");
        let diff = unified("jobs/a.yaml", &before, &after, DiffTarget::Patch);
        let expected = "--- a/jobs/a.yaml\n+++ b/jobs/a.yaml\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n";
        assert_eq!(diff, expected);
        assert_eq!(unified("a", "same\n", "same\n", DiffTarget::Patch), "");
    }

    #[test]
    fn line_ends_are_kept_for_programs_and_hidden_from_people() {
        let diff = unified("a", "\u{feff}x\r\ny\rz", "\u{feff}x\r\nY\rz", DiffTarget::Patch);
        let hunk =
            "@@ -1,2 +1,2 @@\n \u{feff}x\r\n-y\rz\n\\ No newline at end of file\n+Y\rz\n\\ No newline at end of file\n";
        assert_eq!(diff, format!("--- a/a\n+++ b/a\n{hunk}"));
        let look = DisplayOptions { colour: true, width: 80 };
        let shown = unified("a", "x\r\n\u{1b}[2J\r\n", "y\r\n\u{1b}[2J\r\n", DiffTarget::Terminal(look));
        assert!(shown.contains("\u{1b}[31m-x\u{1b}[0m\n\u{1b}[32m+y\u{1b}[0m\n"), "{shown:?}");
        assert!(shown.contains("␛[2J") && !shown.contains('\r'), "{shown:?}");
    }

    #[test]
    fn names_are_written_as_git_does() {
        assert_eq!(git_quoted("a/b c"), "a/b c\t");
        assert_eq!(git_quoted("a/\"x\"\n\\ä"), "\"a/\\\"x\\\"\\012\\\\\\303\\244\"");
        assert_eq!(diff_path(Path::new("./jobs/./x.yaml"), Path::new("/none")), "jobs/x.yaml");
        assert_eq!(diff_path(Path::new("/elsewhere/x.yaml"), Path::new("/none")), "elsewhere/x.yaml");
    }
}
