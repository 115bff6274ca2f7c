//! Keeps the existing objects of a repository, and lets commands add new ones.
//!
//! In bubblewrap's tier, commands see an empty object folder that borrows from the real one, which they can't write to: a stage.
//! After each command, what is in it is copied to the real folder, if its content has its name. In landlock's tier, commands write to
//! the real folder. A folder in it, which they can't write to, has hard links to all objects, from which they are
//! restored. No command can write to the files themselves: they are read-only, and [`GuardedFiles`] keeps that so.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, chmodat, fchmod, flock, fstat, linkat, mkdirat, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;

use super::super::object_stage::{EXISTING, GuardedFiles, PREFIX};
use super::dir_fd::{Listing, folder_name, kind, kind_of, list, open_dir, open_parent, open_parent_or, read, stat};
use super::file_state::StatSnapshot;
use super::rollback;
use crate::git::objects::{GitObjects, has_all_objects, index_pack};
use crate::workspace::open_beneath::{file_id, open_regular_file};

/// The largest new object that is accepted, in bytes, compressed or not.
const MAX_OBJECT_BYTES: u64 = 256 << 20;
/// How long it may take to examine what a command has added.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(120);
/// After which time a folder that no process has locked is a leftover of a run that was killed.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// How existing objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptBy {
    /// The folder is a stage in which commands see the objects.
    Stage,
    /// The folder has hard links to the objects.
    Links,
}

/// The object folder of a repository.
#[derive(Debug)]
pub(super) struct ObjectStore {
    /// The writable folder that it is in.
    pub(super) root: Arc<OwnedFd>,
    /// The path from that folder.
    pub(super) relative: PathBuf,
    pub(super) path: PathBuf,
    pub(super) kept_by: KeptBy,
    /// The stage, or the folder of links.
    pub(super) folder: Arc<OwnedFd>,
    /// The trusted git.
    pub(super) git: Option<PathBuf>,
    pub(super) sha256: bool,
    /// What the stage borrows from, as its `info/alternates`.
    pub(super) alternates: Vec<u8>,
    pub(super) guarded: GuardedFiles,
    /// The folders of objects with their state when the links were made.
    seen: BTreeMap<OsString, StatSnapshot>,
    /// The name that the folder had when it was opened.
    name: OsString,
    /// Whether the folder of links is removed with this.
    is_owner: bool,
}

/// What a check of an object folder found.
#[derive(Debug, Default)]
pub(super) struct ObjectChanges {
    /// Objects were changed or removed, and restored.
    pub(super) restored: bool,
    /// They couldn't be restored.
    pub(super) lost: bool,
    /// Links and special files that were among the objects. They are removed.
    pub(super) links: Vec<PathBuf>,
}

impl ObjectStore {
    /// The state of an object folder whose objects commands see in a stage.
    pub(super) fn staged(
        (root, relative): (Arc<OwnedFd>, PathBuf),
        path: &Path,
        stage: &Path,
        git: Option<PathBuf>,
        sha256: bool,
    ) -> io::Result<Self> {
        let folder = Arc::new(open_dir_at(stage)?);
        let alternates = std::fs::read(stage.join("info/alternates"))?;
        let mut store = Self::new((root, relative), path, KeptBy::Stage, folder, git, sha256, GuardedFiles::default());
        store.alternates = alternates;
        store.recover_leftovers();
        Ok(store)
    }

