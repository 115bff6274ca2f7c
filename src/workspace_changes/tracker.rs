//! The settings of change tracking.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::record::BASELINE_FILE;
use crate::redaction::Redactor;
use crate::workspace::Workspace;
use crate::workspace::open_beneath::FileId;

/// The largest file whose content is compared, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Tracks the changes that a run makes in its workspace.
#[derive(Debug, Clone)]
pub struct ChangeTracker {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// The run's folder.
    pub record: PathBuf,
    /// The secrets that must not be stored.
    pub mask: Arc<Redactor>,
    /// The files that legwork's own output goes to. Writes to them aren't changes of the run.
    pub outputs: Vec<FileId>,
    /// The absolute path of a git that no tool can have changed. Without it, contents from the object store can't be shown.
    pub git: Option<PathBuf>,
    /// Whether to show the contents of files. False if they may hold a secret that `mask` doesn't know.
    pub shows_content: bool,
}

impl ChangeTracker {
    pub(super) fn baseline_path(&self) -> PathBuf {
        self.record.join(BASELINE_FILE)
    }

    /// Whether a path holds a secret, and so can't be stored.
    pub(super) fn has_secret(&self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        self.mask.redact(&text) != text
    }
}
