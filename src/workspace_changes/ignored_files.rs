//! Finds what a run made where ignore files apply: no patch has it. In a workspace of its own, it would vanish without a word.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, statat};

use super::ChangeTracker;
use super::baseline_file::{Baseline, BaselineFile};
use super::deadline::Deadline;
use super::file_stat::FileStat;
use crate::workspace::open_beneath;

/// The most paths that are listed.
const MAX_LISTED: usize = 100;
/// The most entries of ignored folders that are looked at.
const MAX_ENTRIES: usize = 50_000;

/// Folders that build tools and interpreters fill by themselves. Nobody misses them.
const CACHES: &[&str] = &[
    "__pycache__",
    "node_modules",
    "target",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    ".eggs",
    ".cache",
    ".gradle",
    ".mypy_cache",
    ".next",
    ".parcel-cache",
    ".pytest_cache",
    ".ruff_cache",
    ".terraform",
    ".turbo",
];

/// Whether a path is such a folder or below one.
fn is_in_cache(path: &Path) -> bool {
    path.iter().any(|name| name.to_str().is_some_and(|name| CACHES.contains(&name)))
}

impl ChangeTracker {
    /// Those of the `ignored` files and folders that are new or changed since the baseline was taken; a folder, which ends with
    /// `/`, if any file in it is. `tracked` are the files that the comparison covers anyway.
    pub(super) fn new_ignored_paths(
        &self,
        ignored: Vec<PathBuf>,
        baseline: &Baseline,
        tracked: &HashMap<PathBuf, BaselineFile>,
        deadline: &Deadline,
    ) -> Vec<String> {
        let mut left = MAX_ENTRIES;
        let mut is_new = |path: &Path| {
            let mut paths = vec![path.to_owned()];
            while let Some(path) = paths.pop() {
                left = left.saturating_sub(1);
                if left == 0 || deadline.is_expired() {
                    return false;
                }
                let Some((folder, name)) = self.open_parent(&path) else { continue };
                let Ok(stat) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    let Ok(opened) = open_beneath::open_dir(self.workspace.folder(), &path) else { continue };
                    if !open_beneath::is_pseudo_filesystem(opened.as_fd()) {
                        let listed = open_beneath::list_dir(&opened, |count| count < left).unwrap_or_default();
                        paths.extend(listed.into_iter().rev().map(|(name, _)| path.join(name)));
                    }
                } else if FileStat::of(&stat).is_some_and(|stat| stat.ctime >= baseline.began)
                    && !tracked.contains_key(&path)
                {
                    return true;
                }
            }
            false
        };
        let mut found = Vec::new();
        for path in ignored.into_iter().filter(|path| !is_in_cache(path)) {
            if found.len() >= MAX_LISTED {
                break;
            }
            let is_folder = open_beneath::open_dir(self.workspace.folder(), &path).is_ok();
            if is_new(&path) {
                let shown = self.mask.redact(&path.to_string_lossy()).into_owned();
                found.push(if is_folder { shown + "/" } else { shown });
            }
        }
        found
    }
}
