//! The folder that the tools work in: every path is resolved beneath its descriptor, without a check-then-use gap.

pub mod atomic_write;
pub mod ignore_files;
pub(crate) mod ignore_filter;
pub(crate) mod new_file;
pub mod open_beneath;
pub mod open_root;
pub mod path_resolver;
pub mod remove_folder;
pub(crate) mod tree_copy;
pub mod walk;
pub mod write_protection;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FileType;
use rustix::io::Errno;

use self::open_root::OpenRoot;
use self::path_resolver::{MAX_DEPTH, ResolvedPath, canonical_as_far_as_possible, resolve};
use self::write_protection::WriteProtection;
use crate::diagnostic::suggest_name;
use crate::git::is_dot_git;
use crate::message::ToolError;
use crate::sync::IgnorePoison;

/// How many entries of a folder are searched for a similar name.
const MAX_SIMILAR_NAMES: usize = 10_000;

/// The folder that tools work in, opened once.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The root as the user wrote it, possibly with links.
    given: PathBuf,
    folder: File,
    protection: WriteProtection,
    /// Paths from the root that searches skip.
    excluded: Vec<PathBuf>,
    locks: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
}

/// A file that was opened for reading.
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    /// Its canonical path from the root.
    pub(crate) path: PathBuf,
    /// Its size in bytes when it was opened.
    pub(crate) size: u64,
}

impl Workspace {
    /// Opens the folder. Links in its path are followed. Tools can't write to `protected` or anything below, nor to a `.git`. Searches skip `excluded`. Both
    /// are absolute; paths outside the workspace are ignored.
    ///
    /// # Errors
    /// If the root can't be opened as a folder.
    pub fn open(root: &Path, protected: Vec<PathBuf>, excluded: Vec<PathBuf>) -> io::Result<Self> {
        let opened = OpenRoot::open(root)?;
        Ok(Self { given: root.to_owned(), ..Self::in_folder(&opened, protected, excluded)? })
    }

    /// The workspace in an open folder.
    ///
    /// # Errors
    /// If there are too few descriptors.
    pub(crate) fn in_folder(root: &OpenRoot, protected: Vec<PathBuf>, excluded: Vec<PathBuf>) -> io::Result<Self> {
        let canonical = root.path().to_owned();
        let folder = File::from(root.folder().try_clone_to_owned()?);
        let beneath = |path: PathBuf| {
            let path = canonical_as_far_as_possible(&path);
            path.strip_prefix(&canonical).map(Path::to_owned).ok().filter(|path| path != Path::new(""))
        };
        Ok(Self {
            protection: WriteProtection::new(protected.into_iter().filter_map(beneath).collect()),
            excluded: excluded.into_iter().filter_map(beneath).collect(),
            folder,
            given: canonical.clone(),
            root: canonical,
            locks: Mutex::default(),
        })
    }

    /// Allows writing to some absolute paths below protected ones.
    #[must_use]
    pub fn with_unprotected(mut self, paths: &[PathBuf]) -> Self {
        let beneath = paths.iter().filter_map(|path| path.strip_prefix(&self.root).ok().map(Path::to_owned));
        self.protection.allowed = beneath.collect();
        self
    }

    /// Takes absolute paths below another folder as paths below the root: that folder is the one of which this is a copy.
    #[must_use]
    pub(crate) fn in_place_of(mut self, original: &Path) -> Self {
        original.clone_into(&mut self.given);
        self
    }

    /// Checks that a path from the root may be changed.
    pub(crate) fn check_changeable(&self, path: &Path) -> Result<(), ToolError> {
        self.protection.check_path(path)?;
        self.protection.check_repositories(self.folder(), path)?;
        let resolved = resolve(self.folder(), path).map_err(|error| self.io_error(path, &error))?;
        self.protection.check_path(&resolved.path)?;
        self.protection.check_file_ids(self.folder(), path, resolved.file_ids())
    }

    /// The folder's canonical absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the root's path still leads to the open folder. Otherwise tools would work in a folder that the user
    /// no longer finds under that path.
    ///
    /// # Errors
    /// If the folder was moved, deleted or replaced.
    pub fn check_not_moved(&self) -> io::Result<()> {
        let gone =
            |why: &str| io::Error::new(io::ErrorKind::NotFound, format!("the workspace {} {why}", self.root.display()));
        let found = rustix::fs::stat(&self.root).map_err(|error| gone(&format!("no longer exists ({error})")))?;
        let open = rustix::fs::fstat(&self.folder)?;
        if (found.st_dev, found.st_ino) == (open.st_dev, open.st_ino) {
            return Ok(());
        }
        Err(gone("was replaced by another folder"))
    }

    /// The open folder, with its path.
    pub(crate) fn open_root(&self) -> io::Result<OpenRoot> {
        Ok(OpenRoot::of(self.folder().try_clone_to_owned()?, &self.root))
    }

