//! The folder that the tools work in: every path is resolved beneath its descriptor, without a check-then-use gap.

pub mod atomic_write;
pub mod ignore_files;
pub mod open_beneath;
pub mod path_resolver;
pub mod walk;
pub mod write_protection;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use crate::diagnostic::suggest_name;
use crate::sandbox::protected_paths::{canonical_as_far_as_possible, is_dot_git};
use crate::tools::ToolError;
use crate::workspace::path_resolver::{MAX_DEPTH, ResolvedPath, resolve};
use crate::workspace::write_protection::WriteProtection;

/// How many entries of a folder are looked through for a name that was meant.
const NEIGHBOURS: usize = 10_000;

/// The folder that the tools work in, opened once.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The root as the user named it, which can lead through links.
    given: PathBuf,
    folder: File,
    /// Read-only to tools.
    protection: WriteProtection,
    /// Passed over by searches, from the root.
    excluded: Arc<[PathBuf]>,
    locks: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
}

/// What searches pass over: every `.git` and the folders that are hidden from them.
pub(crate) struct ExcludedPaths(Arc<[PathBuf]>);

impl ExcludedPaths {
    /// Whether a path from the root is among it.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.iter().any(|hidden| path.starts_with(hidden)) || path.iter().any(is_dot_git)
    }
}

/// A file that was opened for reading.
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    /// Its canonical path from the root.
    pub(crate) path: PathBuf,
    /// In bytes, when it was opened.
    pub(crate) size: u64,
}

impl Workspace {
    /// Opens the folder. `protected` are absolute paths that tools may not write to (what lies beneath them
    /// included), beside everything in a `.git`; `hidden` are folders that searches pass over. Paths outside the
    /// workspace are ignored in both.
    ///
    /// # Errors
    /// Fails where the root is no folder that can be opened.
    pub fn open(root: &Path, protected: Vec<PathBuf>, hidden: Vec<PathBuf>) -> io::Result<Self> {
        let canonical = root.canonicalize()?;
        let folder = File::from(rustix::fs::open(&canonical, open_beneath::DIR_FLAGS, rustix::fs::Mode::empty())?);
        let beneath = |path: PathBuf| {
            let path = canonical_as_far_as_possible(&path);
            path.strip_prefix(&canonical).map(Path::to_owned).ok().filter(|path| path != Path::new(""))
        };
        Ok(Self {
            protection: WriteProtection::new(folder.as_fd(), protected.into_iter().filter_map(beneath).collect()),
            excluded: hidden.into_iter().filter_map(beneath).collect(),
            folder,
            given: root.to_owned(),
            root: canonical,
            locks: Mutex::default(),
        })
    }

    /// The same with paths opened, absolute, that lie in folders that are protected otherwise.
    #[must_use]
    pub fn with_unprotected(mut self, paths: &[PathBuf]) -> Self {
        let beneath = paths.iter().filter_map(|path| path.strip_prefix(&self.root).ok().map(Path::to_owned));
        let beneath = beneath.collect();
        self.protection.open(beneath);
        self
    }

    /// The folder's canonical absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the folder's path still leads to it. Where it was moved or deleted, or another one took its place, what tools
    /// do would be done elsewhere than whoever started the run looks for it.
    ///
    /// # Errors
    /// Where it doesn't.
    pub fn check_not_moved(&self) -> io::Result<()> {
        let gone =
            |why: &str| io::Error::new(io::ErrorKind::NotFound, format!("the workspace {} {why}", self.root.display()));
        let found =
            rustix::fs::stat(&self.root).map_err(|error| gone(&format!("can't be found any more ({error})")))?;
        let open = rustix::fs::fstat(&self.folder)?;
        if (found.st_dev, found.st_ino) == (open.st_dev, open.st_ino) {
            return Ok(());
        }
        Err(gone("was moved, and another folder is in its place"))
    }

    /// The open folder.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// What tools may not change.
    pub(crate) fn protection(&self) -> &WriteProtection {
        &self.protection
    }

