//! Opening, listing and reading files relative to directory descriptors, without following any link: everything here may
//! have been made by an attacker.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat};
use rustix::io::Errno;

use crate::text::bounded::read_at_most;
use crate::workspace::open_beneath::{DIR_FLAGS, entries, file_id, open_regular_file};

/// How a folder is opened only to open or change what is in it. Linux requires no permission for this.
#[cfg(target_os = "linux")]
pub(super) const PATH_FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const PATH_FLAGS: OFlags = DIR_FLAGS;
/// How many names of a folder are read.
const MAX_NAMES: usize = 500_000;

/// The names in a folder with the kinds of the files.
pub(super) type Listing = Vec<(OsString, FileType)>;

/// Opens the folder that holds the last component of a path.
pub(super) fn open_parent<'a>(root: &OwnedFd, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
    open_parent_or(root, path, |_, _| Err(Errno::NOENT))
}

/// Opens the folder that holds the last component of a path. `missing` is called if a folder on the way isn't there; if it
/// succeeds, it must have made one.
pub(super) fn open_parent_or<'a>(
    root: &OwnedFd,
    path: &'a Path,
    missing: impl Fn(&OwnedFd, &OsStr) -> Result<(), Errno>,
) -> Result<(OwnedFd, &'a OsStr), Errno> {
    // An empty path means the root, which has this name in itself.
    let name = path.file_name().unwrap_or(OsStr::new("."));
    let mut folder = openat(root, ".", PATH_FLAGS, Mode::empty())?;
    for part in path.parent().into_iter().flat_map(Path::iter) {
        folder = match openat(&folder, part, PATH_FLAGS, Mode::empty()) {
            Ok(next) => next,
            Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => match missing(&folder, part) {
                Ok(()) => openat(&folder, part, PATH_FLAGS, Mode::empty())?,
                // Nothing can exist below a file, but something can below a link's target.
                Err(Errno::NOENT) if error != Errno::NOENT && kind(&folder, part) == Some(FileType::Symlink) => {
                    return Err(Errno::LOOP);
                }
                Err(other) => return Err(other),
            },
            Err(error) => return Err(error),
        };
    }
    Ok((folder, name))
}

pub(super) fn open_dir(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(folder, name, DIR_FLAGS, Mode::empty())
}

/// Opens a folder and lists it. Too many names are an error.
pub(super) fn list(folder: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Listing), Errno> {
    let opened = open_dir(folder, name)?;
    let listed: Listing = entries(&opened)?.take(MAX_NAMES + 1).collect::<Result<_, _>>()?;
    if listed.len() > MAX_NAMES { Err(Errno::TOOBIG) } else { Ok((opened, listed)) }
}

/// The same for a path from a root.
pub(super) fn list_path(root: &OwnedFd, path: &Path) -> Result<(OwnedFd, Listing), Errno> {
    let (folder, name) = open_parent(root, path)?;
    list(&folder, name)
}

/// The name that an open folder has now.
pub(super) fn folder_name(folder: &OwnedFd) -> Option<OsString> {
    let parent = openat(folder, "..", DIR_FLAGS, Mode::empty()).ok()?;
    let folder_id = file_id(&fstat(folder).ok()?);
    let (parent, listing) = list(&parent, OsStr::new(".")).ok()?;
    let mut names = listing.into_iter().map(|(name, _)| name);
    names.find(|name| stat(&parent, name).is_some_and(|found| file_id(&found) == folder_id))
}

pub(super) fn stat(folder: &OwnedFd, name: &OsStr) -> Option<Stat> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The kind of a file; `None` if there is none.
pub(super) fn kind(folder: &OwnedFd, name: &OsStr) -> Option<FileType> {
    stat(folder, name).as_ref().map(kind_of)
}

#[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the field's type depends on the system")]
pub(super) fn hard_links(stat: &Stat) -> u64 {
    stat.st_nlink as u64
}

/// A file's content; `None` if it can't be read, is longer than `max` bytes, or isn't a regular file.
pub(super) fn read(folder: &OwnedFd, name: &OsStr, max: u64) -> Option<Vec<u8>> {
    let file = open_regular_file(folder.as_fd(), name).ok()??;
    read_at_most(file, max).ok()?
}

/// Whether another process has locked a folder, as a run does with its record while it is running.
pub(super) fn is_locked(folder: &OwnedFd) -> bool {
    is_refused(folder, FlockOperation::NonBlockingLockShared)
}

/// Whether other processes have locked a folder together, as those of a map do with its ledger.
pub(super) fn is_held(folder: &OwnedFd) -> bool {
    is_refused(folder, FlockOperation::NonBlockingLockExclusive)
}

fn is_refused(folder: &OwnedFd, lock: FlockOperation) -> bool {
    let taken = flock(folder, lock);
    if taken.is_ok() {
        let _ = flock(folder, FlockOperation::Unlock);
    }
    taken == Err(Errno::WOULDBLOCK)
}
