//! Checks that a folder is the record of a run that began there, by the seal of its first line.

use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::event::{Event, PARENT};
use crate::journal::{JournalReader, RecordKey, journal_file};
use crate::sandbox::RecordVerifier;
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::workspace::open_beneath;

/// The longest first line that is read, in bytes. It contains the job and its plan.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Distinguishes records that were made here with this key from planted ones.
pub(super) fn record_verifier(key: RecordKey) -> RecordVerifier {
    RecordVerifier(Arc::new(move |folder, path| is_sealed_for_path(path, folder, &key)))
}

/// Whether the parent's journal begins with a line that was sealed with the key, for a record at this path. In a copy of
/// another record, the line has another path.
fn is_sealed_for_path(path: &Path, folder: &OwnedFd, key: &RecordKey) -> bool {
    let Ok(Some(file)) = open_beneath::open_regular_file(folder.as_fd(), journal_file(PARENT).as_ref()) else {
        return false;
    };
    let mut entries = JournalReader::new(BufReader::new(file.take(MAX_LINE_BYTES)));
    let Some(Ok(entry)) = entries.next() else { return false };
    let Event::RunStarted(started) = entry.event else { return false };
    entries.is_sealed_by(key) && canonical_as_far_as_possible(Path::new(&started.folder)) == path
}
