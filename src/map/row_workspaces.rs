//! The rows' own workspaces.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::isolation::{Isolation, IsolationError, Snapshot};

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
        Snapshot::take(isolation, workspace, &folder.join(format!(".snapshot-{process}")), &[out.to_owned()])
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

    /// Removes the folder if no row has a workspace any more.
    pub fn remove_folder_if_empty(&self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
