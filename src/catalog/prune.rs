//! Removes old records.
//!
//! A record is first renamed, in one step, to a name that no record has, and then deleted. If a process is killed meanwhile,
//! the next one that prunes deletes the rest. Links aren't followed.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::fsync;

use super::{Entry, file_name};
use crate::error::Error;
use crate::isolation::{Snapshot, WORKSPACES_FOLDER};
use crate::map::{MapFolder, RowWorkspaces};
use crate::record::{LATEST, RemovalLock, RowKind, RunStatus, folders, point_latest_to, read_overview};
use crate::workspace::open_beneath::file_id;
use crate::workspace::open_root::OpenRoot;
use crate::workspace_changes::tracked_paths;

/// The beginning of the name of a record that is being removed. Names of records don't begin with a dot.
const REMOVED_PREFIX: &str = ".removed-";
/// The folder of the workspaces of subagents, in that folder.
const SUBAGENTS: &str = ".subagents";
/// The greatest size of the file that says from which snapshot a copy was made, in bytes.
const MAX_SNAPSHOT_BYTES: u64 = 1 << 20;
/// The sandbox in which the records of other runs can't be protected, so that their removal would look like an attack.
const WATCHING_SANDBOX: &str = "landlock";

/// How old a record without any event is at least when it is removed: its run may just be starting.
const STARTING_TIME: SignedDuration = SignedDuration::from_hours(1);

/// Which records to remove.
#[derive(Debug, Clone, Default)]
pub struct PruneRules {
    /// Only those that ended longer ago.
    pub older_than: Option<Duration>,
    /// Not the newest of each job, as many as this.
    pub keep: usize,
    /// Also those that can be resumed.
    pub include_resumable: bool,
}

/// Why a record isn't removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeepReason {
    /// It is among the newest of its job.
    Newest,
    /// It isn't old enough.
    Young,
    /// It can be resumed.
    Resumable,
    /// A process uses it.
    Running,
    /// A run has started that would take the removal for an attack, or another process removes records.
    Watched,
    /// Git tracks files in it, so it came with the checkout.
    Tracked,
    /// It can't be read, so it isn't known whether it has ended.
    Unreadable,
}

impl KeepReason {
    /// The reason, as it follows `kept:`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Newest => "among the newest of their job",
            Self::Young => "not old enough",
            Self::Resumable => "can be resumed (--include-resumable removes them, too)",
            Self::Running => "in use",
            Self::Watched => {
                "as a run without bubblewrap has started, which would take the removal for an attack, or another process prunes"
            }
            Self::Tracked => "tracked by git",
            Self::Unreadable => "can't be read by this version",
        }
    }
}

/// The records to remove and those to keep.
#[derive(Debug, Default)]
pub struct Selection {
    /// To remove, newest first.
    pub remove: Vec<Entry>,
    /// To keep, with the reasons.
    pub keep: Vec<(Entry, KeepReason)>,
}

/// A record that was removed, or would be.
#[derive(Debug)]
pub struct Pruned {
    /// Its line in a table.
    pub entry: Entry,
    /// The disk space that it takes up, in bytes.
    pub bytes: u64,
}

/// Decides which records to remove. `entries` are all records below `out`, newest first.
///
/// # Errors
/// If it can't be found out which records git tracks, or if a run is active that would take a removal for an attack.
pub fn select(out: &Path, entries: Vec<Entry>, rules: &PruneRules, now: Timestamp) -> Result<Selection, Error> {
    if let Some(entry) = entries
        .iter()
        .find(|entry| entry.sandboxes.iter().any(|sandbox| sandbox.is_empty() || sandbox.starts_with(WATCHING_SANDBOX)))
    {
        return Err(Error::usage(
            format!(
                "{} is running without bubblewrap, and would take the removal of other records for an attack by a command",
                entry.row.run
            ),
            "Prune when it has ended.",
        ));
    }
    let tracked = tracked_paths(out).ok_or_else(|| {
        Error::usage(
            format!(
                "the git index of {} can't be read, so records that came with the checkout aren't known",
                out.display()
            ),
            "Repair the repository, or prune a folder outside of it.",
        )
    })?;
    let tracked: HashSet<PathBuf> = tracked.into_iter().map(|path| path.components().take(2).collect()).collect();
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut selection = Selection::default();
    for entry in entries {
        let newer = counts.entry(entry.row.job.clone()).or_default();
        *newer += 1;
        let relative: PathBuf = entry.row.run.split('/').collect();
        let is_newest = *newer <= rules.keep;
        match keep_reason(&entry, rules, now, is_newest, tracked.contains(&relative)) {
            Some(reason) => selection.keep.push((entry, reason)),
            None => selection.remove.push(entry),
        }
    }
    Ok(selection)
}

