//! Files whose content a filter of git changes, such as those in Git LFS: other bytes are in the working tree than in the
//! repository. Filters are programs, which aren't run here, so a snapshot takes the bytes of the working tree instead.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags, openat};

use super::commands::{parse_entries, run};
use super::error::IsolationError;
use crate::git::Repository;
use crate::git::index::{EntryStat, IndexReader, with_stats};
use crate::git::program::GitWorkingTree;
use crate::text::bounded::read_up_to;
use crate::workspace::Workspace;
use crate::workspace::new_file::replace_file;
use crate::workspace::open_beneath::open_dir;
use crate::workspace::open_root::OpenRoot;

/// An unchanged file above this size isn't stored in the repository a second time, but copied. No patch has such a file.
const MAX_STORED_BYTES: u64 = 1 << 20;
/// The largest index that is read, in bytes.
const MAX_INDEX_BYTES: u64 = 1 << 30;

/// The tracked files with a filter.
pub(super) struct FilteredList {
    /// From `ls-files -v -s -z`.
    listing: Vec<u8>,
}

/// What happens with them in a snapshot: two inputs of `update-index`.
pub(super) struct SplitList {
    /// The paths of large files that haven't changed.
    pub(super) unchanged: Vec<u8>,
    /// The entries of the other files without what git knows about them, so that it reads them again.
    pub(super) taken: Vec<u8>,
}

impl FilteredList {
    pub(super) fn read(tree: &GitWorkingTree) -> Result<Self, IsolationError> {
        // `attr` matches a filter without a name, too; there is none.
        let patterns = [":(top,exclude,attr:!filter)", ":(top,exclude,attr:-filter)"];
        let arguments = [&["ls-files", "-v", "-s", "-z", "--"], &patterns[..]].concat();
        Ok(Self { listing: run(tree.command(&arguments), "ls-files")? })
    }

    /// Decides how each file is taken into a snapshot of the repository's working tree.
    pub(super) fn split(&self, repository: &Repository) -> SplitList {
        let mut split = SplitList { unchanged: Vec::new(), taken: Vec::new() };
        if self.listing.is_empty() {
            return split;
        }
        let index = UserIndex::read(repository, self);
        for (_, mode, object, path) in parse_entries(&self.listing) {
            let Ok(found) = fs::symlink_metadata(repository.worktree.join(OsStr::from_bytes(path))) else { continue };
            if found.len() > MAX_STORED_BYTES && index.is_unchanged(path, object, &found) {
                split.unchanged.extend([path, b"\0"].concat());
            } else if found.is_file() {
                split.taken.extend([mode, b" ", object, b" 0\t", path, b"\0"].concat());
            }
        }
        split
    }

    /// The paths of the files that haven't changed since git looked at them last.
    pub(super) fn unchanged(&self, repository: &Repository) -> HashSet<PathBuf> {
        if self.listing.is_empty() {
            return HashSet::new();
        }
        let index = UserIndex::read(repository, self);
        let unchanged = parse_entries(&self.listing).filter(|(_, _, object, path)| {
            let found = fs::symlink_metadata(repository.worktree.join(OsStr::from_bytes(path)));
            found.is_ok_and(|found| index.is_unchanged(path, object, &found))
        });
        unchanged.map(|(.., path)| PathBuf::from(OsStr::from_bytes(path))).collect()
    }

