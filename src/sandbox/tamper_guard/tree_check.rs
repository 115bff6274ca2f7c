//! Records a protected path with everything below it, and later compares and restores it.
//!
//! One walk serves files, whole folders, and folders of which a part may change: a [`PathPolicy`] says at each path what may.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, mkdirat, unlinkat};
use rustix::io::Errno;

use super::super::allowed_changes::{ChangePermission, PathPolicy};
use super::super::tamper_error::TamperError;
use super::dir_fd::{MAX_NAMES, hard_links, kind, kind_of, list, read, stat};
use super::file_state::{FileState, MAX_GIT_FILE_BYTES, SnapshotBudget, StatSnapshot};
use super::{git_content, git_index, rollback};

/// How deep folders are looked into.
const MAX_DEPTH: usize = 40;

/// Records everything that must not change.
pub(super) fn capture(
    folder: &OwnedFd,
    name: &OsStr,
    policy: &PathPolicy<'_>,
    budget: &mut SnapshotBudget,
    depth: usize,
) -> FileState {
    let Some(now) = stat(folder, name).filter(|stat| kind_of(stat) == FileType::Directory) else {
        return FileState::capture_file(folder, name, budget);
    };
    let metadata = StatSnapshot::of(&now);
    let listing = if budget.take() && depth <= MAX_DEPTH { list(folder, name, MAX_NAMES).ok() } else { None };
    let Some((opened, listing)) = listing else {
        budget.exceeded = true;
        return FileState::Other(metadata);
    };
    let mut entries = BTreeMap::new();
    for (name, kind) in listing {
        let child = policy.child(&name);
        if is_recorded(&child, kind) {
            let state = capture(&opened, &name, &child, budget, depth + 1);
            entries.insert(name, state);
        }
    }
    FileState::Folder(metadata, entries)
}

/// Accepts what is there now as the state that must not change.
pub(super) fn rebaseline(
    state: &mut FileState,
    folder: &OwnedFd,
    name: &OsStr,
    policy: &PathPolicy<'_>,
    budget: &mut SnapshotBudget,
    depth: usize,
) {
    let now = stat(folder, name).filter(|stat| kind_of(stat) == FileType::Directory);
    let (FileState::Folder(metadata, entries), Some(now)) = (&mut *state, now) else {
        if !state.is_unchanged_file(folder, name) {
            *state = capture(folder, name, policy, budget, depth);
        }
        return;
    };
    *metadata = StatSnapshot::of(&now);
    let Ok((opened, listing)) = list(folder, name, MAX_NAMES) else {
        *state = FileState::Other(*metadata);
        return;
    };
    let mut current = BTreeMap::new();
    for (name, kind) in listing {
        let child = policy.child(&name);
        if let Some(mut known) = entries.remove(&name) {
            rebaseline(&mut known, &opened, &name, &child, budget, depth + 1);
            current.insert(name, known);
        } else if is_recorded(&child, kind) {
            let state = capture(&opened, &name, &child, budget, depth + 1);
            current.insert(name, state);
        }
    }
    *entries = current;
}

fn is_recorded(policy: &PathPolicy<'_>, kind: FileType) -> bool {
    match policy.permission() {
        ChangePermission::Anything | ChangePermission::Lock => false,
        ChangePermission::Objects => kind != FileType::RegularFile,
        _ => true,
    }
}

/// Compares what is there with what was, and reverts changes that aren't allowed.
#[derive(Debug)]
pub(super) struct TreeCheck<'a> {
    /// Whether other commands are still running: git's lock files are no change yet.
    busy: bool,
    report: &'a mut TamperError,
    /// A folder further up was removed, so nothing below it was removed in an allowed way.
    is_rebuilding: bool,
}

impl<'a> TreeCheck<'a> {
    pub(super) fn new(busy: bool, report: &'a mut TamperError) -> Self {
        Self { busy, report, is_rebuilding: false }
    }

    pub(super) fn check(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        policy: &PathPolicy<'_>,
        state: Option<&mut FileState>,
        depth: usize,
    ) {
        match stat(folder, name) {
            None => self.check_missing(folder, name, policy, state, depth),
            Some(now) if kind_of(&now) == FileType::Directory => {
                self.check_folder(folder, name, policy, state, &StatSnapshot::of(&now), depth);
            }
            Some(now) => {
                let is_private = kind_of(&now) == FileType::RegularFile && hard_links(&now) == 1;
                self.check_file(folder, name, policy, state, kind_of(&now), is_private, depth);
            }
        }
    }

    fn check_missing(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        policy: &PathPolicy<'_>,
        state: Option<&mut FileState>,
        depth: usize,
    ) {
        let Some(state) = state.filter(|state| !matches!(state, FileState::Missing)) else { return };
        let may_go = match policy.permission() {
            ChangePermission::Files | ChangePermission::File | ChangePermission::Lock => true,
            ChangePermission::Objects => !(matches!(state, FileState::Folder(..)) && policy.is_objects_root()),
            ChangePermission::Nothing | ChangePermission::FolderOnly | ChangePermission::Anything => false,
        };
        if !may_go || policy.is_head() || self.is_rebuilding {
            self.revert(folder, name, policy, Some(state), depth);
        }
    }

