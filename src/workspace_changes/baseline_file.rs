//! The baseline as a file in the run's record: the SHA-256 of everything after the first line, and the baseline as JSON.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::file_stat::{FileStat, UnixTime};
use crate::record::{self, BASELINE_FILE};
use crate::text::hex;
use crate::workspace::ignore_files::IgnoreFiles;
use crate::workspace::open_root::OpenRoot;

/// The largest baseline that is read, in bytes.
const MAX_BASELINE_BYTES: u64 = 512 << 20;

/// What the baseline records of the content of a file, or of the target of a link.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum BaselineContent {
    /// The name of an object in the repository's object store.
    Object(String),
    /// The whole text.
    Text {
        /// The redacted text.
        text: String,
        /// The SHA-256 of the original content.
        sha256: String,
        /// Whether anything was redacted.
        masked: bool,
    },
    /// A binary file, of which only names are stored.
    Binary {
        /// Its name in git, by SHA-1.
        object: String,
        /// The SHA-256 of the content.
        sha256: String,
    },
    /// Only the SHA-256 is stored.
    Hash(String),
    /// The content isn't known.
    Unknown,
}

/// A file as it was when the baseline was taken.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BaselineFile {
    /// `None` if git tracked it but it was missing.
    pub(super) stat: Option<FileStat>,
    pub(super) content: BaselineContent,
}

/// The ignore files at the start of the run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct IgnoreSnapshot {
    /// Those above the workspace, outermost folder first.
    pub(super) above: Vec<(PathBuf, IgnoreFiles)>,
    /// Those in the workspace, by folder.
    #[serde(with = "by_path")]
    pub(super) folders: HashMap<PathBuf, IgnoreFiles>,
}

/// The state of the workspace before anything could change it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// When it was begun.
    pub(super) began: UnixTime,
    /// The git folder with the objects, and whether objects are named by SHA-256.
    pub(super) repository: Option<(PathBuf, bool)>,
    #[serde(with = "by_path")]
    pub(super) files: HashMap<PathBuf, BaselineFile>,
    pub(super) ignore_files: IgnoreSnapshot,
    /// The last path that was visited, if the walk was cut short.
    pub(super) last_path: Option<OsString>,
    /// Whether some folders were nested too deep to visit.
    pub(super) too_deep: bool,
    /// How many files have a secret in their paths.
    pub(super) secret_paths: u64,
    /// The files that legwork's own output went to. A resumed run may print elsewhere.
    pub(super) outputs: Vec<OsString>,
}

impl Baseline {
    /// Writes the baseline to a run's folder.
    pub(super) fn write(&self, record: &OpenRoot) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        let new = record::temporary_in(record.folder())?;
        let mut file = new.file();
        writeln!(file, "{}", hex(&Sha256::digest(&json)))?;
        file.write_all(&json)?;
        new.persist(BASELINE_FILE.as_ref()).map(drop)
    }

    /// Reads the baseline of a run's folder; `None` if it is missing or damaged.
    pub(super) fn read(record: &OpenRoot) -> Option<Self> {
        let mut content = String::new();
        let file = record::open_file_in(record.folder(), BASELINE_FILE, MAX_BASELINE_BYTES).ok()?;
        file.take(MAX_BASELINE_BYTES).read_to_string(&mut content).ok()?;
        let (sum, json) = content.split_once('\n')?;
        (hex(&Sha256::digest(json)) == sum).then(|| serde_json::from_str(json).ok()).flatten()
    }

    /// Whether a file could have changed after the baseline was taken without a change of its metadata.
    pub(super) fn is_racy(&self, stat: &FileStat) -> bool {
        // File timestamps advance in steps of up to ten milliseconds.
        stat.ctime >= (self.began.0, self.began.1 - 20_000_000)
    }
}

/// Maps with paths as keys, which needn't be UTF-8. In JSON, a byte is the character with its number.
pub(super) mod by_path {
    use std::collections::HashMap;
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer, V: Serialize>(
        map: &HashMap<PathBuf, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(path, value)| (path_to_text(path), value)))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<HashMap<PathBuf, V>, D::Error> {
        let map = HashMap::<String, V>::deserialize(deserializer)?;
        Ok(map.into_iter().map(|(text, value)| (text_to_path(&text), value)).collect())
    }

    pub(in super::super) fn path_to_text(path: &Path) -> String {
        path.as_os_str().as_bytes().iter().map(|byte| char::from(*byte)).collect()
    }

    pub(in super::super) fn text_to_path(text: &str) -> PathBuf {
        let bytes = text.chars().map(|char| u8::try_from(char).unwrap_or(b'?')).collect();
        OsString::from_vec(bytes).into()
    }
}
