//! A [`TamperGuard`] as bytes, for the process that restores protected files after this program was killed.
//!
//! Writer and reader are the same program, and no command can reach the bytes, so there is no version and little
//! validation.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::allowed_changes::AllowedChanges;
use super::file_state::{FileState, StatSnapshot};
use super::object_store::{KeptBy, ObjectStore};
use super::runs_dir::{RunsDir, WatchedJobDir};
use super::writable_roots::NestedRoot;
use super::{GuardedPath, TamperGuard};
use crate::job::GitAccess;
#[cfg(target_os = "linux")]
use crate::workspace::open_beneath::DIR_FLAGS;

impl TamperGuard {
    /// A hash that changes whenever the snapshot would.
    pub(in crate::sandbox) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.paths.iter().for_each(|guarded| hash(&guarded.state, &mut hasher));
        if let Some(runs) = &self.runs {
            runs.jobs.hash(&mut hasher);
            runs.own_entries.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The writable folders. The snapshot refers to them by descriptor number, so the other process must inherit them under
    /// the same numbers.
    pub(in crate::sandbox) fn roots(&self) -> Vec<Arc<OwnedFd>> {
        let mut roots: Vec<_> = self.paths.iter().map(|guarded| Arc::clone(&guarded.root)).collect();
        roots.extend(self.runs.iter().map(|runs| Arc::clone(&runs.root)));
        roots.extend(self.objects.iter().flat_map(|store| [Arc::clone(&store.root), Arc::clone(&store.folder)]));
        roots.extend(self.nested_roots.iter().flat_map(|root| [Arc::clone(&root.outer), Arc::clone(&root.folder)]));
        roots.sort_by_key(AsRawFd::as_raw_fd);
        roots.dedup_by_key(|root| root.as_raw_fd());
        roots
    }

    /// Everything that can be restored.
    pub(in crate::sandbox) fn snapshot(&self) -> Vec<u8> {
        let mut out = SnapshotWriter(Vec::new());
        out.number(u64::from(self.allowed_changes.git == GitAccess::Commit));
        out.paths(self.allowed_changes.git_folders.iter());
        out.paths(self.allowed_changes.unprotected.iter());
        out.paths(self.allowed_changes.guarded_objects.iter());
        out.number(self.nested_roots.len() as u64);
        for nested in &self.nested_roots {
            out.root(&nested.outer);
            out.path(&nested.relative);
            out.path(&nested.path);
            out.root(&nested.folder);
        }
        out.number(self.paths.len() as u64);
        for guarded in &self.paths {
            out.root(&guarded.root);
            out.path(&guarded.relative);
            out.path(&guarded.path);
            out.state(&guarded.state);
        }
        out.number(self.objects.len() as u64);
        for store in &self.objects {
            out.root(&store.root);
            out.path(&store.relative);
            out.path(&store.path);
            out.number(u64::from(store.kept_by == KeptBy::Links));
            out.root(&store.folder);
            out.paths(store.git.iter());
            out.number(u64::from(store.sha256));
        }
        out.number(u64::from(self.runs.is_some()));
        if let Some(runs) = &self.runs {
            out.root(&runs.root);
            out.path(&runs.relative);
            out.path(&runs.path);
            out.paths(runs.own_record.iter());
            let (device, inode) = runs.own_record_id.unwrap_or_default();
            out.number(device);
            out.number(inode);
            out.paths(runs.own_entries.iter().map(Path::new));
            out.number(runs.jobs.len() as u64);
            for (name, job) in &runs.jobs {
                out.bytes(name.as_bytes());
                out.paths(job.entries.iter().map(Path::new));
                out.paths(job.latest.iter().map(Path::new));
            }
        }
        out.0
    }

    /// Recreates the guard in a process that has inherited its roots.
    pub(in crate::sandbox) fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        let mut input = SnapshotReader { rest: bytes, roots: BTreeMap::new() };
        let git = if input.number()? == 1 { GitAccess::Commit } else { GitAccess::Read };
        let git_folders = input.paths()?.into_iter().collect();
        let unprotected = input.paths()?;
        let guarded_objects = input.paths()?.into_iter().collect();
        let allowed_changes = AllowedChanges { git, git_folders, unprotected, guarded_objects };
        let mut nested_roots = Vec::new();
        for _ in 0..input.number()? {
            let (outer, relative, path, folder) = (input.root()?, input.path()?, input.path()?, input.root()?);
            nested_roots.push(NestedRoot { outer, relative, path, folder });
        }
        let mut paths = Vec::new();
        for _ in 0..input.number()? {
            let (root, relative, path) = (input.root()?, input.path()?, input.path()?);
            paths.push(GuardedPath { root, relative, path, state: input.state()? });
        }
        let mut objects = Vec::new();
        for _ in 0..input.number()? {
            let (place, path) = ((input.root()?, input.path()?), input.path()?);
            let kept_by = if input.number()? == 1 { KeptBy::Links } else { KeptBy::Stage };
            let folder = input.root()?;
            let (git, sha256) = (input.paths()?.pop(), input.number()? == 1);
            objects.push(ObjectStore::inherited(place, &path, kept_by, folder, git, sha256));
        }
        let runs = if input.number()? == 1 { Some(input.runs()?) } else { None };
        let mut guard = Self::of(paths, allowed_changes);
        guard.find_user_stashes();
        Some(Self { nested_roots, runs, objects, ..guard })
    }
}

