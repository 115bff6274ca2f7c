//! The records of runs that are over: nobody writes to them any more.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::file_state::{StatSnapshot, names};
use super::open_parent;
use super::runs_dir::is_locked;

/// How many files are looked at after each call; those of the newest runs come first.
const MAX_FILES: usize = 500;
/// What a run that is over has.
const RESULT: &str = "result.json";
/// The folder of subagents' files in a record.
const SUBAGENTS: &str = "subagents";

/// The folder of a run, or one within, and the files in it.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    root: Arc<OwnedFd>,
    pub(super) path: PathBuf,
    files: Vec<(OsString, StatSnapshot)>,
}

impl FinishedRecord {
    /// Those below the folder of all runs, which lies at `way` from the root. They are named from there.
    pub(super) fn find(root: &Arc<OwnedFd>, way: &Path) -> Vec<Self> {
        let mut runs: Vec<PathBuf> = list(root, way)
            .into_iter()
            .flat_map(|job| list(root, &way.join(&job)).into_iter().map(move |run| Path::new(&job).join(run)))
            .collect();
        // Their names begin with the time.
        runs.sort_by(|one, other| other.file_name().cmp(&one.file_name()));
        let mut left = MAX_FILES;
        let mut found = Vec::new();
        for run in runs {
            let run = way.join(run);
            for folder in [run.clone(), run.join(SUBAGENTS)] {
                let files: Vec<_> = list(root, &folder)
                    .into_iter()
                    .filter_map(|name| Some((name.clone(), marks(root, &folder.join(&name))?)))
                    .filter(|(_, marks)| marks.is_file())
                    .collect();
                let over = folder != run || files.iter().any(|(name, _)| name == OsStr::new(RESULT));
                if !over {
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

    /// Whether all of it is as it was.
    pub(super) fn is_unchanged(&self) -> bool {
        let Some(folder) = self.open() else { return self.files.is_empty() };
        self.files.iter().all(|(name, before)| StatSnapshot::at(&folder, name) == Some(*before))
    }

    /// Takes what is there now as how it must be.
    pub(super) fn rebaseline(&mut self) {
        let folder = self.open();
        self.files.retain_mut(|(name, marks)| {
            match folder.as_ref().and_then(|folder| StatSnapshot::at(folder, name)) {
                Some(now) => {
                    *marks = now;
                    true
                }
                None => false,
            }
        });
    }

    /// Whether somebody goes on with the run, who writes to its record.
    pub(super) fn is_active(&self) -> bool {
        let run = if self.path.ends_with(SUBAGENTS) { self.path.parent() } else { Some(self.path.as_path()) };
        run.and_then(|run| open(&self.root, run)).is_some_and(|folder| is_locked(&folder))
    }

    fn open(&self) -> Option<OwnedFd> {
        open(&self.root, &self.path)
    }
}

fn open(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    let (folder, name) = open_parent(root, path, |_, _| Err(Errno::NOENT)).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty()).ok()
}

fn marks(root: &OwnedFd, path: &Path) -> Option<StatSnapshot> {
    let (folder, name) = open_parent(root, path, |_, _| Err(Errno::NOENT)).ok()?;
    StatSnapshot::at(&folder, name)
}

fn list(root: &OwnedFd, path: &Path) -> Vec<OsString> {
    let walked = open_parent(root, path, |_, _| Err(Errno::NOENT));
    walked.and_then(|(folder, name)| names(&folder, name)).map(|(_, names)| names).unwrap_or_default()
}
