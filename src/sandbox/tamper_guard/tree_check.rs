//! Folders of which only parts must stay as they are: git folders, and protected folders with exceptions.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::super::allowed_changes::{ChangePermission, PathPolicy};
use super::file_state::{FileState, LARGEST_OF_GIT, SnapshotBudget, StatSnapshot, kind_of, links, read, stat};
use super::{fresh_repository, git_index, rollback};

/// How deep folders are looked into.
const MAX_DEPTH: usize = 40;
/// How many names of a folder are read; more in one that may not change is a change.
const MOST_NAMES: usize = 500_000;
/// The longest reference that is looked into, in bytes.
const LONGEST_REFERENCE: usize = 1000;

/// Looks at all that must stay as it is.
pub(super) fn capture(
    folder: &OwnedFd,
    name: &OsStr,
    spot: &PathPolicy<'_>,
    budget: &mut SnapshotBudget,
    depth: usize,
) -> FileState {
    let Some(stat) = stat(folder, name) else { return FileState::Missing };
    if kind_of(&stat) != FileType::Directory {
        return FileState::capture(folder, name, budget);
    }
    let marks = StatSnapshot::of(&stat);
    if !budget.take() || depth > MAX_DEPTH {
        budget.exceeded = true;
        return FileState::Other(marks);
    }
    let Ok((opened, listed)) = list(folder, name) else { return FileState::Other(marks) };
    let mut entries = BTreeMap::new();
    for (name, kind) in listed {
        let child = spot.child(&name);
        let is_ignored = match child.permission() {
            ChangePermission::Anything | ChangePermission::Lock => true,
            ChangePermission::Objects => kind == FileType::RegularFile,
            _ => false,
        };
        if !is_ignored {
            let state = capture(&opened, &name, &child, budget, depth + 1);
            entries.insert(name, state);
        }
    }
    FileState::Folder(marks, entries)
}

/// Takes what is there now as how it must be.
pub(super) fn rebaseline(
    state: &mut FileState,
    folder: &OwnedFd,
    name: &OsStr,
    spot: &PathPolicy<'_>,
    budget: &mut SnapshotBudget,
    depth: usize,
) {
    let now = stat(folder, name).filter(|stat| kind_of(stat) == FileType::Directory);
    let (FileState::Folder(marks, entries), Some(now)) = (&mut *state, now) else {
        if !state.is_unchanged(folder, name) {
            *state = capture(folder, name, spot, budget, depth);
        }
        return;
    };
    *marks = StatSnapshot::of(&now);
    let Ok((opened, listed)) = list(folder, name) else {
        *state = FileState::Other(*marks);
        return;
    };
    let mut fresh = BTreeMap::new();
    for (name, kind) in listed {
        let child = spot.child(&name);
        if let Some(mut known) = entries.remove(&name) {
            rebaseline(&mut known, &opened, &name, &child, budget, depth + 1);
            fresh.insert(name, known);
            continue;
        }
        let is_ignored = match child.permission() {
            ChangePermission::Anything | ChangePermission::Lock => true,
            ChangePermission::Objects => kind == FileType::RegularFile,
            _ => false,
        };
        if !is_ignored {
            let state = capture(&opened, &name, &child, budget, depth + 1);
            fresh.insert(name, state);
        }
    }
    *entries = fresh;
}

/// Compares what is there with what was, and undoes what isn't allowed.
#[derive(Debug, Default)]
pub(super) struct TreeCheck {
    /// Whether other commands still run: their locks are no change yet.
    busy: bool,
    pub(super) changed: Vec<PathBuf>,
    pub(super) left: Vec<PathBuf>,
    /// A folder above was taken away, so that nothing in it went in an allowed way.
    is_rebuilding: bool,
}

impl TreeCheck {
    pub(super) fn new(busy: bool) -> Self {
        Self { busy, ..Self::default() }
    }