fn hash(state: &FileState, hasher: &mut DefaultHasher) {
    match state {
        FileState::Missing => hasher.write_u8(0),
        FileState::File(metadata, _) | FileState::Link(metadata, _) | FileState::Other(metadata) => {
            metadata.hash(hasher);
        }
        FileState::Folder(metadata, entries) => {
            (metadata, entries.len()).hash(hasher);
            for (name, state) in entries {
                name.hash(hasher);
                hash(state, hasher);
            }
        }
    }
}

struct SnapshotWriter(Vec<u8>);

impl SnapshotWriter {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    fn paths(&mut self, paths: impl ExactSizeIterator<Item = impl AsRef<Path>>) {
        self.number(paths.len() as u64);
        paths.for_each(|path| self.path(path.as_ref()));
    }

    fn root(&mut self, root: &OwnedFd) {
        self.number(u64::from(root.as_raw_fd().unsigned_abs()));
    }

    fn state(&mut self, state: &FileState) {
        let (kind, metadata) = match state {
            FileState::Missing => return self.number(0),
            FileState::File(metadata, None) => (1, metadata),
            FileState::File(metadata, Some(_)) => (2, metadata),
            FileState::Link(metadata, _) => (3, metadata),
            FileState::Folder(metadata, _) => (4, metadata),
            FileState::Other(metadata) => (5, metadata),
        };
        self.number(kind);
        metadata.0.into_iter().for_each(|number| self.number(number.cast_unsigned()));
        match state {
            FileState::File(_, Some(content)) => self.bytes(content),
            FileState::Link(_, target) => self.bytes(target.as_bytes()),
            FileState::Folder(_, entries) => {
                self.number(entries.len() as u64);
                for (name, state) in entries {
                    self.bytes(name.as_bytes());
                    self.state(state);
                }
            }
            _ => {}
        }
    }
}

struct SnapshotReader<'a> {
    rest: &'a [u8],
    roots: BTreeMap<u64, Arc<OwnedFd>>,
}

