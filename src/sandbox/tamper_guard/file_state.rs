//! What is at a path.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

/// The largest file whose content is kept, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The same of a git folder: its index grows with the number of files.
pub(super) const LARGEST_OF_GIT: u64 = 32 << 20;
/// How deep a folder is looked into.
const MAX_DEPTH: usize = 32;

/// How much may still be kept.
#[derive(Debug)]
pub(super) struct SnapshotBudget {
    entries: usize,
    bytes: u64,
    largest: u64,
    /// Whether something couldn't be looked into.
    pub(super) exceeded: bool,
}

impl Default for SnapshotBudget {
    fn default() -> Self {
        Self { entries: 200_000, bytes: 32 << 20, largest: MAX_FILE_BYTES, exceeded: false }
    }
}

impl SnapshotBudget {
    /// For git folders, which are looked at as a whole.
    pub(super) fn of_trees() -> Self {
        Self { entries: 200_000, bytes: 64 << 20, largest: LARGEST_OF_GIT, exceeded: false }
    }

    /// Takes an entry, if there is one left.
    pub(super) fn take(&mut self) -> bool {
        let left = self.entries > 0;
        self.entries = self.entries.saturating_sub(1);
        left
    }
}

/// What is at a path.
#[derive(Debug)]
pub(super) enum FileState {
    Missing,
    File(StatSnapshot, Option<Vec<u8>>),
    Link(StatSnapshot, OsString),
    Folder(StatSnapshot, BTreeMap<OsString, FileState>),
    /// Something of which nothing but this is kept: a pipe, a socket, a folder beyond the bounds.
    Other(StatSnapshot),
}

/// By what a change is seen. The time of the last change (ctime) is set by the kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StatSnapshot {
    device: u64,
    inode: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    size: i64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl StatSnapshot {
    #[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            mode: stat.st_mode as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as i64,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// All of it as numbers.
    pub(super) fn numbers(&self) -> [u64; 10] {
        let signed = [self.size, self.mtime.0, self.mtime.1, self.ctime.0, self.ctime.1].map(i64::cast_unsigned);
        let [size, written, written_nanos, changed, changed_nanos] = signed;
        let rights = [self.mode, self.uid, self.gid].map(u64::from);
        let [mode, user, group] = rights;
        [self.device, self.inode, mode, user, group, size, written, written_nanos, changed, changed_nanos]
    }

    /// From the same numbers.
    pub(super) fn from_numbers(numbers: [u64; 10]) -> Self {
        let [device, inode, mode, user, group, rest @ ..] = numbers;
        let [size, written, written_nanos, changed, changed_nanos] = rest.map(u64::cast_signed);
        let [mode, user, group] = [mode, user, group].map(|number| u32::try_from(number).unwrap_or_default());
        let (written, changed) = ((written, written_nanos), (changed, changed_nanos));
        Self { device, inode, mode, uid: user, gid: group, size, mtime: written, ctime: changed }
    }

    /// Those of what is there, if anything is.
    pub(super) fn at(folder: &OwnedFd, name: &OsStr) -> Option<Self> {
        stat(folder, name).as_ref().map(Self::of)
    }

    pub(super) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }

    /// Whether who may do what with it is as before.
    pub(super) fn has_same_permissions(&self, other: &Self) -> bool {
        (self.mode, self.uid, self.gid) == (other.mode, other.uid, other.gid)
    }
}

impl FileState {
    /// Looks at what is there.
    pub(super) fn capture(folder: &OwnedFd, name: &OsStr, budget: &mut SnapshotBudget) -> Self {
        Self::look_within(folder, name, budget, 0)
    }

    fn look_within(folder: &OwnedFd, name: &OsStr, budget: &mut SnapshotBudget, depth: usize) -> Self {
        let Some(stat) = stat(folder, name) else { return Self::Missing };
        let marks = StatSnapshot::of(&stat);
        let within = budget.take();
        budget.exceeded |= !within;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                let most = budget.largest.min(budget.bytes);
                let content = if within && size <= most { read(folder, name, most) } else { None };
                budget.bytes = budget.bytes.saturating_sub(content.as_ref().map_or(0, |content| content.len() as u64));
                Self::File(marks, content)
            }
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new()).unwrap_or_default();
                Self::Link(marks, OsStr::from_bytes(target.as_bytes()).to_owned())
            }
            FileType::Directory if within && depth < MAX_DEPTH => match names(folder, name) {
                Ok((opened, names)) if names.len() <= budget.entries => {
                    let look = |name: OsString| {
                        let state = Self::look_within(&opened, &name, budget, depth + 1);
                        (name, state)
                    };
                    Self::Folder(marks, names.into_iter().map(look).collect())
                }
                _ => {
                    budget.exceeded = true;
                    Self::Other(marks)
                }
            },
            FileType::Directory => {
                budget.exceeded = true;
                Self::Other(marks)
            }
            _ => Self::Other(marks),
        }
    }

    /// Whether the same is still there. What was only written anew with the same content holds, and is known by its new
    /// marks from then on.
    pub(super) fn is_unchanged(&mut self, folder: &OwnedFd, name: &OsStr) -> bool {
        let Some(stat) = stat(folder, name) else { return matches!(self, Self::Missing) };
        let now = StatSnapshot::of(&stat);
        let kind = FileType::from_raw_mode(stat.st_mode);
        match self {
            Self::Missing => false,
            Self::File(marks, content) => {
                let same = *marks == now
                    || kind == FileType::RegularFile
                        && marks.has_same_permissions(&now)
                        && marks.size == now.size
                        && content.is_some()
                        && read(folder, name, LARGEST_OF_GIT) == *content;
                *marks = if same { now } else { *marks };
                same
            }
            Self::Link(marks, target) => {
                *marks == now
                    || kind == FileType::Symlink
                        && readlinkat(folder, name, Vec::new()).is_ok_and(|now| now.as_bytes() == target.as_bytes())
            }
            Self::Folder(marks, entries) => {
                if kind != FileType::Directory || !marks.has_same_permissions(&now) {
                    return false;
                }
                let Ok((opened, names)) = names(folder, name) else { return false };
                names.len() == entries.len()
                    && names
                        .iter()
                        .all(|name| entries.get_mut(name).is_some_and(|state| state.is_unchanged(&opened, name)))
            }
            Self::Other(marks) => *marks == now,
        }
    }
}

pub(super) fn stat(folder: &OwnedFd, name: &OsStr) -> Option<Stat> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// What kind of thing it is.
pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// How many names it has.
#[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
pub(super) fn links(stat: &Stat) -> u64 {
    stat.st_nlink as u64
}

/// A file's content; `None` where it can't be read, is longer than `most` bytes by now, or is no file.
pub(super) fn read(folder: &OwnedFd, name: &OsStr, most: u64) -> Option<Vec<u8>> {
    // A pipe in its place must not hold us up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= most).then_some(content)
}

/// Opens a folder and lists it.
pub(super) fn names(folder: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Vec<OsString>), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(folder, name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok((opened, names))
}
