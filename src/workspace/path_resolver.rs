//! Resolves paths beneath an open root folder. Each folder is opened by its name in the one before; links are read here and
//! never followed by the system; `..` returns to the folder before. So entries that are swapped in the meantime can't
//! lead outside.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use super::open_beneath::{self, DIR_FLAGS, FileId, escapes_root_error, file_id};

/// How many links a path may contain: as many as Linux follows.
const MAX_LINKS: usize = 40;
/// How deep folders may be nested.
pub(crate) const MAX_DEPTH: usize = 256;
/// How many names of a path are looked up, including those in links.
const MAX_STEPS: usize = 4096;

/// What a path names, or where it would be created.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The canonical path from the root; `.` for the root itself.
    pub(crate) path: PathBuf,
    /// The folders of the path, outermost first, without the root.
    folders: Vec<(OsString, FileId)>,
    root: OwnedFd,
    /// The innermost folder.
    folder: OwnedFd,
    /// The names below the innermost folder: one for a file that exists, one or more for a missing one, none for a folder.
    rest: Vec<OsString>,
    /// Its metadata; `None` if it doesn't exist.
    pub(crate) stat: Option<Stat>,
}

/// Resolves a path beneath an open root.
///
/// # Errors
/// [`escapes_root_error`] for a path that leaves the root, even if it returns; otherwise the system's error. A missing file
/// isn't an error as long as only plain names follow.
pub(crate) fn resolve(root: BorrowedFd<'_>, path: &Path) -> io::Result<ResolvedPath> {
    let mut found = ResolvedPath {
        path: PathBuf::new(),
        folders: Vec::new(),
        root: root.try_clone_to_owned()?,
        folder: root.try_clone_to_owned()?,
        rest: Vec::new(),
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
                found.rest.push(name);
                found.rest.extend(queue.drain(..).filter(|name| name != "."));
                if found.rest.iter().any(|name| name == "..") {
                    return Err(Errno::NOENT.into());
                }
                if found.folders.len() + found.rest.len() > MAX_DEPTH {
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
                found.rest.push(name);
                found.stat = Some(stat);
                break;
            }
        }
    }
    if found.rest.is_empty() {
        found.stat = Some(rustix::fs::fstat(&found.folder)?);
    }
    found.path = found.folders.iter().map(|(name, _)| name).chain(&found.rest).collect();
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

    /// The name in the innermost folder; `None` if the path names an existing folder.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.rest.last().map(OsString::as_os_str)
    }

    /// The type of the file.
    pub(crate) fn kind(&self) -> Option<FileType> {
        self.stat.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// The ids of the folders of the path and of the file itself.
    pub(crate) fn file_ids(&self) -> impl Iterator<Item = FileId> + '_ {
        self.folders.iter().map(|(_, id)| *id).chain(self.stat.as_ref().map(file_id))
    }

    /// Creates the missing parent folders.
    pub(crate) fn create_parents(&mut self) -> io::Result<()> {
        while self.rest.len() > 1 {
            match rustix::fs::mkdirat(&self.folder, &self.rest[0], Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let name = self.rest.remove(0);
            self.enter(name)?;
        }
        Ok(())
    }

    fn enter(&mut self, name: OsString) -> io::Result<()> {
        if self.folders.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.folder = rustix::fs::openat(&self.folder, &name, DIR_FLAGS, Mode::empty())?;
        self.folders.push((name, file_id(&rustix::fs::fstat(&self.folder)?)));
        Ok(())
    }

    /// Returns to the parent folder by opening its path again. Keeping a descriptor for each folder would let a deep path
    /// exhaust the process's limit.
    fn leave(&mut self) -> io::Result<()> {
        self.folders.pop().ok_or_else(escapes_root_error)?;
        let path: PathBuf = self.folders.iter().map(|(name, _)| name).collect();
        self.folder = open_beneath::open_dir(self.root.as_fd(), &path)?;
        Ok(())
    }
}

/// Resolves links in the part of an absolute path that exists, and keeps the rest as it is.
pub fn canonical_as_far_as_possible(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(canonical), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return if rest.as_os_str().is_empty() { canonical } else { canonical.join(rest) };
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn resolved(root: &Path, path: &str) -> Result<String, String> {
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
            assert_eq!(resolved(&root, path).as_deref(), Ok(expected), "{path}");
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
            assert_eq!(resolved(&root, path).map_err(|kind| kind.to_lowercase()), Err(expected.to_owned()), "{path}");
        }
    }

    #[test]
    fn a_very_deep_path_is_refused_and_holds_few_descriptors() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        let deep = vec!["d"; MAX_DEPTH - 1].join("/");
        let mut found = resolve(root.as_fd(), &Path::new(&deep).join("file")).unwrap();
        found.create_parents().unwrap();
        assert!(resolved(folder.path(), &format!("{deep}/x")).is_ok());
        assert!(resolved(folder.path(), &format!("{deep}/x/y")).is_err());
        // Down and up again, as often as a path allows.
        let zigzag = format!("{deep}/{}", vec!["../d"; 700].join("/"));
        assert!(resolved(folder.path(), &zigzag).is_ok());
        // Nested links multiply the length of a path.
        symlink(&zigzag, folder.path().join("l0")).unwrap();
        for link in 1..30 {
            let before = link - 1;
            symlink(
                format!("l{before}/{}l{before}", "../".repeat(MAX_DEPTH - 1)),
                folder.path().join(format!("l{link}")),
            )
            .unwrap();
        }
        // Resolving all of it would take years.
        assert!(resolved(folder.path(), "l29").is_err());
    }

    #[test]
    fn a_moved_folder_is_written_to_and_not_its_replacement() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("d/e")).unwrap();
        let opened = std::fs::File::open(&root).unwrap();
        let found = resolve(opened.as_fd(), Path::new("d/e/f/new")).unwrap();
        std::fs::create_dir_all(folder.path().join("outside/e")).unwrap();
        std::fs::rename(root.join("d"), folder.path().join("moved")).unwrap();
        symlink("../outside", root.join("d")).unwrap();
        let mut found = found;
        found.create_parents().unwrap();
        assert!(folder.path().join("moved/e/f").is_dir(), "the folder that was in the workspace");
        assert_eq!(std::fs::read_dir(folder.path().join("outside/e")).unwrap().count(), 0);
        // Resolving the path again doesn't lead outside either.
        assert!(resolve(opened.as_fd(), Path::new("d/e/new")).is_err());
    }
}
