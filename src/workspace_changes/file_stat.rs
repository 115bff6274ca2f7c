//! File metadata, which reveals a change without reading the file.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970.
pub(super) type UnixTime = (i64, i64);

/// The kind of a tracked file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FileKind {
    File,
    Link,
}

/// The metadata of a file or a link. The ctime is set by the kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStat {
    pub(super) kind: FileKind,
    /// In bytes.
    pub(super) size: u64,
    pub(super) inode: u64,
    pub(super) mtime: UnixTime,
    pub(super) ctime: UnixTime,
    /// Whether its owner may execute it, the only permission that git records.
    pub(super) executable: bool,
}

impl FileStat {
    /// From a regular file or a link; `None` for anything else, which isn't tracked.
    #[allow(clippy::unnecessary_cast, reason = "the field types differ between architectures")]
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

    /// Its mode as git writes it.
    pub(super) fn mode(&self) -> &'static str {
        match (self.kind, self.executable) {
            (FileKind::Link, _) => "120000",
            (FileKind::File, true) => "100755",
            (FileKind::File, false) => "100644",
        }
    }
}
