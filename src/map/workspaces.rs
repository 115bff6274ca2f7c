//! The rows' own workspaces.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::git::GitProgram;
use crate::isolation::{Isolation, IsolationError, Snapshot};
use crate::workspace::open_root::OpenRoot;

/// The names of snapshots' folders. An id of a row doesn't begin with a dot.
const SNAPSHOT_PREFIX: &str = ".snapshot-";

/// Removes the folder of a snapshot, and the map's, the job's and the folder of all workspaces, if they are empty.
fn remove_empty_folders(out: &OpenRoot, of_snapshot: &Path) {
    of_snapshot.ancestors().take(4).for_each(|folder| drop(out.remove_dir(folder)));
}

/// Makes and removes the workspaces of a map's rows.
#[derive(Debug)]
pub struct RowWorkspaces {
    /// The workspace of the user.
    shared: PathBuf,
    /// The folder of all runs.
    out: OpenRoot,
    /// The folder with those of the rows.
    folder: PathBuf,
    snapshot: Option<Snapshot>,
    git: Option<GitProgram>,
}

impl RowWorkspaces {
    /// The workspaces of a map. Without a snapshot, all rows share the user's.
    pub fn new(shared: &Path, out: &OpenRoot, folder: &Path, snapshot: Option<Snapshot>) -> Self {
        Self { shared: shared.to_owned(), out: out.clone(), folder: folder.to_owned(), snapshot, git: None }
    }

    /// Makes worktrees with this git.
    #[must_use]
    pub fn with_git(self, git: Option<GitProgram>) -> Self {
        Self { git, ..self }
    }

    /// Takes a snapshot of the user's workspace. A copy is in a new folder below `folder`.
    ///
    /// # Errors
    /// If the workspace can't be read, or git fails.
    pub fn take_snapshot(
        isolation: Isolation,
        workspace: &Path,
        folder: &Path,
        out: &OpenRoot,
        process: &str,
        git: Option<&GitProgram>,
    ) -> Result<Option<Snapshot>, IsolationError> {
        let snapshot_folder = folder.join(format!("{SNAPSHOT_PREFIX}{process}"));
        let opened =
            OpenRoot::open(workspace).map_err(|source| IsolationError::Io { path: workspace.to_owned(), source })?;
        Snapshot::take(isolation, &opened, out, &snapshot_folder, &[out.path().to_owned()], git)
            .inspect_err(|_| remove_empty_folders(out, &snapshot_folder))
    }

    /// Removes what other processes have left of snapshots that no map uses. No process may take one meanwhile.
    pub fn remove_unused_snapshots(out: &OpenRoot, folder: &Path, used: Option<&Snapshot>) {
        for name in out.names(folder).unwrap_or_default() {
            let path = folder.join(&name);
            let is_used = matches!(used, Some(Snapshot::Copy { folder }) if folder.starts_with(&path));
            if name.to_string_lossy().starts_with(SNAPSHOT_PREFIX) && !is_used {
                // What can't be removed only takes up space.
                let _ = out.remove_tree(&path);
            }
        }
    }

    /// Makes the workspace of a row that starts from the beginning. Returns the folder for the tools to work in.
    ///
    /// # Errors
    /// If a file can't be written, or git fails.
    pub fn make(&self, id: &str) -> Result<PathBuf, IsolationError> {
        match &self.snapshot {
            Some(snapshot) => snapshot.make_workspace(&self.out, &self.folder.join(id), self.git.as_ref()),
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

    /// Removes the workspace of a row that is final.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn remove(&self, id: &str) -> Result<(), IsolationError> {
        let target = self.folder.join(id);
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| snapshot.remove_workspace(&self.out, &target))
    }

    /// Removes what killed processes have left: the workspaces of rows for which `is_over` is true. Returns how many.
    ///
    /// # Errors
    /// If one can't be removed.
    pub fn remove_leftovers(&self, is_over: impl Fn(&str) -> bool) -> Result<usize, IsolationError> {
        let Some(snapshot) = &self.snapshot else { return Ok(0) };
        let mut removed = 0;
        let failed = |source| IsolationError::Io { path: self.folder.clone(), source };
        snapshot.forget_missing(&self.out, &self.folder)?;
        let names = match self.out.names(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            names => names.map_err(failed)?,
        };
        for id in names.into_iter().filter_map(|name| name.into_string().ok()) {
            if !id.starts_with('.') && is_over(&id) {
                snapshot.remove_workspace(&self.out, &self.folder.join(&id))?;
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
            let _ = snapshot.discard(&self.out);
            if let Snapshot::Copy { folder } = snapshot {
                folder.parent().map(|above| self.out.remove_dir(above));
            }
            // These fail where other rows or maps have workspaces.
            self.folder.ancestors().take(3).for_each(|folder| drop(self.out.remove_dir(folder)));
        }
    }
}

/// The error of a map whose rows' workspaces can't be made.
pub(super) fn isolation_error(error: IsolationError) -> Error {
    let failed = "the rows' workspaces can't be made";
    match error {
        IsolationError::Io { path, source } => {
            Error::environment(format!("{failed} (--isolate none shares the workspace): `{}`", path.display()))(source)
        }
        error => Error::environment(format!("{failed} (--isolate copy doesn't use git)"))(io::Error::other(error)),
    }
}
