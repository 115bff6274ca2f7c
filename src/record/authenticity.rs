//! Whether a folder is the record of a run that began there, by the seal of its first line.

use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::journal::JournalReader;
use super::journal_file;
use super::seal::RecordKey;
use crate::event::{Event, PARENT};
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::workspace::open_beneath;

/// The longest first line that is read, in bytes: it holds the job and its plan.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Whether the first line of the parent's journal was written with the key, for a record at this path. A copy of another
/// record has another folder's name in it.
pub(super) fn is_sealed_for_path(path: &Path, folder: &OwnedFd, key: &RecordKey) -> bool {
    let Ok(Some(file)) = open_beneath::open_regular_file(folder.as_fd(), journal_file(PARENT).as_ref()) else {
        return false;
    };
    let mut entries = JournalReader::new(BufReader::new(file.take(MAX_LINE_BYTES)));
    let Some(Ok(entry)) = entries.next() else { return false };
    let Event::RunStarted(started) = entry.event else { return false };
    entries.is_sealed_by(key) && canonical_as_far_as_possible(Path::new(&started.folder)) == path
}