    /// Makes hard links to all objects. `None` if nobody but others can write to the folder.
    pub(super) fn linked(
        (root, relative): (Arc<OwnedFd>, PathBuf),
        path: &Path,
        git: Option<PathBuf>,
        sha256: bool,
        guarded: GuardedFiles,
    ) -> io::Result<Option<Self>> {
        let (parent, name) = open_parent(&root, &relative)?;
        let objects = open_dir(&parent, name)?;
        let folder = match create_locked(&objects) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(None),
            created => Arc::new(created?),
        };
        let mut store = Self::new((root, relative.clone()), path, KeptBy::Links, folder, git, sha256, guarded);
        store.is_owner = true;
        store.recover_leftovers();
        store.rebaseline()?;
        Ok(Some(store))
    }

    fn new(
        (root, relative): (Arc<OwnedFd>, PathBuf),
        path: &Path,
        kept_by: KeptBy,
        folder: Arc<OwnedFd>,
        git: Option<PathBuf>,
        sha256: bool,
        guarded: GuardedFiles,
    ) -> Self {
        let path = path.to_owned();
        let (alternates, seen) = (Vec::new(), BTreeMap::new());
        let name = folder_name(&folder).unwrap_or_default();
        Self { root, relative, path, kept_by, folder, git, sha256, alternates, guarded, seen, name, is_owner: false }
    }

    /// The same in the process that restores files.
    pub(super) fn inherited(
        (root, relative): (Arc<OwnedFd>, PathBuf),
        path: &Path,
        kept_by: KeptBy,
        folder: Arc<OwnedFd>,
        git: Option<PathBuf>,
        sha256: bool,
    ) -> Self {
        Self::new((root, relative), path, kept_by, folder, git, sha256, GuardedFiles::default())
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let (parent, name) = open_parent(&self.root, &self.relative)?;
        open_dir(&parent, name)
    }

    /// Accepts the current objects. Called when no command runs.
    ///
    /// # Errors
    /// The objects can't be kept.
    pub(super) fn rebaseline(&mut self) -> io::Result<()> {
        match self.kept_by {
            KeptBy::Stage => self.reset_stage(),
            KeptBy::Links => self.link_all(),
        }
    }

    /// Makes the stage as new.
    fn reset_stage(&self) -> io::Result<()> {
        let (folder, listing) = list(&self.folder, OsStr::new("."))?;
        for (name, _) in listing.iter().filter(|(name, _)| name != EXISTING && name != "info" && name != "pack") {
            rollback::remove_all(&folder, name, 0)?;
        }
        for name in ["info", "pack"] {
            if kind(&folder, OsStr::new(name)) != Some(FileType::Directory) {
                rollback::remove_all(&folder, OsStr::new(name), 0)?;
                mkdirat(&folder, name, Mode::RWXU)?;
            }
        }
        let info = open_dir(&folder, OsStr::new("info"))?;
        let name = OsStr::new("alternates");
        if read(&info, name, self.alternates.len() as u64).as_ref() != Some(&self.alternates) {
            rollback::remove_all(&info, name, 0)?;
            write_new(&info, name, &self.alternates, 0o644)?;
        }
        Ok(())
    }

    fn link_all(&mut self) -> io::Result<()> {
        let objects = self.open()?;
        let (_, listing) = list(&objects, OsStr::new("."))?;
        let folders: BTreeSet<&OsString> =
            listing.iter().filter(|(name, kind)| is_object_folder(name, *kind)).map(|(name, _)| name).collect();
        let gone: Vec<OsString> = self.seen.keys().filter(|name| !folders.contains(name)).cloned().collect();
        let changed: Vec<&OsString> = folders
            .into_iter()
            .filter(|name| {
                let now = StatSnapshot::at(&objects, name);
                now.is_none() || self.seen.get(*name) != now.as_ref()
            })
            .collect();
        if gone.is_empty() && changed.is_empty() {
            return Ok(());
        }
        let folder = Arc::clone(&self.folder);
        let links = WritableFolder::new(&folder)?;
        for name in gone {
            if let Ok(folder) = open_dir(&self.folder, &name) {
                let _writable = WritableFolder::new(&folder)?;
                rollback::remove_all(&self.folder, &name, 0)?;
            }
            self.seen.remove(&name);
        }
        for name in changed {
            self.link_folder(&objects, name)?;
        }
        drop(links);
        Ok(())
    }

    /// Makes the links for one folder. The folder of the links must be writable.
    fn link_folder(&mut self, objects: &OwnedFd, name: &OsString) -> io::Result<()> {
        let Some(now) = StatSnapshot::at(objects, name) else { return Ok(()) };
        let (real, listing) = list(objects, name)?;
        if kind(&self.folder, name).is_none() {
            mkdirat(&self.folder, name.as_os_str(), Mode::RWXU)?;
        }
        let (links, linked) = list(&self.folder, name)?;
        let _writable = WritableFolder::new(&links)?;
        self.guarded.insert(file_id(&fstat(&links)?));
        let mut linked: BTreeSet<OsString> = linked.into_iter().map(|(name, _)| name).collect();
        for (file, kind) in listing.into_iter().filter(|(_, kind)| *kind == FileType::RegularFile) {
            debug_assert_eq!(kind, FileType::RegularFile);
            let is_linked = linked.remove(&file) && is_same(&real, &links, &file);
            if !is_linked {
                rollback::remove_all(&links, &file, 0)?;
                self.link(&real, &links, &file)?;
            }
        }
        for file in linked {
            unlinkat(&links, file.as_os_str(), AtFlags::empty())?;
        }
        self.seen.insert(name.clone(), now);
        Ok(())
    }

    fn link(&self, real: &OwnedFd, links: &OwnedFd, name: &OsStr) -> io::Result<()> {
        // It may be gone by now.
        let Some(file) = stat(real, name) else { return Ok(()) };
        if file.st_mode & 0o222 != 0 {
            // Git itself makes all objects read-only.
            let mode = Mode::from_raw_mode(file.st_mode & 0o555);
            let _ = chmodat(real, name, mode, AtFlags::empty());
        }
        self.guarded.insert(file_id(&file));
        match linkat(real, name, links, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // The file belongs to someone else, has too many links, or the file system has no links.
            Err(_) => {
                let Some(mut original) = open_regular_file(real.as_fd(), name)? else { return Ok(()) };
                let mut copy = create_new(links, name, 0o444)?;
                io::copy(&mut original, &mut copy).map(drop)
            }
        }
    }

    /// Restores objects that were changed or removed, and examines new ones. With `busy`, other commands are still running.
    pub(super) fn check(&mut self, busy: bool) -> ObjectChanges {
        let mut changes = ObjectChanges::default();
        let checked = match self.kept_by {
            KeptBy::Stage => self.import_from_stage(busy),
            KeptBy::Links => self.check_links(busy, &mut changes),
        };
        changes.lost |= checked.is_err();
        changes
    }

    fn import_from_stage(&self, busy: bool) -> Result<(), Errno> {
        let (stage, listing) = list(&self.folder, OsStr::new("."))?;
        let mut added = Added::default();
        for (name, kind) in listing.iter().filter(|(name, kind)| is_object_folder(name, *kind)) {
            debug_assert_eq!(*kind, FileType::Directory);
            let (folder, listing) = list(&stage, name)?;
            added.add(self.sha256, name, &folder, &listing);
        }
        if added.is_empty() {
            return Ok(());
        }
        let objects = self.open()?;
        // If something fails, references to these objects aren't accepted.
        let _ = self.import(&objects, &stage, &added);
        for (folder, name) in added.loose {
            if let Ok(folder) = open_dir(&stage, &folder) {
                let _ = unlinkat(&folder, name.as_os_str(), AtFlags::empty());
            }
        }
        if !busy && let Ok((folder, listing)) = list(&stage, OsStr::new("pack")) {
            for (name, _) in listing {
                let _ = rollback::remove_all(&folder, &name, 0);
            }
        }
        Ok(())
    }

    fn check_links(&mut self, busy: bool, changes: &mut ObjectChanges) -> Result<(), Errno> {
        let (parent, name) = open_parent_or(&self.root, &self.relative, |folder, name| {
            rollback::remove_all(folder, name, 0)?;
            mkdirat(folder, name, Mode::from_raw_mode(0o755))
        })?;
        if kind(&parent, name) != Some(FileType::Directory) {
            changes.restored = true;
            rollback::remove_all(&parent, name, 0)?;
            mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
        }
        if let Err(Errno::ACCESS) = list(&parent, name) {
            chmodat(&parent, name, Mode::from_raw_mode(0o755), AtFlags::empty())?;
        }
        let (objects, listing) = list(&parent, name)?;
        let mut folders: BTreeSet<OsString> = self.linked_folders()?;
        for (name, kind) in listing.into_iter().filter(|(name, _)| is_object_folder(name, FileType::Directory)) {
            if kind == FileType::Directory {
                folders.insert(name);
            } else {
                changes.note(&self.path.join(&name), kind);
                rollback::remove_all(&objects, &name, 0)?;
            }
        }
        self.return_folder(&objects)?;
        let is_changed = |name: &OsString| {
            let now = StatSnapshot::at(&objects, name);
            now.is_none() || self.seen.get(name) != now.as_ref()
        };
        let changed: Vec<OsString> = folders.into_iter().filter(is_changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let mut added = Added::default();
        for name in &changed {
            let known = self.seen.get(name);
            if kind(&objects, name) != Some(FileType::Directory) {
                changes.restored = true;
                rollback::remove_all(&objects, name, 0)?;
                mkdirat(&objects, name.as_os_str(), Mode::from_raw_mode(0o755))?;
            }
            let permissions = StatSnapshot::at(&objects, name).map(|now| now.permissions());
            if let Some(known) = known.filter(|known| Some(known.permissions()) != permissions) {
                rollback::restore_dir_permissions(&objects, name, known)?;
            }
            let (real, listing) = list(&objects, name)?;
            let (links, linked) = match list(&self.folder, name) {
                Ok(linked) => linked,
                // A new folder.
                Err(Errno::NOENT) => {
                    added.add(self.sha256, name, &real, &listing);
                    self.remove_others((&real, name), &listing, busy, &added, changes)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let linked: BTreeSet<OsString> = linked.into_iter().map(|(name, _)| name).collect();
            for file in linked.iter().filter(|file| !is_same(&real, &links, file)) {
                changes.restored = true;
                rollback::remove_all(&real, file, 0)?;
                restore_object(&links, &real, file)?;
            }
            let new: Listing = listing.into_iter().filter(|(file, _)| !linked.contains(file)).collect();
            added.add(self.sha256, name, &real, &new);
            self.remove_others((&real, name), &new, busy, &added, changes)?;
        }
        // Opened before they are removed. Git writes them again, with an index of its own.
        let packs = &added.packs;
        if !packs.is_empty()
            && let Ok((folder, listing)) = list(&objects, OsStr::new("pack"))
        {
            let linked = list(&self.folder, OsStr::new("pack")).map(|(_, linked)| linked).unwrap_or_default();
            for (name, _) in listing.iter().filter(|(name, _)| !linked.iter().any(|(linked, _)| linked == name)) {
                if !(busy && is_temporary(name)) {
                    rollback::remove_all(&folder, name, 0)?;
                }
            }
        }
        let imported = self.import(&objects, &objects, &added).unwrap_or_default();
        for (folder, name) in added.loose.iter().filter(|object| !imported.contains(object)) {
            if let Ok(folder) = open_dir(&objects, folder) {
                rollback::remove_all(&folder, name, 0)?;
            }
        }
        let folder = Arc::clone(&self.folder);
        let links = WritableFolder::new(&folder)?;
        let mut all = changed;
        all.push("pack".into());
        for name in all {
            if kind(&objects, &name) == Some(FileType::Directory) {
                self.link_folder(&objects, &name).map_err(|_| Errno::IO)?;
            }
        }
        drop(links);
        Ok(())
    }

    /// Removes what isn't an object from a folder of objects.
    fn remove_others(
        &self,
        (folder, name): (&OwnedFd, &OsString),
        listing: &Listing,
        busy: bool,
        added: &Added,
        changes: &mut ObjectChanges,
    ) -> Result<(), Errno> {
        for (file, kind) in listing {
            let is_regular = *kind == FileType::RegularFile;
            let is_written = busy && is_temporary(file);
            // Packs are removed when all are open.
            let is_pack = name == "pack" && Path::new(file).extension() == Some(OsStr::new("pack"));
            if !(is_regular && (added.has(name, file) || is_written || is_pack)) {
                changes.note(&self.path.join(name).join(file), *kind);
                rollback::remove_all(folder, file, 0)?;
            }
        }
        Ok(())
    }

    /// Makes sure that the folder with the links is where it was. A command may have moved it with the folders around it, and may have
    /// made another one in its place.
    fn return_folder(&self, objects: &OwnedFd) -> Result<(), Errno> {
        let folder_id = file_id(&fstat(&*self.folder)?);
        if stat(objects, &self.name).is_some_and(|found| file_id(&found) == folder_id) {
            return Ok(());
        }
        if let Ok(folder) = open_dir(objects, &self.name) {
            remove_folder(objects, &self.name, &folder);
        }
        rollback::remove_all(objects, &self.name, 0)?;
        let parent = openat(&*self.folder, "..", crate::workspace::open_beneath::DIR_FLAGS, Mode::empty())?;
        let name = folder_name(&self.folder).ok_or(Errno::NOENT)?;
        let _writable = WritableFolder::new(&self.folder)?;
        renameat(&parent, name.as_os_str(), objects, self.name.as_os_str())
    }

    fn linked_folders(&self) -> Result<BTreeSet<OsString>, Errno> {
        Ok(list(&self.folder, OsStr::new("."))?.1.into_iter().map(|(name, _)| name).collect())
    }

    /// Copies new objects to the object folder, if their content has their name. Existing ones aren't replaced, except by the very
    /// same object. Returns the loose objects that are there now.
    fn import(&self, objects: &OwnedFd, source: &OwnedFd, added: &Added) -> io::Result<BTreeSet<(OsString, OsString)>> {
        let mut imported = BTreeSet::new();
        let Some(git) = &self.git else { return Ok(imported) };
        let quarantine = Quarantine::new(objects, self.sha256)?;
        let deadline = Instant::now() + IMPORT_TIMEOUT;
        let mut copied = Vec::new();
        for (folder, name) in &added.loose {
            let from = open_dir(source, folder)?;
            // A stage has objects that git would only have to touch.
            let is_known = self.kept_by == KeptBy::Stage
                && open_dir(objects, folder).is_ok_and(|folder| kind(&folder, name).is_some());
            if is_known {
                imported.insert((folder.clone(), name.clone()));
                continue;
            }
            let Some(content) = read(&from, name, MAX_OBJECT_BYTES) else { continue };
            let to = quarantine.object_folder(folder)?;
            write_new(&to, name, &content, 0o444)?;
            copied.push((folder, name));
        }
        if !copied.is_empty() {
            let mut reader = GitObjects::open_folder(git, &quarantine.folder, self.sha256, MAX_OBJECT_BYTES, deadline)?;
            for (folder, name) in copied {
                let id = format!("{}{}", folder.to_string_lossy(), name.to_string_lossy());
                if !reader.is_intact(&id) {
                    continue;
                }
                match mkdirat(objects, folder.as_os_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let (from, to) = (quarantine.object_folder(folder)?, open_dir(objects, folder)?);
                renameat(&from, name.as_os_str(), &to, name.as_os_str())?;
                imported.insert((folder.clone(), name.clone()));
            }
        }
        for pack in &added.packs {
            index_pack(git, &quarantine.folder, pack.try_clone()?, deadline)?;
        }
        if !added.packs.is_empty() {
            let (from, listing) = list(&quarantine.object_folder(OsStr::new("pack"))?, OsStr::new("."))?;
            match mkdirat(objects, "pack", Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let to = open_dir(objects, OsStr::new("pack"))?;
            // Git looks for packs by the names of their indexes.
            let (indexes, others): (Listing, Listing) =
                listing.into_iter().partition(|(name, _)| Path::new(name).extension() == Some(OsStr::new("idx")));
            for (name, _) in others.into_iter().chain(indexes) {
                match linkat(&from, name.as_os_str(), &to, name.as_os_str(), AtFlags::empty()) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(_) => renameat(&from, name.as_os_str(), &to, name.as_os_str())?,
                }
            }
        }
        Ok(imported)
    }

    /// Whether these objects exist with everything that they refer to. What the `known` ones refer to isn't looked at.
    pub(super) fn has_all(&self, names: &[String], known: &[String]) -> bool {
        let Some(git) = &self.git else { return true };
        let has_all = || -> io::Result<bool> {
            let objects = self.open()?;
            let quarantine = Quarantine::new(&objects, self.sha256)?;
            let info = quarantine.object_folder(OsStr::new("info"))?;
            let mut borrowed = self.path.as_os_str().as_encoded_bytes().to_vec();
            borrowed.push(b'\n');
            write_new(&info, OsStr::new("alternates"), &borrowed, 0o644)?;
            let above = openat(&objects, "..", super::dir_fd::PATH_FLAGS, Mode::empty())?;
            if let Some(shallow) = read(&above, OsStr::new("shallow"), MAX_OBJECT_BYTES) {
                write_new(&quarantine.folder, OsStr::new("shallow"), &shallow, 0o644)?;
            }
            let deadline = Instant::now() + IMPORT_TIMEOUT;
            if has_all_objects(git, &quarantine.folder, names, known, deadline)? {
                return Ok(true);
            }
            // A reference that was broken before doesn't matter.
            let mut reader = GitObjects::open_folder(git, &quarantine.folder, self.sha256, MAX_OBJECT_BYTES, deadline)?;
            let intact: Vec<String> = known.iter().filter(|name| reader.is_intact(name)).cloned().collect();
            drop(reader);
            Ok(intact.len() < known.len() && has_all_objects(git, &quarantine.folder, names, &intact, deadline)?)
        };
        has_all().unwrap_or(false)
    }

    /// Takes what runs that were killed together with their restorers have left behind.
    fn recover_leftovers(&self) {
        let Ok((objects, listing)) = self.open().and_then(|folder| list(&folder, OsStr::new("."))) else { return };
        let folder_id = fstat(&*self.folder).map(|folder| file_id(&folder)).ok();
        let leftovers = listing.iter().filter(|(name, kind)| {
            *kind == FileType::Directory && name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
        });
        for (name, _) in leftovers {
            let Ok(folder) = open_dir(&objects, name) else { continue };
            let Ok(state) = fstat(&folder) else { continue };
            let is_old = age(&state).is_some_and(|age| age > LEFTOVER_AGE);
            if Some(file_id(&state)) == folder_id
                || !is_old
                || flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err()
            {
                continue;
            }
            let mut added = Added::default();
            for (name, _) in list(&folder, OsStr::new(".")).map(|(_, listing)| listing).unwrap_or_default() {
                let existing = list(&objects, &name).map(|(_, listing)| listing).unwrap_or_default();
                if let Ok((opened, mut inside)) = list(&folder, &name)
                    && is_object_folder(&name, FileType::Directory)
                {
                    inside.retain(|(name, _)| !existing.iter().any(|(existing, _)| existing == name));
                    added.add(self.sha256, &name, &opened, &inside);
                }
            }
            if added.is_empty() || self.import(&objects, &folder, &added).is_ok() {
                remove_folder(&objects, name, &folder);
            }
        }
    }

    /// Removes the stage or the links, wherever they are by now.
    pub(super) fn discard(&self) {
        if let Some(name) = folder_name(&self.folder)
            && let Ok(parent) = openat(&*self.folder, "..", crate::workspace::open_beneath::DIR_FLAGS, Mode::empty())
        {
            remove_folder(&parent, &name, &self.folder);
        }
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        if self.is_owner {
            self.discard();
        }
    }
}

impl ObjectChanges {
    fn note(&mut self, path: &Path, kind: FileType) {
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            self.links.push(path.to_owned());
        }
    }
}

/// New files in an object folder.
#[derive(Debug, Default)]
struct Added {
    /// Folder and name of each loose object.
    loose: BTreeSet<(OsString, OsString)>,
    packs: Vec<File>,
}

impl Added {
    fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.packs.is_empty()
    }

    fn add(&mut self, sha256: bool, name: &OsStr, folder: &OwnedFd, listing: &Listing) {
        let length = if sha256 { 62 } else { 38 };
        for (file, _) in listing.iter().filter(|(_, kind)| *kind == FileType::RegularFile) {
            if name != "pack" {
                if file.len() == length && file.as_encoded_bytes().iter().all(|byte| b"0123456789abcdef".contains(byte))
                {
                    self.loose.insert((name.to_owned(), file.clone()));
                }
            } else if Path::new(file).extension() == Some(OsStr::new("pack")) && !is_temporary(file) {
                self.packs.extend(open_regular_file(folder.as_fd(), file).ok().flatten());
            }
        }
    }

    fn has(&self, folder: &OsString, file: &OsString) -> bool {
        *folder != "pack" && self.loose.contains(&(folder.clone(), file.clone()))
    }
}

/// A repository without anything, for git to work in with objects that aren't trusted. It is in the object folder, so that its files
/// can be moved there, and removed with this.
struct Quarantine<'a> {
    parent: &'a OwnedFd,
    folder: OwnedFd,
}

