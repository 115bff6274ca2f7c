//! What is looked at after each call, for the tier can't hold it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::protected::canonical_as_far_as_possible;
use super::restore::Guard;
use super::{Boundary, Breach, Tier};
use crate::job::GitAccess;

/// What of a run's record never changes once it is there.
const WRITTEN_ONCE: [&str; 2] = ["job.yaml", "plan.json"];

#[derive(Debug)]
pub(super) struct Watch {
    guard: Guard,
    /// How many commands run now.
    running: AtomicUsize,
}

impl Watch {
    pub(super) fn new(boundary: &Boundary, tier: Tier, out: &Path, record: &Path) -> Self {
        let (out, record) = (canonical_as_far_as_possible(out), canonical_as_far_as_possible(record));
        let allowed = &boundary.allowed;
        // We write there ourselves all the time.
        let protected = boundary.protected.iter().filter(|path| **path != out).cloned();
        // Bubblewrap binds it.
        let in_record = WRITTEN_ONCE.map(|name| record.join(name)).into_iter().chain([out.join(".gitignore")]);
        let in_record = in_record.filter(|_| tier != Tier::Bubblewrap);
        let all = protected.chain(boundary.links.iter().cloned()).chain(in_record);
        let is_loose = |path: &PathBuf| tier != Tier::Bubblewrap || !is_bound(path) || allowed.opens_below(path);
        let mut loose: Vec<PathBuf> = all.filter(is_loose).collect();
        if allowed.git == GitAccess::Commit {
            // What commands may change of them: all, or single folders of one outside of the workspace.
            for folder in &allowed.git_folders {
                let roots = || std::iter::once(&boundary.workspace).chain(&boundary.write);
                match roots().any(|root| folder.starts_with(root)) {
                    true => loose.push(folder.clone()),
                    false => loose.extend(roots().filter(|root| root.starts_with(folder)).cloned()),
                }
            }
        }
        loose.sort();
        loose.dedup();
        // A git folder is looked at as a whole, with all that is in it.
        let whole: Vec<PathBuf> = loose.iter().filter(|path| allowed.git_folders.contains(*path)).cloned().collect();
        loose.retain(|path| !whole.iter().any(|folder| path != folder && path.starts_with(folder)));
        let guard = Guard::of(boundary, &loose);
        // Bubblewrap binds the folder of all runs.
        let guard = if tier == Tier::Bubblewrap { guard } else { guard.with_records(boundary, &out, &record) };
        Self { guard, running: AtomicUsize::new(0) }
    }

    /// A command is about to be started.
    pub(super) fn begin(&self) {
        // What was changed while none ran was changed by somebody else.
        if self.running.fetch_add(1, Ordering::Relaxed) == 0 {
            self.guard.accept();
        }
    }

    /// A command has ended.
    pub(super) fn end(&self) -> Option<Breach> {
        let others = self.running.fetch_sub(1, Ordering::Relaxed) > 1;
        self.guard.inspect(others).err().map(|breach| Breach(breach.to_string()))
    }
}

/// Whether bubblewrap binds it read-only, and nothing else leads to it.
fn is_bound(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() || (metadata.is_file() && metadata.nlink() == 1))
}
