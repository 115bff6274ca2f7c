//! The error for protected files that a command changed.

use std::fmt;
use std::path::PathBuf;

use crate::job::GitAccess;

/// A command changed something that no command may change. The run must end: nothing that the command left can be trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TamperError {
    /// The changed paths: absolute, except records of runs, which are relative to the folder of all runs.
    pub changed: Vec<PathBuf>,
    /// Those of them that could not be restored.
    pub not_restored: Vec<PathBuf>,
    /// The job's `git` setting, if something in a git folder was changed.
    pub git: Option<GitAccess>,
    /// A protected path with too many entries to be compared. No change is known, but none would be noticed.
    pub too_large: Option<PathBuf>,
}

impl std::error::Error for TamperError {}

/// What was undone after a command: its changes in git folders, all of them together, and removed files. The run continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoneChanges {
    /// The job's `git` setting.
    pub git: GitAccess,
    /// The changed paths that aren't allowed to change. Empty if only objects were restored.
    pub changed: Vec<PathBuf>,
    /// Whether git objects were restored.
    pub objects: bool,
    /// Whether stashes that the command made were kept.
    pub stashes: bool,
    /// Whether commits that the command made are in the log of HEAD.
    pub commits: bool,
    /// Whether stashes of the user that the command dropped are there again.
    pub user_stashes: bool,
    /// The protected paths outside of git folders that the command removed and that are there again.
    pub removed: Vec<PathBuf>,
}

impl fmt::Display for UndoneChanges {
    /// A note for the model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "(";
        if !self.changed.is_empty() {
            write!(
                f,
                "(legwork undid all changes of this command in git folders, because it changed {}. ",
                names(&self.changed)
            )?;
            f.write_str(match self.git {
                GitAccess::Read => {
                    "This job has `git: read`: commands can't commit or change anything else in a git folder. "
                }
                GitAccess::Commit => {
                    "This job has `git: commit`: commands can add objects and change the index, HEAD, branches, tags, notes and \
                     stashes, and nothing else in a git folder. A rebase, or a cherry-pick or revert of several commits, must \
                     finish in the command that starts it. "
                }
            })?;
            if self.stashes {
                f.write_str("The stash that it made was kept: `git stash list` shows it. ")?;
            }
            if self.commits {
                f.write_str("Its commits were kept in the log of HEAD: `git reflog` shows them. ")?;
            }
            f.write_str("Files outside of git folders are as the command left them.")?;
            separator = " ";
        }
        if self.objects {
            write!(
                f,
                "{separator}Git objects that it changed or removed were restored: existing objects can't change."
            )?;
            separator = " ";
        }
        if self.user_stashes {
            write!(f, "{separator}Stashes that were there before this run were kept: commands can't drop them.")?;
            separator = " ";
        }
        if !self.removed.is_empty() {
            write!(f, "{separator}Restored, because commands can't remove them: {}.", names(&self.removed))?;
        }
        f.write_str(")")
    }
}

/// The first of some paths, in words.
fn names(paths: &[PathBuf]) -> String {
    let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{}`", path.display())).collect();
    let more = if paths.len() > 5 { " and others" } else { "" };
    named.join(", ") + more
}

impl fmt::Display for TamperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.too_large {
            return write!(
                f,
                "`{}` is protected and has more than 200,000 entries or is nested too deep, so changes to it can't be \
                 detected after each command; with bubblewrap installed, they would be prevented",
                path.display()
            );
        }
        write!(f, "a command changed protected files: {}; ", names(&self.changed))?;
        match self.not_restored.as_slice() {
            [] => f.write_str("they were restored")?,
            paths => write!(f, "these could not be restored: {}", names(paths))?,
        }
        f.write_str(match self.git {
            Some(GitAccess::Read) => {
                ". The job has `git: read`, the default: commands can't commit or change anything else in a git folder; \
                 `git: commit` allows it"
            }
            Some(GitAccess::Commit) => {
                ". With `git: commit`, commands can add objects and change branches, tags, notes, stashes, logs, the index and \
                 HEAD, and nothing else in a git folder"
            }
            None => "",
        })
    }
}
