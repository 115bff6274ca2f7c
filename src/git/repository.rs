//! Where a repository keeps its files, see gitrepository-layout(5), and the commit that is checked out.

use std::path::{Component, Path, PathBuf};

use super::config::{GitConfig, read_text, read_text_up_to};
/// How much of `packed-refs` is read, in bytes. Large repositories have thousands of packed references.
const MAX_PACKED_REFS_BYTES: u64 = 64 << 20;

/// How many symbolic references are followed, as in git.
const MAX_SYMBOLIC_REFS: usize = 5;
/// The most object folders that one may borrow from.
const MAX_ALTERNATES: usize = 50;
/// How many object folders may borrow from one another, as in git.
const MAX_ALTERNATE_DEPTH: usize = 5;
/// The most folders that are searched for submodules.
const MAX_MODULE_DIRS: usize = 2_000;

/// The repository that contains a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The root of its working tree.
    pub worktree: PathBuf,
    /// The working tree's own git folder, with its index.
    pub git_dir: PathBuf,
    /// The git folder with the objects. It differs from `git_dir` for linked worktrees.
    pub common_dir: PathBuf,
    /// Whether objects are named by SHA-256 instead of SHA-1.
    pub sha256: bool,
}

impl Repository {
    /// Searches a folder and its ancestors, as git does. A `.git` file counts only if its repository links back to it.
    pub fn discover(folder: &Path) -> Option<Self> {
        let worktree = worktree_around(folder)?.to_owned();
        let dot_git = worktree.join(".git");
        let git_dir = match dot_git.is_dir() {
            // Only the git folders of worktrees share those of others, and they are elsewhere.
            true => Some(dot_git).filter(|folder| is_git_dir(folder) && !folder.join("commondir").exists()),
            false => gitfile_target(&dot_git).filter(|folder| is_linked_back(folder, &dot_git)),
        };
        let git_dir = git_dir?.canonicalize().ok()?;
        let common_dir = common_dir(&git_dir).canonicalize().ok()?;
        let config = GitConfig::read(&common_dir.join("config"));
        let sha256 = config.values("extensions", "objectformat").last() == Some("sha256");
        Some(Self { worktree, git_dir, common_dir, sha256 })
    }

    /// Whether each working tree has settings of its own.
    pub(crate) fn has_worktree_config(&self) -> bool {
        let config = GitConfig::read(&self.common_dir.join("config"));
        config.values("extensions", "worktreeconfig").last().is_some_and(|value| value != "false")
    }

    /// Whether references are kept in files, as in most repositories.
    pub(crate) fn has_reference_files(&self) -> bool {
        let config = GitConfig::read(&self.common_dir.join("config"));
        config.values("extensions", "refstorage").last().is_none_or(|value| value == "files")
    }
}

/// Whether git takes a folder for the root of a working tree: its `.git` is a file or a git folder. Git ignores a `.git` that is
/// another folder, such as an empty one, and searches further up.
pub fn is_worktree_root(folder: &Path) -> bool {
    let dot_git = folder.join(".git");
    dot_git.metadata().is_ok_and(|found| !found.is_dir() || is_git_dir(&dot_git))
}

/// The root of the working tree that contains a folder: the folder itself or one above it.
pub fn worktree_around(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| is_worktree_root(folder))
}

