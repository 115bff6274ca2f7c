//! The folder of a map: `OUT/JOB/MAP`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::isolation::{Isolation, Snapshot, WORKSPACES_FOLDER};
use crate::journal::{RecordKey, is_same_mac};
use crate::record::{
    MAP_FILE, PATCH_FILE, RemovalLock, create_shared_file, is_of_file_system, is_without_locks, read_file,
    replace_private_file,
};
use crate::workspace::open_root::OpenRoot;

/// The version of `map.json`.
pub const MAP_FORMAT: u32 = 1;

/// The greatest size of `map.json` in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// What a map's folder is made for, in `map.json`. A later start of the same map must agree with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapManifest {
    /// The version of this format: 1.
    pub format: u32,
    /// The name of the job.
    pub job: String,
    /// The rows file as the user named it; `-` for standard input.
    pub rows_file: String,
    /// Where the ids of the rows come from. Older maps don't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<RowIds>,
    /// The workspace that the map was started in, absolute.
    #[serde(default)]
    pub workspace: Option<PathBuf>,
    /// How rows are kept apart.
    pub isolation: Isolation,
    /// The workspace that rows start from, if they are kept apart.
    pub snapshot: Option<Snapshot>,
    /// When the map was started first.
    pub started_at: Timestamp,
    /// The seal of the rest, made with the key that signs records. Older maps have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

impl MapManifest {
    /// Whether it was written with this key, for the map of this name. Whoever can write to the folder of runs can write one.
    pub fn is_sealed_by(&self, key: &RecordKey, name: &str) -> bool {
        self.mac.as_ref().is_some_and(|mac| self.seal(key, name).is_ok_and(|sealed| is_same_mac(&sealed, mac)))
    }

    fn seal(&self, key: &RecordKey, name: &str) -> io::Result<String> {
        let content = serde_json::to_vec(&Self { mac: None, ..self.clone() })?;
        Ok(key.map_mac(&self.job, name, &content))
    }
}

/// Where the ids of a map's rows come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowIds {
    /// From the values of each row.
    Digest,
    /// From this column.
    Column(String),
}

/// The paths in a map's folder.
#[derive(Debug, Clone)]
pub struct MapFolder {
    /// The folder itself.
    pub path: PathBuf,
}

impl MapFolder {
    /// The folder of a map in the job's folder, which is a canonical path.
    pub fn new(job_dir: &Path, name: &str) -> Self {
        Self { path: job_dir.join(name) }
    }

