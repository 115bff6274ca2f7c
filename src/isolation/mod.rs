//! Workspaces of their own for runs that happen at the same time: a git worktree or a copy, made from one snapshot of the
//! user's workspace. The repository's commits, branches, index and hooks aren't touched.

mod commands;
mod error;
mod filtered_files;
mod folders;
mod worktree;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::error::IsolationError;
use self::filtered_files::FilteredList;
use self::folders::{copy_to, create_dir, remove_tree};
use self::worktree::WorktreeSnapshot;
pub use self::worktree::{WORKSPACES_FOLDER, is_ignored, is_own_workspace};
use crate::git::program::GitWorkingTree;
use crate::git::{GitProgram, Repository};
use crate::workspace::open_root::OpenRoot;
use crate::workspace::tree_copy::CopyRules;

/// How runs are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// A git worktree for each run.
    Worktree,
    /// A copy of the folder for each run.
    Copy,
    /// All runs share the workspace.
    None,
}

impl Isolation {
    /// The best way for a workspace whose files agents can change: a worktree where git tracks it, else a copy.
    pub fn for_workspace(workspace: &Path, git: Option<&GitProgram>) -> Self {
        match Repository::discover(workspace).filter(worktree::has_own_git_dir).zip(git) {
            // A worktree has a reference of its own, its HEAD, which is written here as a file.
            Some((repository, _)) if !repository.has_reference_files() => Self::Copy,
            Some((repository, git)) if worktree::ignores_workspace(git, &repository, workspace) => Self::Copy,
            Some(_) => Self::Worktree,
            None => Self::Copy,
        }
    }
}

/// The state of a workspace at one moment, from which workspaces are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Snapshot {
    /// Objects in the repository's object store.
    Git {
        /// The root of the working tree.
        repository: PathBuf,
        /// The path of the workspace in it.
        subfolder: PathBuf,
        /// The commit that was checked out.
        commit: String,
        /// The tree with all files, uncommitted changes and new files included, ignored files left out.
        tree: String,
    },
    /// A copy of the workspace.
    Copy {
        /// Its folder.
        folder: PathBuf,
    },
}

impl Snapshot {
    /// Takes a snapshot of a workspace. `folder` is a folder below `out` for a copy. What is in `excluded` isn't copied. Returns
    /// `None` if the runs share the workspace.
    ///
    /// # Errors
    /// If the workspace can't be read, or git fails.
    pub fn take(
        isolation: Isolation,
        workspace: &OpenRoot,
        out: &OpenRoot,
        folder: &Path,
        excluded: &[PathBuf],
        git: Option<&GitProgram>,
    ) -> Result<Option<Self>, IsolationError> {
        match isolation {
            Isolation::None => Ok(None),
            Isolation::Worktree => {
                let WorktreeSnapshot { repository, subfolder, commit, tree } =
                    worktree::take_snapshot(git.ok_or(IsolationError::NoGit)?, workspace.path(), excluded)?;
                Ok(Some(Self::Git { repository, subfolder, commit, tree }))
            }
            Isolation::Copy => {
                let copy = folder.join(BASE_COPY);
                remove_tree(out, &copy)?;
                // In a worktree or a submodule, `.git` is a file: git would change the user's branches and index from a copy.
                let link = PathBuf::from(".git");
                let link = (workspace.stat(&link).is_ok() && !workspace.is_dir(&link)).then_some(link);
                let beneath = |path: &PathBuf| workspace.relative(path).ok().map(Path::to_owned);
                let excluded: Vec<PathBuf> = excluded.iter().filter_map(beneath).chain(link).collect();
                let rules = CopyRules { excluded: &excluded, ..CopyRules::EXACT };
                let made = create_dir(out, &copy).and_then(|target| copy_to(workspace, &target, &rules));
                made.inspect_err(|_| {
                    // The disk may be full. The first failure is reported.
                    let _ = remove_tree(out, &copy);
                })?;
                Ok(Some(Self::Copy { folder: copy }))
            }
        }
    }

    /// Whether it can be a snapshot of this workspace whose copy is below this folder, which has no links. What a file says
    /// about a snapshot could be about any folder or repository.
    pub fn is_of(&self, workspace: &Path, copies: &Path) -> bool {
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        match self {
            Self::Git { repository, subfolder, commit, tree } => {
                let is_name = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
                let found = Repository::discover(workspace);
                found.is_some_and(|found| found.worktree == *repository)
                    && workspace.strip_prefix(repository).is_ok_and(|path| path == subfolder)
                    && is_name(commit)
                    && is_name(tree)
            }
            Self::Copy { folder } => {
                let above = folder.parent().filter(|_| folder.file_name().is_some_and(|name| name == BASE_COPY));
                above.is_some_and(|above| above.parent() == Some(copies) && is_folder(above) && is_folder(folder))
            }
        }
    }

