//! The folder that the tools work in: every path is resolved beneath its descriptor, without a check-then-use gap.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Refusal;
use super::resolve::{Resolved, resolve};
use crate::diagnostic::nearest;

/// How many entries of a folder are looked through for a name that was meant.
const NEIGHBOURS: usize = 10_000;

/// The folder that the tools work in, opened once.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The root as the user named it, which can lead through links.
    given: PathBuf,
    dir: Dir,
    /// Read-only to tools, from the root, in lower case: `JOB.yaml` is the same file on some systems.
    protected: Vec<PathBuf>,
    /// The same things by device and inode, whatever leads to them.
    protected_inodes: Vec<(u64, u64)>,
    /// Passed over by searches, from the root.
    hidden: Arc<[PathBuf]>,
    locks: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
}

/// What searches pass over: every `.git` and the folders that are hidden from them.
pub(super) struct PassedOver(Arc<[PathBuf]>);

impl PassedOver {
    /// Whether a path from the root is among it.
    pub(super) fn holds(&self, path: &Path) -> bool {
        self.0.iter().any(|hidden| path.starts_with(hidden)) || path.components().any(|part| part.as_os_str() == ".git")
    }
}

/// A file that was opened for reading.
pub(super) struct Opened {
    pub(super) file: File,
    /// Its canonical path from the root.
    pub(super) path: PathBuf,
    /// In bytes, when it was opened.
    pub(super) size: u64,
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
        let dir = Dir::open_ambient_dir(&canonical, ambient_authority())?;
        let beneath = |path: PathBuf| {
            let path = canonical_as_far_as_possible(&path);
            path.strip_prefix(&canonical).map(Path::to_owned).ok().filter(|path| path != Path::new(""))
        };
        let protected: Vec<_> = protected.into_iter().filter_map(beneath).collect();
        let hidden = hidden.into_iter().filter_map(beneath).collect();
        let inode = |path: &PathBuf| {
            let metadata = std::fs::metadata(canonical.join(path)).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        Ok(Self {
            protected_inodes: protected.iter().filter_map(inode).collect(),
            protected: protected.iter().map(|path| lower(path)).collect(),
            hidden,
            dir,
            given: root.to_owned(),
            root: canonical,
            locks: Mutex::default(),
        })
    }