    /// The open folder.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// A tool's path, relative to the root. Links and `..` aren't resolved yet.
    pub(crate) fn relative(&self, path: &str) -> Result<PathBuf, ToolError> {
        if path.contains('\0') || path.len() > 4096 {
            return Err(ToolError::new("the path is too long or contains a NUL character"));
        }
        let path = Path::new(path);
        let path = if path.is_absolute() {
            let beneath = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix(&self.given));
            beneath.map_err(|_| self.outside(path))?
        } else {
            path
        };
        // `./a//b/` and `a/b` are one.
        let path: PathBuf = path.components().filter(|part| !matches!(part, Component::CurDir)).collect();
        Ok(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path })
    }

    /// Resolves a path. A missing file isn't an error.
    pub(crate) fn resolve(&self, path: &str) -> Result<ResolvedPath, ToolError> {
        let relative = self.relative(path)?;
        resolve(self.folder(), &relative).map_err(|error| self.io_error(&relative, &error))
    }

    /// Resolves a path that must exist.
    pub(crate) fn resolve_existing(&self, path: &str) -> Result<ResolvedPath, ToolError> {
        let resolved = self.resolve(path)?;
        match resolved.stat {
            Some(_) => Ok(resolved),
            None => Err(self.io_error(&resolved.path, &io::ErrorKind::NotFound.into())),
        }
    }

    /// Opens a regular file for reading. Folders, devices, FIFOs and pseudo files are refused.
    pub(crate) fn open_file(&self, path: &str) -> Result<OpenedFile, ToolError> {
        let resolved = self.resolve_existing(path)?;
        let file = self.open_resolved(&resolved)?;
        let size = file.metadata().map_err(|error| self.io_error(&resolved.path, &error))?.len();
        Ok(OpenedFile { file, path: resolved.path, size })
    }

    /// Opens a resolved path for reading if it is a regular file.
    pub(crate) fn open_resolved(&self, resolved: &ResolvedPath) -> Result<File, ToolError> {
        let shown = resolved.path.display();
        let name = match (resolved.kind(), resolved.name()) {
            (Some(FileType::Directory), _) | (_, None) => {
                return Err(ToolError(format!("`{shown}` is a folder; use glob to list it")));
            }
            (_, Some(name)) => name,
        };
        let opened = open_beneath::open_regular_file(resolved.folder(), name)
            .map_err(|error| self.io_error(&resolved.path, &error))?;
        opened.ok_or_else(|| ToolError(format!("`{shown}` is not a regular file")))
    }

    /// Whether searches skip a path from the root: everything in a `.git`, and in some folders.
    pub(crate) fn is_excluded(&self, path: &Path) -> bool {
        self.excluded.iter().any(|excluded| path.starts_with(excluded)) || path.iter().any(is_dot_git)
    }

    /// Runs `work` while no other agent of the run writes to the path.
    pub(crate) fn with_path_lock<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        let lock = {
            let mut locks = self.locks.lock().ignore_poison();
            if locks.len() > 1000 {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(locks.entry(path.to_owned()).or_default())
        };
        let _guard = lock.lock().ignore_poison();
        work()
    }

    fn outside(&self, path: &Path) -> ToolError {
        let (path, root) = (path.display(), self.root.display());
        ToolError(format!(
            "`{path}` is outside the workspace; use a path relative to the workspace, or one below {root}"
        ))
    }

    /// Describes an error to the model.
    pub(crate) fn io_error(&self, path: &Path, error: &io::Error) -> ToolError {
        let shown = path.display();
        // Only the error for a path that leads outside has no number.
        if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
            return self.outside(path);
        }
        ToolError(match error.kind() {
            io::ErrorKind::NotFound => match self.similar_path(path) {
                Some(similar) => format!("`{shown}` does not exist; did you mean `{}`?", similar.display()),
                None => format!("`{shown}` does not exist"),
            },
            io::ErrorKind::PermissionDenied => format!("`{shown}`: permission denied"),
            _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                format!("`{shown}` contains too many links, or one that was created just now")
            }
            _ if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
                format!("`{shown}` is too long, or nested more than {MAX_DEPTH} folders deep")
            }
            io::ErrorKind::NotADirectory => format!("a parent of `{shown}` is a file, not a folder"),
            _ => format!("`{shown}`: {error}"),
        })
    }

    /// A path with a similar name in place of the first one that doesn't exist.
    fn similar_path(&self, path: &Path) -> Option<PathBuf> {
        let mut folder = PathBuf::new();
        for part in path.components() {
            let next = folder.join(part);
            if open_beneath::stat(self.folder(), &next).is_err() {
                let folder_now = open_beneath::open_dir(self.folder(), &folder).ok()?;
                let entries = open_beneath::entries(&folder_now).ok()?.flatten().take(MAX_SIMILAR_NAMES);
                let names: Vec<String> = entries.filter_map(|(name, _)| name.into_string().ok()).collect();
                // Every name is similar to one of one or two characters.
                let name = part.as_os_str().to_str().filter(|name| name.chars().nth(2).is_some())?;
                let similar = suggest_name(name, names.iter().map(String::as_str))?;
                return Some(folder.join(similar));
            }
            folder = next;
        }
        None
    }
}
