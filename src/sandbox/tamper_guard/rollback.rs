//! Restores files and permissions, and removes what wasn't there.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chmodat, chownat, fchmod, fchown, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::dir_fd::{kind, open_dir};
use super::file_state::{FileState, SnapshotBudget, StatSnapshot};
use crate::workspace::open_beneath::{create_temporary, entries};

/// How deep a tree may be that is removed.
const MAX_DEPTH: usize = 200;

/// Restores anything but a folder.
pub(super) fn restore_file(folder: &OwnedFd, name: &OsStr, state: &mut FileState) -> Result<(), Errno> {
    match state {
        FileState::Missing => return remove_all(folder, name, 0),
        FileState::Folder(..) | FileState::Other(_) | FileState::File(_, None) => return Err(Errno::NOTSUP),
        FileState::File(metadata, Some(content)) => {
            let (mut file, temporary) = create_temporary(folder.as_fd(), Mode::from_raw_mode(0o600))?;
            let written = file.write_all(content).map_err(|_| Errno::IO);
            let replaced = written.and_then(|()| set_owner_and_mode(&file, metadata)).and_then(|()| {
                if kind(folder, name) == Some(FileType::Directory) {
                    remove_all(folder, name, 0)?;
                }
                renameat(folder, temporary.as_str(), folder, name)
            });
            if let Err(error) = replaced {
                let _ = unlinkat(folder, temporary.as_str(), AtFlags::empty());
                return Err(error);
            }
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

/// Opens a folder, even if no one may read or search it.
fn open_inaccessible_dir(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    open_dir(folder, name).or_else(|_| {
        make_accessible(folder, name)?;
        open_dir(folder, name)
    })
}

/// Gives the owner all rights to a folder, but not to what a link leads to.
#[cfg(target_os = "linux")]
fn make_accessible(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;

    let opened = rustix::fs::openat(folder, name, super::dir_fd::PATH_FLAGS, Mode::empty())?;
    chmodat(rustix::fs::CWD, format!("/proc/self/fd/{}", opened.as_raw_fd()), Mode::RWXU, AtFlags::empty())
}

#[cfg(not(target_os = "linux"))]
fn make_accessible(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    chmodat(folder, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

/// Gives a folder its former owner and mode.
pub(super) fn restore_dir_permissions(folder: &OwnedFd, name: &OsStr, metadata: &StatSnapshot) -> Result<(), Errno> {
    set_owner_and_mode(open_inaccessible_dir(folder, name)?, metadata)
}

fn set_owner_and_mode(file: impl AsFd, metadata: &StatSnapshot) -> Result<(), Errno> {
    let [_, user, group] = metadata.permissions();
    // Only root can change the owner, and only root needs to.
    let _ = fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    fchmod(&file, Mode::from_raw_mode(metadata.raw_mode() & 0o7777))
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
    let opened = open_inaccessible_dir(folder, name)?;
    let inside: Vec<_> = entries(&opened)?.collect::<Result<_, _>>()?;
    for (name, _) in inside {
        remove_all(&opened, &name, depth + 1)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}