impl<'a> Quarantine<'a> {
    fn new(objects: &'a OwnedFd, sha256: bool) -> io::Result<Self> {
        let quarantine = Self { parent: objects, folder: create_locked(objects)? };
        let folder = &quarantine.folder;
        for name in ["objects", "refs"] {
            mkdirat(folder, name, Mode::RWXU)?;
        }
        write_new(folder, OsStr::new("HEAD"), b"ref: refs/heads/none\n", 0o644)?;
        let format: &[u8] =
            if sha256 { b"\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n" } else { b"" };
        write_new(folder, OsStr::new("config"), &[b"[core]\n\tbare = true\n", format].concat(), 0o644)?;
        Ok(quarantine)
    }

    /// A folder in its object folder, which is created if it isn't there.
    fn object_folder(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let objects = open_dir(&self.folder, OsStr::new("objects"))?;
        match mkdirat(&objects, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open_dir(&objects, name),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Quarantine<'_> {
    fn drop(&mut self) {
        if let Some(name) = folder_name(&self.folder) {
            // If this fails, the next run does it.
            let _ = rollback::remove_all(self.parent, &name, 0);
        }
    }
}

/// Makes a folder writable until this is dropped. Commands of landlock's tier can't do that.
struct WritableFolder<'a>(&'a OwnedFd);

impl<'a> WritableFolder<'a> {
    fn new(folder: &'a OwnedFd) -> Result<Self, Errno> {
        fchmod(folder, Mode::RWXU)?;
        Ok(Self(folder))
    }
}

impl Drop for WritableFolder<'_> {
    fn drop(&mut self) {
        // Can't fail: it is this user's.
        let _ = fchmod(self.0, Mode::RUSR | Mode::XUSR);
    }
}

