//! The records of runs that aren't running, which nothing should change. What is added to one would count as made by its run: a
//! killed run with a `result.json` would have ended.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::super::policy::RecordVerifier;
use super::super::tamper_error::TamperError;
use super::dir_fd::{is_locked, kind, list_path, open_dir, open_parent};
use super::file_state::StatSnapshot;
use super::rollback::{remove_all, rename_aside};
use super::runs_dir::{FILES_FOLDER, QUARANTINE_SUFFIX, RECORD_FOLDERS};

/// How many files are compared after each command; those of the newest runs come first.
const MAX_FILES: usize = 500;
/// The file that every ended run has.
const RESULT: &str = "result.json";
/// The file that every run has.
const JOURNAL: &str = "events.jsonl";
/// What `publish` writes at any time begins with this. It knows its own file.
const PUBLISHED: &[u8] = b"published.json";

/// The folder of a run or a folder in it, and the files in that folder.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    root: Arc<OwnedFd>,
    /// From the root.
    path: PathBuf,
    /// The run's folder, from the root.
    record: PathBuf,
    /// The absolute path of the run's folder.
    run: PathBuf,
    files: Vec<(OsString, StatSnapshot)>,
    /// All names in the folder.
    names: BTreeSet<OsString>,
    /// The run's own journal, which every process extends that continues the run.
    journal: Option<StatSnapshot>,
    /// Whether another process was continuing the run.
    was_active: bool,
}

impl FinishedRecord {
    /// Finds the records in the folder of all runs, which is at `runs_dir` from the root and has this absolute path. Runs without an
    /// end are only among them `with_unended`.
    pub(super) fn find(root: &Arc<OwnedFd>, runs_dir: &Path, path: &Path, with_unended: bool) -> Vec<Self> {
        let mut runs: Vec<PathBuf> = names(root, runs_dir)
            .into_iter()
            .map(|job| runs_dir.join(job))
            .flat_map(|job| names(root, &job).into_iter().map(move |run| job.join(run)))
            .collect();
        // Newest first: run ids begin with the time.
        runs.sort_by(|one, other| other.file_name().cmp(&one.file_name()));
        let mut left = MAX_FILES;
        let mut found = Vec::new();
        for run in runs {
            // What steps before the agent left can have folders of its own.
            let mut open_folders = vec![run.join(FILES_FOLDER)];
            open_folders.extend(RECORD_FOLDERS.map(|name| run.join(name)));
            open_folders.push(run.clone());
            while let Some(folder) = open_folders.pop() {
                let opened = open(root, &folder);
                let names: BTreeSet<OsString> = names(root, &folder).into_iter().collect();
                let files: Vec<_> = names
                    .iter()
                    .cloned()
                    .filter_map(|name| Some((StatSnapshot::at(opened.as_ref()?, &name)?, name)))
                    .filter_map(|(metadata, name)| {
                        (FileType::from_raw_mode(metadata.raw_mode()) == FileType::RegularFile)
                            .then_some((name, metadata))
                    })
                    .collect();
                // A folder in it counts as a file, so that many empty ones take no longer.
                let is_files = folder.strip_prefix(&run).is_ok_and(|within| within.starts_with(FILES_FOLDER));
                if is_files {
                    let below = list_path(root, &folder).into_iter().flat_map(|(_, listing)| listing);
                    let folders = below.filter(|(_, kind)| *kind == FileType::Directory);
                    open_folders.extend(folders.map(|(name, _)| folder.join(name)));
                }
                let has = |wanted: &str| files.iter().any(|(name, _)| name == OsStr::new(wanted));
                let is_locked = || opened.as_ref().is_some_and(is_locked);
                if folder == run && !has(RESULT) && !(with_unended && has(JOURNAL) && !is_locked()) {
                    break;
                }
                let count = files.len() + usize::from(is_files && opened.is_some());
                if count > left {
                    return found;
                }
                left -= count;
                let journal = open(root, &run).and_then(|run| StatSnapshot::at(&run, OsStr::new(JOURNAL)));
                let record = run.clone();
                let run = path.join(run.strip_prefix(runs_dir).unwrap_or(&run));
                let root = Arc::clone(root);
                found.push(Self { root, path: folder, record, run, files, names, journal, was_active: false });
            }
        }
        found
    }

    /// Reports what has changed, unless another process has continued the run. What was added is renamed.
    pub(super) fn check(&self, verifier: Option<&RecordVerifier>, report: &mut TamperError) {
        let has_changed = !self.is_unchanged();
        let now = names(&self.root, &self.path);
        let is_new = |name: &OsString| {
            !self.names.contains(name) && !name.as_bytes().starts_with(b".") && !name.as_bytes().starts_with(PUBLISHED)
        };
        let added: Vec<OsString> = now.into_iter().filter(is_new).collect();
        let is_same = !has_changed && added.is_empty();
        if is_same || self.was_active || self.is_active() || self.was_continued(verifier) {
            return;
        }
        let path = match self.path.strip_prefix(&self.record) {
            Ok(within) if !within.as_os_str().is_empty() => self.run.join(within),
            _ => self.run.clone(),
        };
        if has_changed {
            report.changed.push(path.clone());
            report.not_restored.push(path.clone());
        }
        let Some(folder) = open(&self.root, &self.path) else { return };
        for name in added {
            let is_link = kind(&folder, &name) == Some(FileType::Symlink);
            let done =
                if is_link { remove_all(&folder, &name, 0) } else { rename_aside(&folder, &name, QUARANTINE_SUFFIX) };
            if done.is_err() {
                report.not_restored.push(path.join(&name));
            }
            report.changed.push(path.join(&name));
        }
    }

    /// Whether another process has continued the run to its end meanwhile.
    fn was_continued(&self, verifier: Option<&RecordVerifier>) -> bool {
        let Some((folder, run)) = self.open_run() else { return false };
        StatSnapshot::at(&folder, OsStr::new(JOURNAL)) != self.journal
            && verifier.is_some_and(|verifier| (verifier.2)(&folder, &run))
    }

    fn open_run(&self) -> Option<(OwnedFd, PathBuf)> {
        Some((open(&self.root, &self.record)?, self.run.clone()))
    }

    fn is_unchanged(&self) -> bool {
        let Some(folder) = open(&self.root, &self.path) else { return self.files.is_empty() };
        self.files.iter().all(|(name, before)| StatSnapshot::at(&folder, name) == Some(*before))
    }

    /// Accepts the current state as the one that must not change.
    pub(super) fn rebaseline(&mut self) {
        let folder = open(&self.root, &self.path);
        self.files.retain_mut(|(name, metadata)| {
            let now = folder.as_ref().and_then(|folder| StatSnapshot::at(folder, name));
            *metadata = now.unwrap_or(*metadata);
            now.is_some()
        });
        self.names = names(&self.root, &self.path).into_iter().collect();
        let run = self.open_run().map(|(folder, _)| folder);
        self.journal = run.as_ref().and_then(|run| StatSnapshot::at(run, OsStr::new(JOURNAL)));
        self.was_active = run.as_ref().is_some_and(is_locked);
    }

    /// Whether the run has been resumed and writes to its record again.
    fn is_active(&self) -> bool {
        self.open_run().is_some_and(|(folder, _)| is_locked(&folder))
    }
}

fn open(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    let (folder, name) = open_parent(root, path).ok()?;
    open_dir(&folder, name).ok()
}

fn names(root: &OwnedFd, path: &Path) -> Vec<OsString> {
    list_path(root, path).into_iter().flat_map(|(_, listing)| listing).map(|(name, _)| name).collect()
}
