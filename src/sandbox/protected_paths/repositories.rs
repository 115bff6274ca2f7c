//! Finds the git repositories in a folder.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::git::is_dot_git;
use crate::isolation::WORKSPACES_FOLDER;

/// The most repositories in the workspace.
const MAX_REPOSITORIES: usize = 10_000;
/// How long the workspace is searched for repositories if commands run.
pub(super) const SEARCH_TIME: Duration = Duration::from_secs(30);
/// The shortest time limit of a search, whatever the run's own limit. Enough for most workspaces.
pub(super) const MIN_SEARCH_TIME: Duration = Duration::from_secs(5);
/// Kernel file systems, which have many entries and no repositories: proc, sysfs, cgroup2, debugfs, tracefs, devpts.
#[cfg(target_os = "linux")]
const KERNEL_FILESYSTEMS: [i64; 6] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x1cd1];

/// The repositories in a folder.
#[derive(Debug, Clone, Default)]
pub struct Repositories {
    /// Every `.git`, in any spelling, and folders that are a git folder themselves; the nearest first.
    pub folders: Vec<PathBuf>,
    /// Whether the search was complete.
    pub is_complete: bool,
}

impl Repositories {
    /// Searches a folder for at most `time`, but not `out`, nor the workspaces that other rows and subagents have.
    ///
    /// Repositories matter because their configuration names programs that git runs, and `git status` in an outer repository
    /// enters an inner one that the index lists.
    pub fn find(root: &Path, out: &Path, time: Duration) -> Self {
        let end = Instant::now() + time;
        let out = out.canonicalize().unwrap_or_else(|_| out.to_owned());
        let mut found = Vec::new();
        let mut queue = VecDeque::from([(root.to_owned(), device(root))]);
        while let Some((folder, around)) = queue.pop_front() {
            let folder_device = device(&folder);
            if folder_device != around && is_kernel_filesystem(&folder) {
                continue;
            }
            let Ok(listed) = fs::read_dir(&folder) else { continue };
            let [mut head, mut common, mut objects, mut refs] = [false; 4];
            for (number, entry) in listed.flatten().enumerate() {
                // Reading the clock for each entry would be most of the work.
                if number % 64 == 0 && Instant::now() > end || found.len() >= MAX_REPOSITORIES {
                    return Self { folders: found, is_complete: false };
                }
                let name = entry.file_name();
                head |= name == "HEAD";
                common |= name == "commondir";
                objects |= name == "objects";
                refs |= name == "refs";
                if is_dot_git(&name) {
                    found.push(folder.join(name));
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = folder.join(name);
                    if path != out && path.file_name() != Some(OsStr::new(WORKSPACES_FOLDER)) {
                        queue.push_back((path, folder_device));
                    }
                }
            }
            if head && (common || objects && refs) {
                found.push(folder);
            }
        }
        Self { folders: found, is_complete: true }
    }

    /// Searches again after a run for repositories that weren't there before. `left` is the rest of the run's time.
    pub fn added_since(&self, root: &Path, out: &Path, left: Option<Duration>) -> Self {
        let time = left.map_or(SEARCH_TIME, |left| left.clamp(MIN_SEARCH_TIME, SEARCH_TIME));
        let mut now = Self::find(root, out, time);
        let before: BTreeSet<&PathBuf> = self.folders.iter().collect();
        now.folders.retain(|path| !before.contains(path));
        now
    }
}

fn device(folder: &Path) -> u64 {
    fs::symlink_metadata(folder).map_or(0, |metadata| metadata.dev())
}

#[cfg(target_os = "linux")]
#[allow(clippy::unnecessary_cast, reason = "the field differs from one architecture to the next")]
fn is_kernel_filesystem(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|stat| KERNEL_FILESYSTEMS.contains(&(stat.f_type as i64)))
}

#[cfg(not(target_os = "linux"))]
fn is_kernel_filesystem(_: &Path) -> bool {
    false
}
