//! The records of runs that have ended, which nothing should change.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::dir_fd::{is_locked, list_path, open_dir, open_parent};
use super::file_state::StatSnapshot;
use super::runs_dir::RECORD_FOLDERS;

/// How many files are compared after each command; those of the newest runs come first.
const MAX_FILES: usize = 500;
/// The file that every ended run has.
const RESULT: &str = "result.json";

/// The folder of a run or a folder in it, and the files in that folder.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    root: Arc<OwnedFd>,
    pub(super) path: PathBuf,
    files: Vec<(OsString, StatSnapshot)>,
}

impl FinishedRecord {
    /// Finds the records in the folder of all runs, which is at `runs_dir` from the root.
    pub(super) fn find(root: &Arc<OwnedFd>, runs_dir: &Path) -> Vec<Self> {
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
            for folder in std::iter::once(run.clone()).chain(RECORD_FOLDERS.map(|name| run.join(name))) {
                let opened = open(root, &folder);
                let files: Vec<_> = names(root, &folder)
                    .into_iter()
                    .filter_map(|name| Some((StatSnapshot::at(opened.as_ref()?, &name)?, name)))
                    .filter_map(|(metadata, name)| {
                        (FileType::from_raw_mode(metadata.raw_mode()) == FileType::RegularFile)
                            .then_some((name, metadata))
                    })
                    .collect();
                let has_ended = folder != run || files.iter().any(|(name, _)| name == OsStr::new(RESULT));
                if !has_ended {
                    break;
                }
                if files.len() > left {
                    return found;
                }
                left -= files.len();
                found.push(Self { root: Arc::clone(root), path: folder, files });
            }
        }
        found
    }

    pub(super) fn is_unchanged(&self) -> bool {
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
    }

    /// Whether the run has been resumed and writes to its record again.
    pub(super) fn is_active(&self) -> bool {
        let is_within = RECORD_FOLDERS.iter().any(|name| self.path.ends_with(name));
        let run = if is_within { self.path.parent() } else { Some(self.path.as_path()) };
        run.and_then(|run| open(&self.root, run)).is_some_and(|folder| is_locked(&folder))
    }
}

fn open(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    let (folder, name) = open_parent(root, path).ok()?;
    open_dir(&folder, name).ok()
}

fn names(root: &OwnedFd, path: &Path) -> Vec<OsString> {
    list_path(root, path).into_iter().flat_map(|(_, listing)| listing).map(|(name, _)| name).collect()
}
