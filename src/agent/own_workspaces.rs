//! Copies of the workspace for subagents with `workspace: own`, and the way of their changes back.
//!
//! A copy is made before the subagent starts, while no other call runs. When all calls of its group have ended, its changes
//! are merged into the workspace in the order of the calls, three-way. Merging again what is already merged changes nothing,
//! so that a run that was killed meanwhile merges again when it is resumed. A copy is removed after the call has its result.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::ToolDeps;
use crate::apply::{ContentChange, MergeSession, TargetFiles, overwrite};
use crate::egress::NetworkAccess;
use crate::event::{Change, MergedChanges};
use crate::git::GitProgram;
use crate::isolation::{Isolation, IsolationError, Snapshot, WORKSPACES_FOLDER};
use crate::record::replace_private_file;
use crate::sandbox::Sandbox;
use crate::sandbox::protected_paths::ProtectedPaths;
use crate::text::sanitize;
use crate::workspace::Workspace;
use crate::workspace::open_root::OpenRoot;
use crate::workspace_changes::{COMPARISON_TIMEOUT, ChangeTracker, Deadline};

/// The folder of the copies in that of all workspaces. No job has such a name.
const COPIES_FOLDER: &str = ".subagents";
/// The file that says from which snapshot a copy was made. It is written last: without it, a copy isn't complete.
const SNAPSHOT_FILE: &str = "snapshot.json";
/// The file that says which contents a merge was about to write, for one that is repeated after a kill.
const MERGE_FILE: &str = "merge.json";
/// The greatest size of these files in bytes. A merge has at most some thousand files.
const MAX_STATE_BYTES: u64 = 64 << 20;
/// The most conflicts that are listed.
const MAX_CONFLICTS: usize = 20;

/// How many of the ignored files that aren't taken over are named.
const MAX_IGNORED_NAMED: usize = 20;

/// How the tools in a copy are confined.
#[derive(Debug)]
pub struct ConfinedCopy {
    /// The sandbox of commands, which may change only the copy.
    pub sandbox: Arc<Sandbox>,
    /// What no tool may change in the copy.
    pub protected: ProtectedPaths,
}

/// Confines the tools in the copy with this root.
///
/// # Errors
/// Why it can't, in a sentence.
pub type ConfineCopy = dyn Fn(&Path, NetworkAccess) -> Result<ConfinedCopy, String> + Send + Sync;

/// The copies of one run's workspace.
pub struct OwnWorkspaces {
    /// The folder of this run's copies.
    folder: PathBuf,
    workspace: Arc<Workspace>,
    /// The folder of all runs, which isn't copied. It is opened before a command can replace it.
    out: OpenRoot,
    git: Option<GitProgram>,
    confine: Arc<ConfineCopy>,
}

impl OwnWorkspaces {
    /// The copies of a run with this record in the folder of all runs, `out`.
    ///
    /// # Errors
    /// If that folder can't be opened.
    pub fn new(
        out: &Path,
        record: &Path,
        workspace: Arc<Workspace>,
        git: Option<GitProgram>,
        confine: Arc<ConfineCopy>,
    ) -> io::Result<Self> {
        let out = OpenRoot::open(out)?;
        let record = record.canonicalize().unwrap_or_else(|_| record.to_owned());
        let name = record.strip_prefix(out.path()).ok().or_else(|| record.file_name().map(Path::new));
        let folder = out.path().join(WORKSPACES_FOLDER).join(COPIES_FOLDER).join(name.unwrap_or(Path::new("run")));
        Ok(Self { folder, workspace, out, git, confine })
    }

    /// Where the copy of an agent is.
    fn copy(&self, id: &str) -> PathBuf {
        self.folder.join(id).join("copy")
    }

    /// Where its snapshot, its baseline and, without git, the common ancestors of its files are.
    fn state(&self, id: &str) -> PathBuf {
        self.folder.join(id).join("start")
    }

    /// The snapshot of a complete copy.
    fn snapshot(&self, id: &str) -> Option<Snapshot> {
        let text = self.out.read(&self.state(id).join(SNAPSHOT_FILE), MAX_STATE_BYTES).ok()?;
        let snapshot: Snapshot = serde_json::from_slice(&text).ok()?;
        self.out.is_dir(&snapshot.workspace_in(&self.copy(id))).then_some(snapshot)
    }

