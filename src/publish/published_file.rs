//! `published.json`: what was published of a record, and what was about to be.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::journal::{RecordKey, is_same_mac};
use crate::record::{FolderLease, read_file, replace_shared_file};

/// The file's name in a record, and in a map's folder.
pub const PUBLISHED_FILE: &str = "published.json";
/// The version of the file.
const PUBLISHED_FORMAT: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// What a `published.json` is of. Another one is never continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedOf {
    /// The job's name.
    pub job: String,
    /// The run's id; for a map, its name.
    pub run: String,
    /// Whether it is a map.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_map: bool,
    /// The repository on the forge.
    pub repository: String,
    /// The address of the forge's pages.
    pub server: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    #[serde(flatten)]
    of: PublishedOf,
    entries: IndexMap<String, PublishedEntry>,
    /// The HMAC of all of it, if `publish` had the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

/// With what a file is sealed. Commands of later runs can write it where the sandbox can't hide the record.
#[derive(Debug, Clone, Default)]
pub struct PublishedSeal {
    /// The key of this machine, or of `LEGWORK_RECORD_KEY`.
    pub key: Option<RecordKey>,
    /// Whether the records were made with that key, so that a file without its seal isn't believed.
    pub is_needed: bool,
}

/// What became of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedEntry {
    /// Whether it was begun or done.
    pub state: PublishedState,
    /// The digest of the entry.
    pub digest: String,
    /// When.
    pub at: Timestamp,
    /// The address of what was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// How far the publication of an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishedState {
    /// It was about to be published: nobody knows whether it was.
    Intent,
    /// It was published.
    Done,
}

/// The file, which belongs to this process until this is dropped.
#[derive(Debug)]
pub struct PublishedFile {
    path: PathBuf,
    content: Content,
    seal: PublishedSeal,
    lease: FolderLease,
}

impl PublishedFile {
    /// Takes the file, which needn't exist.
    ///
    /// # Errors
    /// If another process has it, it is of another record, or it can't be read or written.
    pub fn open(path: &Path, of: &PublishedOf, seal: &PublishedSeal) -> Result<Self, Error> {
        let lease = FolderLease::take(&path.with_added_extension("lock")).map_err(|error| match error {
            Error::InUse { .. } => Error::PublishedElsewhere { path: path.to_owned() },
            Error::Record { source, .. } => Error::PublishedFile { path: path.to_owned(), source },
            other => other,
        })?;
        let content = read(path, seal)?.unwrap_or_else(|| Content {
            format: PUBLISHED_FORMAT,
            of: of.clone(),
            entries: IndexMap::new(),
            seal: None,
        });
        if content.of != *of {
            return Err(Error::usage(
                format!("{} is of another record: {}", path.display(), content.of.difference(of)),
                "Name another file with --state FILE, or publish the record that it is of.",
            ));
        }
        Ok(Self { path: path.to_owned(), content, seal: seal.clone(), lease })
    }

    /// What is known about an entry.
    pub fn entry(&self, id: &str) -> Option<&PublishedEntry> {
        self.content.entries.get(id)
    }

    /// Notes what becomes of an entry, on the disk before this returns.
    ///
    /// # Errors
    /// If it can't be written. Then nothing may be published.
    pub fn set(&mut self, id: &str, entry: PublishedEntry) -> Result<(), Error> {
        self.content.entries.insert(id.to_owned(), entry);
        let failed = |source| Error::PublishedFile { path: self.path.clone(), source };
        self.lease.check().map_err(failed)?;
        self.content.seal = self.seal.key.as_ref().map(|key| self.content.mac(key));
        self.write().map_err(failed)
    }

    fn write(&self) -> io::Result<()> {
        let name = self.path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        let folder = File::open(folder_of(&self.path))?;
        replace_shared_file(folder.as_fd(), name, true, &mut |out| {
            serde_json::to_writer_pretty(&mut *out, &self.content)?;
            out.write_all(b"\n")
        })?;
        folder.sync_all()
    }
}

impl Content {
    fn mac(&self, key: &RecordKey) -> String {
        key.published_mac(&serde_json::to_vec(&(&self.of, &self.entries)).unwrap_or_default())
    }
}

impl PublishedOf {
    /// What differs from another one, in words.
    fn difference(&self, other: &Self) -> String {
        let pairs = [
            ("job", &self.job, &other.job),
            ("run", &self.run, &other.run),
            ("repository", &self.repository, &other.repository),
            ("server", &self.server, &other.server),
        ];
        match pairs.into_iter().find(|(_, one, other)| one != other) {
            Some((what, one, other)) => format!("its {what} is {one}, not {other}"),
            None => "one is of a map, and the other of a run".to_owned(),
        }
    }
}

