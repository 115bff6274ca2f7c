//! Git's own files, most of them read without running git, and the one place where git is run.

mod attributes;
pub(crate) mod binary_patch;
mod commit_diff;
mod committed_files;
mod config;
pub mod index;
pub mod objects;
mod process;
pub(crate) mod program;
mod repository;

use std::ffi::OsStr;

use crate::text::folded_path::folded_name;
pub(crate) use attributes::{ATTRIBUTES_FILE, FilteredFiles};
pub(crate) use commit_diff::changes_between;
pub(crate) use committed_files::{CommitError, CommittedFiles};
pub use committed_files::{REFERENCE_FORM, is_reference_name};
pub(crate) use config::{GitConfig, MAX_FILE_BYTES};
pub use config::{open_regular_file, own_ignore_file, safe_directories};
pub(crate) use process::die_with;
pub use program::{GitFiles, GitProgram, Restrict, Restriction};
pub use repository::{Repository, head_commit, is_worktree_root, worktree_around};
pub(crate) use repository::{
    alternate_object_dirs, common_dir, gitfile_target, has_git_layout, is_linked_back, submodule_git_dirs,
    worktree_root,
};

/// Whether some file system treats a name as `.git`, or as its short name there. Git refuses the same names in paths.
pub fn is_dot_git(name: &OsStr) -> bool {
    // Rules out most names cheaply.
    name.as_encoded_bytes().iter().any(|byte| byte.eq_ignore_ascii_case(&b'g'))
        && matches!(folded_name(name).as_str(), ".git" | "git~1")
}
