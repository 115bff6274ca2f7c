//! Git's index, read without git: gitformat-index(5), versions 2 to 4.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The lengths of an object's name: SHA-1 and SHA-256.
pub(crate) const HASH_LENGTHS: [usize; 2] = [20, 32];

/// The longest path of an entry, in bytes: the longest that Linux can open. Version 4 shares path prefixes between entries,
/// so a small index could otherwise expand to terabytes.
const MAX_PATH_BYTES: usize = 4096;

/// What an index says about the file of an entry, apart from its type and permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryStat {
    pub(crate) ctime: (u32, u32),
    pub(crate) mtime: (u32, u32),
    pub(crate) device: u32,
    pub(crate) inode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) size: u32,
}

/// One entry of an index. Its path is in [`IndexReader::path`].
#[derive(Debug)]
pub(crate) struct IndexEntry<'a> {
    /// Seconds and nanoseconds of the file's ctime.
    pub(crate) ctime: (u32, u32),
    /// Seconds and nanoseconds of the file's mtime.
    pub(crate) mtime: (u32, u32),
    device: u32,
    /// The lower bits of the file's inode number.
    pub(crate) inode: u32,
    user: u32,
    group: u32,
    /// The file's type and permissions as git records them.
    pub(crate) mode: u32,
    /// The lower bits of the file's size in bytes.
    pub(crate) size: u32,
    /// The name of the content in the object store.
    pub(crate) object: &'a [u8],
    /// The flags, including the extended ones.
    pub(crate) flags: &'a [u8],
}

impl IndexEntry<'_> {
    /// Whether the entry belongs to an unfinished merge.
    pub(crate) fn is_unmerged(&self) -> bool {
        self.flags[0] & 0x30 != 0
    }

    /// What it says about its file.
    pub(crate) fn stat(&self) -> EntryStat {
        let Self { ctime, mtime, device, inode, user, group, size, .. } = *self;
        EntryStat { ctime, mtime, device, inode, user, group, size }
    }

    /// Whether it records the same content under the same mode and flags, whatever it says about the file's timestamps.
    pub(crate) fn is_same_content(&self, other: &Self) -> bool {
        (self.mode, self.object, self.flags) == (other.mode, other.object, other.flags)
    }
}

/// Reads an index entry by entry, in constant memory.
pub(crate) struct IndexReader<'a> {
    rest: &'a [u8],
    version: u32,
    remaining: u32,
    hash_length: usize,
    path: Vec<u8>,
}

impl<'a> IndexReader<'a> {
    /// Reads the header. `None` if this isn't an index of a supported version.
    pub(crate) fn new(bytes: &'a [u8], hash_length: usize) -> Option<Self> {
        let mut rest = bytes.strip_prefix(b"DIRC")?;
        let version = number(&mut rest)?;
        let remaining = number(&mut rest)?;
        (2..=4).contains(&version).then_some(Self { rest, version, remaining, hash_length, path: Vec::new() })
    }

    /// The path of the entry that was read last.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Reads the next entry: `Some(None)` after the last one, `None` if the index is malformed.
    pub(crate) fn next(&mut self) -> Option<Option<IndexEntry<'a>>> {
        let Some(remaining) = self.remaining.checked_sub(1) else { return Some(None) };
        self.remaining = remaining;
        let rest = &mut self.rest;
        let length_before = rest.len();
        let mut field = || number(rest);
        let (ctime, mtime) = ((field()?, field()?), (field()?, field()?));
        let (device, inode, mode) = (field()?, field()?, field()?);
        let (user, group, size) = (field()?, field()?, field()?);
        let object = take(rest, self.hash_length)?;
        let is_extended = rest.first()? & 0x40 != 0;
        let flags = take(rest, if is_extended { 4 } else { 2 })?;
        if self.version == 4 {
            let removed = varint(rest)?;
            self.path.truncate(self.path.len().checked_sub(removed)?);
        } else {
            self.path.clear();
        }
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.path.extend_from_slice(take(rest, length)?);
        if self.path.len() > MAX_PATH_BYTES {
            return None;
        }
        // At least one zero byte. Versions 2 and 3 pad entries to a multiple of eight.
        let padding = if self.version == 4 { 1 } else { 8 - (length_before - rest.len()) % 8 };
        take(rest, padding)?;
        Some(Some(IndexEntry { ctime, mtime, device, inode, mode, user, group, size, object, flags }))
    }

    /// Whether only extensions and the checksum follow. False for a split index, which keeps most of its entries in another
    /// file.
    pub(crate) fn is_at_end(&mut self) -> bool {
        while self.rest.len() > self.hash_length {
            let Some(kind) = take(&mut self.rest, 4) else { return false };
            let length = number(&mut self.rest);
            if kind == b"link" || length.and_then(|length| take(&mut self.rest, length as usize)).is_none() {
                return false;
            }
        }
        self.rest.len() == self.hash_length
    }
}

/// An index in which what is known about the files of some entries is replaced: those for whose path `stat_of` returns it.
/// `None` if the index can't be read.
pub(crate) fn with_stats(
    bytes: &[u8],
    hash_length: usize,
    stat_of: impl Fn(&[u8]) -> Option<EntryStat>,
) -> Option<Vec<u8>> {
    let mut changed = bytes.to_owned();
    let mut reader = IndexReader::new(bytes, hash_length)?;
    loop {
        let start = bytes.len() - reader.rest.len();
        let Some(entry) = reader.next()? else { break };
        let Some(stat) = stat_of(reader.path()).filter(|_| !entry.is_unmerged()) else { continue };
        let EntryStat { ctime, mtime, device, inode, user, group, size } = stat;
        let fields = [ctime.0, ctime.1, mtime.0, mtime.1, device, inode, entry.mode, user, group, size];
        let fields: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()).collect();
        changed.get_mut(start..start + fields.len())?.copy_from_slice(&fields);
    }
    let (content, sum) = changed.split_at_mut(bytes.len().checked_sub(hash_length)?);
    let digest = if hash_length == 32 { Sha256::digest(content).to_vec() } else { Sha1::digest(content).to_vec() };
    sum.copy_from_slice(&digest);
    Some(changed)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// A number as version 4 encodes it, like the offsets in a pack.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    loop {
        let byte = *take(rest, 1)?.first()?;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}
