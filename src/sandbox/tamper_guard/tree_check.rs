//! Records a protected path with everything below it, and later compares and restores it.
//!
//! One walk serves files, whole folders, and folders of which a part may change: a [`PathPolicy`] says at each path what may.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Stat, mkdirat, unlinkat};
use rustix::io::Errno;

use super::super::allowed_changes::{ChangePermission, PathPolicy};
use super::super::tamper_error::TamperError;
use super::dir_fd::{hard_links, kind, kind_of, list, read, stat};
use super::file_state::{FileState, MAX_GIT_FILE_BYTES, SnapshotBudget, StatSnapshot};
use super::worktree_notes::is_of_own_workspace;
use super::{git_content, rollback};

/// How deep folders are looked into.
const MAX_DEPTH: usize = 40;

/// A path to examine: a name in an open folder, the rules for it, and its depth below the protected path.
#[derive(Clone, Copy)]
pub(super) struct Location<'a> {
    pub(super) folder: &'a OwnedFd,
    pub(super) name: &'a OsStr,
    pub(super) policy: &'a PathPolicy<'a>,
    pub(super) depth: usize,
}

impl<'a> Location<'a> {
    pub(super) fn new(folder: &'a OwnedFd, name: &'a OsStr, policy: &'a PathPolicy<'a>) -> Self {
        Self { folder, name, policy, depth: 0 }
    }

    fn child<'c>(&self, folder: &'c OwnedFd, name: &'c OsStr, policy: &'c PathPolicy<'c>) -> Location<'c> {
        Location { folder, name, policy, depth: self.depth + 1 }
    }

    /// Whether changes of this path don't matter, so that it isn't recorded.
    fn is_ignored(&self, kind: FileType) -> bool {
        match self.policy.permission() {
            ChangePermission::Anything => true,
            ChangePermission::Objects => kind == FileType::RegularFile,
            _ => false,
        }
    }
}

/// Records everything that must not change. What is unchanged since `before` isn't read again.
pub(super) fn capture(at: Location<'_>, before: FileState, budget: &mut SnapshotBudget) -> FileState {
    let now = stat(at.folder, at.name).filter(|now| kind_of(now) == FileType::Directory);
    let Some(now) = now else { return before.recapture_file(at.folder, at.name, budget) };
    let metadata = StatSnapshot::of(&now);
    let listing = if budget.take() && at.depth <= MAX_DEPTH { list(at.folder, at.name).ok() } else { None };
    let Some((opened, listing)) = listing else {
        budget.exceeded = true;
        return FileState::Other(metadata);
    };
    let mut known = if let FileState::Folder(_, entries) = before { entries } else { BTreeMap::new() };
    let mut entries = BTreeMap::new();
    for (name, kind) in listing {
        let policy = at.policy.child(&name);
        let child = at.child(&opened, &name, &policy);
        if is_of_own_workspace(&opened, &name, &policy) {
            continue;
        }
        let before = known.remove(&name);
        if before.is_some() || !child.is_ignored(kind) {
            let state = capture(child, before.unwrap_or(FileState::Missing), budget);
            entries.insert(name, state);
        }
    }
    FileState::Folder(metadata, entries)
}

/// Records changes that are allowed and leaves the rest as it was recorded.
pub(super) fn accept(at: Location<'_>, state: FileState, budget: &mut SnapshotBudget) -> FileState {
    let is_allowed = matches!(at.policy.permission(), ChangePermission::Files | ChangePermission::File);
    match (stat(at.folder, at.name), state) {
        (Some(now), FileState::Folder(metadata, mut entries)) if kind_of(&now) == FileType::Directory => {
            let Ok((opened, listing)) = list(at.folder, at.name) else { return FileState::Folder(metadata, entries) };
            let names: BTreeSet<OsString> =
                listing.into_iter().map(|(name, _)| name).chain(entries.keys().cloned()).collect();
            for name in names {
                let policy = at.policy.child(&name);
                let before = entries.remove(&name).unwrap_or(FileState::Missing);
                match accept(at.child(&opened, &name, &policy), before, budget) {
                    FileState::Missing => {}
                    state => drop(entries.insert(name, state)),
                }
            }
            FileState::Folder(metadata, entries)
        }
        (_, state) if is_allowed && at.depth <= MAX_DEPTH => match capture(at, FileState::Missing, budget) {
            accepted @ (FileState::Missing | FileState::File(_, Some(_)) | FileState::Folder(..)) => accepted,
            _ => state,
        },
        (_, state) => state,
    }
}

