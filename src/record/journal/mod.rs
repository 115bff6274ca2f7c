//! A journal: one event a line, each with a checksum over everything up to it.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::fault_injection::FaultInjection;
use super::files::open_journal;
use super::journal_file;
use super::seal::{MAC_FIELD, RecordKey, Seal};
use crate::event::{Durability, Event, FORMAT, JournalEntry};

/// What every line ends with: the first 16 hexadecimal digits of SHA-256 over the checksum before it (nothing for
/// the first line) and the line without this field.
const CHECKSUM_FIELD: &str = ",\"sum\":\"";
const CHECKSUM_DIGITS: usize = 16;

/// The longest line that is read, in bytes. A line holds at most one reply, or what a run has changed.
const MAX_LINE: u64 = 256 << 20;

/// How many folders above a journal may be as new as it is: the run's, its job's, and that of all runs.
const MAX_NEW_PARENTS: usize = 3;

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Whether its name may not be on the disk yet.
    is_new: bool,
    seq: u64,
    sum: String,
    /// The size and the time of the last change (ctime) after our last line.
    stamp: Option<(u64, i64, i64)>,
    /// Set by the first failure: what follows a half line could never be read.
    broken: bool,
}

impl Journal {
    /// Goes on with a journal at `path` after `seq` lines, the last one with the checksum `sum`.
    pub(super) fn new(file: File, path: PathBuf, seq: u64, sum: String) -> Self {
        Self { file, path, is_new: seq == 0, seq, sum, stamp: None, broken: false }
    }

    /// How many lines it has, and the checksum of the last.
    pub(super) fn position(&self) -> (u64, String) {
        (self.seq, self.sum.clone())
    }

    pub(super) fn next(&self) -> u64 {
        self.seq + 1
    }

    /// Appends a line. With a key it gets a seal.
    pub(super) fn append(
        &mut self,
        entry: &JournalEntry,
        durability: Durability,
        trial: &FaultInjection,
        key: Option<&RecordKey>,
    ) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.broken = true;
        let metadata = self.file.metadata()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the journal was deleted"));
        }
        // Readers would find another one there, and this one nowhere.
        let is_there = |there: Metadata| (there.dev(), there.ino()) == (metadata.dev(), metadata.ino());
        if !std::fs::symlink_metadata(&self.path).is_ok_and(is_there) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the journal was moved or replaced"));
        }
        // Only on file systems that are late with it, or where somebody touched the file, is there anything to read.
        if self.stamp.is_some_and(|stamp| stamp != stamp_of(&metadata)) && !self.is_unchanged()? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the journal was changed by somebody else"));
        }
        let mut line = entry.to_json()?;
        line.pop(); // the closing brace
        if let Some(key) = key {
            let mac = key.mac(&self.sum, &line);
            line.push_str(MAC_FIELD);
            line.push_str(&mac);
            line.push('"');
        }
        let sum = checksum(&self.sum, &line);
        line.push_str(CHECKSUM_FIELD);
        line.push_str(&sum);
        line.push_str("\"}\n");
        trial.write(|| self.file.write_all(&line.as_bytes()[..line.len() / 2]))?;
        self.file.write_all(line.as_bytes())?;
        if durability == Durability::Flushed {
            trial.operation()?;
            self.file.sync_data()?;
            if std::mem::take(&mut self.is_new) {
                sync_parents(&self.path)?;
            }
        }
        self.seq = entry.seq;
        self.sum = sum;
        self.stamp = Some(stamp_of(&self.file.metadata()?));
        self.broken = false;
        Ok(())
    }

    /// Whether the file still holds what was written, by the checksum that runs through it.
    fn is_unchanged(&self) -> io::Result<bool> {
        // It is written at its end, wherever reading has led.
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        let mut entries = JournalReader::new(BufReader::new(file));
        let whole = entries.by_ref().all(|entry| entry.is_ok());
        Ok(whole && entries.sum == self.sum)
    }
}

fn stamp_of(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}

