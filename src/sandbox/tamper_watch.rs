//! What is looked at after each call, for the tier can't hold it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::protected_paths::canonical_as_far_as_possible;
use super::restorer::Restorer;
use super::tamper_guard::TamperGuard;
use super::{RecordVerifier, SandboxPolicy, TamperError, Tier};
use crate::job::GitAccess;

/// What of a run's record never changes once it is there.
const IMMUTABLE_RECORD_FILES: [&str; 2] = ["job.yaml", "plan.json"];

#[derive(Debug)]
pub(super) struct TamperWatch {
    guard: TamperGuard,
    /// Puts things back where this program is killed.
    restorer: Option<Restorer>,
    /// How many commands run now.
    running: AtomicUsize,
}

impl TamperWatch {
    pub(super) fn new(
        boundary: &SandboxPolicy,
        tier: Tier,
        out: &Path,
        record: &Path,
        judge: Option<RecordVerifier>,
    ) -> Self {
        let (out, record) = (canonical_as_far_as_possible(out), canonical_as_far_as_possible(record));
        let allowed = &boundary.allowed_changes;
        // We write there ourselves all the time.
        let protected = boundary.protected.iter().filter(|path| **path != out).cloned();
        // Bubblewrap binds it.
        let in_record =
            IMMUTABLE_RECORD_FILES.map(|name| record.join(name)).into_iter().chain([out.join(".gitignore")]);
        let in_record = in_record.filter(|_| tier != Tier::Bubblewrap);
        let all = protected.chain(boundary.protected_links.iter().cloned()).chain(in_record);
        let is_loose =
            |path: &PathBuf| tier != Tier::Bubblewrap || !is_bind_mounted(path) || allowed.allows_below(path);
        let mut loose: Vec<PathBuf> = all.filter(is_loose).collect();
        if allowed.git == GitAccess::Commit {
            // What commands may change of them: all, or single folders of one outside of the workspace.
            for folder in &allowed.git_folders {
                let roots = || std::iter::once(&boundary.workspace).chain(&boundary.writable);
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
        let guard = TamperGuard::for_paths(boundary, &loose);
        // Bubblewrap binds the folder of all runs.
        let guard = if tier == Tier::Bubblewrap { guard } else { guard.with_records(boundary, &out, &record, judge) };
        Self { guard, restorer: None, running: AtomicUsize::new(0) }
    }

    /// A command is about to be started.
    ///
    /// # Errors
    /// Where nothing could be put back if this program were killed.
    pub(super) fn command_starting(&self) -> io::Result<()> {
        // What was changed while none ran was changed by somebody else.
        if self.running.load(Ordering::Relaxed) == 0 {
            self.guard.rebaseline();
            if let Some(restorer) = &self.restorer {
                restorer.arm(&self.guard).map_err(|error| {
                    io::Error::other(format!("the process that restores protected files can't be started ({error})"))
                })?;
            }
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The same guard, which works even where this program is killed.
    pub(super) fn with_restorer(self, restorer: Restorer) -> Self {
        Self { restorer: Some(restorer), ..self }
    }

    /// What supervisors of commands hold open, so that nothing is put back before their commands have ended.
    pub(super) fn liveness_pipe(&self) -> Option<Arc<OwnedFd>> {
        self.restorer.as_ref().and_then(Restorer::liveness_pipe)
    }

    /// A command has ended.
    pub(super) fn command_ended(&self) -> Option<TamperError> {
        let others = self.running.fetch_sub(1, Ordering::Relaxed) > 1;
        let found = self.guard.check(others).err().map(|breach| TamperError(breach.to_string()));
        if !others && let Some(restorer) = &self.restorer {
            restorer.disarm();
        }
        found
    }
}

/// Whether bubblewrap binds it read-only, and nothing else leads to it.
fn is_bind_mounted(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() || (metadata.is_file() && metadata.nlink() == 1))
}
