//! What file tools never change: git's own folders, the job and its record, by whatever name they are reached.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::sandbox::protected_paths::is_dot_git;
use crate::tools::ToolError;
use crate::workspace::open_beneath;
use crate::workspace::path_resolver::inode;

/// What makes a folder one of git's: these three, or `HEAD` and `commondir`.
const GIT_DIR_NAMES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Paths that stay as they are.
#[derive(Debug)]
pub(crate) struct WriteProtection {
    /// From the root; some don't exist yet.
    paths: Vec<PathBuf>,
    /// The same in lower case: `JOB.yaml` is the same file on some systems.
    lower: Vec<PathBuf>,
    /// Paths from the root that the job opens though one of those above holds them.
    open: Vec<PathBuf>,
    /// Those that existed at the start, with device and inode, wherever they have been moved to since.
    at_start: Vec<(PathBuf, (u64, u64))>,
}

impl WriteProtection {
    /// From paths that lead from the root to what must stay.
    pub(crate) fn new(root: BorrowedFd<'_>, paths: Vec<PathBuf>) -> Self {
        let lower = paths.iter().map(|path| lower(path)).collect();
        let mut kept = Self { lower, paths, open: Vec::new(), at_start: Vec::new() };
        kept.at_start = kept.present(root).map(|(path, inode)| (path.to_owned(), inode)).collect();
        kept
    }

    /// Opens paths in folders that stay as they are otherwise.
    pub(crate) fn open(&mut self, paths: Vec<PathBuf>) {
        self.open = paths;
    }

    /// Refuses a path from the root by its names alone.
    pub(crate) fn check_path(&self, path: &Path) -> Result<(), ToolError> {
        if path.components().any(|part| is_dot_git(part.as_os_str())) {
            return Err(belongs_to_git(path));
        }
        let path_lower = lower(path);
        let mut kept = self.paths.iter().zip(&self.lower);
        let is_kept = kept.any(|(kept, lower)| path_lower.starts_with(lower) && !self.is_allowed(path, kept));
        if is_kept { Err(refusal(path)) } else { Ok(()) }
    }

    /// Refuses a path that leads into a git folder without that name, as a bare repository is, or would make a folder one:
    /// git reads the configuration of any such folder that it is started in.
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

    /// Refuses what is one of the kept things under another name: a hard link, or what a file system that doesn't
    /// tell names apart as we do takes for the same.
    pub(crate) fn check_inodes(
        &self,
        root: BorrowedFd<'_>,
        path: &Path,
        inodes: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<(), ToolError> {
        let at_start = self.at_start.iter().map(|(path, inode)| (path.as_path(), *inode));
        let all = self.present(root).chain(at_start).filter(|(kept, _)| !self.is_allowed(path, kept));
        let all: Vec<_> = all.map(|(_, inode)| inode).collect();
        let kept = |inode: &(u64, u64)| all.contains(inode);
        if inodes.into_iter().any(|inode| kept(&inode)) { Err(refusal(path)) } else { Ok(()) }
    }

    /// Whether the job opens a path within something that stays as it is otherwise, in exactly this spelling.
    fn is_allowed(&self, path: &Path, kept: &Path) -> bool {
        self.open.iter().any(|open| path.starts_with(open) && open.starts_with(kept))
    }

    /// Those that exist, with device and inode.
    fn present(&self, root: BorrowedFd<'_>) -> impl Iterator<Item = (&Path, (u64, u64))> {
        self.paths.iter().filter_map(move |path| Some((path.as_path(), inode(&open_beneath::stat(root, path).ok()?))))
    }
}

/// Whether a path has a name by which a folder can become one of git's.
pub(crate) fn could_form_git_dir(path: &Path) -> bool {
    path.iter().any(|name| GIT_DIR_NAMES.iter().any(|known| name.eq_ignore_ascii_case(OsStr::new(known))))
}

fn refusal(path: &Path) -> ToolError {
    ToolError(format!(
        "`{}` is part of the job or of its record, or decides what git or other programs run, and is read-only to tools",
        path.display()
    ))
}

fn belongs_to_git(path: &Path) -> ToolError {
    ToolError(format!("`{}` belongs to git, and file tools can't write there", path.display()))
}

fn lower(path: &Path) -> PathBuf {
    PathBuf::from(path.to_string_lossy().to_lowercase())
}
