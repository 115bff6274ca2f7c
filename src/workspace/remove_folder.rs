//! Removes folders that a command may have made unreadable, read-only or very deep, and may still change: each folder is opened
//! in the one above it, so that a link that is swapped in leads nowhere.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, fchmod, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::new_file::{PREFIX, temporary_name};
use super::open_beneath::{DIR_FLAGS, entries};

/// How many nested folders are open at once. Deeper ones are moved up first.
const MAX_OPEN: usize = 64;
/// How many names are listed at once.
const MAX_LISTED: usize = 10_000;
/// How a folder is opened only to change its mode. Linux requires no permission for this.
#[cfg(target_os = "linux")]
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a folder with everything in it. A failure is ignored.
pub fn remove_folder(folder: &Path) {
    let _ = remove_path(folder);
}

/// Removes whatever is at a path, with everything in it. Nothing there isn't an error. Links in the path above are followed.
pub(crate) fn remove_path(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => remove_tree(opened?.as_fd(), name),
    }
}

/// Removes whatever has a name in an open folder, with everything in it. Nothing there isn't an error.
pub(crate) fn remove_tree(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let mut moved = Vec::new();
    remove(folder, folder, name, 0, &mut moved)?;
    while let Some(next) = moved.pop() {
        remove(folder, folder, next.as_ref(), 0, &mut moved)?;
    }
    Ok(())
}

/// Removes what is in a folder at this depth. What is too deep gets a name in the `top` folder, which is added to `moved`.
fn remove(
    top: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    name: &OsStr,
    depth: usize,
    moved: &mut Vec<String>,
) -> Result<(), Errno> {
    let gone_or = |result: Result<(), Errno>| if result == Err(Errno::NOENT) { Ok(()) } else { result };
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Directory => {
            return gone_or(unlinkat(folder, name, AtFlags::empty()));
        }
        Ok(_) => {}
    }
    let opened = open_inaccessible_dir(folder, name)?;
    // Without these permissions, nothing in it can be removed, and it can't be moved.
    if fstat(&opened)?.st_mode & 0o700 != 0o700 {
        fchmod(&opened, Mode::RWXU)?;
    }
    if depth >= MAX_OPEN {
        let aside = temporary_name(PREFIX);
        renameat(folder, name, top, aside.as_str())?;
        moved.push(aside);
        return Ok(());
    }
    loop {
        let listed: Vec<OsString> =
            entries(&opened)?.take(MAX_LISTED).map(|entry| Ok(entry?.0)).collect::<Result<_, Errno>>()?;
        let is_last = listed.len() < MAX_LISTED;
        listed.iter().try_for_each(|name| remove(top, opened.as_fd(), name, depth + 1, moved))?;
        if is_last {
            break;
        }
    }
    gone_or(unlinkat(folder, name, AtFlags::REMOVEDIR))
}

/// Opens a folder, even if no one may read or search it.
pub(crate) fn open_inaccessible_dir(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    match openat(folder, name, DIR_FLAGS, Mode::empty()) {
        Err(Errno::ACCESS) => {
            make_accessible(folder, name)?;
            openat(folder, name, DIR_FLAGS, Mode::empty())
        }
        opened => opened,
    }
}

/// Gives the owner all rights to a folder, but not to what a link leads to.
#[cfg(target_os = "linux")]
fn make_accessible(folder: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;

    let opened = openat(folder, name, PATH_FLAGS, Mode::empty())?;
    chmodat(rustix::fs::CWD, format!("/proc/self/fd/{}", opened.as_raw_fd()), Mode::RWXU, AtFlags::empty())
}

#[cfg(not(target_os = "linux"))]
fn make_accessible(folder: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    chmodat(folder, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_without_permissions_and_very_deep_ones_are_removed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (outside, tree) = (folder.path().join("outside"), folder.path().join("tree"));
        fs::create_dir_all(tree.join("locked/in")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("mine"), "").unwrap();
        fs::write(tree.join("locked/in/file"), "").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        for mode in [0o000, 0o500, 0o300] {
            fs::set_permissions(tree.join("locked/in"), fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(tree.join("locked"), fs::Permissions::from_mode(mode)).unwrap();
            remove_path(&tree).unwrap();
            assert!(!tree.exists(), "{mode:o}");
            fs::create_dir_all(tree.join("locked/in")).unwrap();
        }
        // Deeper than the longest path, and than there are descriptors.
        let mut deep = File::open(&tree).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&deep, "deeper", Mode::RWXU).unwrap();
            deep = openat(&deep, "deeper", DIR_FLAGS, Mode::empty()).unwrap().into();
        }
        drop(deep);
        remove_path(&tree).unwrap();
        remove_path(&tree).unwrap();
        assert!(outside.join("mine").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only what is outside");
    }
}
