//! Which commit is checked out in a folder, without starting git.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file that is read: a large repository has some thousand packed references.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The commit that HEAD names in the repository that a folder lies in; `None` where there is no repository, no commit
/// yet, or the repository keeps its references in another form than files.
///
/// See gitrepository-layout(5).
pub fn commit(folder: &Path) -> Option<String> {
    let dot_git = folder.ancestors().map(|above| above.join(".git")).find(|path| path.exists())?;
    let own = if dot_git.is_dir() { dot_git } else { linked_git_dir(&dot_git)? };
    // A worktree of its own has HEAD to itself and shares the rest.
    let common = match read(&own.join("commondir")) {
        Some(path) => own.join(path.trim()),
        None => own.clone(),
    };
    let mut reference = read(&own.join("HEAD"))?;
    // A symbolic reference may name another; git follows five.
    for _ in 0..5 {
        let Some(name) = reference.trim().strip_prefix("ref:").map(|name| name.trim().to_owned()) else { break };
        if Path::new(&name).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return None;
        }
        let loose = [&own, &common].into_iter().find_map(|folder| read(&folder.join(&name)));
        reference = loose.or_else(|| packed_ref(&common, &name))?;
    }
    let id = reference.trim();
    let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

/// Where a `.git` file leads.
fn linked_git_dir(file: &Path) -> Option<PathBuf> {
    let text = read(file)?;
    let path = text.trim().strip_prefix("gitdir:")?.trim();
    Some(file.parent()?.join(path))
}

fn packed_ref(common: &Path, name: &str) -> Option<String> {
    let text = read(&common.join("packed-refs"))?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(_, packed)| *packed == name).map(|(id, _)| id.to_owned()).next()
}

fn read(path: &Path) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn written(files: &[(&str, String)]) -> tempfile::TempDir {
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
        let loose = written(&[head(), (".git/refs/heads/main", format!("{ID}\n")), ("a/b/c", String::new())]);
        assert_eq!(commit(&loose.path().join("a/b")).as_deref(), Some(ID), "from a folder below as well");
        let refs =
            format!("# pack-refs with: peeled\n{} refs/heads/other\n{ID} refs/heads/main\n", ID.replace('0', "1"));
        assert_eq!(commit(written(&[head(), (".git/packed-refs", refs)]).path()).as_deref(), Some(ID));
        assert_eq!(commit(written(&[(".git/HEAD", format!("{ID}\n"))]).path()).as_deref(), Some(ID));
    }

    #[test]
    fn a_worktree_has_its_own_head_and_shares_the_branches() {
        let folder = written(&[
            ("main/.git/refs/heads/topic", ID.to_owned()),
            ("main/.git/worktrees/w/HEAD", "ref: refs/heads/topic".to_owned()),
            ("main/.git/worktrees/w/commondir", "../..\n".to_owned()),
            ("w/.git", "gitdir: ../main/.git/worktrees/w\n".to_owned()),
        ]);
        assert_eq!(commit(&folder.path().join("w")).as_deref(), Some(ID));
    }

    #[test]
    fn what_is_no_commit_is_none() {
        for head in ["ref: refs/heads/unborn\n", "ref: ../../etc/passwd\n", "ref: HEAD\n", "nonsense", ""] {
            assert_eq!(commit(written(&[(".git/HEAD", head.to_owned())]).path()), None, "{head:?}");
        }
    }
}
