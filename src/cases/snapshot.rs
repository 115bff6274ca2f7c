//! Snapshots: reviewed contents of a file or of the last text.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{SNAPSHOTS_FOLDER, TEXT_SNAPSHOT, fixture};

/// The largest file to compare, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// A snapshot that differs from the actual contents.
#[derive(Debug)]
pub(super) struct StaleSnapshot {
    /// The path of the snapshot.
    pub(super) path: PathBuf,
    /// The actual contents.
    pub(super) actual: Vec<u8>,
}

impl StaleSnapshot {
    /// Replaces the snapshot by the actual contents, atomically.
    pub(super) fn update(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().permissions(default_permissions()).tempfile_in(folder)?;
        file.write_all(&self.actual)?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// The usual mode of files in a repository, which the umask restricts.
fn default_permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

/// Reads a snapshot.
///
/// # Errors
/// It is missing, too large, not a file, or behind a symbolic link out of the repository.
pub(super) fn read(case: &Path, path: &Path) -> io::Result<Vec<u8>> {
    fixture::require_inside_repository(case, path)?;
    let data = fs::metadata(path)?;
    match () {
        () if !data.is_file() => Err(io::Error::other("it isn't a file")),
        () if data.len() > MAX_BYTES => Err(io::Error::other(format!("it is too large ({} bytes)", data.len()))),
        () => fs::read(path),
    }
}

/// The path of a file's snapshot.
pub(super) fn file_snapshot_path(case: &Path, name: &str) -> PathBuf {
    let escaped = fixture::escape_path(Path::new(name)).unwrap_or_else(|| PathBuf::from(name));
    case.join(SNAPSHOTS_FOLDER).join(escaped)
}

/// The path of the snapshot of the last text.
pub(super) fn text_snapshot_path(case: &Path) -> PathBuf {
    case.join(TEXT_SNAPSHOT)
}

/// The files in `expect/` that aren't in `used`.
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
