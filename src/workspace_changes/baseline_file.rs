//! The baseline as a file in the run's record: a line for each file of the workspace, followed by its content if that is
//! stored, then a footer and a checksum.

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
use super::walk::IgnoreSnapshot;
use crate::git;
use crate::record::temporary;
use crate::text::hex;
use crate::workspace::ignore_files::IgnoreFiles;

/// The longest line that is read, in bytes. The footer holds the workspace's ignore files.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// What the baseline records of a file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BaselineContent {
    /// The name of an object in the repository's object store.
    Object(String),
    /// The redacted text follows the line.
    Text {
        /// The length of the redacted text in bytes.
        length: usize,
        /// The SHA-256 of the original content.
        sha256: String,
        /// Whether anything was redacted.
        masked: bool,
    },
    /// Only the SHA-256 is stored.
    Hash(String),
    /// The redacted target of a link, and the SHA-256 of the original one.
    Link(String, String),
    /// The content isn't known.
    Unknown,
}

/// A file as it was when the baseline was taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BaselineFile {
    /// `None` if git tracked it but it was missing.
    pub(super) stat: Option<FileStat>,
    pub(super) content: BaselineContent,
    /// Whether it could have changed afterwards without a change of its metadata.
    pub(super) is_racy: bool,
    /// Where its content begins in the baseline file.
    #[serde(skip)]
    offset: u64,
}

impl BaselineFile {
    pub(super) fn new(stat: Option<FileStat>, content: BaselineContent, began: UnixTime) -> Self {
        // File timestamps advance in steps of up to ten milliseconds.
        let margin = (began.0, began.1 - 20_000_000);
        Self { is_racy: stat.is_some_and(|stat| stat.ctime >= margin), stat, content, offset: 0 }
    }
}

/// What applies to the whole baseline.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BaselineFooter {
    /// The git folder with the objects, and whether objects are named by SHA-256.
    pub(super) repository: Option<(PathBuf, bool)>,
    outer_ignore_files: Vec<(PathBuf, IgnoreFiles)>,
    ignore_files: Vec<(String, IgnoreFiles)>,
    /// The last path that was visited, if the walk was cut short.
    pub(super) last_path: Option<String>,
    /// What else the baseline doesn't cover, for people.
    pub(super) gaps: Vec<String>,
    /// The escaped paths of the files that legwork's own output went to. A resumed run may print elsewhere.
    #[serde(default)]
    pub(super) outputs: Vec<String>,
}

impl BaselineFooter {
    pub(super) fn new(
        repository: Option<(PathBuf, bool)>,
        last_path: Option<&Path>,
        gaps: Vec<String>,
        ignore_files: IgnoreSnapshot,
        outputs: &[PathBuf],
    ) -> Self {
        let folders = ignore_files.folders.into_iter().map(|(path, files)| (escape_path(&path), files)).collect();
        Self {
            repository,
            outer_ignore_files: ignore_files.above,
            ignore_files: folders,
            last_path: last_path.map(escape_path),
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

/// Writes a baseline.
pub(super) struct BaselineWriter {
    out: BufWriter<NamedTempFile>,
    hasher: Sha256,
}

impl BaselineWriter {
    /// Creates a temporary file in the record's folder. [`BaselineWriter::finish`] gives it its name.
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

    /// Adds a file. `text` is its content, if that is stored.
    pub(super) fn file(&mut self, path: &Path, file: BaselineFile, text: &str) -> io::Result<()> {
        let has_text = matches!(file.content, BaselineContent::Text { .. });
        self.line(&BaselineLine::File(escape_path(path), file))?;
        if has_text { self.bytes(text.as_bytes()).and_then(|()| self.bytes(b"\n")) } else { Ok(()) }
    }

    /// Adds the footer and the checksum, and gives the file its name.
    pub(super) fn finish(mut self, footer: BaselineFooter, path: &Path) -> io::Result<()> {
        self.line(&BaselineLine::Footer(footer))?;
        let sum = BaselineLine::Checksum(hex(&self.hasher.clone().finalize()));
        self.line(&sum)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// A baseline, read back.
pub(super) struct Baseline {
    file: File,
    pub(super) footer: BaselineFooter,
    pub(super) ignore_files: IgnoreSnapshot,
    pub(super) files: HashMap<PathBuf, BaselineFile>,
}

impl Baseline {
    /// Reads a baseline; `None` if it is missing or damaged.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let file = git::open_regular_file(path)?;
        let mut reader =
            BaselineReader { input: BufReader::with_capacity(64 << 10, file), hasher: Sha256::new(), at: 0 };
        let mut files = HashMap::new();
        loop {
            match reader.line()? {
                BaselineLine::File(path, mut file) => {
                    file.offset = reader.at;
                    if let BaselineContent::Text { length, .. } = &file.content {
                        reader.skip(*length as u64 + 1)?;
                    }
                    files.insert(unescape_path(&path), file);
                }
                BaselineLine::Footer(mut footer) => {
                    let sum = hex(&reader.hasher.clone().finalize());
                    let BaselineLine::Checksum(written) = reader.line()? else { return None };
                    let folders = std::mem::take(&mut footer.ignore_files);
                    let ignore_files = IgnoreSnapshot {
                        above: std::mem::take(&mut footer.outer_ignore_files),
                        folders: folders.into_iter().map(|(path, files)| (unescape_path(&path), files)).collect(),
                    };
                    let file = reader.input.into_inner();
                    return (sum == written).then_some(Self { file, footer, ignore_files, files });
                }
                BaselineLine::Checksum(_) => return None,
            }
        }
    }

    /// The stored text of a file.
    pub(super) fn text(&self, file: &BaselineFile) -> Option<String> {
        let BaselineContent::Text { length, .. } = file.content else { return None };
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, file.offset).ok()?;
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
        (&mut self.input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
        self.hasher.update(&line);
        self.at += line.len() as u64;
        serde_json::from_slice(&line).ok()
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        let mut remaining = length;
        while remaining > 0 {
            let chunk = self.input.fill_buf().ok().filter(|chunk| !chunk.is_empty())?;
            let taken = usize::try_from(remaining).unwrap_or(usize::MAX).min(chunk.len());
            self.hasher.update(&chunk[..taken]);
            self.input.consume(taken);
            remaining -= taken as u64;
        }
        self.at += length;
        Some(())
    }
}

/// A path as text: backslashes and bytes that aren't UTF-8 become `\xHH`.
pub(super) fn escape_path(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text += &chunk.valid().replace('\\', "\\x5c");
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

/// Reverses [`escape_path`].
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