/// What was published according to a file that may belong to another process.
///
/// # Errors
/// If it can't be read or isn't believed.
pub fn read_published(path: &Path, seal: &PublishedSeal) -> Result<IndexMap<String, PublishedEntry>, Error> {
    Ok(read(path, seal)?.map(|content| content.entries).unwrap_or_default())
}

fn read(path: &Path, seal: &PublishedSeal) -> Result<Option<Content>, Error> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let failed = |source| Error::PublishedFile { path: path.to_owned(), source };
    let text = match read_file(folder_of(path), name, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(failed)?,
    };
    const HINT: &str =
        "Move it away: what was published already is found again by its marks, but commands may run again.";
    let damaged =
        |why: String| Error::usage(format!("{} isn't a file of `legwork publish`: {why}", path.display()), HINT);
    let content: Content = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let is_sealed = |key: &RecordKey| content.seal.as_ref().is_some_and(|seal| is_same_mac(seal, &content.mac(key)));
    match content.format {
        PUBLISHED_FORMAT if seal.is_needed && !seal.key.as_ref().is_some_and(is_sealed) => Err(Error::usage(
            format!("{} wasn't written by `legwork publish` with the key of the record", path.display()),
            HINT,
        )),
        PUBLISHED_FORMAT => Ok(Some(content)),
        format => Err(damaged(format!("its format is {format}, and this legwork reads {PUBLISHED_FORMAT}"))),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(run: &str) -> PublishedOf {
        let (job, repository, server) = ("j".to_owned(), "o/r".to_owned(), "https://github.com".to_owned());
        PublishedOf { job, run: run.to_owned(), is_map: false, repository, server }
    }

    #[test]
    fn one_process_at_a_time_has_the_file_of_one_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PUBLISHED_FILE);
        let open = |run: &str| PublishedFile::open(&path, &of(run), &PublishedSeal::default());
        let mut first = open("1").unwrap();
        assert!(matches!(open("1"), Err(Error::PublishedElsewhere { .. })));
        let (digest, at) = ("d".to_owned(), Timestamp::UNIX_EPOCH);
        let entry = PublishedEntry { state: PublishedState::Intent, digest, at, url: None };
        first.set("comment-1", entry.clone()).unwrap();
        drop(first);
        assert_eq!(open("1").unwrap().entry("comment-1"), Some(&entry));
        let error = open("2").unwrap_err();
        assert!(error.to_string().contains("its run is 1, not 2"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no lock is left");
        std::fs::write(&path, "{").unwrap();
        assert!(open("1").unwrap_err().to_string().contains("isn't a file of"));
    }

    #[test]
    fn a_file_that_a_command_wrote_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PUBLISHED_FILE);
        let seal = PublishedSeal { key: Some(RecordKey::new(*b"key")), is_needed: true };
        let entry = |url: &str| {
            let (digest, at) = ("d".to_owned(), Timestamp::UNIX_EPOCH);
            PublishedEntry { state: PublishedState::Done, digest, at, url: Some(url.to_owned()) }
        };
        let write = |seal: &PublishedSeal, url: &str| {
            PublishedFile::open(&path, &of("1"), seal).unwrap().set("comment-1", entry(url)).unwrap();
        };
        write(&seal, "a");
        write(&seal, "b");
        assert_eq!(read_published(&path, &seal).unwrap()["comment-1"], entry("b"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"b\"", "\"c\"")).unwrap();
        let refused = |seal: &PublishedSeal| {
            let opened = PublishedFile::open(&path, &of("1"), seal).map(drop);
            [opened, read_published(&path, seal).map(drop)].map(|result| result.unwrap_err().to_string())
        };
        assert!(refused(&seal).iter().all(|error| error.contains("wasn't written by `legwork publish`")));
        std::fs::remove_file(&path).unwrap();
        write(&PublishedSeal::default(), "a");
        assert!(refused(&seal).iter().all(|error| error.contains("wasn't written by `legwork publish`")));
        // Of a record that was made elsewhere, nothing is known.
        let elsewhere = PublishedSeal { is_needed: false, ..seal };
        assert_eq!(read_published(&path, &elsewhere).unwrap()["comment-1"], entry("a"));
    }
}
