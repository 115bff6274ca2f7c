//! Opens files beneath an open folder by paths without links and `..`, so that entries that are swapped in the meantime
//! can't lead outside.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// How a folder is opened: not through a link.
pub(crate) const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a folder on the way to another one is opened. It needn't be readable.
#[cfg(target_os = "linux")]
const WAY_FLAGS: OFlags = DIR_FLAGS.union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const WAY_FLAGS: OFlags = DIR_FLAGS;

/// How a file is opened: not through a link, without blocking on a FIFO, and without acquiring a controlling terminal.
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file's device and inode.
pub type FileId = (u64, u64);

/// The device and inode of a file.
pub(crate) fn file_id(stat: &Stat) -> FileId {
    // The types differ between systems.
    #[allow(clippy::unnecessary_cast)]
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The error for a path that leaves its root.
pub(crate) fn escapes_root_error() -> io::Error {
    // Recognizable by its missing error number: every error from the system has one.
    io::Error::new(io::ErrorKind::PermissionDenied, "the path leads outside")
}

/// Opens a folder; `.` is the root. A link in the path is an error.
///
/// The folder was beneath the root when it was opened. If it is moved outside later, the descriptor moves with it, but
/// anyone who can move it could write there anyway.
pub(crate) fn open_dir(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;

        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(root, path, DIR_FLAGS, Mode::empty(), resolve) {
            // An old kernel, or a container whose seccomp filter doesn't know the call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(opened?),
        }
    }
    open_dir_stepwise(root, path)
}

/// [`open_dir`] without openat2, for other systems and old kernels.
fn open_dir_stepwise(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let mut folder = rustix::fs::openat(root, ".", WAY_FLAGS, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => folder = rustix::fs::openat(&folder, name, WAY_FLAGS, Mode::empty())?,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(escapes_root_error()),
        }
    }
    Ok(rustix::fs::openat(&folder, ".", DIR_FLAGS, Mode::empty())?)
}

/// Opens a folder, and creates it and those above it that are missing. A link in the path is an error.
pub(crate) fn create_dir(root: BorrowedFd<'_>, path: &Path, mode: Mode) -> io::Result<OwnedFd> {
    match open_dir(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let mut folder = rustix::fs::openat(root, ".", WAY_FLAGS, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(escapes_root_error()),
        };
        match rustix::fs::mkdirat(&folder, name, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = rustix::fs::openat(&folder, name, WAY_FLAGS, Mode::empty())?;
    }
    Ok(rustix::fs::openat(&folder, ".", DIR_FLAGS, Mode::empty())?)
}

/// Opens the folder that a path's last name is in. A link in the path is an error.
pub(crate) fn open_parent<'a>(root: BorrowedFd<'_>, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or_else(escapes_root_error)?;
    Ok((open_dir(root, path.parent().unwrap_or(Path::new("")))?, name))
}

/// Opens a folder by a path whose own links are followed, except for one in the place of the folder itself.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DIR_FLAGS, Mode::empty())?)
}

/// The metadata of a path, without following links.
pub(crate) fn stat(root: BorrowedFd<'_>, path: &Path) -> io::Result<Stat> {
    let Some(name) = path.file_name() else { return Ok(rustix::fs::fstat(open_dir(root, path)?)?) };
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        None => Ok(rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW)?),
        Some(parent) => Ok(rustix::fs::statat(open_dir(root, parent)?, name, AtFlags::SYMLINK_NOFOLLOW)?),
    }
}

/// The names in an open folder with the kinds of the files.
pub(crate) fn entries(folder: &OwnedFd) -> Result<impl Iterator<Item = Result<(OsString, FileType), Errno>>, Errno> {
    let listed = Dir::read_from(folder)?.map(move |entry| {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        // Some file systems don't report the kind.
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            kind => kind,
        };
        Ok((name.to_owned(), kind))
    });
    let is_dot = |name: &OsString| name == "." || name == "..";
    // A file that is gone by now doesn't count.
    Ok(listed.filter(move |entry| match entry {
        Ok((name, _)) => !is_dot(name),
        Err(error) => *error != Errno::NOENT,
    }))
}

/// The entries of a folder with their types, sorted by name. `wants_more` gets the number of entries so far.
pub(crate) fn list_dir(folder: &OwnedFd, wants_more: impl Fn(usize) -> bool) -> io::Result<Vec<(OsString, FileType)>> {
    let mut list = Vec::new();
    for entry in entries(folder)?.map_while(Result::ok) {
        list.push(entry);
        if !wants_more(list.len()) {
            break;
        }
    }
    list.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    Ok(list)
}

