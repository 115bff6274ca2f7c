//! Opening the files of a record. A record can come from anywhere, so nothing but regular files beneath its folder is
//! opened, and sizes are bounded.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::workspace::open_beneath;

/// The largest journal that is read, in bytes.
const MAX_JOURNAL: u64 = 2 << 30;
/// The largest other file that is read, in bytes.
const MAX_FILE: u64 = 128 << 20;

/// Opens a journal, by its path from the record's folder.
///
/// # Errors
/// Where it isn't there, isn't a regular file, is reached through a link, or is larger than 2 GiB.
pub(super) fn open_journal(folder: &Path, name: &str) -> io::Result<File> {
    open(folder, name, MAX_JOURNAL)
}

/// Reads a whole file, by its path from the record's folder.
///
/// # Errors
/// Where it isn't there, isn't a regular file, is reached through a link, or is larger than 128 MiB.
pub(super) fn read(folder: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(folder, name, MAX_FILE)?.take(MAX_FILE).read_to_end(&mut content)?;
    Ok(content)
}

/// What the operator is told of a file that can't be read.
pub(super) fn read_error(path: PathBuf, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidData => Error::NotARecord { path, why: source.to_string() },
        _ => Error::Record { path, source },
    }
}

fn open(folder: &Path, name: &str, most: u64) -> io::Result<File> {
    let root = File::open(folder)?;
    let path = Path::new(name);
    let file_name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = open_beneath::open_dir(root.as_fd(), path.parent().unwrap_or(Path::new("")))?;
    let unusable = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let file = open_beneath::open_regular_file(parent.as_fd(), file_name)?
        .ok_or_else(|| unusable("it isn't a regular file".into()))?;
    if file.metadata()?.len() > most {
        return Err(unusable(format!("it is larger than {} MiB", most >> 20)));
    }
    Ok(file)
}
