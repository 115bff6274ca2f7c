//! Restores files and permissions, and removes what wasn't there.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chownat, fchmod, fchown, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::dir_fd::kind;
use super::file_state::{FileState, SnapshotBudget, StatSnapshot};
use crate::workspace::atomic_write::CompleteFile;
use crate::workspace::open_beneath::entries;
use crate::workspace::remove_folder::open_inaccessible_dir;

/// How deep a tree may be that is removed.
const MAX_DEPTH: usize = 200;

/// Restores anything but a folder.
pub(super) fn restore_file(folder: &OwnedFd, name: &OsStr, state: &mut FileState) -> Result<(), Errno> {
    match state {
        FileState::Missing => return remove_all(folder, name, 0),
        FileState::Folder(..) | FileState::Other(_) | FileState::File(_, None) => return Err(Errno::NOTSUP),
        FileState::File(metadata, Some(content)) => {
            let new = CompleteFile::write(folder.as_fd(), content, None, 0o600).map_err(|error| errno(&error))?;
            set_owner_and_mode(new.file(), metadata)?;
            if kind(folder, name) == Some(FileType::Directory) {
                remove_all(folder, name, 0)?;
            }
            new.persist(name).map_err(|error| errno(&error))?;
        }
        FileState::Link(metadata, target) => {
            remove_all(folder, name, 0)?;
            symlinkat(&*target, folder, name)?;
            let [_, user, group] = metadata.permissions();
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            // Only root can change the owner, and only root needs to.
            let _ = chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
    }
    *state = FileState::capture_file(folder, name, &mut SnapshotBudget::new(true));
    Ok(())
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Gives a folder its former owner and mode.
pub(super) fn restore_dir_permissions(folder: &OwnedFd, name: &OsStr, metadata: &StatSnapshot) -> Result<(), Errno> {
    set_owner_and_mode(open_inaccessible_dir(folder.as_fd(), name)?, metadata)
}

fn set_owner_and_mode(file: impl AsFd, metadata: &StatSnapshot) -> Result<(), Errno> {
    let [_, user, group] = metadata.permissions();
    // Only root can change the owner, and only root needs to.
    let _ = fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    fchmod(&file, Mode::from_raw_mode(metadata.raw_mode() & 0o7777))
}

/// Renames something to a hidden name with this at its end.
pub(super) fn rename_aside(folder: &OwnedFd, name: &OsStr, suffix: &str) -> Result<(), Errno> {
    for number in 0..100 {
        let mut new_name = OsString::from(".");
        new_name.push(name);
        new_name.push(suffix);
        if number > 0 {
            new_name.push(format!("-{number}"));
        }
        if kind(folder, &new_name).is_none() {
            return renameat(folder, name, folder, &new_name);
        }
    }
    Err(Errno::EXIST)
}

/// Removes whatever is there, with everything in it.
pub(super) fn remove_all(folder: &OwnedFd, name: &OsStr, depth: usize) -> Result<(), Errno> {
    match kind(folder, name) {
        None => return Ok(()),
        Some(FileType::Directory) => {}
        Some(_) => return unlinkat(folder, name, AtFlags::empty()),
    }
    if depth >= MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    let opened = open_inaccessible_dir(folder.as_fd(), name)?;
    let inside: Vec<_> = entries(&opened)?.collect::<Result<_, _>>()?;
    for (name, _) in inside {
        remove_all(&opened, &name, depth + 1)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}
