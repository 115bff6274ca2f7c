//! A journal: one event a line, each with a checksum over everything up to it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::trial::Trial;
use crate::event::{Durability, Entry};

/// What every line ends with: the first 16 hexadecimal digits of SHA-256 over the checksum before it (nothing for
/// the first line) and the line without this field.
const SUM: &str = ",\"sum\":\"";
const SUM_DIGITS: usize = 16;

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    seq: u64,
    sum: String,
    /// Set by the first failure: what follows a half line could never be read.
    broken: bool,
}

impl Journal {
    pub(super) fn new(file: File) -> Self {
        Self { file, seq: 0, sum: String::new(), broken: false }
    }

    /// Goes on with a journal that was read to its end: after `seq` lines, the last one with the checksum `sum`.
    pub(super) fn resume(file: File, seq: u64, sum: String) -> Self {
        Self { file, seq, sum, broken: false }
    }

    pub(super) fn next(&self) -> u64 {
        self.seq + 1
    }

    pub(super) fn append(&mut self, entry: &Entry, durability: Durability, trial: &Trial) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.broken = true;
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the journal was deleted"));
        }
        let mut line = entry.to_json()?;
        line.pop(); // the closing brace
        let sum = checksum(&self.sum, &line);
        line.push_str(SUM);
        line.push_str(&sum);
        line.push_str("\"}\n");
        if let Err(error) = trial.operation() {
            self.file.write_all(&line.as_bytes()[..line.len() / 2])?;
            return Err(error);
        }
        self.file.write_all(line.as_bytes())?;
        if durability == Durability::Flushed {
            trial.operation()?;
            self.file.sync_data()?;
        }
        self.seq = entry.seq;
        self.sum = sum;
        self.broken = false;
        Ok(())
    }
}

fn checksum(before: &str, line: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(line);
    let digest = hasher.finalize();
    digest.iter().take(SUM_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Why a journal ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// The last line is not whole: the machine or the process ended while it was written.
    #[error("line {line} is torn")]
    Torn {
        /// Its number, from 1.
        line: u64,
    },
    /// A line isn't what was written.
    #[error("line {line} was changed after it was written ({why})")]
    Changed {
        /// Its number, from 1.
        line: u64,
        /// How that shows.
        why: String,
    },
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
}

/// The events of a journal, oldest first; ends at its end or at the first flaw.
#[derive(Debug)]
pub struct Entries<R> {
    lines: R,
    line: u64,
    sum: String,
    /// Bytes of whole lines up to here.
    whole: u64,
    done: bool,
}

impl Entries<BufReader<File>> {
    /// Opens a journal.
    ///
    /// # Errors
    /// Where the file can't be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(BufReader::with_capacity(64 * 1024, File::open(path)?)))
    }
}

impl<R: BufRead> Entries<R> {
    /// Reads from anything.
    pub fn new(lines: R) -> Self {
        Self { lines, line: 0, sum: String::new(), whole: 0, done: false }
    }

    fn step(&mut self) -> Result<Option<Entry>, Flaw> {
        let mut line = String::new();
        self.line += 1;
        match self.lines.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Flaw::Changed { line: self.line, why: "it isn't UTF-8".to_owned() });
            }
            Err(error) => return Err(error.into()),
        }
        let Some(whole) = line.strip_suffix('\n') else { return Err(Flaw::Torn { line: self.line }) };
        let changed = |why: &str| Flaw::Changed { line: self.line, why: why.to_owned() };
        let (body, sum) = whole
            .strip_suffix("\"}")
            .and_then(|whole| whole.rsplit_once(SUM))
            .ok_or_else(|| changed("it has no checksum"))?;
        if checksum(&self.sum, body) != sum {
            return Err(changed("its checksum is another"));
        }
        let entry = Entry::from_json(&format!("{body}}}")).map_err(|error| changed(&error.to_string()))?;
        self.sum = sum.to_owned();
        self.whole += line.len() as u64;
        Ok(Some(entry))
    }

    /// How many bytes the lines take that were read, and the checksum of the last.
    pub(super) fn end(&self) -> (u64, &str) {
        (self.whole, &self.sum)
    }
}

impl<R: BufRead> Iterator for Entries<R> {
    type Item = Result<Entry, Flaw>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step();
        self.done = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Told};

    fn written(texts: &[&str]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut journal = Journal::new(file.reopen().unwrap());
        for text in texts {
            let event = Event::Told(Told { text: (*text).to_owned() });
            let at = "2026-01-02T03:04:05Z".parse().unwrap();
            let entry = Entry { seq: journal.next(), at, agent: "parent".to_owned(), event };
            journal.append(&entry, Durability::Written, &Trial::default()).unwrap();
        }
        std::fs::read_to_string(file.path()).unwrap()
    }

    fn read(text: &str) -> (Vec<u64>, Option<Flaw>) {
        let (mut seqs, mut flaw) = (Vec::new(), None);
        for entry in Entries::new(text.as_bytes()) {
            match entry {
                Ok(entry) => seqs.push(entry.seq),
                Err(found) => flaw = Some(found),
            }
        }
        (seqs, flaw)
    }

    #[test]
    fn what_was_written_is_read() {
        let (seqs, flaw) = read(&written(&["a", "b\n,\"sum\":\"", "c"]));
        assert_eq!(seqs, [1, 2, 3]);
        assert!(flaw.is_none());
    }

    #[test]
    fn a_cut_anywhere_loses_only_the_torn_line() {
        let text = written(&["one", "two", "three"]);
        for cut in 0..text.len() {
            let (seqs, flaw) = read(&text[..cut]);
            let whole = text[..cut].matches('\n').count();
            assert_eq!(seqs.len(), whole, "cut at {cut}");
            let at_an_end = cut == 0 || text.as_bytes()[cut - 1] == b'\n';
            assert_eq!(flaw.is_none(), at_an_end, "cut at {cut}: {flaw:?}");
        }
    }

    #[test]
    fn a_changed_line_and_a_missing_line_are_found() {
        let text = written(&["one", "two", "three"]);
        let (seqs, flaw) = read(&text.replace("two", "twO"));
        assert_eq!(seqs, [1]);
        assert!(matches!(flaw, Some(Flaw::Changed { line: 2, .. })));
        let without: Vec<&str> = text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
        let (seqs, flaw) = read(&format!("{}\n", without.join("\n")));
        assert_eq!(seqs, [1]);
        assert!(matches!(flaw, Some(Flaw::Changed { line: 2, .. })));
    }
}