/// What to do about changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckMode {
    /// Revert those that aren't allowed.
    Enforce,
    /// Only find those that aren't allowed.
    Detect,
    /// Revert all of them, as what depends on one another must be reverted together.
    Restore,
}

/// What was found. Most of it is about git folders.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Whether something protected was changed in another way than by its removal.
    pub(super) has_replaced: bool,
    /// Whether hooks, configuration or links were changed.
    pub(super) ends_run: bool,
    /// Whether something was changed in an allowed way.
    pub(super) has_allowed_changes: bool,
    /// The git folders in which references were changed.
    pub(super) changed_references: BTreeSet<PathBuf>,
    /// The logs, or folders of logs, that were changed.
    pub(super) changed_logs: BTreeSet<PathBuf>,
}

/// Compares the path with its recorded state, and handles changes.
#[derive(Debug)]
pub(super) struct TreeCheck<'a> {
    mode: CheckMode,
    /// Whether other commands are still running. If so, git's lock files don't count as changes yet.
    busy: bool,
    report: &'a mut TamperError,
    pub(super) findings: Findings,
    /// A folder further up was removed, so nothing below it was removed in an allowed way.
    is_rebuilding: bool,
}

impl<'a> TreeCheck<'a> {
    pub(super) fn new(mode: CheckMode, busy: bool, report: &'a mut TamperError) -> Self {
        Self { mode, busy, report, findings: Findings::default(), is_rebuilding: false }
    }

    pub(super) fn check(&mut self, at: Location<'_>, state: Option<&mut FileState>) {
        if is_of_own_workspace(at.folder, at.name, at.policy) {
            return;
        }
        match stat(at.folder, at.name) {
            None => self.check_missing(at, state),
            Some(now) if kind_of(&now) == FileType::Directory => {
                self.check_folder(at, state, &StatSnapshot::of(&now));
            }
            Some(now) => self.check_file(at, state, &now),
        }
    }

    fn permission(&self, at: Location<'_>) -> ChangePermission {
        use ChangePermission::{File, Files, FolderOnly, Nothing};
        match at.policy.permission() {
            Files | File | FolderOnly if self.mode == CheckMode::Restore => Nothing,
            permission => permission,
        }
    }

    fn check_missing(&mut self, at: Location<'_>, state: Option<&mut FileState>) {
        let Some(state) = state.filter(|state| !matches!(state, FileState::Missing)) else { return };
        // Whoever removes the last worktree removes the folder of all notes.
        if at.policy.is_in_git_dir("worktrees") && matches!(state, FileState::Folder(_, notes) if notes.is_empty()) {
            return;
        }
        let may_go = match self.permission(at) {
            ChangePermission::Files | ChangePermission::File | ChangePermission::Lock => true,
            ChangePermission::Objects => {
                !(matches!(state, FileState::Folder(..)) && at.policy.is_in_git_dir("objects"))
            }
            ChangePermission::Derived => return self.restore_derived(at, Some(state)),
            ChangePermission::Nothing | ChangePermission::FolderOnly | ChangePermission::Anything => false,
        };
        // Without its `HEAD`, git doesn't recognize the folder as a repository and looks further up.
        if !may_go || at.policy.is_in_git_dir("HEAD") || self.is_rebuilding {
            self.revert(at, Some(state));
        } else {
            self.note_allowed(at);
        }
    }

    fn check_folder(&mut self, at: Location<'_>, state: Option<&mut FileState>, now: &StatSnapshot) {
        let permission = self.permission(at);
        let is_same = matches!(&state, Some(FileState::Folder(before, _)) if before.permissions() == now.permissions());
        let is_new = matches!(state, None | Some(FileState::Missing));
        let is_allowed = match permission {
            ChangePermission::Anything => return,
            ChangePermission::Derived if is_new => return self.restore_derived(at, None),
            ChangePermission::Nothing | ChangePermission::Derived => {
                is_same || is_new && at.policy.is_in_git_dir("worktrees")
            }
            ChangePermission::FolderOnly => is_new || is_same,
            ChangePermission::Files | ChangePermission::Objects => at.depth <= MAX_DEPTH,
            ChangePermission::File | ChangePermission::Lock => false,
        };
        if is_new && permission == ChangePermission::Nothing && at.policy.may_become_repository() {
            if self.busy {
                return;
            }
            match state {
                Some(state) if git_content::is_fresh_git_dir(at.folder, at.name) => {
                    *state = capture(at, FileState::Missing, &mut SnapshotBudget::new(true));
                }
                _ => self.revert(at, None),
            }
        } else if !is_allowed {
            self.revert(at, state);
        } else if let Some(FileState::Folder(_, entries)) = state {
            self.check_entries(at, entries);
        } else {
            self.check_entries(at, &mut BTreeMap::new());
            if self.mode != CheckMode::Detect && at.policy.is_in_git_dir("worktrees") {
                // Nothing of legwork's is in it if this succeeds.
                let _ = unlinkat(at.folder, at.name, AtFlags::REMOVEDIR);
            }
        }
    }

