//! Reads the paths in git's index: gitformat-index(5), versions 2 to 4.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use super::super::protected_paths::is_dot_git;

/// The lengths of object ids: SHA-1 and SHA-256.
const HASH_LENGTHS: [usize; 2] = [20, 32];

/// The longest path of an entry, in bytes; Linux opens no longer ones. Version 4 shares prefixes of paths, so a small index
/// could otherwise expand to terabytes.
const LONGEST_PATH: usize = 4096;

/// An entry without the cached state of the file. Its path is in the reader.
#[derive(Debug, PartialEq, Eq)]
struct IndexEntry<'a> {
    mode: u32,
    object: &'a [u8],
    flags: &'a [u8],
}

/// Whether no entry is in a git folder or outside of the working tree. A checkout writes a file for each entry, including hooks.
pub(super) fn has_only_worktree_paths(bytes: &[u8]) -> bool {
    let is_readable = |digest: usize| all_paths_pass(bytes, digest, |_| true).is_some();
    let is_harmless = |digest: usize| all_paths_pass(bytes, digest, is_in_the_tree) == Some(true);
    let mut readable = HASH_LENGTHS.into_iter().filter(|digest| is_readable(*digest)).peekable();
    readable.peek().is_some() && readable.all(is_harmless)
}

/// Whether two indexes differ only in the cached state of files, as after `git describe --dirty`.
pub(super) fn has_same_entries(one: &[u8], other: &[u8]) -> bool {
    HASH_LENGTHS.into_iter().any(|digest| {
        let Some((mut one, mut other)) = IndexReader::new(one, digest).zip(IndexReader::new(other, digest)) else {
            return false;
        };
        loop {
            match (one.next(), other.next()) {
                (Some(None), Some(None)) => return one.is_at_end() && other.is_at_end(),
                (Some(Some(entry)), Some(Some(that))) if entry == that && one.path == other.path => {}
                _ => return false,
            }
        }
    })
}

/// Whether all paths pass; `None` if the index is invalid.
fn all_paths_pass(bytes: &[u8], digest: usize, passes: impl Fn(&[u8]) -> bool) -> Option<bool> {
    let mut reader = IndexReader::new(bytes, digest)?;
    let mut all = true;
    while reader.next()?.is_some() {
        all = all && passes(&reader.path);
    }
    reader.is_at_end().then_some(all)
}

fn is_in_the_tree(path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    path.components().all(|part| matches!(part, Component::Normal(name) if !is_dot_git(name)))
}

/// Reads entries one by one, in constant memory.
struct IndexReader<'a> {
    rest: &'a [u8],
    version: u32,
    left: u32,
    digest: usize,
    /// The path of the last entry.
    path: Vec<u8>,
}

impl<'a> IndexReader<'a> {
    fn new(bytes: &'a [u8], digest: usize) -> Option<Self> {
        let mut rest = bytes.strip_prefix(b"DIRC")?;
        let version = number(&mut rest)?;
        let left = number(&mut rest)?;
        (2..=4).contains(&version).then_some(Self { rest, version, left, digest, path: Vec::new() })
    }

    /// The next entry, `Some(None)` after the last one, or `None` if the index is invalid.
    fn next(&mut self) -> Option<Option<IndexEntry<'a>>> {
        let Some(left) = self.left.checked_sub(1) else { return Some(None) };
        self.left = left;
        let rest = &mut self.rest;
        let begins = rest.len();
        // Times, device and inode.
        take(rest, 24)?;
        let mode = number(rest)?;
        // User, group and size.
        take(rest, 12)?;
        let object = take(rest, self.digest)?;
        let has_more = rest.first()? & 0x40 != 0;
        let flags = take(rest, if has_more { 4 } else { 2 })?;
        if self.version == 4 {
            let gone = varint(rest)?;
            self.path.truncate(self.path.len().checked_sub(gone)?);
        } else {
            self.path.clear();
        }
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.path.extend_from_slice(take(rest, length)?);
        if self.path.len() > LONGEST_PATH {
            return None;
        }
        // At least one zero byte. Older versions pad to a multiple of eight.
        let padding = if self.version == 4 { 1 } else { 8 - (begins - rest.len()) % 8 };
        take(rest, padding)?;
        Some(Some(IndexEntry { mode, object, flags }))
    }

    /// Whether only extensions and the checksum follow. A split index is rejected: most of its entries are in another file.
    fn is_at_end(&mut self) -> bool {
        while self.rest.len() > self.digest {
            let Some(kind) = take(&mut self.rest, 4) else { return false };
            let length = number(&mut self.rest);
            if kind == b"link" || length.and_then(|length| take(&mut self.rest, length as usize)).is_none() {
                return false;
            }
        }
        self.rest.len() == self.digest
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// A number in version 4's encoding, the same as for offsets in packs.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    loop {
        let byte = *take(rest, 1)?.first()?;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::{has_only_worktree_paths, has_same_entries};

    fn git(folder: &Path, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(folder).env_remove("GIT_DIR").env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    }

    #[test]
    fn an_index_is_read_in_every_version_and_with_both_digests() {
        for (format, version) in [("sha1", "2"), ("sha1", "4"), ("sha256", "2"), ("sha256", "4")] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let index = || std::fs::read(root.join(".git/index")).unwrap();
            git(root, &["init", "-q", &format!("--object-format={format}")]);
            for name in ["a/one", "a/two", ".xit/hooks/post-checkout"] {
                std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
                std::fs::write(root.join(name), name).unwrap();
            }
            git(root, &["add", "-N", "a/one"]);
            git(root, &["add", "-f", "."]);
            git(root, &["update-index", "--index-version", version]);
            let before = index();
            assert!(has_only_worktree_paths(&before), "{format} {version}");
            let at = before.windows(4).position(|part| part == b".xit").unwrap();
            let mut planted = before.clone();
            planted[at..at + 4].copy_from_slice(b".git");
            assert!(!has_only_worktree_paths(&planted), "{format} {version}");
            assert!(!has_same_entries(&before, &planted));
            std::fs::File::open(root.join("a/one")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            git(root, &["update-index", "-q", "--refresh"]);
            assert!(index() != before && has_same_entries(&before, &index()), "{format} {version}");
            assert!(
                !has_only_worktree_paths(&before[..before.len() - 1])
                    && !has_only_worktree_paths(b"DIRC")
                    && !has_only_worktree_paths(b"")
            );
        }
    }

    /// Half a gigabyte of paths in a hundred kilobytes, and as much more for each further entry.
    #[test]
    fn an_index_of_long_shared_paths_is_refused() {
        let index = |length: usize, count: u32| {
            let mut bytes = [b"DIRC".as_slice(), &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
            for number in 0..count {
                bytes.extend([0; 62]);
                bytes.push(0);
                bytes.extend(if number == 0 { "x".repeat(length) } else { "x".to_owned() }.as_bytes());
                bytes.push(0);
            }
            bytes.extend([0; 20]);
            bytes
        };
        assert!(has_only_worktree_paths(&index(4000, 10)) && !has_only_worktree_paths(&index(100_000, 5000)));
        assert!(has_same_entries(&index(4000, 10), &index(4000, 10)));
        assert!(!has_same_entries(&index(100_000, 5000), &index(100_000, 5000)));
    }
}
