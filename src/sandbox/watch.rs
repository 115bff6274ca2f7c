//! What is looked at after each call, for the tier can't hold it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::protected::canonical_as_far_as_possible;
use super::restore::Guard;
use super::{Boundary, Breach, Tier};

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
        // We write there ourselves all the time.
        let protected = boundary.protected.iter().filter(|path| **path != out).cloned();
        // Bubblewrap binds it.
        let written_once = WRITTEN_ONCE.iter().filter(|_| tier != Tier::Bubblewrap);
        let record = written_once.map(|name| record.join(name));
        let all = protected.chain(boundary.links.iter().cloned()).chain(record);
        let loose: Vec<PathBuf> = all.filter(|path| tier != Tier::Bubblewrap || !is_bound(path)).collect();
        let guard = Guard::of(boundary, &loose);
        // Bubblewrap binds the folder of all runs.
        let guard = if tier == Tier::Bubblewrap { guard } else { guard.with_records(boundary, &out) };
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
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.guard.inspect().err().map(|breach| Breach(breach.to_string()))
    }
}

/// Whether bubblewrap binds it read-only, and nothing else leads to it.
fn is_bound(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() || (metadata.is_file() && metadata.nlink() == 1))
}
