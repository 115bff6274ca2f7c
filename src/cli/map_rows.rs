//! The rows of a map that `apply` and `publish` name by the map.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::env::CliEnv;
use crate::error::Error;
use crate::map::rows::MAX_ROWS;
use crate::record::{Depth, RecordQuery, RecordState, open_file};

/// How much of map.json is read, in bytes.
pub(super) const MAX_MAP_BYTES: u64 = 1 << 20;
/// The file that makes a folder one of a map.
pub(super) const MAP_FILE: &str = "map.json";
/// The longest line of results.jsonl that is read, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// How much of results.jsonl is read, in bytes.
const MAX_RESULTS_BYTES: u64 = 4 << 30;

/// Finds a map by its folder, its name, or JOB/MAP below the folder of runs; `None` if there is no such map.
pub(super) fn find_map(out: &Path, wanted: &str) -> Result<Option<PathBuf>, Error> {
    // A shard without rows has only tables, and nothing in them.
    let is_empty = |table: PathBuf| fs::metadata(table).is_ok_and(|found| found.is_file() && found.len() == 0);
    let is_map = |folder: &PathBuf| folder.join(MAP_FILE).is_file() || is_empty(folder.join("results.jsonl"));
    if let Some(folder) = [PathBuf::from(wanted), out.join(wanted)].into_iter().find(is_map) {
        return Ok(Some(folder));
    }
    if wanted.contains('/') {
        return Ok(None);
    }
    let jobs = fs::read_dir(out).into_iter().flatten().flatten().map(|job| job.path().join(wanted));
    let mut found: Vec<PathBuf> = jobs.filter(is_map).collect();
    found.sort();
    match found.as_slice() {
        [] | [_] => Ok(found.pop()),
        several => {
            let names: Vec<String> = several.iter().map(|map| map.display().to_string()).collect();
            let message = format!("several maps are called `{wanted}`: {}", names.join(", "));
            Err(Error::usage(message, "Name one of the folders."))
        }
    }
}

/// The ids of a map's rows that have a record: first those in its results, in their order, then the others by id.
pub(super) fn row_ids(map: &Path, env: &CliEnv) -> Result<Vec<String>, Error> {
    let folder = map.join("rows");
    let failed = |source: io::Error| Error::Record { path: folder.clone(), source };
    let mut found = HashSet::new();
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Runs can't have such names, but files that were moved aside do.
        if !name.starts_with('.') {
            found.insert(name);
        }
        if found.len() > MAX_ROWS {
            let why = format!("it has more than {MAX_ROWS} rows");
            return Err(Error::NotARecord { path: map.to_owned(), why });
        }
    }
    let mut ids = match ordered_ids(map, &mut found) {
        Ok(ids) => ids,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let path = map.join("results.jsonl");
            env.console.warning(&format!("{} can't be read ({error}), so rows are taken by id", path.display()));
            Vec::new()
        }
    };
    let listed: HashSet<&String> = ids.iter().collect();
    let mut others: Vec<String> = found.into_iter().filter(|id| !listed.contains(id)).collect();
    // `map --retry` keeps the earlier records of rows, with a number after their names.
    let is_previous_attempt = |id: &str| {
        let reading = RecordQuery::new(&folder.join(id), Depth::Glance).read(&mut |_| {});
        reading.is_ok_and(|reading| matches!(reading.state, RecordState::PreviousAttempt(..)))
    };
    others.retain(|id| !(id.contains('.') && is_previous_attempt(id)));
    others.sort();
    ids.extend(others);
    Ok(ids)
}

/// The ids in results.jsonl for which there is a record, each once.
fn ordered_ids(map: &Path, found: &mut HashSet<String>) -> io::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Row {
        id: String,
    }
    let file: File = open_file(map, "results.jsonl", MAX_RESULTS_BYTES)?;
    let mut reader = BufReader::new(file);
    let (mut ids, mut line) = (Vec::new(), Vec::new());
    let mut left = found.clone();
    loop {
        line.clear();
        let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(ids);
        }
        if length as u64 == MAX_LINE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB"));
        }
        // The last line may be incomplete.
        let Ok(row) = serde_json::from_slice::<Row>(&line) else { continue };
        if left.remove(&row.id) {
            ids.push(row.id);
        }
    }
}
