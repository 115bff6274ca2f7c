//! The records in the folder of all runs: lists them, and removes old ones.

mod prune;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use indexmap::IndexMap;
use jiff::Timestamp;

pub use self::prune::{KeepReason, PruneRules, Pruned, Selection, remove, remove_leftovers, select, update_latest};
use crate::error::Error;
use crate::event::{CutOffRequests, Usage};
use crate::map::{MapFolder, read_unfinished_run};
use crate::pricing::Prices;
use crate::record::{
    MAP_FILE, ObservedLease, Overview, ROWS, RowKind, RunRow, RunStatus, folders, is_timestamp, read_overview,
};

/// A record or a map.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its line in a table.
    pub row: RunRow,
    /// Its folder.
    pub folder: PathBuf,
    /// Since when it exists, if known: what the list is sorted by.
    pub since: Timestamp,
    /// Whether it is an earlier attempt, which `--fresh` or `--retry` has kept under a number.
    pub is_previous_attempt: bool,
    /// How commands are confined in it, if it is running: one tier for each run.
    pub sandboxes: Vec<String>,
    /// The records of a map's rows, newest first.
    pub rows: Vec<Entry>,
}

/// Lists the records below the folder of all runs, newest first. Each map is one entry. `job` limits the list to one job.
/// `now` is the end of maps that are still running. If runs are running or were killed on other machines, this takes as long as
/// `observation`, after which a run that has given no sign of life counts as interrupted.
///
/// # Errors
/// If the folder can't be read. It needn't exist.
pub fn list(out: &Path, job: Option<&str>, now: Timestamp, observation: Duration) -> Result<Vec<Entry>, Error> {
    match fs::read_dir(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::Record { path: out.to_owned(), source }),
        Ok(_) => {}
    }
    let mut remote = Vec::new();
    let mut entries = Vec::new();
    for job_dir in folders(out) {
        let name = file_name(&job_dir);
        if job.is_some_and(|job| job != name) {
            continue;
        }
        for folder in folders(&job_dir) {
            let run = format!("{name}/{}", file_name(&folder));
            let number = entries.len();
            if fs::symlink_metadata(folder.join(MAP_FILE)).is_ok() {
                let rows = folders(&folder.join(ROWS)).filter_map(|row| {
                    let run = format!("{run}/{}", file_name(&row));
                    read(&row, &name, run, RowKind::Row)
                });
                let mut listed = Vec::new();
                for (entry, lease) in rows {
                    remote.extend(lease.map(|lease| (number, Some(listed.len()), lease)));
                    listed.push(entry);
                }
                entries.push(Entry { rows: listed, ..map_entry(&folder, &name, run) });
            } else if let Some((entry, lease)) = read(&folder, &name, run, RowKind::Run) {
                remote.extend(lease.map(|lease| (number, None, lease)));
                entries.push(entry);
            }
        }
    }
    if !remote.is_empty() {
        std::thread::sleep(observation);
        for (number, row, lease) in remote {
            let entry = match row {
                Some(row) => &mut entries[number].rows[row],
                None => &mut entries[number],
            };
            if lease.has_changed() {
                *entry = match read(&entry.folder, &entry.row.job, entry.row.run.clone(), entry.row.kind) {
                    Some((mut changed, Some(_))) => {
                        changed.set_running();
                        changed
                    }
                    Some((changed, None)) => changed,
                    None => continue,
                };
            }
        }
    }
    entries.iter_mut().filter(|entry| entry.row.kind == RowKind::Map).for_each(|map| map.add_up(now));
    sort(&mut entries);
    Ok(entries)
}