fn keep_reason(
    entry: &Entry,
    rules: &PruneRules,
    now: Timestamp,
    is_newest: bool,
    is_tracked: bool,
) -> Option<KeepReason> {
    let status = |wanted: &dyn Fn(RunStatus) -> bool| {
        wanted(entry.row.status) || entry.rows.iter().any(|row| wanted(row.row.status))
    };
    // A row that hasn't started is started by the next start of its map.
    let is_map = entry.row.kind == RowKind::Map;
    let can_go_on = |status| {
        status == RunStatus::Interrupted
            || (status == RunStatus::NotStarted && is_map)
            || matches!(status, RunStatus::Ended(outcome) if outcome.can_be_resumed())
    };
    let ended = entry.row.ended_at.unwrap_or(entry.since);
    let is_young = rules.older_than.is_some_and(|age| {
        SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok()).is_none_or(|limit| ended > limit)
    });
    let may_be_starting =
        status(&|status| status == RunStatus::NotStarted) && now.duration_since(entry.since) < STARTING_TIME;
    match () {
        () if is_tracked => Some(KeepReason::Tracked),
        () if status(&|status| status == RunStatus::Running) => Some(KeepReason::Running),
        () if status(&|status| matches!(status, RunStatus::Damaged | RunStatus::OtherFormat)) => {
            Some(KeepReason::Unreadable)
        }
        () if is_newest => Some(KeepReason::Newest),
        () if is_young || may_be_starting => Some(KeepReason::Young),
        () if !rules.include_resumable && status(&can_go_on) => Some(KeepReason::Resumable),
        () => None,
    }
}

impl Pruned {
    /// What would be removed.
    pub fn preview(entry: Entry) -> Self {
        let bytes = disk_space(&entry.folder);
        Self { entry, bytes }
    }
}

/// Removes a record, or a map with all of its rows, and the workspaces that only its runs need. The error is the reason why it
/// is kept after all.
///
/// # Errors
/// If it can't be renamed. Nothing of it is removed then.
pub fn remove(out: &Path, entry: Entry) -> Result<Result<Pruned, KeepReason>, Error> {
    let failed = |source| Error::Record { path: entry.folder.clone(), source };
    let Some(_alone) = lock_out(out).map_err(failed)? else { return Ok(Err(KeepReason::Watched)) };
    // What was a folder may have been replaced by a link since, and may be at any time.
    let opened = OpenRoot::open(out).and_then(|root| {
        let job_dir = root.subfolder(below(out, entry.folder.parent().unwrap_or(out)))?;
        Ok((root, job_dir))
    });
    let (Ok((root, job_dir)), Some(name)) = (opened, entry.folder.file_name()) else {
        return Ok(Err(KeepReason::Running));
    };
    let record = Path::new(name);
    let map = (entry.row.kind == RowKind::Map).then(|| MapFolder { path: entry.folder.clone() });
    let lock = |folder: &Path| match RemovalLock::take(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        lock => lock,
    };
    let mut locks = Vec::new();
    match &map {
        Some(map) => match map.lock_for_removal().map_err(failed)? {
            Some(taken) => locks.extend(taken),
            None => return Ok(Err(KeepReason::Running)),
        },
        None => locks.extend(lock(&entry.folder).map_err(failed)?),
    }
    if locks.is_empty() {
        return Ok(Err(KeepReason::Running));
    }
    // The rows that were resumed or started since the list was made. Those that are locked now can't be any more; there may be
    // too many of them to lock all.
    let records: Vec<&Entry> = if map.is_some() { entry.rows.iter().collect() } else { vec![&entry] };
    let is_same = records.iter().all(|record| {
        let now = read_overview(&record.folder, map.is_none());
        now.is_some_and(|now| now.row.status == record.row.status)
    });
    if !is_same {
        return Ok(Err(KeepReason::Running));
    }
    let id = job_dir.stat(record).ok().filter(|_| job_dir.is_dir(record)).map(|found| file_id(&found));
    if id != Some(locks[0].folder()) {
        return Ok(Err(KeepReason::Running));
    }
    let aside = aside(&job_dir, name);
    job_dir.rename(record, &aside).map_err(failed)?;
    // Otherwise a crash of the machine could leave half of the record under its own name.
    let _ = fsync(job_dir.folder());
    let path = job_dir.path().join(&aside);
    let bytes = disk_space(&path);
    remove_workspaces(&root, &entry, &path);
    job_dir.remove_tree(&aside).map_err(|source| Error::Record { path, source })?;
    drop(locks);
    Ok(Ok(Pruned { entry, bytes }))
}

/// Locks the folder of all runs, as runs do whose sandbox notices that a record is removed. `None` while there is one.
fn lock_out(out: &Path) -> io::Result<Option<RemovalLock>> {
    RemovalLock::take(&out.canonicalize()?)
}

/// The path from `out` to something below it. Both may be relative to the current folder.
fn below<'a>(out: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(out).unwrap_or(path)
}

/// A name next to a record that no record has.
fn aside(job_dir: &OpenRoot, record: &OsStr) -> PathBuf {
    let mut name = OsString::from(REMOVED_PREFIX);
    name.push(record);
    let mut aside = PathBuf::from(&name);
    for number in 1.. {
        if job_dir.stat(&aside).is_err() {
            break;
        }
        let mut numbered = name.clone();
        numbered.push(format!("-{number}"));
        aside = numbered.into();
    }
    aside
}