    pub(super) fn check(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        spot: &PathPolicy<'_>,
        mut state: Option<&mut FileState>,
        depth: usize,
    ) {
        let allowed = spot.permission();
        let Some(now) = stat(folder, name) else {
            let Some(state) = state.filter(|state| !matches!(state, FileState::Missing)) else { return };
            let may_go = matches!(
                allowed,
                ChangePermission::Files | ChangePermission::File | ChangePermission::Lock | ChangePermission::Objects
            );
            let is_part = matches!(allowed, ChangePermission::Objects)
                && matches!(state, FileState::Folder(..))
                && is_objects_root(spot);
            if !may_go || is_part || spot.is_head() || self.is_rebuilding {
                self.revert(folder, name, spot, Some(state), depth);
            }
            return;
        };
        let kind = kind_of(&now);
        if kind == FileType::Directory {
            let marks = StatSnapshot::of(&now);
            let stays = |state: &Option<&mut FileState>| match state {
                Some(FileState::Folder(before, _)) => before.has_same_permissions(&marks),
                _ => false,
            };
            let is_new = matches!(state, None | Some(FileState::Missing));
            let is_fine = match allowed {
                ChangePermission::Anything => return,
                ChangePermission::Nothing => stays(&state),
                ChangePermission::FolderOnly => is_new || stays(&state),
                ChangePermission::Files | ChangePermission::Objects => depth <= MAX_DEPTH,
                ChangePermission::File | ChangePermission::Lock => false,
            };
            if is_new && allowed == ChangePermission::Nothing && spot.may_become_repository() {
                if self.busy {
                    return;
                }
                if fresh_repository::is_fresh_git_dir(folder, name)
                    && let Some(state) = state
                {
                    *state = capture(folder, name, spot, &mut SnapshotBudget::of_trees(), depth);
                    return;
                }
                self.revert(folder, name, spot, None, depth);
                return;
            }
            if !is_fine {
                self.revert(folder, name, spot, state, depth);
                return;
            }
            match state {
                Some(FileState::Folder(_, entries)) => self.children(folder, name, spot, entries, depth),
                _ => self.children(folder, name, spot, &mut BTreeMap::new(), depth),
            }
            return;
        }
        if state.as_mut().is_some_and(|state| state.is_unchanged(folder, name)) {
            return;
        }
        let is_regular = kind == FileType::RegularFile;
        let is_lock = spot.path_in_git_dir.is_some() && name.as_encoded_bytes().ends_with(b".lock");
        let is_fine = match allowed {
            ChangePermission::Anything => true,
            _ if is_regular && is_refreshed_index(folder, name, spot, state.as_deref()) => {
                // It is put back all the same, so that nothing has changed.
                state.as_mut().is_some_and(|state| rollback::restore(folder, name, state).is_ok())
            }
            _ if is_regular && is_lock && self.busy => true,
            ChangePermission::Nothing | ChangePermission::FolderOnly => false,
            ChangePermission::Files | ChangePermission::File => {
                is_regular && links(&now) == 1 && has_safe_content(folder, name, spot)
            }
            ChangePermission::Objects => is_regular,
            // Left by a git that was killed.
            ChangePermission::Lock => is_regular && unlinkat(folder, name, AtFlags::empty()).is_ok(),
        };
        if !is_fine {
            self.revert(folder, name, spot, state, depth);
        }
    }

    fn children(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        spot: &PathPolicy<'_>,
        entries: &mut BTreeMap<OsString, FileState>,
        depth: usize,
    ) {
        let (opened, listed) = match list(folder, name) {
            Ok(listed) => listed,
            Err(_) => {
                self.changed.push(spot.path.clone());
                self.left.push(spot.path.clone());
                return;
            }
        };
        let mut gone: std::collections::BTreeSet<OsString> = entries.keys().cloned().collect();
        for (name, kind) in &listed {
            gone.remove(name);
            let child = spot.child(name);
            // Most of a git folder; no look at each is needed.
            if *kind == FileType::RegularFile
                && child.permission() == ChangePermission::Objects
                && !entries.contains_key(name)
            {
                continue;
            }
            self.check(&opened, name, &child, entries.get_mut(name), depth + 1);
        }
        for name in gone {
            let child = spot.child(&name);
            self.check(&opened, &name, &child, entries.get_mut(&name), depth + 1);
        }
    }