/// Opens a regular file in a folder for reading; `None` for anything else: links, folders, devices, FIFOs, sockets and
/// files in pseudo file systems.
pub(crate) fn open_regular_file(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<File>> {
    let is_regular = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // Opening a device or a FIFO can have side effects, so check first. If one is swapped in now, opening it doesn't block,
    // and the second check finds it.
    if !is_regular(&rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?) {
        return Ok(None);
    }
    let file = rustix::fs::openat(folder, name, FILE_FLAGS, Mode::empty())?;
    let regular = is_regular(&rustix::fs::fstat(&file)?) && !is_pseudo_filesystem(file.as_fd());
    Ok(regular.then(|| File::from(file)))
}

/// Whether a file is in a file system whose contents the kernel generates, such as procfs or sysfs.
#[cfg(target_os = "linux")]
pub(crate) fn is_pseudo_filesystem(file: BorrowedFd<'_>) -> bool {
    // The magic numbers of proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2, configfs, bpf, pstore, selinux,
    // smack, binfmt_misc, efivarfs, mqueue, nsfs, devpts, fusectl, resctrl and xenfs (linux/magic.h and each one's source).
    const MAGIC: [u32; 20] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x27_e0eb,
        0x6367_7270,
        0x6265_6570,
        0xcafe_4a11,
        0x6165_676c,
        0xf97c_ff8c,
        0x4341_5d53,
        0x4249_4e4d,
        0xde5e_81e4,
        0x1980_0202,
        0x6e73_6673,
        0x1cd1,
        0x6573_5543,
        0x0765_5821,
        0xabba_1974,
    ];
    // The number has 32 bits; its type has as many or more, and on some systems a sign.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::unnecessary_cast)]
    rustix::fs::fstatfs(file).is_ok_and(|stat| MAGIC.contains(&(stat.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_pseudo_filesystem(_: BorrowedFd<'_>) -> bool {
    false
}

/// Whether a file is in a file system of this machine. Other ones may keep what is written here to themselves for a while.
#[cfg(target_os = "linux")]
pub(crate) fn is_local_filesystem(file: BorrowedFd<'_>) -> bool {
    // The magic numbers of ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS and bcachefs (linux/magic.h and each one's source).
    const MAGIC: [u32; 8] =
        [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0xca45_1a4e];
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::unnecessary_cast)]
    rustix::fs::fstatfs(file).is_ok_and(|stat| MAGIC.contains(&(stat.f_type as u32)))
}

#[cfg(target_os = "macos")]
pub(crate) fn is_local_filesystem(file: BorrowedFd<'_>) -> bool {
    let name = |stat: rustix::fs::StatFs| stat.f_fstypename.map(|letter| letter.cast_unsigned());
    rustix::fs::fstatfs(file).is_ok_and(|stat| {
        let name = name(stat);
        name.starts_with(b"apfs\0") || name.starts_with(b"hfs\0")
    })
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn is_local_filesystem(_: BorrowedFd<'_>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn openat2_and_the_fallback_agree() {
        let outer = tempfile::TempDir::new().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/file"), "").unwrap();
        symlink("a", root.join("link")).unwrap();
        symlink("/", root.join("out")).unwrap();
        let root = File::open(&root).unwrap();
        for (path, exists) in [
            (".", true),
            ("", true),
            ("a", true),
            ("a/b", true),
            ("a/./b", true),
            ("link", false),
            ("link/b", false),
            ("out/etc", false),
            ("a/file", false),
            ("a/..", false),
            ("..", false),
            ("/etc", false),
            ("missing", false),
        ] {
            let results = [open_dir(root.as_fd(), Path::new(path)), open_dir_stepwise(root.as_fd(), Path::new(path))];
            // The kernel follows `a/..` back to the root, which is harmless, and no caller passes such a path.
            for result in results.into_iter().filter(|_| path != "a/..") {
                assert_eq!(result.is_ok(), exists, "{path}");
            }
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let outer = tempfile::TempDir::new().unwrap();
        std::fs::write(outer.path().join("file"), "x").unwrap();
        symlink("file", outer.path().join("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(outer.path().join("fifo")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(outer.path().join("socket")).unwrap();
        let folder = File::open(outer.path()).unwrap();
        let opened = |name: &str| open_regular_file(folder.as_fd(), OsStr::new(name)).unwrap().is_some();
        assert!(opened("file"));
        for name in ["link", "fifo", "socket", "."] {
            assert!(!opened(name), "{name}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pseudo_files_are_not_opened() {
        let is_opened = |path: &str| {
            let folder = File::open(Path::new(path).parent().unwrap()).unwrap();
            open_regular_file(folder.as_fd(), Path::new(path).file_name().unwrap()).unwrap().is_some()
        };
        assert!(!is_opened("/proc/version"));
        if Path::new("/sys/kernel/notes").exists() {
            assert!(!is_opened("/sys/kernel/notes"));
        }
    }
}