    /// Opens the folder, unless a link has come into its path.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn open(&self) -> io::Result<OpenRoot> {
        OpenRoot::open_canonical(&self.path)
    }

    /// The name of the map.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Locks the folder, which must exist, so that only one process prepares it. The lock ends when the file is closed.
    ///
    /// # Errors
    /// If the folder can't be opened.
    pub fn lock(&self) -> Result<File, Error> {
        let failed = |source| Error::Record { path: self.path.clone(), source };
        let folder = File::from(self.open().and_then(|folder| folder.open_dir("".as_ref())).map_err(failed)?);
        match flock(&folder, FlockOperation::LockExclusive) {
            // Without locks, the first manifest that is written counts.
            Err(errno) if !is_without_locks(errno) => Err(failed(errno.into())),
            _ => Ok(folder),
        }
    }

    /// Holds the folder of the ledger, which must exist, for as long as the file is open: the map continues, and must not be
    /// removed. Several processes can hold it.
    ///
    /// # Errors
    /// If the folder can't be opened.
    pub fn hold(&self) -> io::Result<File> {
        let folder = File::open(self.ledger())?;
        // Without locks, only the leases of the rows say that the map continues.
        let _ = flock(&folder, FlockOperation::NonBlockingLockShared);
        Ok(folder)
    }

    /// Locks the map for its removal; `None` if a process prepares or runs it.
    ///
    /// # Errors
    /// If a folder can't be opened.
    pub fn lock_for_removal(&self) -> io::Result<Option<Vec<RemovalLock>>> {
        let ledger = self.ledger();
        let folders = std::iter::once(self.path.as_path()).chain(ledger.is_dir().then_some(ledger.as_path()));
        folders.map(RemovalLock::take).collect()
    }

    /// Checks that the folders in it are folders: a link would lead out of the map.
    ///
    /// # Errors
    /// If one is something else.
    pub fn check_subfolders(&self) -> Result<(), Error> {
        for folder in [self.rows(), self.ledger()] {
            if fs::symlink_metadata(&folder).is_ok_and(|found| !found.is_dir()) {
                return Err(Error::usage(
                    format!("{} isn't a folder", folder.display()),
                    "It isn't from legwork. Move it away, or choose another name for the map with --name NAME.",
                ));
            }
        }
        Ok(())
    }

    /// Checks that the folders of the rows' own workspaces are folders, up to the folder of all runs: below a link, something
    /// else would be replaced and removed.
    ///
    /// # Errors
    /// If one is something else.
    pub fn check_workspaces(out: &Path, workspaces: &Path) -> Result<(), Error> {
        let mut folders = workspaces.ancestors().take_while(|folder| *folder != out);
        let is_other = |folder: &&Path| fs::symlink_metadata(folder).is_ok_and(|found| !found.is_dir());
        match folders.find(is_other) {
            None => Ok(()),
            Some(folder) => Err(Error::usage(
                format!("{} isn't a folder", folder.display()),
                "It isn't from legwork. Move it away.",
            )),
        }
    }

    /// Reads the manifest; `None` if the folder doesn't exist or is empty.
    ///
    /// # Errors
    /// If it can't be read, or the folder is something else than a map.
    pub fn read_manifest(&self) -> Result<Option<MapManifest>, Error> {
        let path = self.manifest();
        let not_a_map = |why: String| {
            Error::usage(
                format!("{} isn't the folder of a map: {why}", self.path.display()),
                "Choose another name for the map with --name NAME, or move that folder away.",
            )
        };
        let text = match read_file(&self.path, MAP_FILE, MAX_MANIFEST_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_run = ["events.jsonl", "plan.json", "result.json", "job.yaml"];
                return match is_run.iter().any(|name| self.path.join(name).exists()) {
                    true => Err(not_a_map("it is the record of a run".to_owned())),
                    false => Ok(None),
                };
            }
            Err(source) => return Err(Error::Record { path, source }),
        };
        let manifest: MapManifest =
            serde_json::from_slice(&text).map_err(|error| not_a_map(format!("its {MAP_FILE} is damaged: {error}")))?;
        match manifest.format {
            MAP_FORMAT => Ok(Some(manifest)),
            format => Err(not_a_map(format!(
                "its {MAP_FILE} has the format {format}, and this legwork reads format {MAP_FORMAT}"
            ))),
        }
    }

    /// Writes the manifest, sealed with `key`. With `replace`, an earlier one is replaced. Returns false if there is one
    /// already.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write_manifest(&self, manifest: &MapManifest, key: &RecordKey, replace: bool) -> Result<bool, Error> {
        let write = || -> io::Result<bool> {
            let mac = Some(manifest.seal(key, &self.name())?);
            let mut text = serde_json::to_vec_pretty(&MapManifest { mac, ..manifest.clone() })?;
            text.push(b'\n');
            let folder = self.open()?;
            if !replace {
                return create_shared_file(folder.folder(), MAP_FILE, &text, true);
            }
            replace_private_file(folder.folder(), MAP_FILE, &text, true).map(|()| true)
        };
        write().map_err(|source| Error::Record { path: self.manifest(), source })
    }

    /// The ids of the rows that have a record, in no order.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn recorded_rows(&self) -> io::Result<Vec<String>> {
        match fs::read_dir(self.rows()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listing => listing?
                .filter_map(|entry| {
                    let name = entry.map(|entry| entry.file_name());
                    name.map(|name| name.into_string().ok().filter(|name| !is_of_file_system(name.as_ref())))
                        .transpose()
                })
                .collect(),
        }
    }

    /// The folder in which the rows' own workspaces are. It isn't below the map's folder, because tools can't change
    /// anything there.
    pub fn workspaces(out: &Path, job: &str, name: &str) -> PathBuf {
        out.join(WORKSPACES_FOLDER).join(job).join(name)
    }

    /// Says what the folder is made for.
    pub fn manifest(&self) -> PathBuf {
        self.path.join(MAP_FILE)
    }

    /// The records of the rows, by id.
    pub fn rows(&self) -> PathBuf {
        self.path.join("rows")
    }

    /// The record of a row.
    pub fn row(&self, id: &str) -> PathBuf {
        self.rows().join(id)
    }

    /// Whether a row has changed files.
    pub fn has_changes(&self, id: &str) -> bool {
        self.row(id).join(PATCH_FILE).exists()
    }

    /// The claims of all processes on the limits of the map.
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }
}
