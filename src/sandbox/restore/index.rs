//! git's index, as far as it says where files lie: gitformat-index(5), versions 2 to 4.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use super::super::protected::is_dot_git;

/// The lengths of an object's name: SHA-1 and SHA-256.
const DIGESTS: [usize; 2] = [20, 32];

/// What one entry is, without what git keeps of the file's state.
#[derive(Debug, PartialEq, Eq)]
struct IndexEntry<'a> {
    mode: u32,
    object: &'a [u8],
    flags: &'a [u8],
    path: Vec<u8>,
}

/// Whether no entry is in a git folder or out of the working tree: git makes a file of each entry that somebody checks
/// out, hooks included.
pub(super) fn is_harmless(bytes: &[u8]) -> bool {
    let mut parsed = DIGESTS.iter().filter_map(|digest| entries(bytes, *digest)).peekable();
    parsed.peek().is_some() && parsed.all(|entries| entries.iter().all(|entry| is_in_the_tree(&entry.path)))
}

/// Whether two indexes differ in nothing but what git keeps of the files' state, as `git describe --dirty` leaves it.
pub(super) fn has_same_entries(one: &[u8], other: &[u8]) -> bool {
    DIGESTS.iter().any(|digest| {
        let (one, other) = (entries(one, *digest), entries(other, *digest));
        one.is_some() && one == other
    })
}

fn is_in_the_tree(path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    path.components().all(|part| matches!(part, Component::Normal(name) if !is_dot_git(name)))
}

/// All entries; none where it can't be read, or has some of them in another file.
fn entries(bytes: &[u8], digest: usize) -> Option<Vec<IndexEntry<'_>>> {
    let mut rest = bytes.strip_prefix(b"DIRC")?;
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut all = Vec::new();
    let mut path: Vec<u8> = Vec::new();
    for _ in 0..count {
        let begins = rest.len();
        // Times, device and inode.
        take(&mut rest, 24)?;
        let mode = number(&mut rest)?;
        // User, group and size.
        take(&mut rest, 12)?;
        let object = take(&mut rest, digest)?;
        let has_more = rest.first()? & 0x40 != 0;
        let flags = take(&mut rest, if has_more { 4 } else { 2 })?;
        if version == 4 {
            let gone = varint(&mut rest)?;
            path.truncate(path.len().checked_sub(gone)?);
        } else {
            path.clear();
        }
        let length = rest.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(take(&mut rest, length)?);
        // At least one zero byte; the older versions fill up to a multiple of eight.
        let padding = if version == 4 { 1 } else { 8 - (begins - rest.len()) % 8 };
        take(&mut rest, padding)?;
        all.push(IndexEntry { mode, object, flags, path: path.clone() });
    }
    // What follows are extensions and the checksum. A split index has most of its entries in another file.
    while rest.len() > digest {
        let kind = take(&mut rest, 4)?;
        let length = number(&mut rest)? as usize;
        if kind == b"link" {
            return None;
        }
        take(&mut rest, length)?;
    }
    (rest.len() == digest).then_some(all)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// A number as version 4 writes it: like the offsets in a pack.
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

    use super::{has_same_entries, is_harmless};

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
            assert!(is_harmless(&before), "{format} {version}");
            let at = before.windows(4).position(|part| part == b".xit").unwrap();
            let mut planted = before.clone();
            planted[at..at + 4].copy_from_slice(b".git");
            assert!(!is_harmless(&planted), "{format} {version}");
            assert!(!has_same_entries(&before, &planted));
            std::fs::File::open(root.join("a/one")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            git(root, &["update-index", "-q", "--refresh"]);
            assert!(index() != before && has_same_entries(&before, &index()), "{format} {version}");
            assert!(!is_harmless(&before[..before.len() - 1]) && !is_harmless(b"DIRC") && !is_harmless(b""));
        }
    }
}
