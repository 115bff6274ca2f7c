//! Checks of git's index: where its entries put files, and whether two indexes have the same entries.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use crate::git::index::{HASH_LENGTHS, IndexReader};
use crate::git::is_dot_git;

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
                (Some(Some(entry)), Some(Some(that))) if entry.is_same_content(&that) && one.path() == other.path() => {
                }
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
        all = all && passes(reader.path());
    }
    reader.is_at_end().then_some(all)
}

fn is_in_the_tree(path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    path.components().all(|part| matches!(part, Component::Normal(name) if !is_dot_git(name)))
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
