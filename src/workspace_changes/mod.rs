//! Which files of the workspace a run has changed: what is there at its end beside what was there at its start.
//!
//! The start is looked at before anything can be changed, and kept in the run's record as long as the run can go on, so
//! that a run that was killed and resumed compares with its very beginning. Of a file that is in git's object store as it
//! is, nothing but its name there is kept; of others the content, within bounds. Nothing of the workspace is run, no link
//! is followed, and only regular files are opened.

mod baseline;
mod baseline_file;
mod compare;
mod deadline;
mod file_stat;
mod git_index;
mod git_objects;
mod patch;
#[cfg(test)]
mod tests;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use self::baseline_file::Baseline;
pub use self::deadline::Deadline;
use self::git_index::GitIndex;
pub use self::patch::split_by_path;
use crate::event::WorkspaceChanged;
use crate::git::Repository;
use crate::record::BASELINE_FILE;
use crate::redaction::Redactor;
use crate::workspace::Workspace;

/// How long the look at the start may take: the first tool that can change something waits for it.
pub const BASELINE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the comparison at the end may take.
pub const COMPARISON_TIMEOUT: Duration = Duration::from_secs(15);

/// The largest file whose content is compared, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file by its device and inode.
pub type FileId = (u64, u64);

/// Looks at a run's workspace.
#[derive(Debug, Clone)]
pub struct ChangeTracker {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// The run's folder.
    pub record: PathBuf,
    /// What must not be kept.
    pub mask: Arc<Redactor>,
    /// The files that legwork's own output goes to: what is written there is no change of the run.
    pub outputs: Vec<FileId>,
    /// A git that no tool can have changed, absolute; without one, what was in the object store can't be shown.
    pub git: Option<PathBuf>,
    /// Whether files' contents are shown. They aren't where one may hold a secret that `mask` doesn't know.
    pub shows_content: bool,
}

impl ChangeTracker {
    fn baseline_path(&self) -> PathBuf {
        self.record.join(BASELINE_FILE)
    }

    /// Whether the record has the start of the run.
    pub fn has_baseline(&self) -> bool {
        self.baseline_path().is_file()
    }

    /// Looks at the workspace and keeps what it sees in the record.
    ///
    /// # Errors
    /// Where that can't be written, or there was no time for it.
    pub fn take_baseline(&self, pace: &Deadline) -> io::Result<()> {
        baseline::take_baseline(self, &self.baseline_path(), pace)
    }

    /// What has changed since the start; `None` where nothing is known of the start.
    pub fn compare_with_baseline(&self, pace: &Deadline) -> Option<WorkspaceChanged> {
        let start = Baseline::read(&self.baseline_path())?;
        Some(compare::compare(self, start, pace))
    }

    /// Takes the start away: the run can't go on any more.
    pub fn discard_baseline(&self) {
        let _ = fs::remove_file(self.baseline_path());
    }
}

/// Whether git tracks any file of a folder: it came with a checkout.
pub fn has_tracked_files(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let index = Repository::discover(&folder).and_then(|repository| GitIndex::of(&repository, &folder));
    index.is_some_and(|index| !index.files.is_empty())
}

/// The name that git gives a content.
fn git_object_id(content: &[u8], sha256: bool) -> Vec<u8> {
    fn named<D: Digest>(content: &[u8]) -> Vec<u8> {
        let mut digest = D::new();
        digest.update(format!("blob {}\0", content.len()));
        digest.update(content);
        digest.finalize().to_vec()
    }
    if sha256 { named::<Sha256>(content) } else { named::<Sha1>(content) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a path holds a secret, and so can't be kept.
fn contains_secret(mask: &Redactor, path: &Path) -> bool {
    let text = path.to_string_lossy();
    mask.redact(&text) != text
}

/// A path as it is told: text on one line.
fn display_path(path: &Path) -> String {
    crate::text::sanitize::line(&path.to_string_lossy())
}