/// Removes the workspaces of the rows of a map, and those of subagents. What can't be removed only takes up space. Only the
/// paths that belong to the record are removed, whatever the files in it say.
fn remove_workspaces(root: &OpenRoot, entry: &Entry, aside: &Path) {
    // Git notes the absolute path of a worktree.
    let out = root.path();
    let name = file_name(&entry.folder);
    if entry.row.kind == RowKind::Map {
        let folder = MapFolder::workspaces(out, &entry.row.job, &name);
        let manifest = MapFolder { path: aside.to_owned() }.read_manifest().ok().flatten();
        if is_below(out, &folder) {
            if let Some(snapshot @ Snapshot::Git { .. }) = manifest.and_then(|manifest| manifest.snapshot) {
                let _ = RowWorkspaces::new(out, root, &folder, Some(snapshot)).remove_leftovers(|_| true);
            }
            let _ = root.remove_tree(&folder);
            remove_empty(root, &folder);
        }
    }
    let copies = out.join(WORKSPACES_FOLDER).join(SUBAGENTS).join(entry.row.run.split('/').collect::<PathBuf>());
    // The record of a row is `rows/ID` in that of its map.
    let depth = if entry.row.kind == RowKind::Map { 2 } else { 0 };
    if is_below(out, &copies) {
        remove_copies(root, &copies, depth);
        remove_empty(root, &copies);
    }
}

/// Whether a folder exists below another one without a link on the way.
fn is_below(out: &Path, folder: &Path) -> bool {
    let ways = folder.ancestors().take_while(|way| *way != out);
    ways.into_iter().all(|way| fs::symlink_metadata(way).is_ok_and(|found| found.is_dir()))
}

/// Removes the folders above a removed one that are empty now.
fn remove_empty(out: &OpenRoot, folder: &Path) {
    for folder in folder.ancestors().take_while(|folder| *folder != out.path()) {
        if out.remove_dir(folder).is_err() && out.stat(folder).is_ok() {
            break;
        }
    }
}

/// Removes the copies of subagents in a folder that has a folder for each of them, `depth` levels below it. For a worktree,
/// git's note of it is removed, too.
fn remove_copies(out: &OpenRoot, folder: &Path, depth: usize) {
    for name in out.names(folder).unwrap_or_default() {
        let path = folder.join(name);
        if !out.is_dir(&path) {
            continue;
        }
        if depth > 0 {
            remove_copies(out, &path, depth - 1);
            continue;
        }
        let snapshot = out.read(&path.join("start/snapshot.json"), MAX_SNAPSHOT_BYTES).ok();
        let snapshot: Option<Snapshot> = snapshot.and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(snapshot) = snapshot {
            let _ = snapshot.remove_workspace(out, &path.join("copy"));
        }
        let _ = out.remove_tree(&path);
    }
    let _ = out.remove_dir(folder);
}

/// Deletes what killed processes have left of records that they were removing. Returns the disk space.
pub fn remove_leftovers(out: &Path) -> u64 {
    let mut bytes = 0;
    let (Ok(root), Ok(Some(_alone))) = (OpenRoot::open(out), lock_out(out)) else { return 0 };
    for job_dir in folders(out).filter_map(|job_dir| root.subfolder(below(out, &job_dir)).ok()) {
        for name in job_dir.names(Path::new("")).unwrap_or_default() {
            if name.as_encoded_bytes().starts_with(REMOVED_PREFIX.as_bytes()) && job_dir.is_dir(Path::new(&name)) {
                bytes += disk_space(&job_dir.path().join(&name));
                // Another process may be deleting it, too.
                let _ = job_dir.remove_tree(Path::new(&name));
            }
        }
    }
    bytes
}

/// Lets `latest` of a job link to its newest record again, if the one that it linked to was removed, unless a run would take that
/// for an attack. `kept` are the job's
/// records, newest first.
///
/// # Errors
/// If the link can't be changed.
pub fn update_latest<'a>(job_dir: &Path, kept: impl IntoIterator<Item = &'a Entry>) -> Result<(), Error> {
    let link = job_dir.join(LATEST);
    let is_dangling = fs::read_link(&link).is_ok() && fs::metadata(&link).is_err();
    let lock = if is_dangling { lock_out(job_dir.parent().unwrap_or(job_dir)).ok().flatten() } else { None };
    if lock.is_none() {
        return Ok(());
    }
    let newest = kept.into_iter().find(|entry| entry.row.kind == RowKind::Run && entry.folder.is_dir());
    let newest = newest.map(|entry| file_name(&entry.folder));
    point_latest_to(job_dir, newest.as_deref()).map_err(|source| Error::Record { path: link, source })
}

/// The disk space of a folder and everything in it, in bytes. Links aren't followed.
fn disk_space(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.blocks() * 512;
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}
