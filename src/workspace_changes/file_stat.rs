//! File metadata, which reveals a change without reading the file.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970.
pub(super) type UnixTime = (i64, i64);

/// The mode of a symbolic link.
pub(super) const LINK_MODE: u32 = 0o120_000;

/// The metadata of a file or a link. The ctime is set by the kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStat {
    /// Its mode as git records it: the type, and whether its owner may execute it.
    pub(super) mode: u32,
    /// In bytes.
    pub(super) size: u64,
    pub(super) inode: u64,
    pub(super) mtime: UnixTime,
    pub(super) ctime: UnixTime,
}

impl FileStat {
    /// From a regular file or a link; `None` for anything else, which isn't tracked.
    #[allow(clippy::unnecessary_cast, reason = "the field types differ between architectures")]
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        let mode = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_mode & 0o100 != 0 => 0o100_755,
            FileType::RegularFile => 0o100_644,
            FileType::Symlink => LINK_MODE,
            _ => return None,
        };
        Some(Self {
            mode,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            inode: stat.st_ino as u64,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        })
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode == LINK_MODE
    }
}