    fn check_file(&mut self, at: Location<'_>, mut state: Option<&mut FileState>, now: &Stat) {
        if state.as_mut().is_some_and(|state| state.is_unchanged_file(at.folder, at.name)) {
            return;
        }
        let is_regular = kind_of(now) == FileType::RegularFile;
        let path_in_git_dir = at.policy.path_in_git_dir.as_ref();
        let is_allowed = match self.permission(at) {
            ChangePermission::Anything => true,
            ChangePermission::Derived if is_regular => return self.restore_derived(at, state),
            _ if is_regular && is_refreshed_index(at, state.as_deref()) => {
                // It is restored anyway, so that nothing has changed.
                state.as_mut().is_some_and(|state| rollback::restore_file(at.folder, at.name, state).is_ok())
            }
            ChangePermission::Nothing | ChangePermission::FolderOnly | ChangePermission::Derived => false,
            ChangePermission::Files | ChangePermission::File => {
                let is_safe = is_regular
                    && hard_links(now) == 1
                    && path_in_git_dir.is_none_or(|path| git_content::is_safe_git_file(at.folder, at.name, path));
                if is_safe {
                    self.note_allowed(at);
                }
                is_safe
            }
            ChangePermission::Objects => is_regular,
            ChangePermission::Lock if is_regular && self.busy => true,
            // Left behind by a git that was killed.
            ChangePermission::Lock => is_regular && unlinkat(at.folder, at.name, AtFlags::empty()).is_ok(),
        };
        if !is_allowed {
            self.revert(at, state);
        }
    }

    fn check_entries(&mut self, at: Location<'_>, entries: &mut BTreeMap<OsString, FileState>) {
        let Ok((opened, listing)) = list(at.folder, at.name) else {
            self.report.changed.push(at.policy.path.clone());
            self.report.not_restored.push(at.policy.path.clone());
            return;
        };
        let mut missing: BTreeSet<OsString> = entries.keys().cloned().collect();
        for (name, kind) in &listing {
            missing.remove(name);
            let policy = at.policy.child(name);
            // Most files of a git folder are objects, which needn't be examined one by one.
            let is_object = *kind == FileType::RegularFile && policy.permission() == ChangePermission::Objects;
            if !is_object || entries.contains_key(name) {
                self.check(at.child(&opened, name, &policy), entries.get_mut(name));
            }
        }
        for name in missing {
            self.check(at.child(&opened, &name, &at.policy.child(&name)), entries.get_mut(&name));
        }
    }

    /// Takes note of an allowed change.
    fn note_allowed(&mut self, at: Location<'_>) {
        self.findings.has_allowed_changes = true;
        let within = at.policy.path_in_git_dir.as_ref();
        if within.is_some_and(|within| within.starts_with("logs")) {
            self.findings.changed_logs.insert(at.policy.path.clone());
        }
        if let Some(within) = within
            && (within.starts_with("refs") || within == Path::new("packed-refs"))
        {
            let git_dir = at.policy.path.ancestors().nth(within.iter().count());
            self.findings.changed_references.extend(git_dir.map(Path::to_owned));
        }
    }

    /// Reverts a change that means nothing.
    fn restore_derived(&mut self, at: Location<'_>, state: Option<&mut FileState>) {
        let restored = match state {
            None => rollback::remove_all(at.folder, at.name, 0),
            Some(FileState::Folder(metadata, entries)) => {
                make_folder(at.folder, at.name, metadata).map(|_| self.check_entries(at, entries))
            }
            Some(state) => rollback::restore_file(at.folder, at.name, state),
        };
        if restored.is_err() {
            self.report.changed.push(at.policy.path.clone());
            self.report.not_restored.push(at.policy.path.clone());
        }
    }

