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

impl fmt::Display for TamperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |paths: &[PathBuf]| {
            let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{}`", path.display())).collect();
            let more = if paths.len() > 5 { " and others" } else { "" };
            named.join(", ") + more
        };
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
                ". With `git: commit`, commands can change objects, branches, tags, logs, the index and HEAD, and nothing \
                 else in a git folder"
            }
            None => "",
        })
    }
}
