//! Folders of workspaces: made, copied and removed through open folders.

use std::io;
use std::path::Path;

use super::error::IsolationError;
use crate::workspace::open_root::OpenRoot;
use crate::workspace::tree_copy::{CopyRules, copy_tree};

/// Copies a folder.
pub(super) fn copy_to(from: &OpenRoot, to: &OpenRoot, rules: &CopyRules<'_>) -> Result<(), IsolationError> {
    copy_tree(from, to, rules).map_err(|(path, source)| IsolationError::Io { path, source })
}

/// Opens a folder below `out`, and creates it if it is missing.
pub(super) fn create_dir(out: &OpenRoot, folder: &Path) -> Result<OpenRoot, IsolationError> {
    let created = out.create_dir(folder, 0o777).map_err(IsolationError::io(folder))?;
    Ok(OpenRoot::of(created, folder))
}

/// Removes whatever is at a path below `out`.
pub(super) fn remove_tree(out: &OpenRoot, path: &Path) -> Result<(), IsolationError> {
    out.remove_tree(path).map_err(IsolationError::io(path))
}

/// An error at a path from a root.
pub(super) fn at<P: AsRef<Path>>(root: &OpenRoot, path: P) -> impl FnOnce(io::Error) -> IsolationError + use<P> {
    let path = root.path().join(path);
    move |source| IsolationError::Io { path, source }
}
