//! The files that git tracks, and which of them are unchanged since git last looked at them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::fstat;

use super::file_stat::{FileStat, LINK_MODE, UnixTime};
use crate::git::index::IndexReader;
use crate::git::{ATTRIBUTES_FILE, FilteredFiles, Repository, open_regular_file};
use crate::text::bounded::read_at_most;

/// The largest index that is read, in bytes: enough for half a million files.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// The greatest length of all paths together, in bytes. Version 4 of the index shares path prefixes between entries, so a
/// small index can hold far more.
const MAX_TOTAL_PATH_BYTES: usize = 256 << 20;

/// The index's entry for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrackedFile {
    /// The name of its content in the object store.
    pub(super) object: Vec<u8>,
    mode: u32,
    size: u32,
    inode: u32,
    mtime: (u32, u32),
    ctime: (u32, u32),
    /// Whether its content in the working tree may differ from that of the object by more than line ends.
    is_filtered: bool,
}

impl TrackedFile {
    /// Whether the file has the content of the object, because it is unchanged since git wrote the index at `index_written`. A
    /// file as young as the index could have been changed afterwards without a change of its metadata.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the index keeps the lower 32 bits")]
    pub(super) fn matches_stat(&self, stat: &FileStat, index_written: UnixTime) -> bool {
        let low = |time: UnixTime| (time.0 as u32, time.1 as u32);
        !stat.is_link()
            && !self.is_filtered
            && self.mode == stat.mode
            && self.size == stat.size as u32
            && self.inode == stat.inode as u32
            && self.mtime == low(stat.mtime)
            && self.ctime == low(stat.ctime)
            && stat.mtime < index_written
    }
}

/// The tracked files below a folder.
#[derive(Debug, Default)]
pub(super) struct TrackedFiles {
    /// By path from that folder.
    pub(super) files: HashMap<PathBuf, TrackedFile>,
    /// When the index was written.
    pub(super) written_at: UnixTime,
}

impl TrackedFiles {
    /// Reads the index of a repository; `root` is a folder in its working tree. `None` if the index can't be read.
    #[allow(clippy::unnecessary_cast, reason = "the field types differ between architectures")]
    pub(super) fn read(repository: &Repository, root: &Path) -> Option<Self> {
        let file = open_regular_file(&repository.git_dir.join("index"))?;
        let stat = fstat(&file).ok()?;
        let bytes = read_at_most(file, MAX_INDEX_BYTES).ok()??;
        let prefix = root.strip_prefix(&repository.worktree).ok()?;
        let hash_length = if repository.sha256 { 32 } else { 20 };
        let mut files = parse(&bytes, hash_length, prefix)?;
        let nested = files.keys().filter(|path| path.file_name().is_some_and(|name| name == ATTRIBUTES_FILE));
        let filtered = FilteredFiles::read(repository, root, nested.cloned());
        if !filtered.is_empty() {
            files.iter_mut().for_each(|(path, file)| file.is_filtered = filtered.contains(&root.join(path)));
        }
        Some(Self { files, written_at: (stat.st_mtime as i64, stat.st_mtime_nsec as i64) })
    }
}

fn parse(bytes: &[u8], hash_length: usize, prefix: &Path) -> Option<HashMap<PathBuf, TrackedFile>> {
    let mut reader = IndexReader::new(bytes, hash_length)?;
    let mut files = HashMap::new();
    let mut remaining_path_bytes = MAX_TOTAL_PATH_BYTES;
    while let Some(entry) = reader.next()? {
        remaining_path_bytes = remaining_path_bytes.checked_sub(reader.path().len())?;
        let Ok(path) = Path::new(OsStr::from_bytes(reader.path())).strip_prefix(prefix) else { continue };
        let is_file = entry.mode & 0o170_000 == 0o100_000;
        if entry.is_unmerged() || !(is_file || entry.mode == LINK_MODE) {
            continue;
        }
        let tracked = TrackedFile {
            object: entry.object.to_vec(),
            mode: entry.mode,
            size: entry.size,
            inode: entry.inode,
            mtime: entry.mtime,
            ctime: entry.ctime,
            is_filtered: false,
        };
        files.insert(path.to_owned(), tracked);
    }
    reader.is_at_end().then_some(files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parse;

    /// An index of version 4 whose first path is `length` bytes long and whose other paths are one byte longer each.
    fn index(length: usize, count: u32) -> Vec<u8> {
        let mut bytes = [b"DIRC".as_slice(), &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
        for number in 0..count {
            bytes.extend([0; 62]);
            bytes.push(0);
            bytes.extend(if number == 0 { "x".repeat(length) } else { "x".to_owned() }.as_bytes());
            bytes.push(0);
        }
        bytes.extend([0; 20]);
        bytes
    }

    #[test]
    fn an_index_of_long_shared_paths_is_not_read() {
        assert!(parse(&index(1000, 100), 20, Path::new("")).is_some());
        assert!(parse(&index(1 << 20, 1000), 20, Path::new("")).is_none());
        assert!(parse(&index(3000, 100_000), 20, Path::new("")).is_none());
    }
}
