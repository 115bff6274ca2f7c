//! Git's notes of worktrees, `worktrees/NAME` in a git folder. Those of legwork's own workspaces come and go while commands run,
//! because rows and subagents start and end.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::FileType;

use super::super::allowed_changes::PathPolicy;
use super::dir_fd::{list, read};
use crate::isolation::is_own_workspace;

/// The longest path that is read, in bytes.
const MAX_PATH_BYTES: u64 = 8 << 10;
/// The longest configuration that is compared, in bytes.
const MAX_CONFIG_BYTES: u64 = 64 << 10;
/// What leads from a note to the git folder that it is in.
const COMMON_DIR: &str = "../..";

/// Whether a path is a note that needn't be compared: git has made it for a workspace of a row or a subagent, and nothing in it
/// determines which programs git runs.
pub(super) fn is_of_own_workspace(folder: &OwnedFd, name: &OsStr, policy: &PathPolicy<'_>) -> bool {
    let Some(path) = &policy.path_in_git_dir else { return false };
    if path.parent() != Some(Path::new("worktrees")) {
        return false;
    }
    let Ok((note, listing)) = list(folder, name) else { return false };
    let text = |name: &str| read(&note, OsStr::new(name), MAX_PATH_BYTES);
    let is_harmless = |(name, kind): &(OsString, FileType)| match name.to_str() {
        Some("hooks" | "config") => false,
        // Git copies both from a sparse checkout.
        Some("info") => {
            list(&note, name).is_ok_and(|(_, inside)| inside.iter().all(|(name, _)| name == "sparse-checkout"))
        }
        Some("config.worktree") => {
            let of_repository = read(folder, OsStr::new("../config.worktree"), MAX_CONFIG_BYTES);
            of_repository.is_some() && read(&note, name, MAX_CONFIG_BYTES) == of_repository
        }
        _ => matches!(kind, FileType::RegularFile | FileType::Directory),
    };
    // Git writes `locked` first, `gitdir` next and then `commondir`, each of which is empty for a moment.
    let is_linked = match text("gitdir") {
        Some(gitdir) if gitdir.is_empty() => true,
        Some(gitdir) => is_own_workspace(Path::new(OsStr::from_bytes(gitdir.trim_ascii_end()))),
        None => listing.iter().all(|(name, _)| name == "locked"),
    };
    let has_usual_common_dir = match text("commondir") {
        Some(text) => text.is_empty() || text.trim_ascii_end() == COMMON_DIR.as_bytes(),
        None => listing.iter().all(|(name, _)| name != "commondir"),
    };
    is_linked && has_usual_common_dir && listing.iter().all(is_harmless)
}
