//! Writes a journal.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::fault_injection::FaultInjection;
use super::line_format::{RunSealer, encode};
use super::reader::JournalReader;
use super::seal::RecordKey;
use crate::event::JournalEntry;

/// The end of a journal.
#[derive(Debug, Clone, Default)]
pub(crate) struct JournalEnd {
    /// How many lines it has.
    pub(crate) lines: u64,
    /// The checksum of the last.
    pub(crate) sum: String,
    /// Of all lines.
    pub(crate) digest: Sha256,
}

/// A journal that is open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<File>,
    /// Device and inode of the file.
    id: (u64, u64),
    path: PathBuf,
    /// Whether the file's name may not be on the disk yet.
    is_new: bool,
    /// Whether lines may not be on the disk yet.
    is_unflushed: bool,
    end: JournalEnd,
    /// Size and time of the last change (ctime) after the last line.
    stamp: Option<(u64, i64, i64)>,
    /// Set by the first failure: nothing after half a line could be read.
    is_broken: bool,
}

impl Journal {
    /// Continues a journal after its end.
    ///
    /// # Errors
    /// If the file's metadata can't be read.
    pub(crate) fn new(file: File, path: PathBuf, end: JournalEnd) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            file: Arc::new(file),
            id: id(&metadata),
            path,
            is_new: end.lines == 0,
            is_unflushed: true,
            end,
            stamp: None,
            is_broken: false,
        })
    }

    pub(crate) fn end(&self) -> &JournalEnd {
        &self.end
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.end.lines + 1
    }

    /// Appends a line, sealed if it should be and there is a key. `seal` is that of the whole run.
    pub(crate) fn append(
        &mut self,
        entry: &JournalEntry,
        faults: &FaultInjection,
        key: Option<&RecordKey>,
        seal: Option<RunSealer<'_>>,
    ) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.is_broken = true;
        self.check_unchanged()?;
        let (line, sum) = encode(entry, &self.end.sum, key, seal)?;
        let mut file = &*self.file;
        faults.write(|| file.write_all(&line.as_bytes()[..line.len() / 2]))?;
        file.write_all(line.as_bytes())?;
        self.is_unflushed = true;
        self.end.lines = entry.seq;
        self.end.sum = sum;
        self.end.digest.update(line.as_bytes());
        self.stamp = Some(stamp(&self.file.metadata()?));
        self.is_broken = false;
        Ok(())
    }

    /// The file if it must be flushed, and whether its name must be. The caller flushes them, or says that it
    /// [failed](Self::break_off).
    pub(crate) fn take_unflushed(&mut self) -> Option<(Arc<File>, bool)> {
        std::mem::take(&mut self.is_unflushed).then(|| (Arc::clone(&self.file), std::mem::take(&mut self.is_new)))
    }

    /// Nothing may be appended any more.
    pub(crate) fn break_off(&mut self) {
        self.is_broken = true;
    }

    /// Checks with one system call that the file at the path is the one that was written, as it was written: who is to read it
    /// opens the path.
    fn check_unchanged(&self) -> io::Result<()> {
        let found = std::fs::symlink_metadata(&self.path).ok().filter(|found| id(found) == self.id);
        let Some(found) = found else {
            let is_deleted = self.file.metadata()?.nlink() == 0;
            let reason = if is_deleted { "the journal was deleted" } else { "the journal was moved or replaced" };
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        };
        // Rarely has to be read: on file systems that update the time late, or if someone touched the file.
        if self.stamp.is_some_and(|before| before != stamp(&found)) && !self.has_same_content()? {
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
        Ok(is_whole && entries.position().1 == self.end.sum)
    }
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn stamp(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}
