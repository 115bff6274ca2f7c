//! Writes a journal.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::fault_injection::FaultInjection;
use super::line_format::encode;
use super::reader::JournalReader;
use super::seal::RecordKey;
use crate::event::{Durability, JournalEntry};

/// How many folders above a journal may be as new as it is: the run's, its job's, and the folder of all runs.
const MAX_NEW_PARENTS: usize = 3;

/// How many lines a journal has, and the checksum of the last.
pub(crate) type JournalEnd = (u64, String);

/// A journal that is open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Whether the file's name may not be on the disk yet.
    is_new: bool,
    seq: u64,
    sum: String,
    /// Size and time of the last change (ctime) after the last line.
    stamp: Option<(u64, i64, i64)>,
    /// Set by the first failure: nothing after half a line could be read.
    is_broken: bool,
}

impl Journal {
    /// Continues a journal after `seq` lines, of which the last has the checksum `sum`.
    pub(crate) fn new(file: File, path: PathBuf, (seq, sum): JournalEnd) -> Self {
        Self { file, path, is_new: seq == 0, seq, sum, stamp: None, is_broken: false }
    }

    pub(crate) fn end(&self) -> JournalEnd {
        (self.seq, self.sum.clone())
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    /// Appends a line, sealed if it should be and there is a key.
    pub(crate) fn append(
        &mut self,
        entry: &JournalEntry,
        durability: Durability,
        faults: &FaultInjection,
        key: Option<&RecordKey>,
    ) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.is_broken = true;
        self.check_unchanged()?;
        let (line, sum) = encode(entry, &self.sum, key)?;
        faults.write(|| self.file.write_all(&line.as_bytes()[..line.len() / 2]))?;
        self.file.write_all(line.as_bytes())?;
        if durability == Durability::Flushed {
            faults.operation()?;
            self.file.sync_data()?;
            if std::mem::take(&mut self.is_new) {
                sync_parents(&self.path)?;
            }
        }
        self.seq = entry.seq;
        self.sum = sum;
        self.stamp = Some(stamp(&self.file.metadata()?));
        self.is_broken = false;
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        let not_found = |reason: &str| Err(io::Error::new(io::ErrorKind::NotFound, reason));
        if metadata.nlink() == 0 {
            return not_found("the journal was deleted");
        }
        // Otherwise readers would open another file.
        let is_same = |found: Metadata| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino());
        if !std::fs::symlink_metadata(&self.path).is_ok_and(is_same) {
            return not_found("the journal was moved or replaced");
        }
        // Rarely has to be read: on file systems that update the time late, or if someone touched the file.
        if self.stamp.is_some_and(|before| before != stamp(&metadata)) && !self.has_same_content()? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another program changed the journal"));
        }
        Ok(())
    }

    /// Whether the file still contains what was written, judged by its checksums.
    fn has_same_content(&self) -> io::Result<bool> {
        // The shared offset doesn't matter: the file is opened for appending.
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        let mut entries = JournalReader::new(BufReader::new(file));
        let is_whole = entries.by_ref().all(|entry| entry.is_ok());
        Ok(is_whole && entries.position().1 == self.sum)
    }
}

fn stamp(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}

/// Flushes the name of a new file, and those of the folders above it that were created with it.
fn sync_parents(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take(MAX_NEW_PARENTS) {
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            // Some file systems can't flush folders, and the user may not be allowed to read all of them.
            Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}