    /// Names a change, and makes it what it was.
    fn revert(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        spot: &PathPolicy<'_>,
        state: Option<&mut FileState>,
        depth: usize,
    ) {
        self.changed.push(spot.path.clone());
        let done = match state {
            None => rollback::remove_all(folder, name, 0),
            Some(FileState::Folder(marks, entries)) if depth <= MAX_DEPTH => {
                let marks = *marks;
                match self.make_folder(folder, name, &marks) {
                    Ok(is_new) => {
                        if is_new && spot.permission() == ChangePermission::Objects {
                            // Nobody keeps a copy of all objects.
                            self.left.push(spot.path.clone());
                        }
                        let before = self.is_rebuilding;
                        self.is_rebuilding |= is_new;
                        let named = self.changed.len();
                        self.children(folder, name, spot, entries, depth);
                        if is_new {
                            // The folder itself says it all.
                            self.changed.truncate(named);
                        }
                        self.is_rebuilding = before;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Some(state) => rollback::restore(folder, name, state),
        };
        if done.is_err() {
            self.left.push(spot.path.clone());
        }
    }

    /// Makes a folder with these rights, and says whether it wasn't there.
    fn make_folder(&self, folder: &OwnedFd, name: &OsStr, marks: &StatSnapshot) -> Result<bool, Errno> {
        let is_new = stat(folder, name).is_none_or(|now| kind_of(&now) != FileType::Directory);
        if is_new {
            rollback::remove_all(folder, name, 0)?;
            mkdirat(folder, name, Mode::from_raw_mode(0o700))?;
        }
        rollback::restore_dir_permissions(folder, name, marks)?;
        Ok(is_new)
    }
}

/// Whether it is the folder of all objects.
fn is_objects_root(spot: &PathPolicy<'_>) -> bool {
    spot.path_in_git_dir.as_ref().is_some_and(|within| within.iter().count() == 1)
}

/// Whether it is an index in which only the state of files is newer. `git describe --dirty` writes such a one though it was
/// told to take no locks.
fn is_refreshed_index(folder: &OwnedFd, name: &OsStr, spot: &PathPolicy<'_>, state: Option<&FileState>) -> bool {
    let Some(FileState::File(_, Some(before))) = state else { return false };
    spot.permission() == ChangePermission::Nothing
        && spot.path_in_git_dir.as_ref().is_some_and(|within| within == Path::new("index"))
        && read(folder, name, LARGEST_OF_GIT).is_some_and(|now| git_index::has_same_entries(before, &now))
}

/// See [`is_harmless`].
fn has_safe_content(folder: &OwnedFd, name: &OsStr, spot: &PathPolicy<'_>) -> bool {
    spot.path_in_git_dir.as_ref().is_none_or(|within| is_safe_git_file(folder, name, within))
}

/// Whether a reference names an object or another reference, for git writes to what it names; and whether an index names
/// only files of the working tree. `within` is the path from the root of the git folder.
pub(super) fn is_safe_git_file(folder: &OwnedFd, name: &OsStr, within: &Path) -> bool {
    if within == Path::new("index") {
        return read(folder, name, LARGEST_OF_GIT).is_some_and(|content| git_index::has_only_worktree_paths(&content));
    }
    if !(within == Path::new("HEAD") || within == Path::new("ORIG_HEAD") || within.starts_with("refs")) {
        return true;
    }
    let Some(content) = read(folder, name, LONGEST_REFERENCE as u64) else { return false };
    let text = String::from_utf8_lossy(&content);
    let text = text.trim_end();
    match text.strip_prefix("ref:") {
        Some(target) => target.trim_start().starts_with("refs/") && !target.contains(".."),
        None => matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
    }
}

/// Opens a folder and lists it with the kinds of its entries.
pub(super) fn list(folder: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Vec<(OsString, FileType)>), Errno> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(folder, name, flags, Mode::empty())?;
    let mut listed = Vec::new();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            if listed.len() >= MOST_NAMES {
                return Err(Errno::TOOBIG);
            }
            listed.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok((opened, listed))
}
