//! The start of a run in its record: a line for each file of the workspace, behind it the content where that is kept, and
//! at the end a checksum. It has to be there only until the run has ended for good.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::hex;
use super::marks::{Marks, Time};
use super::walk::Ignored;
use crate::record::temporary;
use crate::sandbox::git;
use crate::tools::ignored::Texts;

/// The longest line that is read, in bytes: the last one but one holds the workspace's ignore files.
const LONGEST_LINE: u64 = 64 << 20;

/// What is known of a file's content at the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    /// It is an object of the repository, of this name.
    Object(String),
    /// It stands behind the line, masked.
    Text {
        /// In bytes, as it stands there.
        length: usize,
        /// SHA-256 of the true content.
        sum: String,
        /// Whether it had to be masked.
        masked: bool,
    },
    /// Only its SHA-256 is kept.
    Sum(String),
    /// The target of a link, masked, and the SHA-256 of the true one.
    Link(String, String),
    /// Nothing.
    Unknown,
}

/// A file at the start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Known {
    /// `None` where git knew of it and it wasn't there.
    pub(super) marks: Option<Marks>,
    pub(super) content: Content,
    /// Whether it can have been changed since without any mark of it.
    pub(super) young: bool,
    /// Where its content begins in the file that keeps it.
    #[serde(skip)]
    offset: u64,
}

impl Known {
    pub(super) fn new(marks: Option<Marks>, content: Content, began: Time) -> Self {
        // The clock of marks goes in steps of up to ten milliseconds.
        let margin = (began.0, began.1 - 20_000_000);
        Self { young: marks.is_some_and(|marks| marks.changed >= margin), marks, content, offset: 0 }
    }
}

/// What holds for the whole start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Whole {
    /// The git folder with the objects, and whether they are named by SHA-256.
    pub(super) repository: Option<(PathBuf, bool)>,
    above: Vec<(PathBuf, Texts)>,
    folders: Vec<(String, Texts)>,
    /// The last path that was looked at, where not all were.
    pub(super) cut: Option<String>,
    /// What else isn't known, each in a few words.
    pub(super) gaps: Vec<String>,
    /// The files that legwork's own output went to, escaped: a run that goes on may print elsewhere.
    #[serde(default)]
    pub(super) outputs: Vec<String>,
}

impl Whole {
    pub(super) fn new(
        repository: Option<(PathBuf, bool)>,
        cut: Option<&Path>,
        gaps: Vec<String>,
        ignored: Ignored,
        outputs: &[PathBuf],
    ) -> Self {
        let folders = ignored.folders.into_iter().map(|(path, texts)| (escaped(&path), texts)).collect();
        Self {
            repository,
            above: ignored.above,
            folders,
            cut: cut.map(escaped),
            gaps,
            outputs: outputs.iter().map(|path| escaped(path)).collect(),
        }
    }
}

#[derive(Serialize, Deserialize)]
enum Line {
    File(String, Known),
    Whole(Whole),
    Sum(String),
}

/// Writes a start.
pub(super) struct Writing {
    out: BufWriter<NamedTempFile>,
    sum: Sha256,
}

impl Writing {
    /// Begins in the record's folder; nothing is to be seen there before [`Writing::end`].
    pub(super) fn begin(record: &Path) -> io::Result<Self> {
        Ok(Self { out: BufWriter::with_capacity(64 << 10, temporary(record)?), sum: Sha256::new() })
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.bytes(&bytes)
    }

    /// Adds a file; `text` is its content, where that is kept.
    pub(super) fn file(&mut self, path: &Path, known: Known, text: &str) -> io::Result<()> {
        let keeps = matches!(known.content, Content::Text { .. });
        self.line(&Line::File(escaped(path), known))?;
        if keeps { self.bytes(text.as_bytes()).and_then(|()| self.bytes(b"\n")) } else { Ok(()) }
    }

    /// Ends it, and puts it in its place.
    pub(super) fn end(mut self, whole: Whole, name: &Path) -> io::Result<()> {
        self.line(&Line::Whole(whole))?;
        let sum = Line::Sum(hex(&self.sum.clone().finalize()));
        self.line(&sum)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(name).map_err(|error| error.error)?;
        Ok(())
    }
}

/// A start that is read.
pub(super) struct Start {
    file: File,
    pub(super) whole: Whole,
    pub(super) ignored: Ignored,
    pub(super) files: HashMap<PathBuf, Known>,
}

impl Start {
    /// Reads it whole; `None` where there is none, or one that isn't as it was written.
    pub(super) fn read(name: &Path) -> Option<Self> {
        let file = git::open(name)?;
        let mut read = Reading { input: BufReader::with_capacity(64 << 10, file), sum: Sha256::new(), at: 0 };
        let mut files = HashMap::new();
        loop {
            match read.line()? {
                Line::File(path, mut known) => {
                    known.offset = read.at;
                    if let Content::Text { length, .. } = &known.content {
                        read.skip(*length as u64 + 1)?;
                    }
                    files.insert(unescaped(&path), known);
                }
                Line::Whole(mut whole) => {
                    let sum = hex(&read.sum.clone().finalize());
                    let Line::Sum(written) = read.line()? else { return None };
                    let folders = std::mem::take(&mut whole.folders);
                    let ignored = Ignored {
                        above: std::mem::take(&mut whole.above),
                        folders: folders.into_iter().map(|(path, texts)| (unescaped(&path), texts)).collect(),
                    };
                    let file = read.input.into_inner();
                    return (sum == written).then_some(Self { file, whole, ignored, files });
                }
                Line::Sum(_) => return None,
            }
        }
    }

    /// A text that is kept.
    pub(super) fn text(&self, known: &Known) -> Option<String> {
        let Content::Text { length, .. } = known.content else { return None };
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, known.offset).ok()?;
        String::from_utf8(bytes).ok()
    }
}

struct Reading {
    input: BufReader<File>,
    sum: Sha256,
    at: u64,
}

impl Reading {
    fn line(&mut self) -> Option<Line> {
        let mut line = Vec::new();
        (&mut self.input).take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
        self.sum.update(&line);
        self.at += line.len() as u64;
        serde_json::from_slice(&line).ok()
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        let mut left = length;
        while left > 0 {
            let piece = self.input.fill_buf().ok().filter(|piece| !piece.is_empty())?;
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            self.sum.update(&piece[..taken]);
            self.input.consume(taken);
            left -= taken as u64;
        }
        self.at += length;
        Some(())
    }
}

/// A path as text: a byte that is none, and a backslash, as `\xHH`.
pub(super) fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text += &chunk.valid().replace('\\', "\\x5c");
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

/// The path that was escaped.
pub(super) fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    for (number, piece) in text.split("\\x").enumerate() {
        let byte = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| number > 0) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => bytes.extend_from_slice(piece.as_bytes()),
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}
