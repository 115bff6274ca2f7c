//! The folder of a map: `OUT/JOB/MAP`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::isolation::{Isolation, Snapshot};

/// What a map's folder is made for, in `map.json`. A later start of the same map must agree with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapManifest {
    /// The version of this format: 1.
    pub format: u32,
    /// The name of the job.
    pub job: String,
    /// The file of rows as the user named it; `-` for standard input.
    pub rows_file: String,
    /// How rows are kept apart.
    pub isolation: Isolation,
    /// The workspace that rows start from, if they are kept apart.
    pub snapshot: Option<Snapshot>,
    /// When the map was started first.
    pub started_at: Timestamp,
}

/// The paths in a map's folder.
#[derive(Debug, Clone)]
pub struct MapFolder {
    /// The folder itself.
    pub path: PathBuf,
}

impl MapFolder {
    /// The folder of a map below the folder of all runs.
    pub fn new(out: &Path, job: &str, name: &str) -> Self {
        Self { path: out.join(job).join(name) }
    }

    /// Says what the folder is made for.
    pub fn manifest(&self) -> PathBuf {
        self.path.join("map.json")
    }

    /// The records of the rows, by id.
    pub fn rows(&self) -> PathBuf {
        self.path.join("rows")
    }

    /// The record of a row.
    pub fn row(&self, id: &str) -> PathBuf {
        self.rows().join(id)
    }

    /// The claims of all processes on the limits of the map.
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }

    /// One line of JSON for each row that has ended.
    pub fn results_jsonl(&self) -> PathBuf {
        self.path.join("results.jsonl")
    }

    /// The same as a table.
    pub fn results_csv(&self) -> PathBuf {
        self.path.join("results.csv")
    }

    /// The same for people.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }
}
