//! Exceptions: which changes commands may make inside protected paths.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::job::GitAccess;

/// What commands may change inside protected paths.
#[derive(Debug, Clone, Default)]
pub struct AllowedChanges {
    /// What may change in git folders.
    pub git: GitAccess,
    /// All git folders, canonical: those of worktrees and submodules as well, and the workspace's own `.git` even if it
    /// doesn't exist yet.
    pub git_folders: BTreeSet<PathBuf>,
    /// Paths that the job excludes from the protection, canonical except for parts that don't exist.
    pub unprotected: Vec<PathBuf>,
    /// Object folders of git that are guarded in another way, canonical.
    pub guarded_objects: BTreeSet<PathBuf>,
}

static NO_EXCEPTIONS: AllowedChanges = AllowedChanges {
    git: GitAccess::Read,
    git_folders: BTreeSet::new(),
    unprotected: Vec::new(),
    guarded_objects: BTreeSet::new(),
};

/// What may change at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangePermission {
    /// Nothing.
    Nothing,
    /// It is on the way to something that may change, so the folder may be created.
    FolderOnly,
    /// Everything.
    Anything,
    /// Regular files and folders may be created, changed and removed.
    Files,
    /// One regular file may be created, changed and removed.
    File,
    /// Objects and packs: regular files and folders whose content isn't checked.
    Objects,
    /// A lock file of git, which is gone when git has ended.
    Lock,
    /// What git derives from other files. A change is reverted and doesn't matter otherwise.
    Derived,
}

/// A path, the rules for it, and its place in a git folder if it is in one.
#[derive(Debug, Clone)]
pub(super) struct PathPolicy<'a> {
    rules: &'a AllowedChanges,
    pub(super) path: PathBuf,
    /// From the root of the nearest git folder.
    pub(super) path_in_git_dir: Option<PathBuf>,
}

impl AllowedChanges {
    /// Whether only a part of what is at or below a path is protected.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        self.allows_below(path) || self.git_folders.iter().any(|folder| path.starts_with(folder))
    }

    /// Whether the job allows changes of something at or below a path.
    pub(super) fn allows_below(&self, path: &Path) -> bool {
        self.unprotected.iter().any(|allowed| allowed.starts_with(path))
    }

    /// The policy for a protected path. A path inside an excluded folder, such as the job file, is protected completely.
    pub(super) fn policy_for_protected(&self, path: &Path) -> PathPolicy<'_> {
        if self.concerns(path) { self.policy_for(path) } else { NO_EXCEPTIONS.policy_for(path) }
    }

    pub(super) fn policy_for(&self, path: &Path) -> PathPolicy<'_> {
        let within = self.git_folders.iter().filter_map(|folder| path.strip_prefix(folder).ok());
        // The innermost git folder has the shortest path to it.
        let within = within.min_by_key(|rest| rest.as_os_str().len()).map(Path::to_owned);
        PathPolicy { rules: self, path: path.to_owned(), path_in_git_dir: within }
    }
}

impl PathPolicy<'_> {
    pub(super) fn child(&self, name: &OsStr) -> Self {
        let path = self.path.join(name);
        let within = match self.rules.git_folders.contains(&path) {
            true => Some(PathBuf::new()),
            false => self.path_in_git_dir.as_ref().map(|within| within.join(name)),
        };
        Self { rules: self.rules, path, path_in_git_dir: within }
    }

    pub(super) fn permission(&self) -> ChangePermission {
        if let Some(within) = &self.path_in_git_dir {
            return match git_dir_permission(within, self.rules.git) {
                ChangePermission::Objects if self.rules.guarded_objects.contains(&self.path) => {
                    ChangePermission::FolderOnly
                }
                ChangePermission::Objects if self.has_guarded_objects() => ChangePermission::Anything,
                permission => permission,
            };
        }
        if self.rules.unprotected.iter().any(|allowed| self.path.starts_with(allowed)) {
            return ChangePermission::Anything;
        }
        if self.rules.allows_below(&self.path) {
            return ChangePermission::FolderOnly;
        }
        ChangePermission::Nothing
    }

    /// Whether `git: commit` would allow a regular file here to change, if its content is safe.
    pub(super) fn may_be_committed(&self) -> bool {
        let permission = self.path_in_git_dir.as_ref().map(|within| git_dir_permission(within, GitAccess::Commit));
        matches!(permission, Some(ChangePermission::Files | ChangePermission::File))
    }

    fn has_guarded_objects(&self) -> bool {
        // Most runs have one repository.
        self.rules.guarded_objects.iter().any(|objects| self.path.starts_with(objects))
    }

    /// Whether this is a git folder that commands may create.
    pub(super) fn may_become_repository(&self) -> bool {
        self.rules.git == GitAccess::Commit && self.is_in_git_dir("")
    }

    /// Whether this is the path in a git folder.
    pub(super) fn is_in_git_dir(&self, path: &str) -> bool {
        self.path_in_git_dir.as_ref().is_some_and(|within| within == Path::new(path))
    }
}

/// Files in a git folder that `git: commit` lets commands change: what `git commit`, `merge`, `cherry-pick`, `revert`, `tag`,
/// `notes`, `stash` and `fetch` leave behind. None of them makes a later git command run a program. The state of a rebase or of a series
/// of commits isn't among them: it holds commands for the next `--continue`.
const COMMIT_FILES: [&str; 15] = [
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "COMMIT_EDITMSG",
    "FETCH_HEAD",
    "HEAD",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_MSG",
    "NOTES_EDITMSG",
    "ORIG_HEAD",
    "REVERT_HEAD",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "index",
    "packed-refs",
];

/// What may change at a path relative to a git folder; gitrepository-layout(5) describes the parts. Which references may change
/// is decided by what they are worth in the end, packed or not.
fn git_dir_permission(within: &Path, access: GitAccess) -> ChangePermission {
    let parts: Vec<&str> = within.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    match (parts.as_slice(), access) {
        (["objects", "info", "packs" | "commit-graph"] | ["objects", "info", "commit-graphs", ..], _)
        | (["info", "refs"] | ["gc.log" | "gc.pid"], _) => ChangePermission::Derived,
        // Alternates lead to other objects.
        (["objects", "info", ..], _) => ChangePermission::Nothing,
        (["objects", ..], _) => ChangePermission::Objects,
        ([.., name], _) if name.ends_with(".lock") || *name == "packed-refs.new" => ChangePermission::Lock,
        (["refs", _, ..] | ["logs", ..], GitAccess::Commit) => ChangePermission::Files,
        ([name], GitAccess::Commit) if COMMIT_FILES.contains(name) => ChangePermission::File,
        _ => ChangePermission::Nothing,
    }
}
