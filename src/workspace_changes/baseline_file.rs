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

use super::file_stat::{FileStat, UnixTime};
use super::hex;
use super::walk::IgnoreSnapshot;
use crate::git;
use crate::record::temporary;
use crate::workspace::ignore_files::IgnoreFiles;

/// The longest line that is read, in bytes: the last one but one holds the workspace's ignore files.
const LONGEST_LINE: u64 = 64 << 20;

/// What is known of a file's content at the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BaselineContent {
    /// It is an object of the repository, of this name.
    Object(String),
    /// It stands behind the line, masked.
    Text {
        /// In bytes, as it stands there.
        length: usize,
        /// SHA-256 of the true content.
        sha256: String,
        /// Whether it had to be masked.
        masked: bool,
    },
    /// Only its SHA-256 is kept.
    Hash(String),
    /// The target of a link, masked, and the SHA-256 of the true one.
    Link(String, String),
    /// Nothing.
    Unknown,
}

/// A file at the start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BaselineFile {
    /// `None` where git knew of it and it wasn't there.
    pub(super) stat: Option<FileStat>,
    pub(super) content: BaselineContent,
    /// Whether it can have been changed since without any mark of it.
    pub(super) is_racy: bool,
    /// Where its content begins in the file that keeps it.
    #[serde(skip)]
    offset: u64,
}

impl BaselineFile {
    pub(super) fn new(marks: Option<FileStat>, content: BaselineContent, began: UnixTime) -> Self {
        // The clock of marks goes in steps of up to ten milliseconds.
        let margin = (began.0, began.1 - 20_000_000);
        Self { is_racy: marks.is_some_and(|marks| marks.ctime >= margin), stat: marks, content, offset: 0 }
    }
}

/// What holds for the whole start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BaselineFooter {
    /// The git folder with the objects, and whether they are named by SHA-256.
    pub(super) repository: Option<(PathBuf, bool)>,
    outer_ignore_files: Vec<(PathBuf, IgnoreFiles)>,
    ignore_files: Vec<(String, IgnoreFiles)>,
    /// The last path that was looked at, where not all were.
    pub(super) last_path: Option<String>,
    /// What else isn't known, each in a few words.
    pub(super) gaps: Vec<String>,
    /// The files that legwork's own output went to, escaped: a run that goes on may print elsewhere.
    #[serde(default)]
    pub(super) outputs: Vec<String>,
}

impl BaselineFooter {
    pub(super) fn new(
        repository: Option<(PathBuf, bool)>,
        cut: Option<&Path>,
        gaps: Vec<String>,
        ignored: IgnoreSnapshot,
        outputs: &[PathBuf],
    ) -> Self {
        let folders = ignored.folders.into_iter().map(|(path, texts)| (escape_path(&path), texts)).collect();
        Self {
            repository,
            outer_ignore_files: ignored.above,
            ignore_files: folders,
            last_path: cut.map(escape_path),
            gaps,
            outputs: outputs.iter().map(|path| escape_path(path)).collect(),
        }
    }
}

#[derive(Serialize, Deserialize)]
enum BaselineLine {
    File(String, BaselineFile),
    Footer(BaselineFooter),
    Checksum(String),
}

/// Writes a start.
pub(super) struct BaselineWriter {
    out: BufWriter<NamedTempFile>,
    hasher: Sha256,
}

impl BaselineWriter {
    /// Begins in the record's folder; nothing is to be seen there before [`BaselineWriter::end`].
    pub(super) fn begin(record: &Path) -> io::Result<Self> {
        Ok(Self { out: BufWriter::with_capacity(64 << 10, temporary(record)?), hasher: Sha256::new() })
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)
    }

    fn line(&mut self, line: &BaselineLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.bytes(&bytes)
    }

    /// Adds a file; `text` is its content, where that is kept.
    pub(super) fn file(&mut self, path: &Path, known: BaselineFile, text: &str) -> io::Result<()> {
        let keeps = matches!(known.content, BaselineContent::Text { .. });
        self.line(&BaselineLine::File(escape_path(path), known))?;
        if keeps { self.bytes(text.as_bytes()).and_then(|()| self.bytes(b"\n")) } else { Ok(()) }
    }

    /// Ends it, and puts it in its place.
    pub(super) fn finish(mut self, whole: BaselineFooter, name: &Path) -> io::Result<()> {
        self.line(&BaselineLine::Footer(whole))?;
        let sum = BaselineLine::Checksum(hex(&self.hasher.clone().finalize()));
        self.line(&sum)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(name).map_err(|error| error.error)?;
        Ok(())
    }
}

/// A start that is read.
pub(super) struct Baseline {
    file: File,
    pub(super) footer: BaselineFooter,
    pub(super) ignore_files: IgnoreSnapshot,
    pub(super) files: HashMap<PathBuf, BaselineFile>,
}

impl Baseline {
    /// Reads it whole; `None` where there is none, or one that isn't as it was written.
    pub(super) fn read(name: &Path) -> Option<Self> {
        let file = git::open_regular_file(name)?;
        let mut read = BaselineReader { input: BufReader::with_capacity(64 << 10, file), hasher: Sha256::new(), at: 0 };
        let mut files = HashMap::new();
        loop {
            match read.line()? {
                BaselineLine::File(path, mut known) => {
                    known.offset = read.at;
                    if let BaselineContent::Text { length, .. } = &known.content {
                        read.skip(*length as u64 + 1)?;
                    }
                    files.insert(unescape_path(&path), known);
                }
                BaselineLine::Footer(mut whole) => {
                    let sum = hex(&read.hasher.clone().finalize());
                    let BaselineLine::Checksum(written) = read.line()? else { return None };
                    let folders = std::mem::take(&mut whole.ignore_files);
                    let ignored = IgnoreSnapshot {
                        above: std::mem::take(&mut whole.outer_ignore_files),
                        folders: folders.into_iter().map(|(path, texts)| (unescape_path(&path), texts)).collect(),
                    };
                    let file = read.input.into_inner();
                    return (sum == written).then_some(Self { file, footer: whole, ignore_files: ignored, files });
                }
                BaselineLine::Checksum(_) => return None,
            }
        }
    }

    /// A text that is kept.
    pub(super) fn text(&self, known: &BaselineFile) -> Option<String> {
        let BaselineContent::Text { length, .. } = known.content else { return None };
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, known.offset).ok()?;
        String::from_utf8(bytes).ok()
    }
}

struct BaselineReader {
    input: BufReader<File>,
    hasher: Sha256,
    at: u64,
}

impl BaselineReader {
    fn line(&mut self) -> Option<BaselineLine> {
        let mut line = Vec::new();
        (&mut self.input).take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
        self.hasher.update(&line);
        self.at += line.len() as u64;
        serde_json::from_slice(&line).ok()
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        let mut left = length;
        while left > 0 {
            let piece = self.input.fill_buf().ok().filter(|piece| !piece.is_empty())?;
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            self.hasher.update(&piece[..taken]);
            self.input.consume(taken);
            left -= taken as u64;
        }
        self.at += length;
        Some(())
    }
}

/// A path as text: a byte that is none, and a backslash, as `\xHH`.
pub(super) fn escape_path(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text += &chunk.valid().replace('\\', "\\x5c");
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

/// The path that was escaped.
pub(super) fn unescape_path(text: &str) -> PathBuf {
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