/// Has the disk keep a new file's name, and those of the folders above it that were made with it.
fn sync_parents(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take(MAX_NEW_PARENTS) {
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            // Not every file system can flush a folder, nor may everybody read those above.
            Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

fn checksum(before: &str, line: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(line);
    let digest = hasher.finalize();
    digest.iter().take(CHECKSUM_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Why a journal ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The last line is not whole: the machine or the process ended while it was written.
    #[error("line {line} is torn")]
    Torn {
        /// Its number, from 1.
        line: u64,
    },
    /// A line isn't what was written.
    #[error("line {line} was changed after it was written ({why})")]
    Modified {
        /// Its number, from 1.
        line: u64,
        /// How that shows.
        why: String,
    },
    /// A line is what was written, and none that this legwork knows.
    #[error("line {line} is none that this legwork knows ({why})")]
    Unrecognized {
        /// Its number, from 1.
        line: u64,
        /// What is strange about it.
        why: String,
    },
    /// A legwork that writes another format wrote it.
    #[error("its format is {format}, and this legwork reads format {FORMAT}")]
    OtherFormat {
        /// The format.
        format: u64,
        /// The version of the legwork that wrote it, where it says so.
        version: Option<String>,
    },
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
}

/// The events of a journal, oldest first; ends at its end or at the first flaw.
#[derive(Debug)]
pub struct JournalReader<R> {
    lines: R,
    line: u64,
    sum: String,
    /// The seal of the last line that is to have one, where it has one.
    seal: Option<Seal>,
    /// Bytes of whole lines up to here.
    whole_bytes: u64,
    done: bool,
}

impl JournalReader<BufReader<File>> {
    /// Opens an agent's journal in a record's folder.
    ///
    /// # Errors
    /// Where it isn't there, can't be opened, isn't a regular file, or is too large.
    pub fn open(folder: &Path, agent: &str) -> io::Result<Self> {
        let file = open_journal(folder, &journal_file(agent))?;
        Ok(Self::new(BufReader::with_capacity(64 * 1024, file)))
    }
}

impl<R: BufRead> JournalReader<R> {
    /// Reads from anything.
    pub fn new(lines: R) -> Self {
        Self { lines, line: 0, sum: String::new(), seal: None, whole_bytes: 0, done: false }
    }

    fn read_next(&mut self) -> Result<Option<JournalEntry>, JournalError> {
        // Bytes, since a line may be torn inside of a character.
        let mut line = Vec::new();
        self.line += 1;
        if self.lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() as u64 == MAX_LINE {
            return Err(modified(self.line, "it is longer than any line of a journal"));
        }
        let length = line.len() as u64;
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        if ended
            && self.line == 1
            && let Some((format, version)) = other_format(&line)
        {
            return Err(JournalError::OtherFormat { format, version });
        }
        let read = self.read(&line);
        if !ended {
            // What is torn is a beginning of what was to be written. A whole line with something else behind it than its
            // end isn't.
            let has_more = line.pop().is_some() && read.is_err() && self.read(&line).is_ok();
            let line = self.line;
            return Err(if has_more { modified(line, "it has another end") } else { JournalError::Torn { line } });
        }
        let (entry, sum) = read?;
        if is_sealed(&entry.event) {
            let body =
                str::from_utf8(&line).unwrap_or_default().rsplit_once(CHECKSUM_FIELD).map_or("", |(body, _)| body);
            self.seal = Seal::parse(&self.sum, body);
        }
        self.sum = sum;
        self.whole_bytes += length;
        Ok(Some(entry))
    }

    /// Reads a line without its end, and gives its checksum.
    fn read(&self, line: &[u8]) -> Result<(JournalEntry, String), JournalError> {
        let changed = |why: &str| modified(self.line, why);
        let line = str::from_utf8(line).map_err(|_| changed("it isn't UTF-8"))?;
        let (body, sum) = line
            .strip_suffix("\"}")
            .and_then(|line| line.rsplit_once(CHECKSUM_FIELD))
            .ok_or_else(|| changed("it has no checksum"))?;
        if checksum(&self.sum, body) != sum {
            return Err(changed("its checksum is another"));
        }
        let unknown = |error: serde_json::Error| JournalError::Unrecognized { line: self.line, why: error.to_string() };
        let entry = JournalEntry::from_json(&format!("{body}}}")).map_err(unknown)?;
        Ok((entry, sum.to_owned()))
    }

    /// Whether the last of the lines that say what a run may do was written by whoever has this key; with it, all before are.
    pub(super) fn is_sealed_by(&self, key: &RecordKey) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.verify(key))
    }

    /// How many bytes the lines take that were read, and the checksum of the last.
    pub(super) fn position(&self) -> (u64, &str) {
        (self.whole_bytes, &self.sum)
    }
}

/// Whether an event is written with a seal: where a run begins or goes on.
pub(super) fn is_sealed(event: &Event) -> bool {
    matches!(event, Event::RunStarted(_) | Event::Resumed(_))
}

/// The format of a run's first line, where it isn't [`FORMAT`], and who wrote it. What else is in such a line, its checksum
/// included, this version can't judge.
fn other_format(line: &[u8]) -> Option<(u64, Option<String>)> {
    #[derive(Deserialize)]
    struct Line {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        format: u64,
        version: Option<String>,
    }
    let Data { format, version } = serde_json::from_slice::<Line>(line).ok()?.data;
    (format != u64::from(FORMAT)).then_some((format, version))
}

fn modified(line: u64, why: &str) -> JournalError {
    JournalError::Modified { line, why: why.to_owned() }
}

impl<R: BufRead> Iterator for JournalReader<R> {
    type Item = Result<JournalEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.read_next();
        self.done = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

#[cfg(test)]
mod tests;