impl SnapshotReader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes.to_vec())
    }

    fn name(&mut self) -> Option<OsString> {
        self.bytes().map(OsString::from_vec)
    }

    fn path(&mut self) -> Option<PathBuf> {
        self.name().map(PathBuf::from)
    }

    fn paths(&mut self) -> Option<Vec<PathBuf>> {
        (0..self.number()?).map(|_| self.path()).collect()
    }

    fn root(&mut self) -> Option<Arc<OwnedFd>> {
        let number = self.number()?;
        if let Some(root) = self.roots.get(&number) {
            return Some(Arc::clone(root));
        }
        let root = reopen(number)?;
        Some(Arc::clone(self.roots.entry(number).or_insert(Arc::new(root))))
    }

    fn state(&mut self) -> Option<FileState> {
        let kind = self.number()?;
        if kind == 0 {
            return Some(FileState::Missing);
        }
        let mut numbers = [0; 10];
        for number in &mut numbers {
            *number = self.number()?.cast_signed();
        }
        let metadata = StatSnapshot(numbers);
        Some(match kind {
            1 => FileState::File(metadata, None),
            2 => FileState::File(metadata, Some(self.bytes()?)),
            3 => FileState::Link(metadata, self.name()?),
            4 => {
                let mut entries = BTreeMap::new();
                for _ in 0..self.number()? {
                    let name = self.name()?;
                    entries.insert(name, self.state()?);
                }
                FileState::Folder(metadata, entries)
            }
            5 => FileState::Other(metadata),
            _ => return None,
        })
    }

    fn runs(&mut self) -> Option<RunsDir> {
        let (root, relative, path) = (self.root()?, self.path()?, self.path()?);
        let own_record = self.paths()?.pop();
        let own_record_id = Some((self.number()?, self.number()?)).filter(|id| *id != (0, 0));
        let own_entries = self.paths()?.into_iter().map(PathBuf::into_os_string).collect();
        let mut jobs = BTreeMap::new();
        for _ in 0..self.number()? {
            let name = self.name()?;
            let entries: BTreeSet<OsString> = self.paths()?.into_iter().map(PathBuf::into_os_string).collect();
            jobs.insert(name, WatchedJobDir { entries, latest: self.paths()?.pop().map(PathBuf::into_os_string) });
        }
        Some(RunsDir { root, relative, path, own_record, own_record_id, own_entries, jobs, verifier: None, lock: None })
    }
}

/// Opens an inherited folder, which stays open.
#[cfg(target_os = "linux")]
fn reopen(number: u64) -> Option<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, openat};

    let open =
        |flags: OFlags| openat(CWD, format!("/proc/self/fd/{number}"), flags & !OFlags::NOFOLLOW, Mode::empty()).ok();
    // The mode of a folder that was opened only as a place can't be changed, and the links to objects have to be made writable.
    open(DIR_FLAGS).or_else(|| open(super::dir_fd::PATH_FLAGS))
}

#[cfg(not(target_os = "linux"))]
#[allow(unsafe_code)]
fn reopen(number: u64) -> Option<OwnedFd> {
    let number = i32::try_from(number).ok()?;
    // SAFETY: only duplicated, whatever the number refers to. A closed one is an error.
    let inherited = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    inherited.try_clone_to_owned().ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::tamper_error::TamperError;
    use super::super::dir_fd::PATH_FLAGS;
    use super::super::file_state::SnapshotBudget;
    use super::super::tree_check::{self, CheckMode, Location, TreeCheck};
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, openat};

    use super::*;

    #[test]
    fn a_state_survives_serialization() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/file"), "text").unwrap();
        fs::write(folder.path().join("a/large"), vec![0; 2 << 20]).unwrap();
        symlink("nowhere", folder.path().join("a/link")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("a/socket")).unwrap());
        let root = openat(CWD, folder.path(), PATH_FLAGS, Mode::empty()).unwrap();
        let rules = AllowedChanges::default();
        let (policy, name) = (rules.policy_for(&folder.path().join("a")), OsStr::new("a"));
        let at = Location::new(&root, name, &policy);
        let state = tree_check::capture(at, FileState::Missing, &mut SnapshotBudget::new(false));
        let mut out = SnapshotWriter(Vec::new());
        out.state(&state);
        out.state(&FileState::Missing);
        let mut input = SnapshotReader { rest: &out.0, roots: BTreeMap::new() };
        let mut read = input.state().unwrap();
        assert_eq!(format!("{read:?}"), format!("{state:?}"));
        let mut report = TamperError { changed: vec![], not_restored: vec![], git: None, too_large: None };
        TreeCheck::new(CheckMode::Enforce, false, &mut report).check(at, Some(&mut read));
        assert_eq!(report.changed, Vec::<PathBuf>::new());
        assert!(matches!(input.state(), Some(FileState::Missing)) && input.rest.is_empty());
        for length in 0..out.0.len() - 8 {
            // Truncated bytes must not panic.
            let _ = SnapshotReader { rest: &out.0[..length], roots: BTreeMap::new() }.state();
            if length > 1_000 {
                break;
            }
        }
    }
}
