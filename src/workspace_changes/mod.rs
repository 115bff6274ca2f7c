//! Which files of the workspace a run has changed, found by comparing its end with its start.
//!
//! A baseline is taken before anything can change and kept in the run's record for as long as the run can be resumed, so
//! that a resumed run is compared with its very beginning. For a file that is in git's object store, the baseline holds
//! only the object's name; for other files, the content, within limits. Nothing in the workspace is executed, links aren't
//! followed, and only regular files are opened.

mod baseline;
mod baseline_file;
mod compare;
mod deadline;
mod file_stat;
mod ignored_files;
mod patch;
#[cfg(test)]
mod tests;
mod tracked_files;
mod walk;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, statat};

pub use self::deadline::Deadline;
use self::file_stat::FileStat;
pub use self::patch::split_by_path;
use self::tracked_files::TrackedFiles;
use crate::git::{GitProgram, Repository};
use crate::record::BASELINE_FILE;
use crate::redaction::Redactor;
use crate::workspace::Workspace;
pub use crate::workspace::open_beneath::FileId;
use crate::workspace::open_beneath::{self, file_id};
use crate::workspace::open_root::OpenRoot;

/// How long taking the baseline may take. The first tool that can change something waits for it.
pub const BASELINE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the comparison at the end may take.
pub const COMPARISON_TIMEOUT: Duration = Duration::from_secs(15);

/// The largest file whose content is compared, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Tracks the changes that a run makes in its workspace.
#[derive(Debug, Clone)]
pub struct ChangeTracker {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// The run's folder.
    pub record: OpenRoot,
    /// The secrets that must not be stored.
    pub mask: Arc<Redactor>,
    /// The files that legwork's own output goes to. Writes to them aren't changes of the run.
    pub outputs: Vec<FileId>,
    /// A git that no tool can have changed. Without it, contents from the object store can't be shown.
    pub git: Option<GitProgram>,
    /// Whether to show the contents of files. False if they may hold a secret that `mask` doesn't know.
    pub shows_content: bool,
    /// Whether the patch has the contents of binary files.
    pub keeps_binary: bool,
}

impl ChangeTracker {
    /// Whether the record has a baseline.
    pub fn has_baseline(&self) -> bool {
        self.record.open_file(Path::new(BASELINE_FILE)).is_ok()
    }

    /// Whether a path holds a secret, and so can't be stored.
    fn has_secret(&self, path: &Path) -> bool {
        self.mask.contains_secret(&path.to_string_lossy())
    }

    /// Opens the folder that contains a file of the workspace; with the file's name.
    fn open_parent<'a>(&self, path: &'a Path) -> Option<(OwnedFd, &'a OsStr)> {
        let folder = open_beneath::open_dir(self.workspace.folder(), path.parent().unwrap_or(Path::new(""))).ok()?;
        Some((folder, path.file_name()?))
    }

    /// The metadata of a file, and whether legwork's own output goes there.
    fn stat(&self, folder: impl AsFd, name: &OsStr) -> (Option<FileStat>, bool) {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let is_output = stat.as_ref().is_some_and(|stat| self.outputs.contains(&file_id(stat)));
        (stat.as_ref().and_then(FileStat::of), is_output)
    }
}

/// Whether git tracks any file in a folder, which then came with a checkout.
pub fn has_tracked_files(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let tracked = Repository::discover(&folder).and_then(|repository| TrackedFiles::read(&repository, &folder));
    tracked.is_some_and(|tracked| !tracked.files.is_empty())
}

/// The paths below a folder of all files that git tracks there, relative to it. `None` if the folder is in a repository whose
/// index can't be read.
pub fn tracked_paths(folder: &Path) -> Option<Vec<PathBuf>> {
    let folder = folder.canonicalize().ok()?;
    let Some(repository) = Repository::discover(&folder) else { return Some(Vec::new()) };
    // A repository without an index tracks nothing yet.
    if !repository.git_dir.join("index").exists() {
        return Some(Vec::new());
    }
    let tracked = TrackedFiles::read(&repository, &folder)?;
    Some(tracked.files.into_keys().collect())
}
