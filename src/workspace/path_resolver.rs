//! From a path to what it names: folder by folder, each opened by its name in the one before. Links are read, never
//! followed by the system, and `..` goes back to the name of the folder before, so nothing that is swapped meanwhile can
//! lead out.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::workspace::open_beneath;
use crate::workspace::open_beneath::DIR_FLAGS;

pub(crate) use crate::workspace::open_beneath::escapes_root_error;

/// How many links may lie on a path; as many as Linux follows.
const MAX_LINKS: usize = 40;
/// How many folders may lie within each other.
pub(crate) const MAX_DEPTH: usize = 256;
/// How many names may be looked up on a path, those in links included.
const MAX_STEPS: usize = 4096;

/// What a path names, or the place where it would be.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The path from the root, without links and `..`; `.` for the root.
    pub(crate) path: PathBuf,
    /// The folders on the way, the innermost last: name, device and inode. The root is none of them.
    folders: Vec<(OsString, (u64, u64))>,
    root: OwnedFd,
    /// The innermost folder.
    folder: OwnedFd,
    /// What is not there, or is no folder: its name in the innermost folder. For something missing, the names after
    /// it follow.
    missing: Vec<OsString>,
    /// What is there; `None` for something missing.
    pub(crate) stat: Option<Stat>,
}

/// Looks a path up beneath an open root.
///
/// # Errors
/// [`leads_out`] for a path that leaves the root, even if it came back; else the system's error. Something
/// missing is no error as long as only plain names follow.
pub(crate) fn resolve(root: BorrowedFd<'_>, path: &Path) -> io::Result<ResolvedPath> {
    let mut found = ResolvedPath {
        path: PathBuf::new(),
        folders: Vec::new(),
        root: root.try_clone_to_owned()?,
        folder: root.try_clone_to_owned()?,
        missing: Vec::new(),
        stat: None,
    };
    let mut queue: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    let (mut links, mut steps) = (0, 0);
    while let Some(name) = queue.pop_front() {
        steps += 1;
        if steps > MAX_STEPS {
            return Err(Errno::NAMETOOLONG.into());
        }
        match Path::new(&name).components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::ParentDir) => {
                found.leave()?;
                continue;
            }
            Some(Component::Normal(_)) => {}
            Some(Component::RootDir | Component::Prefix(_)) => return Err(escapes_root_error()),
        }
        let stat = match rustix::fs::statat(&found.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                found.missing.push(name);
                found.missing.extend(queue.drain(..).filter(|name| name != "."));
                if found.missing.iter().any(|name| name == "..") {
                    return Err(Errno::NOENT.into());
                }
                if found.folders.len() + found.missing.len() > MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG.into());
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
                let target = rustix::fs::readlinkat(&found.folder, &name, Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                for part in target.components().rev() {
                    queue.push_front(part.as_os_str().to_owned());
                }
            }
            FileType::Directory => found.enter(name)?,
            _ if queue.iter().any(|name| name != ".") => return Err(Errno::NOTDIR.into()),
            _ => {
                found.missing.push(name);
                found.stat = Some(stat);
                break;
            }
        }
    }
    if found.missing.is_empty() {
        found.stat = Some(rustix::fs::fstat(&found.folder)?);
    }
    found.path = found.folders.iter().map(|(name, _)| name).chain(&found.missing).collect();
    if found.path.as_os_str().is_empty() {
        found.path.push(".");
    }
    Ok(found)
}

impl ResolvedPath {
    /// The innermost folder.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The last name; `None` where it is a folder that exists.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.missing.last().map(OsString::as_os_str)
    }

    /// What kind of thing is there.
    pub(crate) fn kind(&self) -> Option<FileType> {
        self.stat.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// Device and inode of everything on the way.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.folders.iter().map(|(_, inode)| *inode).chain(self.stat.as_ref().map(inode))
    }

    /// Makes the folders that are missing before the last name.
    pub(crate) fn make_folders(&mut self) -> io::Result<()> {
        while self.missing.len() > 1 {
            match rustix::fs::mkdirat(&self.folder, &self.missing[0], Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let name = self.missing.remove(0);
            self.enter(name)?;
        }
        Ok(())
    }

    fn enter(&mut self, name: OsString) -> io::Result<()> {
        if self.folders.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.folder = rustix::fs::openat(&self.folder, &name, DIR_FLAGS, Mode::empty())?;
        self.folders.push((name, inode(&rustix::fs::fstat(&self.folder)?)));
        Ok(())
    }

    /// Goes back to the folder before: by its name, for a descriptor held for each folder would let a deep path use up
    /// all that the program may have.
    fn leave(&mut self) -> io::Result<()> {
        self.folders.pop().ok_or_else(escapes_root_error)?;
        let path: PathBuf = self.folders.iter().map(|(name, _)| name).collect();
        self.folder = open_beneath::open_dir(self.root.as_fd(), &path)?;
        Ok(())
    }
}

/// Device and inode.
pub(crate) fn inode(stat: &Stat) -> (u64, u64) {
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

    #[test]
    fn a_path_of_very_many_folders_is_refused_and_holds_few_descriptors() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        let deep = vec!["d"; MAX_DEPTH - 1].join("/");
        let mut found = resolve(root.as_fd(), &Path::new(&deep).join("file")).unwrap();
        found.make_folders().unwrap();
        assert!(look(folder.path(), &format!("{deep}/x")).is_ok());
        assert!(look(folder.path(), &format!("{deep}/x/y")).is_err());
        // Down and up again, as often as a path allows.
        let weary = format!("{deep}/{}", vec!["../d"; 700].join("/"));
        assert!(look(folder.path(), &weary).is_ok());
        // Links multiply what a path says.
        symlink(&weary, folder.path().join("l0")).unwrap();
        for link in 1..30 {
            let before = link - 1;
            symlink(
                format!("l{before}/{}l{before}", "../".repeat(MAX_DEPTH - 1)),
                folder.path().join(format!("l{link}")),
            )
            .unwrap();
        }
        // Followed to its end it would take years.
        assert!(look(folder.path(), "l29").is_err());
    }

    #[test]
    fn a_folder_that_is_moved_away_is_written_to_and_never_what_took_its_name() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("d/e")).unwrap();
        let opened = std::fs::File::open(&root).unwrap();
        let found = resolve(opened.as_fd(), Path::new("d/e/f/new")).unwrap();
        std::fs::create_dir_all(folder.path().join("outside/e")).unwrap();
        std::fs::rename(root.join("d"), folder.path().join("moved")).unwrap();
        symlink("../outside", root.join("d")).unwrap();
        let mut found = found;
        found.make_folders().unwrap();
        assert!(folder.path().join("moved/e/f").is_dir(), "the folder that was in the workspace");
        assert_eq!(std::fs::read_dir(folder.path().join("outside/e")).unwrap().count(), 0);
        // Whoever looks it up anew gets nothing outside.
        assert!(resolve(opened.as_fd(), Path::new("d/e/new")).is_err());
    }
}