    /// The copy of an agent as a workspace without protected paths.
    fn open_copy(&self, id: &str, snapshot: &Snapshot) -> io::Result<Workspace> {
        let folder = self.out.subfolder(&snapshot.workspace_in(&self.copy(id)))?;
        Workspace::in_folder(&folder, Vec::new(), Vec::new())
    }

    /// Whether an agent has a complete copy.
    pub(super) fn has(&self, id: &str) -> bool {
        self.snapshot(id).is_some()
    }

    /// Makes the copy of an agent from the workspace as it is now. Blocks.
    ///
    /// # Errors
    /// Why it can't, in a sentence.
    pub(super) fn make(&self, id: &str, stop: CancellationToken) -> Result<(), String> {
        self.remove(id);
        let state = self.state(id);
        let failed = |error: &dyn std::fmt::Display| format!("the workspace can't be copied for {id}: {error}");
        let excluded = [self.out.path().to_owned()];
        self.out.create_dir(&state, 0o777).map_err(|error| failed(&error))?;
        let root = self.workspace.open_root().map_err(|error| failed(&error))?;
        let git = self.git.as_ref();
        let take = |isolation| Snapshot::take(isolation, &root, &self.out, &state, &excluded, git);
        let taken = match take(Isolation::for_workspace(root.path(), git)) {
            // Without a commit, or if git can't be used here.
            Err(IsolationError::NoCommit | IsolationError::Git { .. }) => take(Isolation::Copy),
            taken => taken,
        };
        let snapshot = taken.map_err(|error| failed(&error))?.ok_or_else(|| failed(&"it is shared"))?;
        snapshot.make_workspace(&self.out, &self.copy(id), git).map_err(|error| failed(&error))?;
        let workspace = self.open_copy(id, &snapshot).map_err(|error| failed(&error))?;
        let tracker = self.tracker(id, workspace).map_err(|error| failed(&error))?;
        tracker.take_baseline(&Deadline::new(COMPARISON_TIMEOUT, stop)).map_err(|error| failed(&error))?;
        self.write_state(id, SNAPSHOT_FILE, &snapshot).map_err(|error| failed(&error))
    }

    fn write_state(&self, id: &str, name: &str, value: &impl Serialize) -> io::Result<()> {
        let folder = self.out.open_dir(&self.state(id))?;
        replace_private_file(folder.as_fd(), name, &serde_json::to_vec(value)?, true)
    }

    /// The tools' folder, confinement and environment for an agent that has a copy. Call it from the thread that starts the
    /// commands.
    ///
    /// # Errors
    /// Why the copy can't be used, in a sentence.
    pub(super) fn tools(&self, id: &str, network: NetworkAccess, shared: &ToolDeps) -> Result<ToolDeps, String> {
        let missing = || format!("the copy of the workspace for {id} is gone");
        let folder = self.snapshot(id).ok_or_else(missing)?.workspace_in(&self.copy(id));
        let folder = self.out.subfolder(&folder).map_err(|error| format!("{}: {error}", missing()))?;
        let ConfinedCopy { sandbox, protected } = (self.confine)(folder.path(), network)?;
        let workspace = Workspace::in_folder(&folder, protected.paths, Vec::new())
            .map_err(|error| format!("the copy of the workspace for {id} can't be opened: {error}"))?
            .with_unprotected(&protected.allowed_changes.unprotected)
            .in_place_of(self.workspace.root());
        Ok(ToolDeps { workspace: Arc::new(workspace), sandbox, ..shared.clone() })
    }

    /// Tracks the changes in a copy. The patch stays in this process, so nothing is masked: a masked one couldn't be merged.
    fn tracker(&self, id: &str, workspace: Workspace) -> io::Result<ChangeTracker> {
        Ok(ChangeTracker {
            workspace: Arc::new(workspace),
            record: self.out.subfolder(&self.state(id))?,
            mask: Arc::default(),
            outputs: Vec::new(),
            git: self.git.clone(),
            shows_content: true,
            keeps_binary: true,
        })
    }