fn is_object_folder(name: &OsStr, kind: FileType) -> bool {
    let bytes = name.as_encoded_bytes();
    let is_fan_out = bytes.len() == 2 && bytes.iter().all(|byte| b"0123456789abcdef".contains(byte));
    kind == FileType::Directory && (is_fan_out || name == "pack")
}

/// Whether git makes files of this name while it writes an object.
fn is_temporary(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"tmp_") || name.as_encoded_bytes().starts_with(b".tmp-")
}

/// Whether the object is still the one that was linked or copied.
fn is_same(real: &OwnedFd, links: &OwnedFd, name: &OsStr) -> bool {
    let Some((now, kept)) = stat(real, name).zip(stat(links, name)) else { return false };
    if file_id(&now) == file_id(&kept) {
        return true;
    }
    // A copy: nobody has another file of the same size in the same place, or its content is the same.
    let is_foreign = now.st_uid != kept.st_uid;
    kind_of(&now) == FileType::RegularFile
        && now.st_size == kept.st_size
        && (is_foreign || read(real, name, MAX_OBJECT_BYTES) == read(links, name, MAX_OBJECT_BYTES))
}

fn restore_object(links: &OwnedFd, real: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match linkat(links, name, real, name, AtFlags::empty()) {
        Err(Errno::NOTSUP | Errno::PERM | Errno::MLINK) => {
            let copy = || -> io::Result<()> {
                let Some(mut kept) = open_regular_file(links.as_fd(), name)? else { return Ok(()) };
                let mut file = create_new(real, name, 0o444)?;
                io::copy(&mut kept, &mut file).map(drop)
            };
            copy().map_err(|_| Errno::IO)
        }
        result => result,
    }
}

