//! The rows' own workspaces.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::isolation::{Isolation, IsolationError, Snapshot};

/// The names of snapshots' folders. An id of a row doesn't begin with a dot.
const SNAPSHOT_PREFIX: &str = ".snapshot-";

/// Removes the folder of a snapshot, and the map's, the job's and the folder of all workspaces, as far as they are empty.
fn remove_empty_folders(of_snapshot: &Path) {
    of_snapshot.ancestors().take(4).for_each(|folder| drop(fs::remove_dir(folder)));
}

/// Makes and removes the workspaces of a map's rows.
#[derive(Debug)]
pub struct RowWorkspaces {
    /// The workspace of the user.
    shared: PathBuf,
    /// The folder with those of the rows.
    folder: PathBuf,
    snapshot: Option<Snapshot>,
}

impl RowWorkspaces {
    /// The workspaces of a map. Without a snapshot, all rows share the user's.
    pub fn new(shared: &Path, folder: &Path, snapshot: Option<Snapshot>) -> Self {
        Self { shared: shared.to_owned(), folder: folder.to_owned(), snapshot }
    }

    /// Takes a snapshot of the user's workspace. A copy is in a new folder below `folder`.
    ///
    /// # Errors
    /// If the workspace can't be read, or git fails.
    pub fn take_snapshot(
        isolation: Isolation,
        workspace: &Path,
        folder: &Path,
        out: &Path,
        process: &str,
    ) -> Result<Option<Snapshot>, IsolationError> {
        let own = folder.join(format!("{SNAPSHOT_PREFIX}{process}"));
        Snapshot::take(isolation, workspace, &own, &[out.to_owned()]).inspect_err(|_| remove_empty_folders(&own))
    }

    /// Removes what other processes have left of snapshots that no map uses. No process may take one meanwhile.
    pub fn remove_unused_snapshots(folder: &Path, used: Option<&Snapshot>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_used = matches!(used, Some(Snapshot::Copy { folder }) if folder.starts_with(&path));
            if entry.file_name().to_string_lossy().starts_with(SNAPSHOT_PREFIX) && !is_used {
                // What can't be removed only takes up space.
                let _ = Snapshot::Copy { folder: path }.discard();
            }
        }
    }

    /// Makes the workspace of a row that starts from the beginning. Returns the folder for the tools to work in.
    ///
    /// # Errors
    /// If a file can't be written, or git fails.
    pub fn make(&self, id: &str) -> Result<PathBuf, IsolationError> {
        match &self.snapshot {
            Some(snapshot) => snapshot.make_workspace(&self.folder.join(id)),
            None => Ok(self.shared.clone()),
        }
    }

    /// Whether each row has a workspace of its own.
    pub fn are_own(&self) -> bool {
        self.snapshot.is_some()
    }

    /// The folder for the tools of a row, which needn't exist yet.
    pub fn path(&self, id: &str) -> PathBuf {
        match &self.snapshot {
            Some(snapshot) => snapshot.workspace_in(&self.folder.join(id)),
            None => self.shared.clone(),
        }
    }

    /// Removes the workspace of a row that has ended for good.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn remove(&self, id: &str) -> Result<(), IsolationError> {
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| snapshot.remove_workspace(&self.folder.join(id)))
    }

    /// Removes what killed processes have left: the workspaces of rows for which `is_over` is true. Returns how many.
    ///
    /// # Errors
    /// If one can't be removed.
    pub fn remove_leftovers(&self, is_over: impl Fn(&str) -> bool) -> Result<usize, IsolationError> {
        let Some(snapshot) = &self.snapshot else { return Ok(0) };
        let mut removed = 0;
        let failed = |source| IsolationError::Io { path: self.folder.clone(), source };
        snapshot.forget_missing(&self.folder)?;
        let listing = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            listing => listing.map_err(failed)?,
        };
        for entry in listing {
            let entry = entry.map_err(failed)?;
            let Ok(id) = entry.file_name().into_string() else { continue };
            if !id.starts_with('.') && is_over(&id) {
                snapshot.remove_workspace(&entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes the snapshot, because no row needs it any more, and the folders that are empty then. A copy is kept if rows have
    /// changed files: `apply` merges with what they started from.
    pub fn discard_snapshot(&self, has_changes: impl Fn() -> bool) {
        if let Some(snapshot) = &self.snapshot {
            if matches!(snapshot, Snapshot::Copy { .. }) && has_changes() {
                return;
            }
            // What can't be removed only takes up space.
            let _ = snapshot.discard();
            if let Snapshot::Copy { folder } = snapshot {
                folder.parent().map(fs::remove_dir);
            }
            // These fail where other rows or maps have workspaces.
            self.folder.ancestors().take(3).for_each(|folder| drop(fs::remove_dir(folder)));
        }
    }
}
