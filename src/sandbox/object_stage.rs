//! Object folders of git that commands may add to, but not change: the stages of bubblewrap's tier, and the files that commands of
//! landlock's tier can't make writable.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};

use crate::git;
use crate::sync::IgnorePoison;
use crate::workspace::open_beneath::FileId;
use crate::workspace::remove_folder::remove_folder;

/// The beginning of the name of every folder that is made in an object folder. Git's own maintenance removes old ones.
pub(super) const PREFIX: &str = "tmp_objdir-legwork-";
/// Where a stage has the existing objects.
pub(super) const EXISTING: &str = "existing";

/// Files and folders that commands can't make writable, by device and inode.
#[derive(Debug, Clone, Default)]
pub struct GuardedFiles(Arc<Mutex<HashSet<FileId>>>);

impl GuardedFiles {
    pub(super) fn insert(&self, id: FileId) {
        self.0.lock().ignore_poison().insert(id);
    }

    pub(super) fn contains(&self, id: FileId) -> bool {
        self.0.lock().ignore_poison().contains(&id)
    }
}

/// What commands see in place of an object folder. It is removed with this.
#[derive(Debug)]
pub(super) struct ObjectStage {
    /// The real folder, canonical.
    pub(super) objects: PathBuf,
    /// In that folder, so that a run that is killed leaves its objects there.
    pub(super) folder: PathBuf,
    /// Tells other runs that it is in use.
    _lock: OwnedFd,
}

/// The stages of a run. They are made when bubblewrap's tier is tried.
#[derive(Debug, Clone, Default)]
pub struct ObjectStages(Arc<Mutex<Vec<Arc<ObjectStage>>>>);

impl ObjectStages {
    /// Makes a stage for each of these object folders, which commands could change.
    pub(super) fn create(&self, object_folders: &[PathBuf]) -> io::Result<()> {
        let mut stages = self.lock();
        if stages.is_empty() {
            for objects in object_folders {
                stages.extend(ObjectStage::create(objects)?.map(Arc::new));
            }
        }
        Ok(())
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    pub(super) fn all(&self) -> Vec<Arc<ObjectStage>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<ObjectStage>>> {
        self.0.lock().ignore_poison()
    }
}

/// Whether the objects in a folder are named by SHA-256.
pub(super) fn has_sha256_objects(objects: &Path) -> bool {
    let config = objects.parent().map(|folder| git::GitConfig::read(&folder.join("config"))).unwrap_or_default();
    config.values("extensions", "objectformat").last() == Some("sha256")
}

impl ObjectStage {
    /// `None` if this user can't write to the folder, so that commands can't either.
    fn create(objects: &Path) -> io::Result<Option<Self>> {
        let folder = match tempfile::Builder::new().prefix(PREFIX).tempdir_in(objects) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                return Ok(None);
            }
            created => created?,
        };
        let lock = OwnedFd::from(File::open(folder.path())?);
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        for name in [EXISTING, "info", "pack"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let mut alternates = format!("{EXISTING}\n").into_bytes();
        for path in git::alternate_object_dirs(objects) {
            alternates.extend(path.as_os_str().as_bytes());
            alternates.push(b'\n');
        }
        fs::write(folder.path().join("info/alternates"), alternates)?;
        Ok(Some(Self { objects: objects.to_owned(), folder: folder.keep(), _lock: lock }))
    }
}

impl Drop for ObjectStage {
    fn drop(&mut self) {
        remove_folder(&self.folder);
    }
}
