//! What must stay as it is and isn't held by the kernel: looked at after each call, and put back.
//!
//! Landlock can't make exceptions below a writable folder, and bubblewrap can't bind what isn't there. Everything here
//! goes by descriptors and follows no link, for what it looks at was made by whoever attacks.

mod index;
mod init;
mod put;
mod record;
mod runs;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use self::record::Record;
use self::runs::Runs;
use self::state::{Budget, State};
use self::tree::Inspection;
use super::allowed_changes::AllowedChanges;
use super::{Boundary, IsGenuine};
use crate::job::GitAccess;

/// Compares what must stay as it is with what it was.
#[derive(Debug)]
pub struct Guard {
    kept: Mutex<Vec<Kept>>,
    records: Mutex<Vec<Record>>,
    runs: Option<Mutex<Runs>>,
    rules: Arc<AllowedChanges>,
    /// What holds too much to be looked at as a whole.
    too_large: Option<PathBuf>,
}

/// That something was changed which must stay as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// What was changed: absolute, but records of runs, which are named from the folder that holds them all.
    pub changed: Vec<PathBuf>,
    /// Those of it that couldn't be put back.
    pub left: Vec<PathBuf>,
    /// What the job lets commands change in git folders, where something in one was changed.
    pub git: Option<GitAccess>,
    /// What holds too much to be looked at: nothing is known to be changed, but nobody would see it.
    pub too_large: Option<PathBuf>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |paths: &[PathBuf]| {
            let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{}`", path.display())).collect();
            let more = if paths.len() > 5 { " and others" } else { "" };
            named.join(", ") + more
        };
        if let Some(path) = &self.too_large {
            return write!(
                f,
                "`{}` holds more than 200,000 files and folders, or folders that are too deep, so changes of it can't be \
                 seen after each command; bubblewrap would keep them from happening",
                path.display()
            );
        }
        write!(f, "a command changed what is protected: {}; ", names(&self.changed))?;
        match self.left.as_slice() {
            [] => f.write_str("it is as before again")?,
            left => write!(f, "this could not be put back: {}", names(left))?,
        }
        match self.git {
            Some(GitAccess::Read) => f.write_str(
                ". The job has `git: read`, the default: commands can't commit or change anything else in a git folder; \
                 `git: commit` lets them",
            ),
            Some(GitAccess::Commit) => f.write_str(
                ". With `git: commit`, commands can change objects, branches, tags, logs, the index and HEAD, and nothing \
                 else in a git folder",
            ),
            None => Ok(()),
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
    /// What may change in it.
    rules: Option<Arc<AllowedChanges>>,
}

impl Guard {
    /// Looks at every protected path that lies where commands may write. Of files up to 1 MB, all in all 32 MB, the
    /// content is kept; of others a change is seen but can't be put back. With more than 200,000 files and folders, every
    /// look finds a breach.
    pub fn new(boundary: &Boundary) -> Self {
        Self::of(boundary, &boundary.protected)
    }

    /// The same for a list of paths of one's own. Of git folders, and of folders that the job opens something of, all is
    /// looked at, up to 200,000 entries.
    pub fn of(boundary: &Boundary, paths: &[PathBuf]) -> Self {
        let rules = Arc::new(boundary.allowed.clone());
        let (mut budget, mut budget_of_trees) = (Budget::default(), Budget::of_trees());
        let mut too_large = None;
        let roots = roots(boundary);
        let kept = paths.iter().filter_map(|path| {
            let is_tree = rules.concerns(path);
            let (root, way) = way(&roots, path, is_tree)?;
            let state = match walk(&root, &way, |_, _| Err(Errno::NOENT)) {
                Ok((folder, name)) if is_tree => tree::look(&folder, name, &rules.spot(path), &mut budget_of_trees, 0),
                Ok((folder, name)) => State::look(&folder, name, &mut budget),
                Err(_) => State::Missing,
            };
            if budget_of_trees.exceeded || budget.exceeded {
                too_large.get_or_insert_with(|| path.clone());
            }
            Some(Kept { root, way, path: path.clone(), state, rules: is_tree.then(|| Arc::clone(&rules)) })
        });
        let kept = Mutex::new(kept.collect());
        Self { kept, records: Mutex::default(), runs: None, rules, too_large }
    }

    /// Looks at the folder of all runs as well, `runs`, of which `record` is this run's own: at which records there are,
    /// at what `latest` leads to, and at the records of runs that are over, those of the newest first, up to 500 files. What
    /// is changed within those is seen, not put back. `judge` says whether a record that appears is a run's.
    #[must_use]
    pub fn with_records(mut self, boundary: &Boundary, runs: &Path, record: &Path, judge: Option<IsGenuine>) -> Self {
        if let Some((root, way)) = way(&roots(boundary), runs, false) {
            self.records = Mutex::new(Record::find(&root, &way));
            self.runs = Some(Mutex::new(Runs::new(root, way, runs, record, judge)));
        }
        self
    }

    /// Takes what was changed since as how it must be: for when no command runs, so that whoever works on the same files
    /// isn't taken for one.
    pub fn accept(&self) {
        for kept in self.kept().iter_mut() {
            kept.accept();
        }
        self.records().iter_mut().for_each(Record::accept);
        if let Some(runs) = &self.runs {
            runs.lock().unwrap_or_else(PoisonError::into_inner).accept();
        }
    }

    /// Looks whether all is as it was, and puts back what isn't. Metadata decides where it is the same, for nothing can
    /// set the time of its last change. With `busy`, other commands still run.
    ///
    /// # Errors
    /// Names what was changed.
    pub fn inspect(&self, busy: bool) -> Result<(), Breach> {
        let mut breach = Breach { changed: Vec::new(), left: Vec::new(), git: None, too_large: self.too_large.clone() };
        if breach.too_large.is_some() {
            return Err(breach);
        }
        for kept in self.kept().iter_mut() {
            kept.inspect(busy, &mut breach);
        }
        for record in self.records().iter().filter(|record| !record.holds() && !record.goes_on()) {
            breach.changed.push(record.path.clone());
            breach.left.push(record.path.clone());
        }
        if let Some(runs) = &self.runs {
            let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.inspect(&mut breach.changed, &mut breach.left);
        }
        if breach.changed.iter().any(|path| self.rules.spot(path).within.is_some()) {
            breach.git = Some(self.rules.git);
        }
        if breach.changed.is_empty() { Ok(()) } else { Err(breach) }
    }

    fn records(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn accept(&mut self) {
        let found = walk(&self.root, &self.way, |_, _| Err(Errno::NOENT));
        match (found, self.rules.clone()) {
            (Ok((folder, name)), Some(rules)) => {
                tree::refresh(&mut self.state, &folder, name, &rules.spot(&self.path), &mut Budget::of_trees(), 0);
            }
            (Ok((folder, name)), None) => {
                if !self.state.holds(&folder, name) {
                    self.state = State::look(&folder, name, &mut Budget::default());
                }
            }
            (Err(_), _) => self.state = State::Missing,
        }
    }

    fn inspect(&mut self, busy: bool, breach: &mut Breach) {
        let Some(rules) = self.rules.clone() else {
            if !self.holds() {
                breach.changed.push(self.path.clone());
                if self.put_back().is_err() {
                    breach.left.push(self.path.clone());
                }
            }
            return;
        };
        let mut inspection = Inspection::new(busy);
        let spot = rules.spot(&self.path);
        match walk(&self.root, &self.way, |_, _| Err(Errno::NOENT)) {
            Ok((folder, name)) => inspection.check(&folder, name, &spot, Some(&mut self.state), 0),
            Err(Errno::NOENT) if matches!(self.state, State::Missing) => {}
            Err(_) => {
                inspection.changed.push(self.path.clone());
                match self.make_way() {
                    Ok((folder, name)) => inspection.check(&folder, &name, &spot, Some(&mut self.state), 0),
                    Err(Errno::NOENT) if matches!(self.state, State::Missing) => {}
                    Err(_) => inspection.left.push(self.path.clone()),
                }
                inspection.changed.dedup();
            }
        }
        breach.changed.append(&mut inspection.changed);
        breach.left.append(&mut inspection.left);
    }

    fn holds(&mut self) -> bool {
        match walk(&self.root, &self.way, |_, _| Err(Errno::NOENT)) {
            Ok((folder, name)) => self.state.holds(&folder, name),
            Err(Errno::NOENT) => matches!(self.state, State::Missing),
            Err(_) => false,
        }
    }

    fn put_back(&mut self) -> Result<(), Errno> {
        let gone = matches!(self.state, State::Missing);
        match self.make_way() {
            Ok((folder, name)) => put::put(&folder, &name, &mut self.state),
            Err(Errno::NOENT) if gone => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The folder that holds it, made where it is missing and something has to be put back there.
    fn make_way(&self) -> Result<(OwnedFd, OsString), Errno> {
        let gone = matches!(self.state, State::Missing);
        // A link or file in the place of a folder above it goes, and comes back as a folder where one was needed.
        let made = walk(&self.root, &self.way, |folder, name| {
            put::remove(folder, name, 0)?;
            if gone { Err(Errno::NOENT) } else { mkdirat(folder, name, Mode::from_raw_mode(0o755)) }
        });
        made.map(|(folder, name)| (folder, name.to_owned()))
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

/// The one of them in which a path lies, and the way from there, which is empty where it is one of them itself and that
/// is wanted.
fn way(roots: &[(PathBuf, Arc<OwnedFd>)], path: &Path, itself: bool) -> Option<(Arc<OwnedFd>, PathBuf)> {
    roots.iter().find_map(|(root, file)| {
        let way = path.strip_prefix(root).ok()?;
        let plain = way.components().all(|part| matches!(part, Component::Normal(_)));
        (plain && (way.file_name().is_some() || itself)).then(|| (Arc::clone(file), way.to_owned()))
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
    // The root is found in itself by this name.
    let name = way.file_name().unwrap_or(OsStr::new("."));
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