/// The git folder that a `.git` file points to.
pub(crate) fn gitfile_target(file: &Path) -> Option<PathBuf> {
    let text = read_text(file)?;
    Some(file.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

/// The git folder that a linked worktree's git folder shares; otherwise the folder itself.
pub(crate) fn common_dir(git_dir: &Path) -> PathBuf {
    read_text(&git_dir.join("commondir")).map_or_else(|| git_dir.to_owned(), |path| git_dir.join(path.trim()))
}

/// The `.git` that leads to a git folder, if the git folder names it: the one of a linked worktree or of a submodule.
fn named_dot_git(git_dir: &Path) -> Option<PathBuf> {
    if let Some(dot_git) = read_text(&git_dir.join("gitdir")) {
        return Some(git_dir.join(dot_git.trim()));
    }
    let config = GitConfig::read(&git_dir.join("config"));
    config.values("core", "worktree").last().map(|tree| git_dir.join(tree).join(".git"))
}

/// The root of a git folder's working tree, if the git folder names it.
pub(crate) fn worktree_root(git_dir: &Path) -> Option<PathBuf> {
    let usual = || Some(git_dir.to_owned()).filter(|folder| folder.ends_with(".git"));
    named_dot_git(git_dir).or_else(usual)?.parent().map(Path::to_owned)
}

/// Whether git would treat a folder as a git folder, judging by its entries.
pub(crate) fn is_git_dir(folder: &Path) -> bool {
    has_git_layout(|name| folder.join(name).symlink_metadata().is_ok())
}

/// Whether a folder that has these entries is a git folder.
pub(crate) fn has_git_layout(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Whether the git folder of a worktree or a submodule points back to a `.git` file. Only git writes that link, so a
/// `.git` file from an archive can't claim an unrelated git folder.
pub(crate) fn is_linked_back(git_dir: &Path, dot_git: &Path) -> bool {
    let named = named_dot_git(git_dir).filter(|_| is_git_dir(git_dir));
    named.is_some_and(
        |named| matches!((named.canonicalize(), dot_git.canonicalize()), (Ok(one), Ok(other)) if one == other),
    )
}

/// The git folders of the submodules below `modules`. A submodule's name may have several path components.
pub(crate) fn submodule_git_dirs(modules: &Path, max: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![modules.to_owned()];
    for _ in 0..MAX_MODULE_DIRS {
        let Some(folder) = queue.pop().filter(|_| found.len() < max) else { break };
        if folder != modules && is_git_dir(&folder) {
            queue.push(folder.join("modules"));
            found.push(folder);
            continue;
        }
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        queue.extend(folders.map(|entry| entry.path()).take(MAX_MODULE_DIRS));
    }
    found
}

/// Whether a folder looks like one with objects: a repository that came with an archive could name any folder.
pub(super) fn is_object_dir(folder: &Path) -> bool {
    ["pack", "info"].iter().all(|name| folder.join(name).is_dir())
}

/// The object folders that an object folder borrows from, canonical, see gitrepository-layout(5).
pub(crate) fn alternate_object_dirs(objects: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut queue = vec![(objects.to_owned(), 0)];
    while let Some((folder, depth)) = queue.pop() {
        let text = read_text(&folder.join("info/alternates")).unwrap_or_default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '"'])) {
            let Ok(path) = folder.join(line).canonicalize() else { continue };
            if is_object_dir(&path) && !found.contains(&path) && found.len() < MAX_ALTERNATES {
                found.push(path.clone());
                if depth < MAX_ALTERNATE_DEPTH {
                    queue.push((path, depth + 1));
                }
            }
        }
    }
    found
}

/// The commit that HEAD resolves to in the repository that contains a folder. `None` without a repository, before the first
/// commit, and for repositories that don't keep their references in files.
pub fn head_commit(folder: &Path) -> Option<String> {
    let dot_git = worktree_around(folder)?.join(".git");
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

    /// Writes files. Beside a `HEAD` there are the other entries of a git folder.
    fn folder_with(files: &[(&str, String)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            let above = path.parent().unwrap();
            fs::create_dir_all(above).unwrap();
            if name.ends_with("HEAD") {
                fs::create_dir_all(above.join("objects")).unwrap();
                fs::create_dir_all(above.join("refs")).unwrap();
            }
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
    fn a_folder_that_only_has_the_name_is_no_repository() {
        let folder = folder_with(&[
            (".git/HEAD", format!("{ID}\n")),
            ("empty/.git/info/exclude", String::new()),
            ("empty/sub/x", String::new()),
            ("file/.git", "nonsense".to_owned()),
        ]);
        let root = folder.path().canonicalize().unwrap();
        for name in ["", "empty", "empty/sub"] {
            assert_eq!(worktree_around(&root.join(name)), Some(root.as_path()), "{name}");
            assert_eq!(Repository::discover(&root.join(name)).unwrap().worktree, root, "{name}");
            assert_eq!(head_commit(&root.join(name)).as_deref(), Some(ID), "{name}");
        }
        // Git fails there, and doesn't search further up.
        assert_eq!(Repository::discover(&root.join("file")), None);
        assert_eq!(head_commit(&root.join("file")), None);
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
