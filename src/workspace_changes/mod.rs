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
mod patch;
#[cfg(test)]
mod tests;
mod tracked_files;
mod tracker;
mod walk;

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use self::baseline_file::Baseline;
pub use self::deadline::Deadline;
pub use self::patch::split_by_path;
use self::tracked_files::TrackedFiles;
pub use self::tracker::ChangeTracker;
use crate::event::WorkspaceChanged;
use crate::git::Repository;
pub use crate::workspace::open_beneath::FileId;

/// How long taking the baseline may take. The first tool that can change something waits for it.
pub const BASELINE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the comparison at the end may take.
pub const COMPARISON_TIMEOUT: Duration = Duration::from_secs(15);

impl ChangeTracker {
    /// Whether the record has a baseline.
    pub fn has_baseline(&self) -> bool {
        self.baseline_path().is_file()
    }

    /// Takes the baseline and writes it to the record.
    ///
    /// # Errors
    /// If it can't be written, or not before the deadline.
    pub fn take_baseline(&self, deadline: &Deadline) -> io::Result<()> {
        baseline::take_baseline(self, &self.baseline_path(), deadline)
    }

    /// What has changed since the baseline was taken; `None` without a baseline.
    pub fn compare_with_baseline(&self, deadline: &Deadline) -> Option<WorkspaceChanged> {
        let baseline = Baseline::read(&self.baseline_path())?;
        Some(compare::compare(self, baseline, deadline))
    }

    /// Deletes the baseline, once the run can't be resumed any more.
    pub fn discard_baseline(&self) {
        let _ = fs::remove_file(self.baseline_path());
    }
}

/// Whether git tracks any file in a folder, which then came with a checkout.
pub fn has_tracked_files(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let tracked = Repository::discover(&folder).and_then(|repository| TrackedFiles::read(&repository, &folder));
    tracked.is_some_and(|tracked| !tracked.files.is_empty())
}
