//! What can go wrong with workspaces of their own.

use std::io;
use std::path::{Path, PathBuf};

/// What makes a snapshot or a workspace fail.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    /// A file can't be read or written.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A git command failed.
    #[error("`git {command}` failed: {message}")]
    Git {
        /// The command, without its options.
        command: &'static str,
        /// What git printed.
        message: String,
    },
    /// There is no git that can be used.
    #[error("there is no git in a folder of PATH that commands can't change, so there can be no worktrees")]
    NoGit,
    /// The repository has no commit yet.
    #[error("the repository has no commit yet, so it can have no worktrees")]
    NoCommit,
    /// The workspace isn't in a git repository.
    #[error("the workspace isn't in a git repository, so it can have no worktrees")]
    NotARepository,
    /// Git ignores the workspace.
    #[error("git ignores the workspace, so a worktree has none of its files")]
    Ignored,
}

impl IsolationError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
