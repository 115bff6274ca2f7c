//! Follows a run that is running in another process: reads what its journals gain, and notices when the process is gone. Nothing
//! of the record is locked or changed.

use std::io::{BufReader, ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::files::open_file;
use super::journal_files::{MAX_JOURNAL_BYTES, journal_error};
use super::lease::ObservedLease;
use super::lock::is_locked;
use crate::error::Error;
use crate::event::JournalEntry;
use crate::journal::{JournalError, JournalReader, journal_file};

/// The end of a journal that another process may be writing.
#[derive(Debug)]
pub struct JournalTail {
    folder: PathBuf,
    file: String,
    /// The length in bytes of the lines that were read, their number, and the checksum of the last.
    bytes: u64,
    lines: u64,
    sum: String,
}

impl JournalTail {
    /// Starts at the beginning of an agent's journal, which may not exist yet.
    pub fn new(folder: &Path, agent: &str) -> Self {
        Self { folder: folder.to_owned(), file: journal_file(agent), bytes: 0, lines: 0, sum: String::new() }
    }

    /// Reads the lines that are complete by now. A line that is being written is read the next time.
    ///
    /// # Errors
    /// If the journal can't be read, or was changed.
    pub fn read(&mut self, mut add: impl FnMut(JournalEntry)) -> Result<(), Error> {
        let failed = |source| Error::Record { path: self.folder.join(&self.file), source };
        let mut file = match open_file(&self.folder, &self.file, MAX_JOURNAL_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        file.seek(SeekFrom::Start(self.bytes)).map_err(failed)?;
        let mut reader = JournalReader::continue_at(BufReader::new(file), self.lines, std::mem::take(&mut self.sum));
        let mut defect = None;
        for entry in &mut reader {
            match entry {
                Ok(entry) => {
                    self.lines += 1;
                    add(entry);
                }
                Err(JournalError::Torn { .. }) => break,
                Err(error) => defect = Some(error),
            }
        }
        let (bytes, sum) = reader.position();
        self.bytes += bytes;
        self.sum = sum.to_owned();
        defect.map_or(Ok(()), |error| Err(journal_error(self.folder.join(&self.file), error)))
    }
}

/// Watches whether a process still runs a run.
#[derive(Debug)]
pub struct RunWatch {
    folder: PathBuf,
    /// The lease of a process on another machine, and since when its owner hasn't counted.
    seen: Option<(ObservedLease, Instant)>,
}

impl RunWatch {
    /// Watches the run in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), seen: None }
    }

    /// Whether a process is known to run it by now.
    pub fn is_running(&mut self) -> bool {
        if is_locked(&self.folder) {
            return true;
        }
        let Some(lease) = ObservedLease::of(&self.folder).filter(|lease| !lease.is_local()) else { return false };
        match &self.seen {
            Some((seen, since)) if !seen.has_changed() => since.elapsed() < ObservedLease::observation(),
            _ => {
                self.seen = Some((lease, Instant::now()));
                true
            }
        }
    }
}
