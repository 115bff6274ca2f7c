//! The files of the journals in a record: opens and reads them.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::files::open_file;
use crate::error::Error;
use crate::event::JournalEntry;
use crate::journal::{JournalError, JournalReader, journal_file};

/// The largest journal that is read, in bytes.
pub(super) const MAX_JOURNAL_BYTES: u64 = 2 << 30;

/// A journal that is read from its file.
pub(super) type JournalFile = JournalReader<BufReader<File>>;

/// The first entry of a journal; `None` if there is no whole one.
pub(super) fn first_entry(journal: &mut JournalFile) -> Result<Option<JournalEntry>, JournalError> {
    match journal.next() {
        None | Some(Err(JournalError::Torn { .. })) => Ok(None),
        Some(entry) => entry.map(Some),
    }
}

/// Reads an agent's entries up to the end or an incomplete last line.
pub(super) fn read_entries(folder: &Path, agent: &str, reader: &mut JournalFile) -> Result<Vec<JournalEntry>, Error> {
    let path = || folder.join(journal_file(agent));
    let mut entries = Vec::new();
    for entry in reader {
        match entry {
            Ok(entry) if entry.agent != agent => {
                return Err(Error::NotARecord { path: path(), why: "it contains another agent's events".to_owned() });
            }
            Ok(entry) => entries.push(entry),
            Err(JournalError::Torn { .. }) => break,
            Err(error) => return Err(journal_error(path(), error)),
        }
    }
    Ok(entries)
}

/// The error to report for an invalid journal.
pub(super) fn journal_error(path: PathBuf, error: JournalError) -> Error {
    match error {
        JournalError::OtherFormat { format, version } => Error::OtherFormat { path, format, version },
        JournalError::Io(source) => Error::Record { path, source },
        error => Error::NotARecord { path, why: error.to_string() },
    }
}

/// The error to report for a file that can't be opened.
pub(super) fn open_error(path: PathBuf, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidData => Error::NotARecord { path, why: source.to_string() },
        _ => Error::Record { path, source },
    }
}

/// Opens an agent's journal.
pub(super) fn journal_reader(folder: &Path, agent: &str) -> io::Result<JournalFile> {
    let file = open_file(folder, &journal_file(agent), MAX_JOURNAL_BYTES)?;
    Ok(JournalReader::new(BufReader::with_capacity(64 * 1024, file)))
}

/// Opens an agent's journal; `None` if it doesn't exist.
pub(super) fn open_journal(folder: &Path, agent: &str) -> Result<Option<JournalFile>, Error> {
    match journal_reader(folder, agent) {
        Ok(journal) => Ok(Some(journal)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(open_error(folder.join(journal_file(agent)), source)),
    }
}
