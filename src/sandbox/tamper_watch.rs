//! Runs the tamper guard around the commands of a run: before the first one starts, and after each.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::policy::{RecordVerifier, SandboxPolicy, Tier};
use super::programs;
use super::protected_paths::canonical_as_far_as_possible;
use super::restorer::Restorer;
use super::tamper_error::{TamperError, UndoneChanges};
use super::tamper_guard::TamperGuard;
use crate::job::GitAccess;
use crate::sync::IgnorePoison;

/// What is in a run's record and never changes once it was written: two files, and the folder with what the steps before the agent
/// leave.
const IMMUTABLE_RECORD_FILES: [&str; 3] = ["job.yaml", "plan.json", "files"];

#[derive(Debug)]
pub(super) struct TamperWatch {
    guard: Mutex<TamperGuard>,
    /// Restores files if this program is killed.
    pub(super) restorer: Restorer,
    /// How many commands are running.
    running: AtomicUsize,
    /// The paths of the record that never change.
    record_files: [PathBuf; 3],
}

impl TamperWatch {
    pub(super) fn new(
        policy: &SandboxPolicy,
        tier: Tier,
        out: &Path,
        record: &Path,
        verifier: Option<RecordVerifier>,
        restorer: Restorer,
    ) -> io::Result<Self> {
        let (out, record) = (canonical_as_far_as_possible(out), canonical_as_far_as_possible(record));
        let allowed = &policy.allowed_changes;
        // This program itself writes to the folder of all runs.
        let protected = policy.protected.iter().filter(|path| **path != out).cloned();
        // In other tiers than landlock's, that folder can't be changed.
        let record_files = IMMUTABLE_RECORD_FILES.map(|name| record.join(name));
        let in_record = record_files.iter().cloned().chain([out.join(".gitignore")]);
        let in_record = in_record.filter(|_| tier == Tier::Landlock);
        let all = protected.chain(policy.protected_links.iter().cloned()).chain(in_record);
        let needs_guard = |path: &PathBuf| tier == Tier::Landlock || !is_prevented(path) || allowed.allows_below(path);
        let mut guarded: Vec<PathBuf> = all.filter(needs_guard).collect();
        if allowed.git == GitAccess::Commit {
            // The parts of git folders that commands may change: a whole folder in the workspace, or single folders of one
            // outside of it.
            for folder in &allowed.git_folders {
                match policy.writable_roots().any(|root| folder.starts_with(root)) {
                    true => guarded.push(folder.clone()),
                    false => guarded.extend(policy.writable_roots().filter(|root| root.starts_with(folder)).cloned()),
                }
            }
        }
        guarded.sort();
        guarded.dedup();
        // A guarded git folder includes everything in it.
        let git_folders: Vec<PathBuf> =
            guarded.iter().filter(|path| allowed.git_folders.contains(*path)).cloned().collect();
        guarded.retain(|path| !git_folders.iter().any(|folder| path != folder && path.starts_with(folder)));
        let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let writable: Vec<PathBuf> = policy.writable_roots().cloned().collect();
        let git = programs::find("git", policy.path_dirs.iter().cloned().chain(system), &writable);
        let guard = TamperGuard::with_objects(policy, &guarded, git.as_deref(), tier == Tier::Landlock)?;
        // No program obeys this folder by its name, and a project may have one called `Runs`.
        let guard = guard.allowing_spellings_of(&out);
        let guard = match tier {
            Tier::Landlock => guard.with_records(policy, &out, &record, verifier),
            _ => guard,
        };
        Ok(Self { guard: Mutex::new(guard), restorer, running: AtomicUsize::new(0), record_files })
    }

    /// Must be called before a command is started.
    ///
    /// # Errors
    /// If nothing could be restored in case this program is killed.
    pub(super) fn command_starting(&self) -> io::Result<()> {
        // While no command ran, only someone else can have made changes.
        if self.running.load(Ordering::Relaxed) == 0 {
            let mut guard = self.guard.lock().ignore_poison();
            guard.rebaseline()?;
            self.restorer.arm(&guard).map_err(|error| {
                io::Error::other(format!("the process that restores protected files can't be started ({error})"))
            })?;
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Must be called after the files of the record were written: tool servers run already.
    ///
    /// # Errors
    /// If nothing could be restored in case this program is killed.
    pub(super) fn record_written(&self) -> io::Result<()> {
        if self.running.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let mut guard = self.guard.lock().ignore_poison();
        guard.accept(&self.record_files);
        self.restorer.arm(&guard)
    }

    /// Must be called after a command has ended.
    pub(super) fn command_ended(&self) -> Result<Option<UndoneChanges>, TamperError> {
        let others_run = self.running.fetch_sub(1, Ordering::Relaxed) > 1;
        let result = self.guard.lock().ignore_poison().check(others_run);
        if !others_run {
            self.restorer.disarm();
        }
        result
    }
}

impl TamperWatch {
    /// Checks what commands that are still running have changed.
    pub(super) fn check_running(&self) -> Result<(), TamperError> {
        if self.running.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.guard.lock().ignore_poison().check(true).map(drop)
    }
}

/// Whether bubblewrap or seatbelt prevents changes of a path, and no other path leads to the same file.
fn is_prevented(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() || (metadata.is_file() && metadata.nlink() == 1))
}
