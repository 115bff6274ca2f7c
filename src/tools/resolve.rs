//! From a path to what it names: folder by folder, each opened by its name in the one before. Links are read, never
//! followed by the system, and `..` goes back to a folder that is already open, so nothing that is swapped meanwhile can lead
//! out.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// How many links may lie on a path; as many as Linux follows.
const MAX_LINKS: usize = 40;

/// How a folder is opened: only if it is one, and no link.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a path names, or the place where it would be.
#[derive(Debug)]
pub(super) struct Resolved {
    /// The path from the root, without links and `..`; `.` for the root.
    pub(super) path: PathBuf,
    /// The folders on the way, the innermost last: name, descriptor, device and inode. The root is none of them.
    folders: Vec<(OsString, OwnedFd, (u64, u64))>,
    root: OwnedFd,
    /// What is not there, or is no folder: its name in the innermost folder. For something missing, the names after
    /// it follow.
    rest: Vec<OsString>,
    /// What is there; `None` for something missing.
    pub(super) stat: Option<Stat>,
}

/// Looks a path up beneath an open root.
///
/// # Errors
/// [`leads_out`] for a path that leaves the root, even if it came back; else the system's error. Something
/// missing is no error as long as only plain names follow.
pub(super) fn resolve(root: BorrowedFd<'_>, path: &Path) -> io::Result<Resolved> {
    let mut found = Resolved {
        path: PathBuf::new(),
        folders: Vec::new(),
        root: root.try_clone_to_owned()?,
        rest: Vec::new(),
        stat: None,
    };
    let mut queue: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    let mut links = 0;
    while let Some(name) = queue.pop_front() {
        match Path::new(&name).components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::ParentDir) => {
                found.folders.pop().ok_or_else(leads_out)?;
                continue;
            }
            Some(Component::Normal(_)) => {}
            Some(Component::RootDir | Component::Prefix(_)) => return Err(leads_out()),
        }
        let stat = match rustix::fs::statat(found.folder(), &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                found.rest.push(name);
                found.rest.extend(queue.drain(..).filter(|name| name != "."));
                if found.rest.iter().any(|name| name == "..") {
                    return Err(Errno::NOENT.into());
                }
                break;
            }
            Err(error) => return Err(error.into()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = rustix::fs::readlinkat(found.folder(), &name, Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                for part in target.components().rev() {
                    queue.push_front(part.as_os_str().to_owned());
                }
            }
            FileType::Directory => found.enter(name)?,
            _ if queue.iter().any(|name| name != ".") => return Err(Errno::NOTDIR.into()),
            _ => {
                found.rest.push(name);
                found.stat = Some(stat);
                break;
            }
        }
    }
    if found.rest.is_empty() {
        found.stat = Some(rustix::fs::fstat(found.folder())?);
    }
    found.path = found.folders.iter().map(|(name, ..)| name).chain(&found.rest).collect();
    if found.path.as_os_str().is_empty() {
        found.path.push(".");
    }
    Ok(found)
}

/// The error for a path that leaves its root.
pub(super) fn leads_out() -> io::Error {
    // Has no number, which no error of the system is without.
    io::Error::new(io::ErrorKind::PermissionDenied, "the path leads out")
}

impl Resolved {
    /// The innermost folder.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folders.last().map_or(self.root.as_fd(), |(_, folder, _)| folder.as_fd())
    }

    /// The last name; `None` where it is a folder that exists.
    pub(super) fn name(&self) -> Option<&OsStr> {
        self.rest.last().map(OsString::as_os_str)
    }

    /// What kind of thing is there.
    pub(super) fn kind(&self) -> Option<FileType> {
        self.stat.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// Device and inode of everything on the way.
    pub(super) fn inodes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.folders.iter().map(|(.., inode)| *inode).chain(self.stat.as_ref().map(inode))
    }

    /// Makes the folders that are missing before the last name.
    pub(super) fn make_folders(&mut self) -> io::Result<()> {
        while self.rest.len() > 1 {
            match rustix::fs::mkdirat(self.folder(), &self.rest[0], Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let name = self.rest.remove(0);
            self.enter(name)?;
        }
        Ok(())
    }

    /// Opens the last name, which must be no link.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let name = self.name().unwrap_or(OsStr::new("."));
        Ok(rustix::fs::openat(self.folder(), name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?)
    }

    fn enter(&mut self, name: OsString) -> io::Result<()> {
        let folder = rustix::fs::openat(self.folder(), &name, FOLDER, Mode::empty())?;
        let inode = inode(&rustix::fs::fstat(&folder)?);
        self.folders.push((name, folder, inode));
        Ok(())
    }
}

/// Device and inode.
pub(super) fn inode(stat: &Stat) -> (u64, u64) {
    // The types differ between systems.
    #[allow(clippy::unnecessary_cast)]
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn look(root: &Path, path: &str) -> Result<String, String> {
        let root = std::fs::File::open(root).unwrap();
        let found = resolve(root.as_fd(), Path::new(path));
        found.map(|found| found.path.display().to_string()).map_err(|error| error.kind().to_string())
    }

    #[test]
    fn links_and_dots_are_resolved_beneath_the_root_only() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/file"), "").unwrap();
        symlink("../a/./b", root.join("a/to-b")).unwrap();
        symlink("a/to-b/../file", root.join("to-file")).unwrap();
        symlink("a/new", root.join("to-new")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink(&root, root.join("absolute")).unwrap();
        symlink("../root/a", root.join("round")).unwrap();
        for (path, expected) in [
            (".", "."),
            ("a/..", "."),
            ("a/to-b", "a/b"),
            ("a/to-b/../file", "a/file"),
            ("to-file", "a/file"),
            ("a/new/er", "a/new/er"),
            ("to-new", "a/new"),
        ] {
            assert_eq!(look(&root, path).as_deref(), Ok(expected), "{path}");
        }
        for (path, expected) in [
            ("..", "permission denied"),
            ("a/../../root/a", "permission denied"),
            ("/etc", "permission denied"),
            ("absolute/a", "permission denied"),
            ("round", "permission denied"),
            ("a/new/../file", "entity not found"),
            ("a/file/x", "not a directory"),
            ("to-file/..", "not a directory"),
            ("loop", "filesystem loop or indirection limit (e.g. symlink loop)"),
        ] {
            assert_eq!(look(&root, path).map_err(|kind| kind.to_lowercase()), Err(expected.to_owned()), "{path}");
        }
    }
}