    /// The folder's canonical absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The path from the root as it was written, which is not yet looked at: links and `..` are still in it.
    pub(super) fn relative(&self, path: &str) -> Result<PathBuf, Refusal> {
        if path.contains('\0') || path.len() > 4096 {
            return Err(Refusal::new("this is no path"));
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
    pub(super) fn find(&self, path: &str) -> Result<Resolved, Refusal> {
        let relative = self.relative(path)?;
        resolve(self.dir.as_fd(), &relative).map_err(|error| self.explain(&relative, &error))
    }

    /// The canonical path from the root of something that exists.
    pub(super) fn canonical(&self, path: &str) -> Result<PathBuf, Refusal> {
        let found = self.find(path)?;
        if found.stat.is_none() {
            return Err(self.explain(&found.path, &io::ErrorKind::NotFound.into()));
        }
        Ok(found.path)
    }

    /// Opens a regular file for reading; folders, devices, FIFOs and files that the kernel makes up are refused.
    pub(super) fn open_file(&self, path: &str) -> Result<Opened, Refusal> {
        let found = self.find(path)?;
        let shown = found.path.display();
        // What an open device or FIFO does can't be undone, so look first. Should it be swapped in now, O_NONBLOCK keeps
        // the open from waiting and the second look refuses it.
        match found.kind() {
            None => return Err(self.explain(&found.path, &io::ErrorKind::NotFound.into())),
            Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => {
                return Err(Refusal(format!("`{shown}` is a folder; glob lists what is in it")));
            }
            Some(_) => return Err(Refusal(format!("`{shown}` is not a regular file (a device, a FIFO or a socket)"))),
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = found.open(flags, Mode::empty()).map(File::from).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| self.explain(&found.path, &error))?;
        if !metadata.is_file() || made_up(&file) {
            return Err(Refusal(format!("`{shown}` is not a regular file (the system makes it up)")));
        }
        Ok(Opened { file, path: found.path, size: metadata.len() })
    }

    /// Opens anything beneath the root for reading, without waiting for the other end of a FIFO.
    pub(super) fn open_beneath(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        options.read(true).custom_flags(flags.cast_signed());
        Ok(self.dir.open_with(path, &options)?.into_std())
    }

    /// What searches pass over.
    pub(super) fn passed_over(&self) -> PassedOver {
        PassedOver(Arc::clone(&self.hidden))
    }

    /// Refuses a canonical path from the root that tools may not write to.
    pub(super) fn check_writable(&self, path: &Path) -> Result<(), Refusal> {
        let path_lower = lower(path);
        if path_lower.components().any(|part| part.as_os_str() == ".git") {
            return Err(Refusal(format!("`{}` belongs to git, and file tools can't write there", path.display())));
        }
        if self.protected.iter().any(|protected| path_lower.starts_with(protected)) {
            return Err(self.protected(path));
        }
        Ok(())
    }

    /// Refuses what is one of the protected things under another name.
    pub(super) fn check_inode(&self, path: &Path, inode: (u64, u64)) -> Result<(), Refusal> {
        if self.protected_inodes.contains(&inode) { Err(self.protected(path)) } else { Ok(()) }
    }

    fn protected(&self, path: &Path) -> Refusal {
        Refusal(format!("`{}` is part of the job or of its record, and read-only to tools", path.display()))
    }

    /// Runs `work` while no other agent of this run writes to the path.
    pub(super) fn locked<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
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

    fn outside(&self, path: &Path) -> Refusal {
        let (path, root) = (path.display(), self.root.display());
        Refusal(format!("`{path}` leads out of the workspace; use a path from the workspace, or one beneath {root}"))
    }

    /// An error in words for the model.
    pub(super) fn explain(&self, path: &Path, error: &io::Error) -> Refusal {
        let shown = path.display();
        // Only the error for a path that leads out has no number.
        if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
            return self.outside(path);
        }
        Refusal(match error.kind() {
            io::ErrorKind::NotFound => match self.neighbour(path) {
                Some(near) => format!("`{shown}` does not exist; did you mean `{}`?", near.display()),
                None => format!("`{shown}` does not exist"),
            },
            io::ErrorKind::PermissionDenied => format!("`{shown}` can't be accessed: permission denied"),
            _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                format!("`{shown}` leads through too many links, or through one that has just been put there")
            }
            io::ErrorKind::NotADirectory => format!("a part of `{shown}` is a file, not a folder"),
            _ => format!("`{shown}`: {error}"),
        })
    }

    /// What may have been meant by a path that does not exist: the first missing name of it, spelt differently.
    fn neighbour(&self, path: &Path) -> Option<PathBuf> {
        let mut folder = PathBuf::from(".");
        for part in path.components() {
            let next = folder.join(part);
            if self.dir.symlink_metadata(&next).is_err() {
                let entries = self.dir.read_dir(&folder).ok()?.take(NEIGHBOURS).flatten();
                let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
                // Anything is near to a name of one or two characters.
                let meant = part.as_os_str().to_str().filter(|name| name.chars().nth(2).is_some())?;
                let near = nearest(meant, names.iter().map(String::as_str))?;
                return Some(folder.join(near).strip_prefix(".").ok()?.to_owned());
            }
            folder = next;
        }
        None
    }
}

/// Links resolved in the part that exists, the rest as it is: the run's folder may be yet to come.
fn canonical_as_far_as_possible(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(canonical), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return canonical.join(rest);
        }
    }
    path.to_owned()
}

fn lower(path: &Path) -> PathBuf {
    PathBuf::from(path.to_string_lossy().to_lowercase())
}

/// Whether a file has no bytes of its own but what the kernel answers: procfs, sysfs and their like.
#[cfg(target_os = "linux")]
fn made_up(file: &File) -> bool {
    // The magic numbers of proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2, configfs, bpf and pstore (linux/magic.h).
    const MAGIC: [i64; 10] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x27_e0eb,
        0x6367_7270,
        0x6265_6570,
        0xcafe_4a11,
        0x6165_676c,
    ];
    rustix::fs::fstatfs(file).is_ok_and(|stat| MAGIC.contains(&stat.f_type))
}

#[cfg(not(target_os = "linux"))]
fn made_up(_: &File) -> bool {
    false
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_unit(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock(mutex)
}
