//! Snapshots: reviewed contents of a file or of the last text.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::text::diff::hunks;
use crate::workspace::new_file::{self, NewFile};
use crate::workspace::open_root::OpenRoot;

use super::{SNAPSHOTS_FOLDER, fixture};

/// The largest file to compare, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// A snapshot that differs from the actual contents.
#[derive(Debug)]
pub(super) struct StaleSnapshot {
    /// The path of the snapshot.
    pub(super) path: PathBuf,
    /// The actual contents.
    pub(super) actual: Vec<u8>,
}

impl StaleSnapshot {
    /// Replaces the snapshot by the actual contents, atomically. `case` is the folder of the case. A link below it could lead to
    /// files that git and other programs obey.
    pub(super) fn update(&self, case: &Path) -> io::Result<()> {
        let root = OpenRoot::open(case)?;
        let path = self.path.strip_prefix(case).map_err(|_| io::ErrorKind::InvalidInput)?;
        let folder = match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => root.create_dir(folder, 0o777)?,
            None => root.open_dir(Path::new(""))?,
        };
        // The usual mode of files in a repository.
        let new = NewFile::create(folder.as_fd(), new_file::PREFIX, Mode::from_raw_mode(0o666))?;
        new.file().write_all(&self.actual)?;
        new.persist(path.file_name().ok_or(io::ErrorKind::InvalidInput)?).map(drop)
    }
}

/// Reads a snapshot.
///
/// # Errors
/// It is missing, too large, not a file, or behind a symbolic link out of the repository.
pub(super) fn read(case: &Path, path: &Path) -> io::Result<Vec<u8>> {
    fixture::require_inside_repository(case, path)?;
    read_file(path)
}

/// Reads a regular file of a limited size.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let data = fs::metadata(path)?;
    match () {
        () if !data.is_file() => Err(io::Error::other("it isn't a file")),
        () if data.len() > MAX_BYTES => Err(io::Error::other(format!("it is too large ({} bytes)", data.len()))),
        () => fs::read(path),
    }
}

/// The path of a file's snapshot.
pub(super) fn file_snapshot_path(case: &Path, name: &str) -> PathBuf {
    let escaped = fixture::escape_path(Path::new(name)).unwrap_or_else(|| PathBuf::from(name));
    case.join(SNAPSHOTS_FOLDER).join(escaped)
}

/// The files in `expect/` that aren't in `used`.
pub(super) fn unused_snapshots(case: &Path, used: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![case.join(SNAPSHOTS_FOLDER)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else if !used.contains(&entry.path()) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// The most lines of a diff that are shown.
const MAX_LINES: usize = 200;
/// The most bytes of either side to compare line by line.
const MAX_DIFF_BYTES: usize = 4 << 20;

/// A unified diff from expected to actual contents, or a note if one of them isn't text or is too long.
pub(super) fn diff(expected: &[u8], actual: &[u8]) -> String {
    let (Ok(old), Ok(new)) = (str::from_utf8(expected), str::from_utf8(actual)) else {
        return format!("not text: {} and {} bytes", expected.len(), actual.len());
    };
    if old.len() > MAX_DIFF_BYTES || new.len() > MAX_DIFF_BYTES {
        return format!("too long to show: {} and {} bytes", old.len(), new.len());
    }
    let diff: String = hunks(old, new).iter().map(ToString::to_string).collect();
    let diff = diff.replace('\r', "␍");
    let mut lines: Vec<String> =
        ["--- expected", "+++ actual"].into_iter().chain(diff.lines()).map(str::to_owned).collect();
    let omitted = lines.len().saturating_sub(MAX_LINES);
    if omitted > 0 {
        lines.truncate(MAX_LINES);
        lines.push(format!("[{omitted} more lines]"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_not_written_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("case")).unwrap();
        fs::create_dir_all(at("git/sub")).unwrap();
        fs::write(at("git/config"), "mine").unwrap();
        let update =
            |name: &str| StaleSnapshot { path: at("case").join(name), actual: b"new".to_vec() }.update(&at("case"));
        std::os::unix::fs::symlink("../git", at("case/expect")).unwrap();
        for name in ["expect/config", "expect/sub/x", "expect/new/x"] {
            update(name).unwrap_err();
        }
        assert_eq!(fs::read_to_string(at("git/config")).unwrap(), "mine");
        assert_eq!(fs::read_dir(at("git")).unwrap().count() + fs::read_dir(at("git/sub")).unwrap().count(), 2);
        fs::remove_file(at("case/expect")).unwrap();
        for name in ["expect/a/b", "expect/a/b", "text.md"] {
            update(name).unwrap();
            assert_eq!(fs::read_to_string(at("case").join(name)).unwrap(), "new");
        }
    }

    #[test]
    fn changes_are_shown_with_context() {
        let old: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let new = old.replace("\n10\n", "\nten\n");
        let expected = "--- expected\n+++ actual\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13";
        assert_eq!(diff(old.as_bytes(), new.as_bytes()), expected);
        assert!(diff(b"a\n", b"a").ends_with("-a\n+a\n\\ No newline at end of file"));
        assert!(diff(b"a\r\n", b"a\n").contains("-a␍\n+a"));
        assert_eq!(diff(b"\xff", b"abc"), "not text: 1 and 3 bytes");
        let long: String = (0..1000).map(|line| format!("{line}\n")).collect();
        assert!(diff(b"", long.as_bytes()).ends_with("[803 more lines]"));
    }
}
