//! Reads git's text files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// How much of a text file is read, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Opens a regular file, without blocking on a FIFO.
pub fn open_regular_file(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// The text of a regular file, up to [`MAX_FILE_BYTES`].
pub(super) fn read_text(path: &Path) -> Option<String> {
    read_text_up_to(path, MAX_FILE_BYTES)
}

/// The text of a regular file, up to `max_bytes`.
pub(super) fn read_text_up_to(path: &Path, max_bytes: u64) -> Option<String> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
