//! What must stay as it is and isn't held by the kernel: looked at after each call, and put back.
//!
//! Landlock can't make exceptions below a writable folder, and bubblewrap can't bind what isn't there. Everything here
//! goes by descriptors and follows no link, for what it looks at was made by whoever attacks.

mod put;
mod record;
mod state;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use self::record::Record;
use self::state::{Budget, State};
use super::Boundary;

/// Compares what must stay as it is with what it was.
#[derive(Debug)]
pub struct Guard {
    kept: Mutex<Vec<Kept>>,
    records: Vec<Record>,
}

/// That something was changed which must stay as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// What was changed: absolute, but records of runs, which are named from the folder that holds them all.
    pub changed: Vec<PathBuf>,
    /// Those of it that couldn't be put back.
    pub left: Vec<PathBuf>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |paths: &[PathBuf]| {
            let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{}`", path.display())).collect();
            let more = if paths.len() > 5 { " and others" } else { "" };
            named.join(", ") + more
        };
        write!(f, "a command changed what is protected: {}; ", names(&self.changed))?;
        match self.left.as_slice() {
            [] => f.write_str("it is as before again"),
            left => write!(f, "this could not be put back: {}", names(left)),
        }
    }
}

/// A path and what was there.
#[derive(Debug)]
struct Kept {
    /// The folder that commands may change, and the way from there.
    root: Arc<OwnedFd>,
    way: PathBuf,
    path: PathBuf,
    state: State,
}

impl Guard {
    /// Looks at every protected path that lies where commands may write. Of files up to 1 MB, all in all 32 MB, the
    /// content is kept; of others, and beyond the first 5000 files and folders, a change is seen but can't be put back.
    pub fn new(boundary: &Boundary) -> Self {
        Self::of(boundary, &boundary.protected)
    }

    /// The same for a list of paths of one's own.
    pub fn of(boundary: &Boundary, paths: &[PathBuf]) -> Self {
        let mut budget = Budget::default();
        let roots = roots(boundary);
        let kept = paths.iter().filter_map(|path| {
            let (root, way) = way(&roots, path)?;
            let state = match walk(&root, &way, |_, _| Err(Errno::NOENT)) {
                Ok((folder, name)) => State::look(&folder, name, &mut budget),
                Err(_) => State::Missing,
            };
            Some(Kept { root, way, path: path.clone(), state })
        });
        Self { kept: Mutex::new(kept.collect()), records: Vec::new() }
    }

    /// Looks at the records of runs that are over as well, those of the newest first, up to 500 files. What is changed of
    /// them is seen, not put back. `runs` is the folder of all runs.
    #[must_use]
    pub fn with_records(mut self, boundary: &Boundary, runs: &Path) -> Self {
        self.records = way(&roots(boundary), runs).map(|(root, way)| Record::find(&root, &way)).unwrap_or_default();
        self
    }

    /// Takes what was changed since as how it must be: for when no command runs, so that whoever works on the same files
    /// isn't taken for one.
    pub fn accept(&self) {
        for kept in self.kept().iter_mut().filter_map(|kept| (!kept.holds()).then_some(kept)) {
            kept.state = match walk(&kept.root, &kept.way, |_, _| Err(Errno::NOENT)) {
                Ok((folder, name)) => State::look(&folder, name, &mut Budget::default()),
                Err(_) => State::Missing,
            };
        }
    }

    /// Looks whether all is as it was, and puts back what isn't. Metadata decides where it is the same, for nothing can
    /// set the time of its last change.
    ///
    /// # Errors
    /// Names what was changed.
    pub fn inspect(&self) -> Result<(), Breach> {
        let mut breach = Breach { changed: Vec::new(), left: Vec::new() };
        for kept in self.kept().iter_mut() {
            if kept.holds() {
                continue;
            }
            breach.changed.push(kept.path.clone());
            if kept.put_back().is_err() {
                breach.left.push(kept.path.clone());
            }
        }
        for record in self.records.iter().filter(|record| !record.holds()) {
            breach.changed.push(record.path.clone());
            breach.left.push(record.path.clone());
        }
        if breach.changed.is_empty() { Ok(()) } else { Err(breach) }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn holds(&mut self) -> bool {
        match walk(&self.root, &self.way, |_, _| Err(Errno::NOENT)) {
            Ok((folder, name)) => self.state.holds(&folder, name),
            Err(Errno::NOENT) => matches!(self.state, State::Missing),
            Err(_) => false,
        }
    }

    fn put_back(&mut self) -> Result<(), Errno> {
        let gone = matches!(self.state, State::Missing);
        // A link or file in the place of a folder above it goes, and comes back as a folder where one was needed.
        let made = walk(&self.root, &self.way, |folder, name| {
            put::remove(folder, name, 0)?;
            if gone { Err(Errno::NOENT) } else { mkdirat(folder, name, Mode::from_raw_mode(0o755)) }
        });
        match made {
            Ok((folder, name)) => put::put(&folder, name, &mut self.state),
            Err(Errno::NOENT) if gone => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The folders that commands may change, opened.
fn roots(boundary: &Boundary) -> Vec<(PathBuf, Arc<OwnedFd>)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let roots = std::iter::once(&boundary.workspace).chain(&boundary.write).filter_map(|root| {
        let root = root.canonicalize().ok()?;
        let file = openat(CWD, &root, flags, Mode::empty()).ok()?;
        Some((root, Arc::new(file)))
    });
    roots.collect()
}

/// The one of them in which a path lies, and the way from there.
fn way(roots: &[(PathBuf, Arc<OwnedFd>)], path: &Path) -> Option<(Arc<OwnedFd>, PathBuf)> {
    roots.iter().find_map(|(root, file)| {
        let way = path.strip_prefix(root).ok()?;
        let plain = way.components().all(|part| matches!(part, Component::Normal(_)));
        (plain && way.file_name().is_some()).then(|| (Arc::clone(file), way.to_owned()))
    })
}

/// Goes from folder to folder without following a link, up to the one that holds the last name. `missing` is called where
/// there is no folder of that name; if it succeeds, there is one by then.
fn walk<'a>(
    root: &OwnedFd,
    way: &'a Path,
    missing: impl Fn(&OwnedFd, &OsStr) -> Result<(), Errno>,
) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = way.file_name().ok_or(Errno::INVAL)?;
    let mut folder = openat(root, ".", flags, Mode::empty())?;
    for part in way.parent().into_iter().flat_map(Path::iter) {
        folder = match openat(&folder, part, flags, Mode::empty()) {
            Ok(next) => next,
            Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => match missing(&folder, part) {
                Ok(()) => openat(&folder, part, flags, Mode::empty())?,
                // Behind a file there is nothing, behind a link there may be.
                Err(Errno::NOENT) if error != Errno::NOENT && is_link(&folder, part) => return Err(Errno::LOOP),
                Err(other) => return Err(other),
            },
            Err(error) => return Err(error),
        };
    }
    Ok((folder, name))
}

fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}
