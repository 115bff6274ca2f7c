//! The recorded state of a path, which a protected file is compared with and restored to.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, RawMode, Stat, readlinkat};

use super::dir_fd::{kind_of, read, stat};

/// The largest file whose content is kept, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The same for git folders, where the index grows with the number of files.
pub(super) const MAX_GIT_FILE_BYTES: u64 = 32 << 20;

/// How much more may be recorded.
#[derive(Debug)]
pub(super) struct SnapshotBudget {
    entries: usize,
    bytes: u64,
    max_file_bytes: u64,
    /// Whether something was too large or nested too deep to be recorded.
    pub(super) exceeded: bool,
}

impl SnapshotBudget {
    /// What may be recorded of paths of which everything is protected, or only a part, as in git folders.
    pub(super) fn new(is_partly_protected: bool) -> Self {
        let (bytes, max_file_bytes) =
            if is_partly_protected { (64 << 20, MAX_GIT_FILE_BYTES) } else { (32 << 20, MAX_FILE_BYTES) };
        Self { entries: 200_000, bytes, max_file_bytes, exceeded: false }
    }

    /// Takes an entry; false if none is left.
    pub(super) fn take(&mut self) -> bool {
        let is_left = self.entries > 0;
        self.entries = self.entries.saturating_sub(1);
        self.exceeded |= !is_left;
        is_left
    }
}

/// The recorded state of a path.
#[derive(Debug)]
pub(super) enum FileState {
    Missing,
    /// With its content, unless it is too large.
    File(StatSnapshot, Option<Vec<u8>>),
    Link(StatSnapshot, OsString),
    Folder(StatSnapshot, BTreeMap<OsString, FileState>),
    /// A pipe, a socket or a folder that couldn't be recorded.
    Other(StatSnapshot),
}

/// The metadata by which a change is noticed: device, inode, mode, user, group, size, and the seconds and nanoseconds of the
/// last write (mtime) and of the last change (ctime), which only the kernel sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StatSnapshot(pub(super) [i64; 10]);

impl StatSnapshot {
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the fields differ between architectures")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self([
            stat.st_dev as i64,
            stat.st_ino as i64,
            stat.st_mode as i64,
            stat.st_uid as i64,
            stat.st_gid as i64,
            stat.st_size as i64,
            stat.st_mtime as i64,
            stat.st_mtime_nsec as i64,
            stat.st_ctime as i64,
            stat.st_ctime_nsec as i64,
        ])
    }

    /// The metadata of the file at a path, if there is one.
    pub(super) fn at(folder: &OwnedFd, name: &OsStr) -> Option<Self> {
        stat(folder, name).as_ref().map(Self::of)
    }

    /// The kind of the file and its mode.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the type differs between systems")]
    pub(super) fn raw_mode(&self) -> RawMode {
        self.0[2] as RawMode
    }

    /// Mode, user and group.
    pub(super) fn permissions(&self) -> [u32; 3] {
        [self.0[2], self.0[3], self.0[4]].map(|number| number as u32)
    }
}

impl FileState {
    /// Records anything but a folder.
    pub(super) fn capture_file(folder: &OwnedFd, name: &OsStr, budget: &mut SnapshotBudget) -> Self {
        let Some(now) = stat(folder, name) else { return Self::Missing };
        let metadata = StatSnapshot::of(&now);
        let may_keep = budget.take();
        match kind_of(&now) {
            FileType::RegularFile => {
                let max = budget.max_file_bytes.min(budget.bytes);
                let fits = may_keep && u64::try_from(now.st_size).is_ok_and(|size| size <= max);
                let content = if fits { read(folder, name, max) } else { None };
                budget.bytes = budget.bytes.saturating_sub(content.as_ref().map_or(0, |content| content.len() as u64));
                Self::File(metadata, content)
            }
            FileType::Symlink => Self::Link(metadata, link_target(folder, name).unwrap_or_default()),
            _ => Self::Other(metadata),
        }
    }

    /// Records anything but a folder again, unless it is unchanged.
    pub(super) fn recapture_file(mut self, folder: &OwnedFd, name: &OsStr, budget: &mut SnapshotBudget) -> Self {
        if self.is_unchanged_file(folder, name) { self } else { Self::capture_file(folder, name, budget) }
    }

    /// Whether the same file is still there; folders never count as unchanged. A file that was rewritten with the same
    /// content counts as unchanged, and its new metadata is recorded.
    pub(super) fn is_unchanged_file(&mut self, folder: &OwnedFd, name: &OsStr) -> bool {
        let Some(now) = stat(folder, name) else { return matches!(self, Self::Missing) };
        let (kind, now) = (kind_of(&now), StatSnapshot::of(&now));
        match self {
            Self::Missing | Self::Folder(..) => false,
            Self::File(before, content) => {
                let same = *before == now
                    || kind == FileType::RegularFile
                        && before.permissions() == now.permissions()
                        && content.is_some()
                        && read(folder, name, MAX_GIT_FILE_BYTES) == *content;
                *before = if same { now } else { *before };
                same
            }
            Self::Link(before, target) => {
                *before == now
                    || kind == FileType::Symlink && link_target(folder, name).is_some_and(|now| now == *target)
            }
            Self::Other(before) => *before == now,
        }
    }
}

fn link_target(folder: &OwnedFd, name: &OsStr) -> Option<OsString> {
    let target = readlinkat(folder, name, Vec::new()).ok()?;
    Some(OsStr::from_bytes(target.as_bytes()).to_owned())
}
