//! Where a repository keeps its files, see gitrepository-layout(5).

use std::path::{Path, PathBuf};

use super::config::GitConfig;
use super::files::read_text;

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
        let (worktree, dot_git) = folder.ancestors().find_map(|worktree| {
            let dot_git = worktree.join(".git");
            dot_git.exists().then(|| (worktree.to_owned(), dot_git))
        })?;
        let git_dir = match dot_git.is_dir() {
            true => Some(dot_git).filter(|folder| is_git_dir(folder)),
            false => gitfile_target(&dot_git).filter(|folder| is_linked_back(folder, &dot_git)),
        };
        let git_dir = git_dir?.canonicalize().ok()?;
        let common_dir = common_dir(&git_dir).canonicalize().ok()?;
        let config = GitConfig::read(&common_dir.join("config"));
        let sha256 = config.values("extensions", "objectformat").last() == Some("sha256");
        Some(Self { worktree, git_dir, common_dir, sha256 })
    }
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

/// The root of a git folder's working tree, if the git folder names it.
pub(crate) fn worktree_root(git_dir: &Path) -> Option<PathBuf> {
    if let Some(dot_git) = read_text(&git_dir.join("gitdir")) {
        return git_dir.join(dot_git.trim()).parent().map(Path::to_owned);
    }
    let config = GitConfig::read(&git_dir.join("config"));
    let configured = config.values("core", "worktree").last().map(|tree| git_dir.join(tree));
    configured.or_else(|| git_dir.parent().filter(|_| git_dir.ends_with(".git")).map(Path::to_owned))
}

/// Whether git would treat a folder as a git folder, judging by its entries.
pub(crate) fn is_git_dir(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Whether the git folder of a worktree or a submodule points back to a `.git` file. Only git writes that link, so a
/// `.git` file from an archive can't claim an unrelated git folder.
pub(crate) fn is_linked_back(git_dir: &Path, dot_git: &Path) -> bool {
    let is_dot_git =
        |path: PathBuf| matches!((path.canonicalize(), dot_git.canonicalize()), (Ok(one), Ok(other)) if one == other);
    if !is_git_dir(git_dir) {
        return false;
    }
    if let Some(path) = read_text(&git_dir.join("gitdir")) {
        return is_dot_git(git_dir.join(path.trim()));
    }
    let config = GitConfig::read(&git_dir.join("config"));
    config.values("core", "worktree").last().is_some_and(|tree| is_dot_git(git_dir.join(tree).join(".git")))
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
