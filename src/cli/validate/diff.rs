//! Unified diffs for `git apply` and `patch -p1`.

use std::path::{Component, Path, PathBuf};

use crate::text::diff::{hunks, quote_header_path};

/// The whole diff of one file; empty if nothing differs. `name` is the file's, relative to the current folder.
pub(super) fn patch(name: &str, before: &str, after: &str) -> String {
    let hunks: String = hunks(before, after).iter().map(ToString::to_string).collect();
    if hunks.is_empty() {
        return hunks;
    }
    let path = |side: &str| quote_header_path(format!("{side}/{name}").as_bytes());
    format!("--- {}\n+++ {}\n{hunks}", path("a"), path("b"))
}

/// A file's name relative to the current folder with all links resolved, as `git apply` requires. Outside of the
/// folder, it is the path without the parts that a diff can't have.
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
        let diff = patch("jobs/a.yaml", &before, &after);
        let expected = "--- a/jobs/a.yaml\n+++ b/jobs/a.yaml\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n";
        assert_eq!(diff, expected);
        assert_eq!(patch("a", "same\n", "same\n"), "");
    }

    #[test]
    fn line_endings_are_kept() {
        let diff = patch("a", "\u{feff}x\r\ny\rz", "\u{feff}x\r\nY\rz");
        let hunk =
            "@@ -1,2 +1,2 @@\n \u{feff}x\r\n-y\rz\n\\ No newline at end of file\n+Y\rz\n\\ No newline at end of file\n";
        assert_eq!(diff, format!("--- a/a\n+++ b/a\n{hunk}"));
    }

    #[test]
    fn a_path_is_relative_to_the_current_folder() {
        assert_eq!(diff_path(Path::new("./jobs/./x.yaml"), Path::new("/none")), "jobs/x.yaml");
        assert_eq!(diff_path(Path::new("/elsewhere/x.yaml"), Path::new("/none")), "elsewhere/x.yaml");
    }
}
