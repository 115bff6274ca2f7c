//! Snapshots: what a file or the last text was when somebody looked at it and found it right.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{SNAPSHOTS_FOLDER, TEXT_SNAPSHOT, fixture};

/// The longest file that is compared, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// A snapshot that isn't what was found.
#[derive(Debug)]
pub(super) struct StaleSnapshot {
    /// Where it lies.
    pub(super) path: PathBuf,
    /// What it is to be.
    pub(super) actual: Vec<u8>,
}

impl StaleSnapshot {
    /// Puts what was found in its place, whole or not at all.
    pub(super) fn update(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().permissions(default_permissions()).tempfile_in(folder)?;
        file.write_all(&self.actual)?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// What files of a repository usually have; the process's own mask takes from it.
fn default_permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

/// What a snapshot holds.
///
/// # Errors
/// It isn't there, is no file or too large, or a link leads elsewhere than into the repository.
pub(super) fn read(case: &Path, path: &Path) -> io::Result<Vec<u8>> {
    fixture::require_inside_repository(case, path)?;
    let data = fs::metadata(path)?;
    match () {
        () if !data.is_file() => Err(io::Error::other("it is no file")),
        () if data.len() > MAX_BYTES => Err(io::Error::other(format!("it has {} bytes", data.len()))),
        () => fs::read(path),
    }
}

/// Where a file's snapshot lies.
pub(super) fn file_snapshot_path(case: &Path, name: &str) -> PathBuf {
    let escaped = fixture::escape_path(Path::new(name)).unwrap_or_else(|| PathBuf::from(name));
    case.join(SNAPSHOTS_FOLDER).join(escaped)
}

/// Where the last text's snapshot lies.
pub(super) fn text_snapshot_path(case: &Path) -> PathBuf {
    case.join(TEXT_SNAPSHOT)
}

/// The files in `expect/` that aren't any of these.
pub(super) fn unused_snapshots(case: &Path, used: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![case.join(SNAPSHOTS_FOLDER)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else if !used.contains(&entry.path()) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}
