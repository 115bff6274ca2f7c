//! By what it is seen, without reading, that something changed.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use super::FileId;

/// Seconds and nanoseconds since 1970.
pub(super) type UnixTime = (i64, i64);

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FileKind {
    File,
    Link,
}

/// A file's or a link's marks. The time of the last change (ctime) is set by the kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStat {
    pub(super) kind: FileKind,
    /// In bytes.
    pub(super) size: u64,
    pub(super) inode: u64,
    pub(super) mtime: UnixTime,
    pub(super) ctime: UnixTime,
    /// Whether its owner may execute it: all that git keeps of its rights.
    pub(super) executable: bool,
}

/// Which file it is.
#[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
pub(super) fn id(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

impl FileStat {
    /// Those of a regular file or a link; nothing else is one of a workspace's files.
    #[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Symlink => FileKind::Link,
            _ => return None,
        };
        Some(Self {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            inode: stat.st_ino as u64,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            executable: kind == FileKind::File && stat.st_mode & 0o100 != 0,
        })
    }

    /// The mode that git knows it by.
    pub(super) fn mode(&self) -> &'static str {
        match (self.kind, self.executable) {
            (FileKind::Link, _) => "120000",
            (FileKind::File, true) => "100755",
            (FileKind::File, false) => "100644",
        }
    }
}