/// Sorts entries, the newest first.
fn sort(entries: &mut [Entry]) {
    entries.sort_by(|one, other| other.since.cmp(&one.since).then_with(|| other.row.run.cmp(&one.row.run)));
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads the record in a folder, if it is one. Also returns the lease of a process on another machine.
fn read(folder: &Path, job: &str, run: String, kind: RowKind) -> Option<(Entry, Option<ObservedLease>)> {
    let Overview { mut row, remote, sandbox, previous_attempt_of } = read_overview(folder, false)?;
    let name = file_name(folder);
    let is_previous_attempt = previous_attempt_of.is_some();
    // The earlier record of a key has the key's own name in it.
    row.key = match kind {
        RowKind::Run if is_timestamp(&name) => None,
        _ => Some(previous_attempt_of.unwrap_or_else(|| name.clone())),
    };
    row.kind = kind;
    row.run = run;
    row.job = job.to_owned();
    row.path = folder.to_string_lossy().into_owned();
    let since = row.started_at.or_else(|| time_of_id(&name)).or_else(|| modified(folder)).unwrap_or(Timestamp::MIN);
    let mut entry =
        Entry { row, folder: folder.to_owned(), since, is_previous_attempt, sandboxes: Vec::new(), rows: Vec::new() };
    if entry.row.status == RunStatus::Running {
        entry.set_running();
        // A run that is about to start has no event yet.
        entry.sandboxes.push(sandbox.unwrap_or_default());
    }
    Some((entry, remote))
}

/// The time in the id of a run without a key.
fn time_of_id(id: &str) -> Option<Timestamp> {
    let digits = id.get(..15).filter(|_| is_timestamp(id))?;
    let time = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", digits).ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

fn modified(folder: &Path) -> Option<Timestamp> {
    let time: SystemTime = fs::symlink_metadata(folder).ok()?.modified().ok()?;
    Timestamp::try_from(time).ok()
}

/// The entry of a map, without its rows.
fn map_entry(folder: &Path, job: &str, run: String) -> Entry {
    let mut row = RunRow::new(RowKind::Map, RunStatus::NotStarted);
    match (MapFolder { path: folder.to_owned() }).read_manifest() {
        Ok(manifest) => row.started_at = manifest.map(|manifest| manifest.started_at),
        Err(error) => {
            row.status =
                if matches!(error, Error::OtherFormat { .. }) { RunStatus::OtherFormat } else { RunStatus::Damaged };
            row.error = Some(error.to_string());
            row.defect.clone_from(&row.error);
        }
    }
    row.run = run;
    row.job = job.to_owned();
    row.path = folder.to_string_lossy().into_owned();
    let since = row.started_at.or_else(|| modified(folder)).unwrap_or(Timestamp::MIN);
    let folder = folder.to_owned();
    Entry { row, folder, since, is_previous_attempt: false, sandboxes: Vec::new(), rows: Vec::new() }
}

/// Fills in what runs that haven't ended have used so far, with what was reserved for requests without an end, from their journals.
pub fn read_unfinished(entries: &mut [Entry], prices: &Prices, now: Timestamp) {
    for entry in entries {
        if entry.row.kind == RowKind::Map {
            read_unfinished(&mut entry.rows, prices, now);
            entry.add_up(now);
        } else if matches!(entry.row.status, RunStatus::Running | RunStatus::Interrupted) && entry.row.usage.is_none() {
            entry.read_usage(prices);
        }
    }
}

impl Entry {
    fn read_usage(&mut self, prices: &Prices) {
        let Some(found) = read_unfinished_run(&self.folder, &self.row.run_id, prices) else { return };
        self.row.turns = Some(u64::from(found.turns));
        self.row.tool_calls = Some(found.tool_calls);
        self.row.usage = Some(found.usage);
        self.row.cost_usd = found.cost_usd;
        self.row.cut_off_requests = found.cut_off_requests;
    }

    fn set_running(&mut self) {
        let row = &mut self.row;
        row.status = RunStatus::Running;
        (row.ended_at, row.exit_code, row.is_resumable) = (None, None, false);
    }

    /// Fills in the figures of a map from its rows.
    fn add_up(&mut self, now: Timestamp) {
        sort(&mut self.rows);
        let mut counts: IndexMap<String, u64> = IndexMap::new();
        for entry in self.rows.iter().filter(|entry| !entry.is_previous_attempt) {
            *counts.entry(entry.row.status.name()).or_default() += 1;
        }
        counts.sort_by(|one, number, other, count| {
            let rank = |name: &String, number: &u64| (name != "completed", std::cmp::Reverse(*number));
            rank(one, number).cmp(&rank(other, count)).then_with(|| one.cmp(other))
        });
        let rows = || self.rows.iter().map(|entry| &entry.row);
        let sum = |value: fn(&RunRow) -> Option<u64>| rows().filter_map(value).reduce(u64::saturating_add);
        // What is wrong with a row is said about its map.
        let named =
            |entry: &Entry| Some(format!("its row {}: {}", file_name(&entry.folder), entry.row.defect.as_ref()?));
        let row = RunRow {
            defect: self.row.defect.clone().or_else(|| self.rows.iter().find_map(named)),
            turns: sum(|row| row.turns),
            tool_calls: sum(|row| row.tool_calls),
            cost_usd: rows()
                .filter_map(|row| row.cost_usd)
                .reduce(|one, other| one + other)
                .map(crate::pricing::round_usd),
            cut_off_requests: rows().map(|row| row.cut_off_requests).fold(CutOffRequests::NONE, |mut sum, requests| {
                sum += requests;
                sum
            }),
            usage: rows().filter_map(|row| row.usage).reduce(|mut sum: Usage, usage| {
                sum += usage;
                sum
            }),
            is_resumable: rows().any(|row| row.is_resumable),
            ended_at: rows().filter_map(|row| row.ended_at.or(row.started_at)).max(),
            ..self.row.clone()
        };
        let is_readable = !matches!(row.status, RunStatus::Damaged | RunStatus::OtherFormat);
        let statuses: Vec<RunStatus> =
            self.rows.iter().filter(|entry| !entry.is_previous_attempt).map(|entry| entry.row.status).collect();
        let status = match statuses.as_slice() {
            _ if !is_readable => row.status,
            all if all.contains(&RunStatus::Running) => RunStatus::Running,
            [] => RunStatus::NotStarted,
            [first, others @ ..] if others.iter().all(|other| other.name() == first.name()) => *first,
            _ => RunStatus::Mixed,
        };
        self.sandboxes = self.rows.iter().flat_map(|entry| entry.sandboxes.clone()).collect();
        self.row = RunRow { status, rows: Some(counts), ..row };
        if status == RunStatus::Running {
            self.row.ended_at = None;
        }
        let end = self.row.ended_at.unwrap_or(now);
        let start = self.row.started_at.filter(|_| !self.rows.is_empty());
        self.row.duration_ms = start.and_then(|start| u64::try_from(end.duration_since(start).as_millis()).ok());
    }
}