    fn check_folder(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        policy: &PathPolicy<'_>,
        state: Option<&mut FileState>,
        now: &StatSnapshot,
        depth: usize,
    ) {
        let permission = policy.permission();
        let is_same = matches!(&state, Some(FileState::Folder(before, _)) if before.has_same_permissions(now));
        let is_new = matches!(state, None | Some(FileState::Missing));
        let is_allowed = match permission {
            ChangePermission::Anything => return,
            ChangePermission::Nothing => is_same,
            ChangePermission::FolderOnly => is_new || is_same,
            ChangePermission::Files | ChangePermission::Objects => depth <= MAX_DEPTH,
            ChangePermission::File | ChangePermission::Lock => false,
        };
        if is_new && permission == ChangePermission::Nothing && policy.may_become_repository() {
            if self.busy {
                return;
            }
            match state {
                Some(state) if git_content::is_fresh_git_dir(folder, name) => {
                    *state = capture(folder, name, policy, &mut SnapshotBudget::for_partly_protected(), depth);
                }
                _ => self.revert(folder, name, policy, None, depth),
            }
        } else if !is_allowed {
            self.revert(folder, name, policy, state, depth);
        } else if let Some(FileState::Folder(_, entries)) = state {
            self.check_entries(folder, name, policy, entries, depth);
        } else {
            self.check_entries(folder, name, policy, &mut BTreeMap::new(), depth);
        }
    }

    fn check_file(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        policy: &PathPolicy<'_>,
        mut state: Option<&mut FileState>,
        kind: FileType,
        is_private: bool,
        depth: usize,
    ) {
        if state.as_mut().is_some_and(|state| state.is_unchanged_file(folder, name)) {
            return;
        }
        let is_regular = kind == FileType::RegularFile;
        let is_lock = policy.path_in_git_dir.is_some() && name.as_encoded_bytes().ends_with(b".lock");
        let is_allowed = match policy.permission() {
            ChangePermission::Anything => true,
            _ if is_regular && is_refreshed_index(folder, name, policy, state.as_deref()) => {
                // It is restored all the same, so that nothing has changed.
                state.as_mut().is_some_and(|state| rollback::restore_file(folder, name, state).is_ok())
            }
            _ if is_regular && is_lock && self.busy => true,
            ChangePermission::Nothing | ChangePermission::FolderOnly => false,
            ChangePermission::Files | ChangePermission::File => {
                is_private
                    && policy
                        .path_in_git_dir
                        .as_ref()
                        .is_none_or(|path| git_content::is_safe_git_file(folder, name, path))
            }
            ChangePermission::Objects => is_regular,
            // Left behind by a git that was killed.
            ChangePermission::Lock => is_regular && unlinkat(folder, name, AtFlags::empty()).is_ok(),
        };
        if !is_allowed {
            self.revert(folder, name, policy, state, depth);
        }
    }

    fn check_entries(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        policy: &PathPolicy<'_>,
        entries: &mut BTreeMap<OsString, FileState>,
        depth: usize,
    ) {
        let Ok((opened, listing)) = list(folder, name, MAX_NAMES) else {
            self.report.changed.push(policy.path.clone());
            self.report.not_restored.push(policy.path.clone());
            return;
        };
        let mut missing: BTreeSet<OsString> = entries.keys().cloned().collect();
        for (name, kind) in &listing {
            missing.remove(name);
            let child = policy.child(name);
            // Most files of a git folder are objects, which needn't be looked at one by one.
            let is_object = *kind == FileType::RegularFile && child.permission() == ChangePermission::Objects;
            if !is_object || entries.contains_key(name) {
                self.check(&opened, name, &child, entries.get_mut(name), depth + 1);
            }
        }
        for name in missing {
            self.check(&opened, &name, &policy.child(&name), entries.get_mut(&name), depth + 1);
        }
    }

    /// Reports a change and undoes it.
    fn revert(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        policy: &PathPolicy<'_>,
        state: Option<&mut FileState>,
        depth: usize,
    ) {
        self.report.changed.push(policy.path.clone());
        let reverted = match state {
            None => rollback::remove_all(folder, name, 0),
            Some(FileState::Folder(metadata, entries)) if depth <= MAX_DEPTH => {
                make_folder(folder, name, metadata).map(|is_new| {
                    if is_new && policy.permission() == ChangePermission::Objects {
                        // Objects are too many to keep copies of.
                        self.report.not_restored.push(policy.path.clone());
                    }
                    let was_rebuilding = self.is_rebuilding;
                    self.is_rebuilding |= is_new;
                    let reported = self.report.changed.len();
                    self.check_entries(folder, name, policy, entries, depth);
                    if is_new {
                        // Naming the folder is enough.
                        self.report.changed.truncate(reported);
                    }
                    self.is_rebuilding = was_rebuilding;
                })
            }
            Some(state) => rollback::restore_file(folder, name, state),
        };
        if reverted.is_err() {
            self.report.not_restored.push(policy.path.clone());
        }
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

/// Whether it is an index in which only the cached state of files is newer. `git describe --dirty` writes such an index even
/// if it was told to take no locks.
fn is_refreshed_index(folder: &OwnedFd, name: &OsStr, policy: &PathPolicy<'_>, state: Option<&FileState>) -> bool {
    let Some(FileState::File(_, Some(before))) = state else { return false };
    policy.permission() == ChangePermission::Nothing
        && policy.path_in_git_dir.as_ref().is_some_and(|path| path == Path::new("index"))
        && read(folder, name, MAX_GIT_FILE_BYTES).is_some_and(|now| git_index::has_same_entries(before, &now))
}
