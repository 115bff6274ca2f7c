//! The checked-out commit of a repository.

use std::path::{Component, Path};

use super::files::{read_text, read_text_up_to};
use super::repository::{common_dir, gitfile_target};

/// How much of `packed-refs` is read, in bytes. Large repositories have thousands of packed references.
const MAX_PACKED_REFS_BYTES: u64 = 64 << 20;

/// How many symbolic references are followed, as in git.
const MAX_SYMBOLIC_REFS: usize = 5;

/// The commit that HEAD resolves to in the repository that contains a folder. `None` without a repository, before the first
/// commit, and for repositories that don't keep their references in files.
pub fn head_commit(folder: &Path) -> Option<String> {
    let dot_git = folder.ancestors().map(|ancestor| ancestor.join(".git")).find(|path| path.exists())?;
    let git_dir = if dot_git.is_dir() { dot_git } else { gitfile_target(&dot_git)? };
    // A linked worktree has its own HEAD and shares the rest.
    let common_dir = common_dir(&git_dir);
    let mut reference = read_text(&git_dir.join("HEAD"))?;
    for _ in 0..MAX_SYMBOLIC_REFS {
        let Some(name) = reference.trim().strip_prefix("ref:").map(|name| name.trim().to_owned()) else { break };
        if Path::new(&name).components().any(|part| !matches!(part, Component::Normal(_))) {
            return None;
        }
        let loose = [&git_dir, &common_dir].into_iter().find_map(|folder| read_text(&folder.join(&name)));
        reference = loose.or_else(|| packed_ref(&common_dir, &name))?;
    }
    let id = reference.trim();
    let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn packed_ref(common_dir: &Path, name: &str) -> Option<String> {
    let text = read_text_up_to(&common_dir.join("packed-refs"), MAX_PACKED_REFS_BYTES)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(_, packed)| *packed == name).map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn folder_with(files: &[(&str, String)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn loose_packed_and_detached_references_are_followed() {
        let head = || (".git/HEAD", "ref: refs/heads/main\n".to_owned());
        let loose = folder_with(&[head(), (".git/refs/heads/main", format!("{ID}\n")), ("a/b/c", String::new())]);
        assert_eq!(head_commit(&loose.path().join("a/b")).as_deref(), Some(ID), "also from a folder below");
        let refs =
            format!("# pack-refs with: peeled\n{} refs/heads/other\n{ID} refs/heads/main\n", ID.replace('0', "1"));
        assert_eq!(head_commit(folder_with(&[head(), (".git/packed-refs", refs)]).path()).as_deref(), Some(ID));
        assert_eq!(head_commit(folder_with(&[(".git/HEAD", format!("{ID}\n"))]).path()).as_deref(), Some(ID));
    }

    #[test]
    fn a_worktree_has_its_own_head_and_shares_the_branches() {
        let folder = folder_with(&[
            ("main/.git/refs/heads/topic", ID.to_owned()),
            ("main/.git/worktrees/w/HEAD", "ref: refs/heads/topic".to_owned()),
            ("main/.git/worktrees/w/commondir", "../..\n".to_owned()),
            ("w/.git", "gitdir: ../main/.git/worktrees/w\n".to_owned()),
        ]);
        assert_eq!(head_commit(&folder.path().join("w")).as_deref(), Some(ID));
    }

    #[test]
    fn other_heads_have_no_commit() {
        for head in ["ref: refs/heads/unborn\n", "ref: ../../etc/passwd\n", "ref: HEAD\n", "nonsense", ""] {
            assert_eq!(head_commit(folder_with(&[(".git/HEAD", head.to_owned())]).path()), None, "{head:?}");
        }
    }
}
