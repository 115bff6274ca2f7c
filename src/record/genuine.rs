//! Whether a folder is the record of a run that began there, by the seal of its first line.

use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::journal::Entries;
use super::journal_file;
use super::seal::RecordKey;
use crate::event::{Event, PARENT};
use crate::sandbox::protected::canonical_as_far_as_possible;
use crate::tools::beneath;

/// The longest first line that is read, in bytes: it holds the job and its plan.
const LONGEST: u64 = 16 << 20;

/// Whether the first line of the parent's journal was written with the key, for a record at this path. A copy of another
/// record has another folder's name in it.
pub(super) fn was_made_at(path: &Path, folder: &OwnedFd, key: &RecordKey) -> bool {
    let Ok(Some(file)) = beneath::regular(folder.as_fd(), journal_file(PARENT).as_ref()) else { return false };
    let mut entries = Entries::new(BufReader::new(file.take(LONGEST)));
    let Some(Ok(entry)) = entries.next() else { return false };
    let Event::RunStarted(started) = entry.event else { return false };
    entries.is_sealed_by(key) && canonical_as_far_as_possible(Path::new(&started.folder)) == path
}