    /// Whether it can still be used: git removes objects that nothing refers to after some weeks.
    pub fn is_available(&self, git: Option<&GitProgram>) -> bool {
        match self {
            Self::Git { repository, tree, .. } => git.is_some_and(|git| worktree::has_tree(git, repository, tree)),
            Self::Copy { folder } => folder.is_dir(),
        }
    }

    /// The paths of the submodules and nested repositories whose files workspaces from this snapshot don't have.
    pub fn missing_repositories(&self, git: Option<&GitProgram>) -> Vec<String> {
        match (self, git) {
            (Self::Git { repository, tree, .. }, Some(git)) => worktree::missing_repositories(git, repository, tree),
            _ => Vec::new(),
        }
    }

    /// Makes a workspace at `target` below `out`, which doesn't exist or is what is left of an earlier try. Returns the folder for the
    /// tools to work in.
    ///
    /// # Errors
    /// If a file can't be written, or git fails. Nothing is left at `target` then.
    pub fn make_workspace(
        &self,
        out: &OpenRoot,
        target: &Path,
        git: Option<&GitProgram>,
    ) -> Result<PathBuf, IsolationError> {
        self.remove_workspace(out, target)?;
        target.parent().map_or(Ok(()), |parent| create_dir(out, parent).map(drop))?;
        let made = match self {
            Self::Git { repository, subfolder, commit, tree } => {
                let git = git.ok_or(IsolationError::NoGit)?;
                worktree::add(git, repository, out, target, commit, tree).and_then(|()| {
                    let folder = target.join(subfolder);
                    // A folder without any file isn't in the worktree.
                    create_dir(out, &folder)?;
                    Ok(folder)
                })
            }
            Self::Copy { folder } => out.subfolder(folder).map_err(IsolationError::io(folder)).and_then(|base| {
                copy_to(&base, &create_dir(out, target)?, &CopyRules::EXACT)?;
                Ok(target.to_owned())
            }),
        };
        made.inspect_err(|_| {
            // The first failure is reported.
            let _ = self.remove_workspace(out, target);
        })
    }

    /// The folder for the tools in a workspace that was made at `target`.
    pub fn workspace_in(&self, target: &Path) -> PathBuf {
        match self {
            Self::Git { subfolder, .. } if !subfolder.as_os_str().is_empty() => target.join(subfolder),
            Self::Git { .. } | Self::Copy { .. } => target.to_owned(),
        }
    }

    /// Removes a workspace that was made at `target` below `out`, if there is one.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn remove_workspace(&self, out: &OpenRoot, target: &Path) -> Result<(), IsolationError> {
        // Git's note first: a folder that a killed process has left is found again, and a note isn't.
        if let Self::Git { repository, .. } = self {
            worktree::forget(repository, out, |worktree| worktree == target)?;
        }
        remove_tree(out, target)
    }

    /// Removes git's notes of workspaces below a folder that don't exist any more.
    ///
    /// # Errors
    /// If one can't be removed.
    pub fn forget_missing(&self, out: &OpenRoot, folder: &Path) -> Result<(), IsolationError> {
        match self {
            Self::Git { repository, .. } => {
                worktree::forget(repository, out, |worktree| worktree.starts_with(folder) && !worktree.exists())
            }
            Self::Copy { .. } => Ok(()),
        }
    }

    /// Removes the snapshot's own files.
    ///
    /// # Errors
    /// If they can't be removed.
    pub fn discard(&self, out: &OpenRoot) -> Result<(), IsolationError> {
        match self {
            Self::Git { .. } => Ok(()),
            Self::Copy { folder } => remove_tree(out, folder),
        }
    }
}

/// The paths, from the root of the working tree, of the files with a filter that haven't changed since git looked at them last.
/// Without running the filter, git can't tell from their content.
///
/// # Errors
/// If git fails.
pub(crate) fn unchanged_filtered_files(
    tree: &GitWorkingTree,
    repository: &Repository,
) -> Result<HashSet<PathBuf>, IsolationError> {
    Ok(FilteredList::read(tree)?.unchanged(repository))
}

/// The folder of the copy from which workspaces are copied.
const BASE_COPY: &str = ".base";
