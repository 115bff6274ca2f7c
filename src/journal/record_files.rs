//! Creating and opening files of a record: readable by their owner only, and never through a link. A record can come from
//! anywhere, so sizes are limited as well.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::workspace::open_beneath;

/// Options for files that only their owner may read.
pub(crate) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates the folder of a file in a run's folder. The run's folder itself is never created again: if it was deleted, half a
/// record must not appear in its place.
pub(crate) fn create_parent_dir<'a>(path: &'a Path, run: &'a Path) -> io::Result<&'a Path> {
    let folder = path.parent().unwrap_or(run);
    if folder != run {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // A link would lead out of the record.
            _ if !fs::symlink_metadata(folder)?.is_dir() => {
                let reason = format!("`{}` is not a folder", folder.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, reason));
            }
            _ => {}
        }
    }
    Ok(folder)
}

/// Opens a file for reading, by its path in the record's folder.
///
/// # Errors
/// If it doesn't exist, isn't a regular file, is reached through a link, or is larger than `max_bytes`.
pub(crate) fn open(folder: &Path, name: &str, max_bytes: u64) -> io::Result<File> {
    let root = File::open(folder)?;
    let path = Path::new(name);
    let file_name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = open_beneath::open_dir(root.as_fd(), path.parent().unwrap_or(Path::new("")))?;
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let file = open_beneath::open_regular_file(parent.as_fd(), file_name)?
        .ok_or_else(|| invalid("it isn't a regular file".into()))?;
    if file.metadata()?.len() > max_bytes {
        return Err(invalid(format!("it is larger than {} MiB", max_bytes >> 20)));
    }
    Ok(file)
}