    /// Merges the changes in a copy into the workspace, all of them or none. If the agent may continue in its copy, the next
    /// merge begins with what is merged now. Blocks.
    ///
    /// # Errors
    /// If a file can't be written. Part of the changes may be in the workspace then; merging again completes them.
    pub(super) fn merge(&self, id: &str, may_continue: bool, stop: CancellationToken) -> Result<MergedChanges, String> {
        let conflict = |why: String| Ok(MergedChanges { conflicts: vec![why], ..MergedChanges::default() });
        let Some(snapshot) = self.snapshot(id) else { return conflict("its copy of the workspace is gone".to_owned()) };
        let opened = self.open_copy(id, &snapshot).and_then(|workspace| self.tracker(id, workspace));
        let tracker = match opened {
            Ok(tracker) => tracker,
            Err(error) => return conflict(format!("its copy of the workspace can't be read: {error}")),
        };
        let deadline = Deadline::new(COMPARISON_TIMEOUT, stop);
        let Some(changed) = tracker.compare_with_baseline(&deadline) else {
            return conflict("the state of its copy at the start isn't known".to_owned());
        };
        if deadline.is_expired() || changed.total.is_some() {
            return conflict("it changed too many files to compare them all".to_owned());
        }
        let paths: Vec<PathBuf> = changed.changes.iter().map(|change| PathBuf::from(&change.path)).collect();
        let note = describe_gaps(changed.incomplete, &changed.ignored);
        if paths.is_empty() {
            return Ok(MergedChanges { note, ..MergedChanges::default() });
        }
        let failed = |error: io::Error| format!("the changes of {id} can't be merged into the workspace: {error}");
        let root = self.workspace.open_root().map_err(failed)?;
        let mut files = TargetFiles::in_folder(root, self.git.clone());
        files.add_snapshot(snapshot);
        let begun = self.out.read(&self.state(id).join(MERGE_FILE), MAX_STATE_BYTES).ok();
        let begun: Option<Vec<ContentChange>> = begun.and_then(|text| serde_json::from_slice(&text).ok());
        let mut session = match begun {
            Some(changes) => MergeSession::repeat(files, &changes),
            None => MergeSession::new(files),
        };
        let merged = session.prepare(id, &changed.patch);
        let mut conflicts: Vec<String> = Vec::new();
        let describe = |path: &Path, why: &str| format!("`{}`: {why}", sanitize::line(&path.to_string_lossy()));
        match &merged {
            Ok(merged) => {
                // Only of a change that can be part of a patch, its size is known.
                let why = |change: &Change| match change.lines_added.or(change.binary) {
                    Some(_) => {
                        "all changes of this agent together are a patch of more than 1 MiB, which can't be merged"
                    }
                    None => "it is larger than 1 MiB, so it can't be merged",
                };
                let missing = changed.changes.iter().filter(|change| !merged.contains(Path::new(&change.path)));
                conflicts.extend(missing.map(|change| describe(Path::new(&change.path), why(change))));
            }
            Err(found) => {
                let why = |why: &str| sanitize::line(why);
                conflicts.extend(found.iter().map(|found| describe(&found.path, &why(&found.why))));
            }
        }
        for path in &paths {
            if let Err(why) = self.workspace.check_changeable(path) {
                conflicts.push(describe(path, &why.0));
            }
        }
        if !conflicts.is_empty() {
            if conflicts.len() > MAX_CONFLICTS {
                let more = conflicts.len() - MAX_CONFLICTS;
                conflicts.truncate(MAX_CONFLICTS);
                conflicts.push(format!("and {more} more"));
            }
            return Ok(MergedChanges {
                conflicts,
                note: describe_gaps(None, &changed.ignored),
                ..MergedChanges::default()
            });
        }
        if let Ok(merged) = merged {
            self.write_state(id, MERGE_FILE, &merged.content_changes()).map_err(failed)?;
            session.accept(merged);
        }
        // No other call of this run is under way.
        if let Some((path, why)) = overwrite(&session).failed {
            return Err(failed(io::Error::other(format!("`{}`: {why}", path.display()))));
        }
        if may_continue {
            tracker.take_baseline(&deadline).map_err(failed)?;
            // The next merge isn't a repetition of this one.
            let _ = self.out.remove_file(&self.state(id).join(MERGE_FILE));
        }
        let files = changed.changes.into_iter().map(|change| change.path).collect();
        Ok(MergedChanges { files, note, ..MergedChanges::default() })
    }

    /// Removes the copy of an agent, complete or not.
    pub(super) fn remove(&self, id: &str) {
        let folder = self.folder.join(id);
        if self.out.stat(&folder).is_err() {
            return;
        }
        // For an incomplete copy, git may have noted a worktree, too.
        let repository = self.workspace.root().to_owned();
        let unknown =
            || Snapshot::Git { repository, subfolder: PathBuf::new(), commit: String::new(), tree: String::new() };
        // What can't be removed is in a folder that git ignores, and is removed when the run is resumed.
        let _ = self.snapshot(id).unwrap_or_else(unknown).remove_workspace(&self.out, &self.copy(id));
        let _ = self.out.remove_tree(&folder);
        for folder in self.folder.ancestors().take_while(|folder| **folder != *self.out.path()) {
            if self.out.remove_dir(folder).is_err() {
                break;
            }
        }
    }