    /// Reports a change and undoes it.
    fn revert(&mut self, at: Location<'_>, state: Option<&mut FileState>) {
        let path = &at.policy.path;
        self.report.changed.push(path.clone());
        self.findings.has_replaced |= state.is_none() || kind(at.folder, at.name).is_some();
        if self.mode == CheckMode::Detect {
            self.findings.ends_run |= ends_run(at, state.as_deref());
            if let Some(FileState::Folder(_, entries)) = state
                && kind(at.folder, at.name) == Some(FileType::Directory)
            {
                self.check_entries(at, entries);
            }
            return;
        }
        let reverted = match state {
            None => rollback::remove_all(at.folder, at.name, 0),
            Some(FileState::Folder(metadata, entries)) if at.depth <= MAX_DEPTH => {
                make_folder(at.folder, at.name, metadata).map(|is_new| {
                    if is_new && at.policy.permission() == ChangePermission::Objects {
                        // Nothing has copies of these objects.
                        self.report.not_restored.push(path.clone());
                    }
                    let was_rebuilding = self.is_rebuilding;
                    self.is_rebuilding |= is_new;
                    let reported = self.report.changed.len();
                    self.check_entries(at, entries);
                    if is_new {
                        // Naming the folder is enough.
                        self.report.changed.truncate(reported);
                    }
                    self.is_rebuilding = was_rebuilding;
                })
            }
            Some(state) => rollback::restore_file(at.folder, at.name, state),
        };
        if reverted.is_err() {
            self.report.not_restored.push(path.clone());
        }
    }
}

/// Whether a change in a git folder that isn't allowed is one that no ordinary git command makes, or that could make git run a
/// program: of hooks, configuration and links, and of the folder itself.
fn ends_run(at: Location<'_>, before: Option<&FileState>) -> bool {
    let Some(within) = at.policy.path_in_git_dir.as_ref() else { return true };
    let now = stat(at.folder, at.name);
    let is_regular = now.as_ref().is_some_and(|now| kind_of(now) == FileType::RegularFile && hard_links(now) == 1);
    let parts: Vec<&str> = within.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let selects_code = match parts.as_slice() {
        // The file that leads to the git folder of a submodule: `git submodule deinit` removes it.
        [] => now.is_some() || !matches!(before, Some(FileState::File(..))),
        [.., "config" | "config.worktree"] if is_regular => {
            let former: &[u8] = match before {
                Some(FileState::File(_, Some(content))) => content,
                _ => &[],
            };
            let content = read(at.folder, at.name, MAX_GIT_FILE_BYTES);
            !content.is_some_and(|content| git_content::adds_only_harmless_settings(former, &content))
        }
        [.., "config" | "config.worktree" | "commondir" | "gitdir"] | ["info", "attributes"] => true,
        ["objects", "info", name] => name.ends_with("alternates"),
        parts => parts.contains(&"hooks"),
    };
    selects_code
        || match now {
            None => false,
            Some(now) => match kind_of(&now) {
                FileType::Directory => false,
                FileType::RegularFile if at.policy.is_in_git_dir("index") && is_regular => {
                    // One that can't be read, such as a split index, can only be undone.
                    let content = read(at.folder, at.name, MAX_GIT_FILE_BYTES);
                    content.is_some_and(|content| git_content::has_foreign_paths(&content))
                }
                FileType::RegularFile => {
                    !is_regular
                        || at.policy.may_be_committed() && !git_content::is_safe_git_file(at.folder, at.name, within)
                }
                _ => true,
            },
        }
}

/// Makes sure that there is a folder with the former owner and mode. Returns whether there was none.
fn make_folder(folder: &OwnedFd, name: &OsStr, metadata: &StatSnapshot) -> Result<bool, Errno> {
    let is_new = kind(folder, name) != Some(FileType::Directory);
    if is_new {
        rollback::remove_all(folder, name, 0)?;
        mkdirat(folder, name, Mode::from_raw_mode(0o700))?;
    }
    rollback::restore_dir_permissions(folder, name, metadata)?;
    Ok(is_new)
}

/// Whether it is an index in which only the cached state of files is newer. `git describe --dirty` writes such an index
/// even with optional locks turned off.
fn is_refreshed_index(at: Location<'_>, state: Option<&FileState>) -> bool {
    let Some(FileState::File(_, Some(before))) = state else { return false };
    at.policy.permission() == ChangePermission::Nothing
        && at.policy.is_in_git_dir("index")
        && read(at.folder, at.name, MAX_GIT_FILE_BYTES).is_some_and(|now| git_content::has_same_entries(before, &now))
}