    /// Copies the large files into a worktree that was made from a snapshot, and notes in its index which of the files haven't
    /// changed if the user's own index knows that: only a filter could tell from their content.
    pub(super) fn fill(
        &self,
        repository: &Repository,
        target: &OpenRoot,
        tree: &GitWorkingTree,
    ) -> Result<(), IsolationError> {
        if self.listing.is_empty() {
            return Ok(());
        }
        let source = Workspace::open(&repository.worktree, Vec::new(), Vec::new());
        let source = source.map_err(IsolationError::io(&repository.worktree))?;
        let copy = Workspace::in_folder(target, Vec::new(), Vec::new()).map_err(IsolationError::io(target.path()))?;
        let index = UserIndex::read(repository, self);
        let mut unchanged = HashSet::new();
        for (_, _, object, path) in parse_entries(&self.listing) {
            let Ok(name) = str::from_utf8(path) else { continue };
            let (Ok(mut from), Ok(mut to)) = (source.open_file(name), copy.open_file(name)) else { continue };
            if !from.file.metadata().is_ok_and(|found| index.is_unchanged(path, object, &found)) {
                continue;
            }
            let is_same = if from.size > MAX_STORED_BYTES {
                overwrite(&copy, Path::new(name), &mut from.file)
                    .map_err(IsolationError::io(&target.path().join(name)))?;
                true
            } else {
                from.size == to.size && has_same_bytes(&mut from.file, &mut to.file)
            };
            if is_same {
                unchanged.insert(path);
            }
        }
        let stat_of = |path: &[u8]| {
            let name = str::from_utf8(path).ok().filter(|_| unchanged.contains(path))?;
            Some(stat_of(&copy.open_file(name).ok()?.file.metadata().ok()?))
        };
        let bytes = fs::read(tree.index()).map_err(IsolationError::io(tree.index()))?;
        match with_stats(&bytes, if repository.sha256 { 32 } else { 20 }, stat_of) {
            Some(noted) => replace_file(tree.index(), 0o600, &noted).map_err(IsolationError::io(tree.index())),
            None => Ok(()),
        }
    }
}

/// Replaces the content of a file of a folder.
fn overwrite(folder: &Workspace, path: &Path, from: &mut File) -> io::Result<()> {
    let above = open_dir(folder.folder(), path.parent().unwrap_or(Path::new("")))?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut to = File::from(openat(above.as_fd(), path.file_name().unwrap_or_default(), flags, Mode::empty())?);
    io::copy(from, &mut to).map(drop)
}

fn has_same_bytes(one: &mut File, other: &mut File) -> bool {
    let read = |file: &mut File| read_up_to(file, MAX_STORED_BYTES);
    matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the index keeps the lower 32 bits")]
fn stat_of(found: &fs::Metadata) -> EntryStat {
    EntryStat {
        ctime: (found.ctime() as u32, found.ctime_nsec() as u32),
        mtime: (found.mtime() as u32, found.mtime_nsec() as u32),
        device: found.dev() as u32,
        inode: found.ino() as u32,
        user: found.uid(),
        group: found.gid(),
        size: found.size() as u32,
    }
}

/// What the user's index says about the filtered files.
struct UserIndex {
    /// By path: the object, and the file when git last looked at it.
    files: HashMap<Vec<u8>, (Vec<u8>, EntryStat)>,
    written: Option<SystemTime>,
}

impl UserIndex {
    /// Reads the index. One that can't be read, such as a split one, knows nothing.
    fn read(repository: &Repository, list: &FilteredList) -> Self {
        let path = repository.git_dir.join("index");
        let opened = crate::git::open_regular_file(&path);
        let written = opened.as_ref().and_then(|file| file.metadata().ok()?.modified().ok());
        let read = opened.map(|file| read_up_to(file, MAX_INDEX_BYTES));
        let wanted: HashSet<&[u8]> = parse_entries(&list.listing).map(|(.., path)| path).collect();
        let mut files = HashMap::new();
        if let Some(Ok(bytes)) = read
            && let Some(mut reader) = IndexReader::new(&bytes, if repository.sha256 { 32 } else { 20 })
        {
            while let Some(Some(entry)) = reader.next() {
                if wanted.contains(reader.path()) {
                    files.insert(reader.path().to_owned(), (entry.object.to_owned(), entry.stat()));
                }
            }
        }
        Self { files, written }
    }

    /// Whether a file is still the one that git once checked out or added as this object, a name in hexadecimal. A file as young
    /// as the index could have changed since.
    fn is_unchanged(&self, path: &[u8], object: &[u8], found: &fs::Metadata) -> bool {
        let Some((entry, stat)) = self.files.get(path) else { return false };
        let now = stat_of(found);
        found.is_file()
            && crate::text::hex(entry).as_bytes() == object
            && (stat.ctime, stat.mtime, stat.inode, stat.size) == (now.ctime, now.mtime, now.inode, now.size)
            && self.written.zip(found.modified().ok()).is_some_and(|(written, modified)| modified < written)
    }
}
