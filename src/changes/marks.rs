//! By what it is seen, without reading, that something changed.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use super::FileId;

/// Seconds and nanoseconds since 1970.
pub(super) type Time = (i64, i64);

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    File,
    Link,
}

/// A file's or a link's marks. The time of the last change (ctime) is set by the kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    pub(super) kind: Kind,
    /// In bytes.
    pub(super) size: u64,
    pub(super) inode: u64,
    pub(super) written: Time,
    pub(super) changed: Time,
    /// Whether its owner may execute it: all that git keeps of its rights.
    pub(super) executable: bool,
}

/// Which file it is.
#[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
pub(super) fn id(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

impl Marks {
    /// Those of a regular file or a link; nothing else is one of a workspace's files.
    #[allow(clippy::unnecessary_cast, reason = "the fields differ from one architecture to the next")]
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Link,
            _ => return None,
        };
        Some(Self {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            inode: stat.st_ino as u64,
            written: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            executable: kind == Kind::File && stat.st_mode & 0o100 != 0,
        })
    }

    /// The mode that git knows it by.
    pub(super) fn mode(&self) -> &'static str {
        match (self.kind, self.executable) {
            (Kind::Link, _) => "120000",
            (Kind::File, true) => "100755",
            (Kind::File, false) => "100644",
        }
    }
}
