//! Programs that are started outside of the sandbox, or to make it: none that a command could have put there.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Looks for a program in absolute folders, and gives its path without links, unless it goes by another name there. One
/// that lies in a `writable` folder, or anywhere below, is passed over: a tool may have written it, or it came with the
/// workspace.
pub fn find(name: &str, path: impl Iterator<Item = PathBuf>, writable: &[PathBuf]) -> Option<PathBuf> {
    let writable: Vec<PathBuf> = writable.iter().map(|folder| real(folder)).collect();
    let is_writable = |file: &Path| writable.iter().any(|folder| file.starts_with(folder));
    // The folder counts as well as what is in it: a link there may lead elsewhere tomorrow.
    let folders = path.filter(|folder| folder.is_absolute() && !is_writable(&real(folder)));
    let mut files = folders.filter_map(|folder| {
        let named = folder.join(name);
        Some((named.canonicalize().ok()?, named))
    });
    let (file, named) =
        files.find(|(file, _)| file.is_file() && access(file, Access::EXEC_OK).is_ok() && !is_writable(file))?;
    // Programs of several names look at the one that they are started by.
    Some(if file.file_name() == named.file_name() { file } else { named })
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