    /// Removes all copies of the run.
    pub fn remove_all(&self) {
        let copies = self.out.names(&self.folder).unwrap_or_default();
        copies.into_iter().filter_map(|copy| copy.into_string().ok()).for_each(|id| self.remove(&id));
    }
}

/// What isn't taken over from a copy, for the parent.
fn describe_gaps(incomplete: Option<String>, ignored: &[String]) -> Option<String> {
    let named: Vec<String> =
        ignored.iter().take(MAX_IGNORED_NAMED).map(|path| format!("`{}`", sanitize::line(path))).collect();
    let more = match ignored.len().saturating_sub(MAX_IGNORED_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let ignored =
        (!named.is_empty()).then(|| format!("not taken over, because git ignores it: {}{more}", named.join(", ")));
    let gaps: Vec<String> = ignored.into_iter().chain(incomplete).collect();
    (!gaps.is_empty()).then(|| gaps.join("; "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A workspace with one file, and the copies of it.
    fn workspace() -> (tempfile::TempDir, PathBuf, OwnWorkspaces) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (workspace, out) = (root.join("workspace"), root.join("runs"));
        for folder in [&workspace, &out] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(workspace.join("f"), "x\n1\n1\n1\n").unwrap();
        let opened = Arc::new(Workspace::open(&workspace, Vec::new(), Vec::new()).unwrap());
        let confine: Arc<ConfineCopy> = Arc::new(|_, _| Err("unused".to_owned()));
        let copies = OwnWorkspaces::new(&out, &out.join("run"), opened, None, confine).unwrap();
        (folder, workspace, copies)
    }

    #[test]
    fn why_a_change_is_not_merged_is_said_for_each_file() {
        let (_folder, workspace, copies) = workspace();
        copies.make("a", CancellationToken::new()).unwrap();
        for number in 0..12 {
            let text = format!("{number:099}\n").repeat(1_000);
            fs::write(copies.copy("a").join(format!("text{number:02}")), text).unwrap();
        }
        fs::write(copies.copy("a").join("binary"), "\0".repeat(1 << 20) + "x").unwrap();
        let merged = copies.merge("a", false, CancellationToken::new()).unwrap();
        assert_eq!(
            merged.conflicts,
            [
                "`binary`: it is larger than 1 MiB, so it can't be merged",
                "`text10`: all changes of this agent together are a patch of more than 1 MiB, which can't be merged",
                "`text11`: all changes of this agent together are a patch of more than 1 MiB, which can't be merged",
            ]
        );
        assert!(!workspace.join("text00").exists());
    }

    #[test]
    fn a_binary_file_is_merged_whole_or_conflicts() {
        let (_folder, workspace, copies) = workspace();
        fs::write(workspace.join("image"), [0, 1, 2]).unwrap();
        for agent in ["a", "b"] {
            copies.make(agent, CancellationToken::new()).unwrap();
        }
        fs::write(copies.copy("a").join("image"), [0, 255, 2]).unwrap();
        fs::write(copies.copy("a").join("new"), [0, 1]).unwrap();
        fs::write(copies.copy("b").join("image"), [0, 1, 3]).unwrap();
        let merge = |agent| copies.merge(agent, false, CancellationToken::new()).unwrap();
        assert_eq!(merge("a").files, ["image", "new"]);
        assert_eq!(merge("b").conflicts, ["`image`: it is a binary file, and was changed since the run started"]);
        assert_eq!(fs::read(workspace.join("image")).unwrap(), [0, 255, 2]);
    }

    #[test]
    fn merging_again_changes_nothing_even_if_lines_repeat() {
        let (_folder, workspace, copies) = workspace();
        for (id, text) in [("a", "x\n1\n1\n"), ("b", "y\n1\n1\n1\n")] {
            copies.make(id, CancellationToken::new()).unwrap();
            fs::write(copies.copy(id).join("f"), text).unwrap();
        }
        for id in ["a", "b", "b"] {
            let merged = copies.merge(id, false, CancellationToken::new()).unwrap();
            assert_eq!((merged.conflicts, merged.files), (vec![], vec!["f".to_owned()]), "{id}");
        }
        assert_eq!(fs::read_to_string(workspace.join("f")).unwrap(), "y\n1\n1\n");
    }
}