    /// The path from the root as it was written, which is not yet looked at: links and `..` are still in it.
    pub(crate) fn relative(&self, path: &str) -> Result<PathBuf, ToolError> {
        if path.contains('\0') || path.len() > 4096 {
            return Err(ToolError::new("this is no path"));
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

    /// Looks a path up. Something missing is no error yet.
    pub(crate) fn find(&self, path: &str) -> Result<ResolvedPath, ToolError> {
        let relative = self.relative(path)?;
        resolve(self.folder(), &relative).map_err(|error| self.io_error(&relative, &error))
    }

    /// Looks something up that must exist.
    pub(crate) fn resolve_existing(&self, path: &str) -> Result<ResolvedPath, ToolError> {
        let found = self.find(path)?;
        match found.stat {
            Some(_) => Ok(found),
            None => Err(self.io_error(&found.path, &io::ErrorKind::NotFound.into())),
        }
    }

    /// Opens a regular file for reading; folders, devices, FIFOs and files that the kernel makes up are refused.
    pub(crate) fn open_file(&self, path: &str) -> Result<OpenedFile, ToolError> {
        let found = self.resolve_existing(path)?;
        let file = self.open_found(&found)?;
        let size = file.metadata().map_err(|error| self.io_error(&found.path, &error))?.len();
        Ok(OpenedFile { file, path: found.path, size })
    }

    /// Opens what was looked up for reading, if it is a regular file.
    pub(crate) fn open_found(&self, found: &ResolvedPath) -> Result<File, ToolError> {
        let shown = found.path.display();
        let name = match (found.kind(), found.name()) {
            (Some(FileType::Directory), _) | (_, None) => {
                return Err(ToolError(format!("`{shown}` is a folder; glob lists what is in it")));
            }
            (_, Some(name)) => name,
        };
        let opened = open_beneath::open_regular_file(found.folder(), name)
            .map_err(|error| self.io_error(&found.path, &error))?;
        opened.ok_or_else(|| {
            ToolError(format!("`{shown}` is not a regular file (a device, a FIFO, a socket, or made up by the system)"))
        })
    }

    /// What searches pass over.
    pub(crate) fn excluded(&self) -> ExcludedPaths {
        ExcludedPaths(Arc::clone(&self.excluded))
    }

    /// Runs `work` while no other agent of this run writes to the path.
    pub(crate) fn with_path_lock<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        let lock = {
            let mut locks = lock(&self.locks);
            if locks.len() > 1000 {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(locks.entry(path.to_owned()).or_default())
        };
        let _guard = lock_unit(&lock);
        work()
    }

    fn outside(&self, path: &Path) -> ToolError {
        let (path, root) = (path.display(), self.root.display());
        ToolError(format!("`{path}` leads out of the workspace; use a path from the workspace, or one beneath {root}"))
    }

    /// An error in words for the model.
    pub(crate) fn io_error(&self, path: &Path, error: &io::Error) -> ToolError {
        let shown = path.display();
        // Only the error for a path that leads out has no number.
        if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
            return self.outside(path);
        }
        ToolError(match error.kind() {
            io::ErrorKind::NotFound => match self.similar_path(path) {
                Some(near) => format!("`{shown}` does not exist; did you mean `{}`?", near.display()),
                None => format!("`{shown}` does not exist"),
            },
            io::ErrorKind::PermissionDenied => format!("`{shown}` can't be accessed: permission denied"),
            _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                format!("`{shown}` leads through too many links, or through one that has just been put there")
            }
            _ if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
                format!("`{shown}` is too long a name, or has more than {MAX_DEPTH} folders")
            }
            io::ErrorKind::NotADirectory => format!("a part of `{shown}` is a file, not a folder"),
            _ => format!("`{shown}`: {error}"),
        })
    }

    /// What may have been meant by a path that does not exist: the first missing name of it, spelt differently.
    fn similar_path(&self, path: &Path) -> Option<PathBuf> {
        let mut folder = PathBuf::new();
        for part in path.components() {
            let next = folder.join(part);
            if open_beneath::stat(self.folder(), &next).is_err() {
                let entries = Dir::read_from(open_beneath::open_dir(self.folder(), &folder).ok()?).ok()?;
                let names = entries.flatten().take(NEIGHBOURS).filter_map(|entry| {
                    let name = entry.file_name().to_str().ok()?;
                    (name != "." && name != "..").then(|| name.to_owned())
                });
                let names: Vec<String> = names.collect();
                // Anything is near to a name of one or two characters.
                let meant = part.as_os_str().to_str().filter(|name| name.chars().nth(2).is_some())?;
                let near = suggest_name(meant, names.iter().map(String::as_str))?;
                return Some(folder.join(near));
            }
            folder = next;
        }
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_unit(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock(mutex)
}
