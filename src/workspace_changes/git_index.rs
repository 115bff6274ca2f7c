//! git's index, read without git: which files are tracked, and what is the same as in the object store.
//!
//! gitformat-index(5), versions 2 to 4. An index that is split over two files isn't read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat};

use super::file_stat::{FileKind, FileStat, UnixTime};
use crate::git;
use crate::git::Repository;

/// The longest index that is read, in bytes: that of half a million files.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// How long all paths may be together, in bytes. Version 4 shares the beginnings of paths, so that a small index could
/// otherwise expand to terabytes of them.
const ALL_PATHS: usize = 256 << 20;

/// A tracked file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrackedFile {
    /// The name of its content in the object store.
    pub(super) object: Vec<u8>,
    is_file: bool,
    size: u32,
    inode: u32,
    mtime: (u32, u32),
    ctime: (u32, u32),
    executable: bool,
}

impl TrackedFile {
    /// Whether the file is the one that git saw when it wrote the index, at `index_written`. A file as young as the index
    /// can have been changed since without any mark of it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the index keeps the lower 32 bits")]
    pub(super) fn matches_stat(&self, marks: &FileStat, index_written: UnixTime) -> bool {
        let low = |time: UnixTime| (time.0 as u32, time.1 as u32);
        self.is_file
            && marks.kind == FileKind::File
            && self.size == marks.size as u32
            && self.inode == marks.inode as u32
            && self.mtime == low(marks.mtime)
            && self.ctime == low(marks.ctime)
            && self.executable == marks.executable
            && marks.mtime < index_written
    }
}

/// The tracked files below a folder, and when the index was written.
#[derive(Debug, Default)]
pub(super) struct GitIndex {
    pub(super) files: HashMap<PathBuf, TrackedFile>,
    pub(super) written_at: UnixTime,
}

impl GitIndex {
    /// Reads it; paths are from `root`, which lies in the working tree. `None` where there is none that can be read.
    #[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
    pub(super) fn of(repository: &Repository, root: &Path) -> Option<Self> {
        let file = git::open_regular_file(&repository.git_dir.join("index"))?;
        let stat = fstat(&file).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)?;
        let mut bytes = Vec::new();
        file.take(MAX_INDEX_BYTES + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > MAX_INDEX_BYTES {
            return None;
        }
        let prefix = root.strip_prefix(&repository.worktree).ok()?;
        let digest = if repository.sha256 { 32 } else { 20 };
        let files = parse(&bytes, digest, prefix)?;
        Some(Self { files, written_at: (stat.st_mtime as i64, stat.st_mtime_nsec as i64) })
    }
}

fn parse(bytes: &[u8], digest: usize, prefix: &Path) -> Option<HashMap<PathBuf, TrackedFile>> {
    let mut rest = bytes.strip_prefix(b"DIRC")?;
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut files = HashMap::new();
    let mut name: Vec<u8> = Vec::new();
    let mut left = ALL_PATHS;
    for _ in 0..count {
        let begins = rest.len();
        let mut field = || number(&mut rest);
        let changed = (field()?, field()?);
        let written = (field()?, field()?);
        let (_device, inode, mode) = (field()?, field()?, field()?);
        let (_user, _group, size) = (field()?, field()?, field()?);
        let object = taken(&mut rest, digest)?.to_vec();
        let flags = u16::from_be_bytes(taken(&mut rest, 2)?.try_into().ok()?);
        if flags & 0x4000 != 0 {
            taken(&mut rest, 2)?;
        }
        if version == 4 {
            let gone = varint(&mut rest)?;
            name.truncate(name.len().checked_sub(gone)?);
        } else {
            name.clear();
        }
        let length = rest.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(taken(&mut rest, length)?);
        left = left.checked_sub(name.len())?;
        let taken_so_far = begins - rest.len();
        // At least one zero byte; the older versions fill up to a multiple of eight.
        let padding = if version == 4 { 1 } else { 8 - taken_so_far % 8 };
        taken(&mut rest, padding)?;
        // Other stages are those of a merge under way.
        if flags & 0x3000 != 0 {
            continue;
        }
        let Ok(path) = Path::new(OsStr::from_bytes(&name)).strip_prefix(prefix) else { continue };
        let is_file = mode & 0o170_000 == 0o100_000;
        if is_file || mode & 0o170_000 == 0o120_000 {
            let executable = mode & 0o100 != 0;
            files.insert(
                path.to_owned(),
                TrackedFile { object, is_file, size, inode, mtime: written, ctime: changed, executable },
            );
        }
    }
    // What follows are extensions and the checksum. A split index has most of its entries in another file.
    while rest.len() > digest {
        let kind = taken(&mut rest, 4)?;
        let length = number(&mut rest)? as usize;
        if kind == b"link" {
            return None;
        }
        taken(&mut rest, length)?;
    }
    Some(files)
}

fn taken<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(taken(rest, 4)?.try_into().ok()?))
}

/// A number as version 4 writes it: like the offsets in a pack.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut byte = taken(rest, 1)?[0];
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = taken(rest, 1)?[0];
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parse;

    /// An index of version 4, whose first entry is long and whose others are one letter longer each.
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
    }
}
