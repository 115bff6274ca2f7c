//! Names that only some file systems take for protected ones. On Linux, `.GitHub` is another folder than `.github`; after a
//! checkout on macOS or Windows it is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, openat};

use super::dir_fd::open_parent;
use super::rollback;
use crate::sandbox::tamper_error::TamperError;
use crate::text::folded_path::folded_name;
use crate::workspace::open_beneath::{DIR_FLAGS, entries};

/// A folder with protected names.
#[derive(Debug)]
struct ProtectedNames {
    /// The writable folder that it is in.
    root: Arc<OwnedFd>,
    /// Its path from there.
    relative: PathBuf,
    path: PathBuf,
    /// The protected names, and the same folded.
    exact: BTreeSet<OsString>,
    folded: BTreeSet<String>,
    /// The other spellings that were there before a command ran.
    known: BTreeSet<OsString>,
}

/// Finds and removes other spellings of protected names.
#[derive(Debug, Default)]
pub(super) struct Spellings(Vec<ProtectedNames>);

impl Spellings {
    /// Looks for other spellings of these protected paths, each with the writable folder that it is in, and its path from there.
    pub(super) fn new(paths: impl Iterator<Item = (Arc<OwnedFd>, PathBuf, PathBuf)>) -> Self {
        let mut folders: BTreeMap<PathBuf, ProtectedNames> = BTreeMap::new();
        for (root, relative, path) in paths {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let folder = folders.entry(above.to_owned()).or_insert_with(|| ProtectedNames {
                root,
                relative: relative.parent().unwrap_or(Path::new("")).to_owned(),
                path: above.to_owned(),
                exact: BTreeSet::new(),
                folded: BTreeSet::new(),
                known: BTreeSet::new(),
            });
            folder.exact.insert(name.to_owned());
            folder.folded.insert(folded_name(name));
        }
        let mut spellings = Self(folders.into_values().collect());
        spellings.rebaseline();
        spellings
    }

    /// Allows other spellings of a path's last name.
    pub(super) fn allow(&mut self, path: &Path) {
        let Some(name) = path.file_name() else { return };
        for folder in self.0.iter_mut().filter(|folder| path.parent() == Some(&folder.path)) {
            folder.folded.remove(&folded_name(name));
        }
    }

    /// Accepts those that are there now.
    pub(super) fn rebaseline(&mut self) {
        for folder in &mut self.0 {
            folder.known = folder.open().map(|opened| folder.found(&opened).collect()).unwrap_or_default();
        }
    }

    /// Removes those that have appeared.
    pub(super) fn check(&self, report: &mut TamperError) {
        for folder in &self.0 {
            let Some(opened) = folder.open() else { continue };
            for name in folder.found(&opened).filter(|name| !folder.known.contains(name)) {
                let path = folder.path.join(&name);
                if rollback::remove_all(&opened, &name, 0).is_err() {
                    report.not_restored.push(path.clone());
                }
                report.changed.push(path);
            }
        }
    }
}

impl ProtectedNames {
    fn open(&self) -> Option<OwnedFd> {
        let (folder, _) = open_parent(&self.root, &self.relative.join("name")).ok()?;
        openat(&folder, ".", DIR_FLAGS, Mode::empty()).ok()
    }

    fn found<'a>(&'a self, folder: &'a OwnedFd) -> impl Iterator<Item = OsString> + 'a {
        let names = entries(folder).into_iter().flatten().flatten().map(|(name, _)| name);
        let is_other = |name: &OsStr| !self.exact.contains(name) && self.folded.contains(&folded_name(name));
        names.filter(move |name| is_other(name))
    }
}
