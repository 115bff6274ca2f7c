//! Which files the file tools can't write to: git's own folders, the job and its record, whatever path leads to them.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use super::open_beneath::{self, FileId, file_id};
use crate::git::is_dot_git;
use crate::message::ToolError;
use crate::text::folded_path::FoldedPath;

/// The entries by which git recognizes a git folder: the first three, or `HEAD` and `commondir`.
const GIT_DIR_NAMES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// The protected paths.
#[derive(Debug)]
pub(crate) struct WriteProtection {
    /// From the root, each also folded, because `JOB.yaml` may be the same file. Some don't exist yet.
    paths: Vec<(PathBuf, FoldedPath)>,
    /// Paths from the root that may be written to although they are below a protected one.
    pub(super) allowed: Vec<PathBuf>,
}

impl WriteProtection {
    /// Protects some paths from the root.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let paths = paths.into_iter().map(|path| (path.clone(), FoldedPath::new(&path))).collect();
        Self { paths, allowed: Vec::new() }
    }

    /// Refuses a protected path from the root, judging by names alone.
    pub(crate) fn check_path(&self, path: &Path) -> Result<(), ToolError> {
        if path.components().any(|part| is_dot_git(part.as_os_str())) {
            return Err(belongs_to_git(path));
        }
        let folded = FoldedPath::new(path);
        let is_protected = |(protected, folded_protected): &(PathBuf, FoldedPath)| {
            folded.is_within(folded_protected) && !self.is_allowed(path, protected)
        };
        if self.paths.iter().any(is_protected) { Err(refusal(path)) } else { Ok(()) }
    }

    /// Refuses a path in a git folder that isn't called `.git`, such as a bare repository, and a path that would make a
    /// folder one. Git reads the configuration of any such folder that it is started in.
    pub(crate) fn check_repositories(&self, root: BorrowedFd<'_>, path: &Path) -> Result<(), ToolError> {
        let mut folder = PathBuf::new();
        for name in path {
            let has = |wanted: &str| {
                name.eq_ignore_ascii_case(wanted) || open_beneath::stat(root, &folder.join(wanted)).is_ok()
            };
            if has("HEAD") && (has("commondir") || (has("objects") && has("refs"))) {
                return Err(belongs_to_git(path));
            }
            folder.push(name);
        }
        Ok(())
    }

    /// Refuses a protected file under another name: through a hard link, or because the file system treats different names
    /// as equal. Only the files that are at the protected paths now count: the inode of one that was replaced is free for any
    /// other file.
    pub(crate) fn check_file_ids(
        &self,
        root: BorrowedFd<'_>,
        path: &Path,
        ids: impl IntoIterator<Item = FileId>,
    ) -> Result<(), ToolError> {
        let protected = self.existing(root).filter(|(protected, _)| !self.is_allowed(path, protected));
        let protected: Vec<FileId> = protected.map(|(_, id)| id).collect();
        if ids.into_iter().any(|id| protected.contains(&id)) { Err(refusal(path)) } else { Ok(()) }
    }

    /// Whether a path below a protected one may be written to, in exactly this spelling.
    fn is_allowed(&self, path: &Path, protected: &Path) -> bool {
        self.allowed.iter().any(|allowed| path.starts_with(allowed) && allowed.starts_with(protected))
    }

    /// The protected paths that exist.
    fn existing(&self, root: BorrowedFd<'_>) -> impl Iterator<Item = (&Path, FileId)> {
        self.paths
            .iter()
            .filter_map(move |(path, _)| Some((path.as_path(), file_id(&open_beneath::stat(root, path).ok()?))))
    }
}

/// Whether a path has a name by which a folder can become a git folder.
pub(crate) fn could_form_git_dir(path: &Path) -> bool {
    path.iter().any(|name| GIT_DIR_NAMES.iter().any(|known| name.eq_ignore_ascii_case(OsStr::new(known))))
}

fn refusal(path: &Path) -> ToolError {
    ToolError(format!(
        "`{}` is read-only for tools: it is part of the job or its record, or configures what other programs run",
        path.display()
    ))
}

fn belongs_to_git(path: &Path) -> ToolError {
    ToolError(format!("`{}` belongs to git, and file tools can't write to it", path.display()))
}
