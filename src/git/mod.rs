//! Git's own files, read without running git, except for the contents of objects.

mod attributes;
mod committed_files;
mod config;
pub mod index;
pub mod objects;
mod repository;

use std::ffi::OsStr;

pub(crate) use attributes::{ATTRIBUTES_FILE, FilteredFiles};
pub(crate) use committed_files::{CommitError, CommittedFiles};
pub use committed_files::{REFERENCE_FORM, is_reference_name};
pub use config::open_regular_file;
pub(crate) use config::{GitConfig, MAX_FILE_BYTES};
pub use repository::{Repository, head_commit, is_worktree_root, worktree_around};
pub(crate) use repository::{
    common_dir, gitfile_target, has_git_layout, is_linked_back, submodule_git_dirs, worktree_root,
};

/// Variables that make git work on another repository than the one in its folder, or read paths in another way. Git sets some
/// of them for its hooks, so a command that is started by a hook has them.
pub(crate) const CALLER_VARIABLES: [&str; 11] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
];

/// Whether some file system treats a name as `.git`: in another letter case, with characters that HFS+ ignores, with an
/// ending that NTFS drops, or as its short name there. Git refuses the same names in paths.
pub fn is_dot_git(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    // Rules out most names cheaply.
    if !name.contains(['g', 'G']) {
        return false;
    }
    let is_ignored = |char: &char| matches!(*char, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let visible: String = name.chars().filter(|char| !is_ignored(char)).collect();
    let stem = visible.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_lowercase();
    stem == ".git" || stem == "git~1"
}
