//! Puts back what was there.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, mkdirat, openat, renameat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::file_state::{FileState, SnapshotBudget, StatSnapshot, names};

/// How deep a tree may be that is removed.
const MAX_DEPTH: usize = 200;

/// Makes what is there what it was.
pub(super) fn restore(folder: &OwnedFd, name: &OsStr, state: &mut FileState) -> Result<(), Errno> {
    match state {
        FileState::Missing => return remove_all(folder, name, 0),
        FileState::Other(_) | FileState::File(_, None) => return Err(Errno::NOTSUP),
        FileState::File(marks, Some(content)) => {
            let (mut file, aside) = beside(folder)?;
            let written = file.write_all(content).map_err(|_| Errno::IO);
            let placed = written.and_then(|()| set_owner_and_mode(&file, marks)).and_then(|()| {
                if kind(folder, name) == Some(FileType::Directory) {
                    remove_all(folder, name, 0)?;
                }
                renameat(folder, &aside, folder, name)
            });
            if let Err(error) = placed {
                // It may have its name already.
                let _ = unlinkat(folder, &aside, AtFlags::empty());
                return Err(error);
            }
        }
        FileState::Link(marks, target) => {
            remove_all(folder, name, 0)?;
            symlinkat(&*target, folder, name)?;
            let (user, group) = (Uid::from_raw(marks.uid), Gid::from_raw(marks.gid));
            // Only root can, and only root needs it.
            let _ = chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
        FileState::Folder(marks, entries) => {
            if kind(folder, name) != Some(FileType::Directory) {
                remove_all(folder, name, 0)?;
                mkdirat(folder, name, Mode::from_raw_mode(0o700))?;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if openat(folder, name, flags, Mode::empty()).is_err() {
                // Its owner can still open it for that; a folder of somebody else stays as it is.
                make_accessible(folder, name)?;
            }
            let (opened, present) = names(folder, name)?;
            set_owner_and_mode(&opened, marks)?;
            let mut all = Ok(());
            for extra in present.iter().filter(|name| !entries.contains_key(*name)) {
                all = all.and(remove_all(&opened, extra, 0));
            }
            for (name, state) in entries.iter_mut() {
                if !state.is_unchanged(&opened, name) {
                    all = all.and(restore(&opened, name, state));
                }
            }
            return all;
        }
    }
    *state = FileState::capture(folder, name, &mut SnapshotBudget::default());
    Ok(())
}

/// Makes a folder that nobody may read or search readable for its owner.
fn make_accessible(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::chmodat(rustix::fs::CWD, own, Mode::RWXU, AtFlags::empty())
}

/// Gives a folder the owner and mode that it had.
pub(super) fn restore_dir_permissions(folder: &OwnedFd, name: &OsStr, marks: &StatSnapshot) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if openat(folder, name, flags, Mode::empty()).is_err() {
        make_accessible(folder, name)?;
    }
    set_owner_and_mode(openat(folder, name, flags, Mode::empty())?, marks)
}

/// Gives a file or folder the owner and mode that it had.
fn set_owner_and_mode(file: impl std::os::fd::AsFd, marks: &StatSnapshot) -> Result<(), Errno> {
    // Only root can change the owner, and only root needs it.
    let _ = fchown(&file, Some(Uid::from_raw(marks.uid)), Some(Gid::from_raw(marks.gid)));
    fchmod(&file, Mode::from_raw_mode(marks.mode & 0o7777))
}

/// A new file beside the one that it will replace.
fn beside(folder: &OwnedFd) -> Result<(std::fs::File, OsString), Errno> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".legwork-{}-{number}", std::process::id()));
        match openat(folder, &name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok((file.into(), name)),
            // One that was left behind is passed over; so many aren't.
            Err(Errno::EXIST) if number < 1000 => {}
            Err(error) => return Err(error),
        }
    }
}

fn kind(folder: &OwnedFd, name: &OsStr) -> Option<FileType> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Removes whatever is there, with all that is in it.
pub(super) fn remove_all(folder: &OwnedFd, name: &OsStr, depth: usize) -> Result<(), Errno> {
    match kind(folder, name) {
        None => return Ok(()),
        Some(FileType::Directory) => {}
        Some(_) => return unlinkat(folder, name, AtFlags::empty()),
    }
    if depth >= MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    if names(folder, name).is_err() {
        make_accessible(folder, name)?;
    }
    let (opened, inside) = names(folder, name)?;
    for name in inside {
        remove_all(&opened, OsStr::from_bytes(name.as_bytes()), depth + 1)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}
