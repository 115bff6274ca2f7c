//! What a record says about the end of its run. Every command asks here, so that one record has one verdict: a `result.json`
//! that can't be used is replaced by what the journal says, with the same words everywhere.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::files::{RESULT_FILE, open_file, read_file};
use crate::event::{FORMAT, PARENT, RunModel, RunResult};
use crate::journal::{JournalReader, journal_file};

/// The largest `result.json` or `plan.json` that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The longest first line that is read, in bytes. It contains the job and its plan.
const MAX_FIRST_LINE_BYTES: u64 = 16 << 20;
/// The largest journal that is read, in bytes.
pub(super) const MAX_JOURNAL_BYTES: u64 = 2 << 30;

/// Why a file of a record can't be used.
#[derive(Debug)]
pub enum FileDefect {
    /// Another version wrote it, in this format.
    OtherFormat(u64),
    /// It can't be read. A predicate without the name of the file, such as "ends in the middle".
    Unreadable(String),
}

impl std::fmt::Display for FileDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherFormat(format) => write!(f, "has the format {format}"),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// The verdict on a record without an event.
pub const NOT_STARTED: &str = "no event of its run is recorded; if no process is starting it, start a new run";
/// The verdict on a record that has a result, and whose journal has no first line.
pub const LOST_START: &str = "its run has ended, but the first line of its journal is lost, so nobody can tell who made it; \
                              `legwork show` shows what is left";

/// How the run of a record has ended.
#[derive(Debug)]
pub(super) enum RecordedEnd {
    /// `result.json` says it.
    Result(Box<RunResult>),
    /// The journal says it, because `result.json` can't be used. The text says why.
    Journal(Box<RunResult>, String),
    /// It hasn't, as far as the record tells. The text says why `result.json` can't be used, if there is one.
    Open(Option<String>),
}

/// Reads how the run in a folder has ended.
///
/// # Errors
/// Another version wrote `result.json`, in the returned format.
pub(super) fn read_end(folder: &Path) -> Result<RecordedEnd, u64> {
    let why = match read_result(folder) {
        Ok(Some(result)) => return Ok(RecordedEnd::Result(Box::new(result))),
        Ok(None) => return Ok(RecordedEnd::Open(None)),
        Err(FileDefect::OtherFormat(format)) => return Err(format),
        Err(FileDefect::Unreadable(why)) => format!("{RESULT_FILE} {why}"),
    };
    Ok(match result_of_journal(folder) {
        Some(result) => RecordedEnd::Journal(Box::new(result), used_instead(&why)),
        None => RecordedEnd::Open(Some(why)),
    })
}

/// Whether the journal of a run that has ended is missing, or has no whole first line.
pub fn has_lost_start(folder: &Path) -> bool {
    let mut chunk = Vec::new();
    let Ok(file) = open_file(folder, &journal_file(PARENT), u64::MAX) else { return true };
    let mut file = BufReader::with_capacity(64 << 10, file.take(MAX_FIRST_LINE_BYTES));
    file.read_until(b'\n', &mut chunk).is_err() || chunk.last() != Some(&b'\n')
}

/// Says that the journal replaces a file, which can't be used for this reason.
pub fn used_instead(why: &str) -> String {
    format!("{why}; its journal is used instead, and `legwork show RUN --rebuild` writes it again")
}

/// Reads `result.json`; `None` if there is none.
///
/// # Errors
/// It can't be used.
pub fn read_result(folder: &Path) -> Result<Option<RunResult>, FileDefect> {
    read_versioned(folder, RESULT_FILE)
}

/// Parses a file of a record, `None` if there is none. Its format is checked first, because another version's file needn't fit
/// this version's type.
///
/// # Errors
/// It can't be used.
pub fn read_versioned<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, FileDefect> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u64,
    }
    let content = match read_file(folder, name, MAX_FILE_BYTES) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileDefect::Unreadable(format!("can't be read: {error}"))),
    };
    match serde_json::from_slice::<Versioned>(&content) {
        Ok(Versioned { format }) if format != u64::from(FORMAT) => return Err(FileDefect::OtherFormat(format)),
        _ => {}
    }
    serde_json::from_slice(&content).map(Some).map_err(|error| {
        FileDefect::Unreadable(match error.is_eof() {
            true => "ends in the middle".to_owned(),
            false => format!("can't be read: {error}"),
        })
    })
}

/// The result of a run as its journal tells it, which has everything that is in `result.json`. `None` if the journal has no end
/// or is damaged.
fn result_of_journal(folder: &Path) -> Option<RunResult> {
    let mut summary = RunModel::default();
    let file = open_file(folder, &journal_file(PARENT), MAX_JOURNAL_BYTES).ok()?;
    for entry in JournalReader::new(BufReader::with_capacity(64 << 10, file)) {
        let entry = entry.ok()?;
        summary.apply(&entry.agent, &entry.event, entry.at);
    }
    summary.result()
}