/// Creates a folder that this process has locked.
fn create_locked(objects: &OwnedFd) -> Result<OwnedFd, Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..1000 {
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        match mkdirat(objects, name.as_str(), Mode::RWXU) {
            Err(Errno::EXIST) => {}
            created => {
                created?;
                let folder = open_dir(objects, OsStr::new(&name))?;
                flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
                return Ok(folder);
            }
        }
    }
    Err(Errno::EXIST)
}

fn remove_folder(parent: &OwnedFd, name: &OsStr, folder: &OwnedFd) {
    // What the links are in can't be written to.
    let _ = fchmod(folder, Mode::RWXU);
    for (name, kind) in list(folder, OsStr::new(".")).map(|(_, listing)| listing).unwrap_or_default() {
        if kind == FileType::Directory
            && let Ok(inner) = open_dir(folder, &name)
        {
            let _ = fchmod(inner, Mode::RWXU);
        }
    }
    let _ = rollback::remove_all(parent, name, 0);
}

#[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the field's type depends on the system")]
fn age(state: &Stat) -> Option<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    now.checked_sub(Duration::from_secs(u64::try_from(state.st_ctime as i64).ok()?))
}

fn open_dir_at(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, crate::workspace::open_beneath::DIR_FLAGS, Mode::empty())
}

fn create_new(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(folder, name, flags, Mode::from_raw_mode(mode))?))
}

fn write_new(folder: &OwnedFd, name: &OsStr, content: &[u8], mode: u32) -> io::Result<()> {
    create_new(folder, name, mode)?.write_all(content)
}
