//! What a run has proposed, read from its record. A record can come from anywhere, so its parts are compared with each other.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::mark::{Mark, entry_digest};
use crate::apply::RunChanges;
use crate::error::Error;
use crate::event::Outcome;
use crate::journal::RecordKey;
use crate::outputs::{Entry, OUTPUTS_FILE, Outputs, OutputsFile};
use crate::record::{Record, read_file};
use crate::text::hex;

/// The largest `outputs.json` that is read, in bytes.
const MAX_OUTPUTS_BYTES: u64 = 64 << 20;
/// The version of `outputs.json`.
const OUTPUTS_FORMAT: u32 = 1;

/// What a run has proposed.
#[derive(Debug)]
pub struct Submission {
    /// The row's id, if a map is published.
    pub row: Option<String>,
    /// The record's folder.
    pub folder: PathBuf,
    /// What it proposes.
    pub file: OutputsFile,
    /// How the run ended; `None` if it hasn't.
    pub outcome: Option<Outcome>,
    /// When it started.
    pub started_at: Timestamp,
    /// Its changes, or why they can't be published.
    pub patch: Result<String, String>,
    /// The id of the run in marks.
    pub run: String,
    /// What its seal says.
    pub seal: SealCheck,
    /// What the job file in this checkout allows.
    pub policy: Outputs,
}

/// What the seal of a record says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealCheck {
    /// It was made with the key, and nothing has changed since.
    Sealed,
    /// It has none.
    Unsealed,
    /// There is no key to check it with.
    Unchecked,
}

impl Submission {
    /// Reads a record, before anything is known about what the job allows. `map` is the name of the map and the row's id.
    ///
    /// # Errors
    /// It isn't a record with outputs, its parts don't fit each other, or its seal doesn't fit.
    pub fn read(folder: &Path, map: Option<(&str, &str)>, key: Option<&RecordKey>) -> Result<Self, Error> {
        let refused = |why: &str| Error::NotARecord { path: folder.to_owned(), why: why.to_owned() };
        let changes = RunChanges::read(folder)?;
        let record = Record::open(folder)?;
        let started = record.start.as_ref().ok_or_else(|| refused("its journal has no beginning"))?;
        let file = read_outputs(folder)?;
        if file.run_id != started.run_id || file.job != started.job {
            return Err(refused(&format!("its {OUTPUTS_FILE} is of the run {} of `{}`", file.run_id, file.job)));
        }
        let seal = check_seal(&record, &file, key)?;
        let patch = match &file.patch {
            Some(patch) => changes.patch.and_then(|text| {
                let is_same = hex(&Sha256::digest(&text)) == patch.sha256;
                is_same.then_some(text).ok_or_else(|| format!("its {OUTPUTS_FILE} is of other changes"))
            }),
            None => Err(format!("its {OUTPUTS_FILE} names no changes")),
        };
        let run = map.map_or(&*file.run_id, |(name, _)| name).to_owned();
        Ok(Self {
            row: map.map(|(_, row)| row.to_owned()),
            folder: folder.to_owned(),
            outcome: changes.outcome,
            started_at: started.at,
            patch,
            run,
            seal,
            policy: Outputs::default(),
            file,
        })
    }

    /// The id of an entry in all that is published together.
    pub fn id_of(&self, entry: &Entry) -> String {
        match &self.row {
            Some(row) => format!("{row}/{}", entry.id),
            None => entry.id.clone(),
        }
    }

    /// The digest of an entry.
    pub fn digest_of(&self, entry: &Entry) -> String {
        entry_digest(entry, self.file.patch.as_ref().map(|patch| &*patch.sha256))
    }

    /// The mark of an entry; `None` if a part of it can't be in a mark.
    pub fn mark_of(&self, entry: &Entry) -> Option<Mark> {
        Mark::new(&self.file.job, &self.id_of(entry), &self.run, &self.digest_of(entry))
    }
}

fn read_outputs(folder: &Path) -> Result<OutputsFile, Error> {
    let path = || folder.join(OUTPUTS_FILE);
    let refused = |why: String| Error::NotARecord { path: path(), why };
    let text = read_file(folder, OUTPUTS_FILE, MAX_OUTPUTS_BYTES).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            refused("the run has none: its job has no `outputs`, or an older legwork ran it".to_owned())
        }
        _ => Error::Record { path: path(), source: error },
    })?;
    let file: OutputsFile = serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))?;
    match file.format {
        OUTPUTS_FORMAT => Ok(file),
        format => Err(refused(format!("its format is {format}, and this legwork reads {OUTPUTS_FORMAT}"))),
    }
}

/// Checks that `outputs.json` is of the journal as it is, and the journal as it was when the run ended.
fn check_seal(record: &Record, file: &OutputsFile, key: Option<&RecordKey>) -> Result<SealCheck, Error> {
    let refused = |why: &str| Error::NotARecord { path: record.folder.clone(), why: why.to_owned() };
    if record.journal_head()? != file.journal_head {
        return Err(refused(&format!("its {OUTPUTS_FILE} is of another journal")));
    }
    let Some(key) = key else { return Ok(SealCheck::Unchecked) };
    match record.is_sealed_by(key)? {
        None => Ok(SealCheck::Unsealed),
        Some(true) => Ok(SealCheck::Sealed),
        Some(false) => Err(Error::usage(
            format!("{}: the record was changed, or made with another key", record.folder.display()),
            "Its seal doesn't fit the key in LEGWORK_RECORD_KEY: publish the record of the run itself, with the key of that run.",
        )),
    }
}
