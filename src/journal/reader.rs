//! Reads and verifies a journal.

use std::io::{self, BufRead, Read};

use sha2::{Digest, Sha256};

use super::line_format::{checksum, is_sealed, other_format, split_checksum, split_seal};
use super::seal::{RecordKey, Seal};
use crate::event::{Event, FORMAT, JournalEntry};

/// The longest line that is read, in bytes. A line has at most one reply, or everything that a run has changed.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// The most memory that is kept for the next line, in bytes.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// Why a journal can't be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The last line is incomplete: the machine or the process stopped while it was written.
    #[error("line {line} is incomplete")]
    Torn {
        /// The line number, from 1.
        line: u64,
    },
    /// A line isn't as it was written.
    #[error("line {line} was changed after it was written ({why})")]
    Modified {
        /// The line number, from 1.
        line: u64,
        /// What shows that.
        why: String,
    },
    /// A line is unchanged, but this version doesn't know what it says.
    #[error("unrecognized journal entry on line {line} ({why})")]
    Unrecognized {
        /// The line number, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Another version of legwork wrote it, in another format.
    #[error("its format is {format}, and this legwork reads format {FORMAT}")]
    OtherFormat {
        /// The format.
        format: u64,
        /// The version that wrote it, if the line has it.
        version: Option<String>,
    },
    /// The file can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
}

/// The seal of a run, and what it is made of.
#[derive(Debug)]
pub(crate) struct RunSeal {
    /// The line that has it, up to it.
    pub(crate) line: String,
    /// The seal.
    pub(crate) seal: String,
    /// Of the lines before.
    pub(crate) before: Sha256,
}

/// The entries of a journal, oldest first, up to its end or the first error.
#[derive(Debug)]
pub struct JournalReader<R> {
    input: R,
    line: u64,
    sum: String,
    /// The seal of the last line that should have one.
    seal: Option<Seal>,
    /// Of the lines that were read.
    digest: Sha256,
    /// The seal of the run in the last line.
    run_seal: Option<RunSeal>,
    /// The length in bytes of the complete lines that were read.
    whole_bytes: u64,
    is_done: bool,
    /// The memory of the last line.
    buffer: Vec<u8>,
}

impl<R: BufRead> JournalReader<R> {
    /// Reads a journal from any input.
    pub fn new(input: R) -> Self {
        Self::continue_at(input, 0, String::new())
    }

    /// Reads a journal after `lines` lines, of which the last has the checksum `sum`.
    pub(crate) fn continue_at(input: R, lines: u64, sum: String) -> Self {
        Self {
            input,
            line: lines,
            sum,
            seal: None,
            digest: Sha256::new(),
            run_seal: None,
            whole_bytes: 0,
            is_done: false,
            buffer: Vec::new(),
        }
    }

    fn read_next(&mut self) -> Result<Option<JournalEntry>, JournalError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let next = self.read_into(&mut buffer);
        // A single long line doesn't keep its memory.
        if buffer.capacity() <= MAX_KEPT_BYTES {
            self.buffer = buffer;
        }
        next
    }

    /// Reads the next line. These are bytes, because a line may be cut inside a character.
    fn read_into(&mut self, line: &mut Vec<u8>) -> Result<Option<JournalEntry>, JournalError> {
        self.line += 1;
        if self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', line)? == 0 {
            return Ok(None);
        }
        let length = line.len() as u64;
        if length == MAX_LINE_BYTES {
            return Err(self.modified("it is too long for a journal entry"));
        }
        let has_end = line.pop_if(|last| *last == b'\n').is_some();
        if has_end
            && self.line == 1
            && let Some((format, version)) = other_format(line)
        {
            return Err(JournalError::OtherFormat { format, version });
        }
        let decoded = self.decode(line);
        if !has_end {
            // An incomplete line is the beginning of what was to be written. A complete line that ends with another byte than
            // a line feed was changed.
            let is_invalid = decoded.is_err();
            let has_other_end = line.pop().is_some() && is_invalid && self.decode(line).is_ok();
            return Err(match has_other_end {
                true => self.modified("it doesn't end with a line feed"),
                false => JournalError::Torn { line: self.line },
            });
        }
        let (entry, body, sum) = decoded?;
        // A seal counts only at the end of the journal.
        let seal = matches!(entry.event, Event::RunFinished(_)).then(|| split_seal(body)).flatten();
        self.run_seal = seal.map(|(line, seal)| RunSeal {
            line: line.to_owned(),
            seal: seal.to_owned(),
            before: self.digest.clone(),
        });
        self.digest.update(&*line);
        self.digest.update(b"\n");
        if is_sealed(&entry.event) {
            self.seal = Seal::parse(&self.sum, body);
        }
        self.sum = sum.to_owned();
        self.whole_bytes += length;
        Ok(Some(entry))
    }

    /// Verifies a line and returns the part before the checksum, and the checksum.
    fn verify<'l>(&self, line: &'l [u8]) -> Result<(&'l str, &'l str), JournalError> {
        let line = str::from_utf8(line).map_err(|_| self.modified("it isn't UTF-8"))?;
        let (body, sum) = split_checksum(line).ok_or_else(|| self.modified("it has no checksum"))?;
        if checksum(&self.sum, body) != sum {
            return Err(self.modified("its checksum is wrong"));
        }
        Ok((body, sum))
    }

    /// Verifies a line and returns its entry, the part before the checksum, and the checksum.
    fn decode<'l>(&self, line: &'l [u8]) -> Result<(JournalEntry, &'l str, &'l str), JournalError> {
        let (body, sum) = self.verify(line)?;
        let entry = JournalEntry::from_json(&[body, "}"].concat())
            .map_err(|error| JournalError::Unrecognized { line: self.line, why: error.to_string() })?;
        Ok((entry, body, sum))
    }

    /// Verifies the first line without reading what it says. Without one, it is incomplete.
    pub(crate) fn verify_first_line(mut self) -> Result<(), JournalError> {
        self.line = 1;
        let mut line = Vec::new();
        self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.len() as u64 == MAX_LINE_BYTES {
            return Err(self.modified("it is too long for a journal entry"));
        }
        if line.pop_if(|last| *last == b'\n').is_none() {
            return Err(JournalError::Torn { line: 1 });
        }
        match other_format(&line) {
            Some((format, version)) => Err(JournalError::OtherFormat { format, version }),
            None => self.verify(&line).map(drop),
        }
    }

    fn modified(&self, why: &str) -> JournalError {
        JournalError::Modified { line: self.line, why: why.to_owned() }
    }

    /// Whether the last line that should be sealed was sealed with this key. This confirms all lines before it, too.
    pub(crate) fn is_sealed_by(&self, key: &RecordKey) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.verify(key))
    }

    /// The seal of the run, if the journal ends with one.
    pub(crate) fn run_seal(&self) -> Option<&RunSeal> {
        self.run_seal.as_ref()
    }

    /// The digest of the lines that were read from the beginning.
    pub(crate) fn digest(&self) -> &Sha256 {
        &self.digest
    }

    /// The length in bytes of the lines that were read, and the checksum of the last.
    pub(crate) fn position(&self) -> (u64, &str) {
        (self.whole_bytes, &self.sum)
    }
}

impl<R: BufRead> Iterator for JournalReader<R> {
    type Item = Result<JournalEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = self.read_next();
        self.is_done = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
