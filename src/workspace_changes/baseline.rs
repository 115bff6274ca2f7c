//! Takes the baseline: the state of the workspace before anything can change it.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::readlinkat;
use sha2::{Digest, Sha256};

use super::baseline_file::{Baseline, BaselineContent, BaselineFile};
use super::deadline::Deadline;
use super::tracked_files::{TrackedFile, TrackedFiles};
use super::walk::{WalkedFile, WorkspaceWalk};
use super::{ChangeTracker, MAX_FILE_BYTES};
use crate::git::Repository;
use crate::git::objects::object_id;
use crate::text::bounded::read_expected;
use crate::text::hex;
use crate::workspace::open_beneath;

/// How many bytes of files are read to compare them with the repository.
const MAX_READ_BYTES: u64 = 256 << 20;
/// How many bytes of contents are stored.
const MAX_STORED_BYTES: u64 = 32 << 20;

struct BaselineScan<'a> {
    tracker: &'a ChangeTracker,
    /// The tracked files that weren't visited yet.
    tracked: TrackedFiles,
    read_bytes: u64,
    stored_bytes: u64,
    baseline: Baseline,
}

impl ChangeTracker {
    /// Takes the baseline and writes it to the record.
    ///
    /// # Errors
    /// If it can't be written, or not before the deadline.
    pub fn take_baseline(&self, deadline: &Deadline) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let root = self.workspace.root();
        let repository = Repository::discover(root);
        let tracked = repository.as_ref().and_then(|repository| TrackedFiles::read(repository, root));
        let baseline = Baseline {
            began: (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), i64::from(now.subsec_nanos())),
            repository: repository.filter(|_| tracked.is_some()).map(|found| (found.common_dir, found.sha256)),
            ..Baseline::default()
        };
        let tracked = tracked.unwrap_or_default();
        let mut scan = BaselineScan { tracker: self, tracked, read_bytes: 0, stored_bytes: 0, baseline };
        let mut walk = WorkspaceWalk::new(self, deadline, None);
        walk.run(&mut |file| {
            let tracked = scan.tracked.files.remove(&file.path);
            scan.add_file(&file, tracked.as_ref());
        });
        if deadline.is_expired() {
            // An incomplete baseline would show the files that weren't reached as unchanged.
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the workspace has too many files to read in time"));
        }
        scan.add_missing_tracked_files(walk.last_path.as_deref());
        let mut baseline = scan.baseline;
        baseline.ignore_files = walk.found;
        baseline.last_path = walk.last_path.map(PathBuf::into_os_string);
        baseline.too_deep = walk.too_deep;
        baseline.outputs = walk.found_outputs.into_iter().map(PathBuf::into_os_string).collect();
        baseline.write(&self.record)
    }
}

impl BaselineScan<'_> {
    fn add_file(&mut self, file: &WalkedFile<'_>, tracked: Option<&TrackedFile>) {
        if self.tracker.has_secret(&file.path) {
            self.baseline.secret_paths += 1;
            return;
        }
        let content = self.content(file, tracked).unwrap_or(BaselineContent::Unknown);
        self.baseline.files.insert(file.path.clone(), BaselineFile { stat: Some(file.stat), content });
    }

    /// What the baseline records of a file's content; `None` if the content isn't known.
    fn content(&mut self, file: &WalkedFile<'_>, tracked: Option<&TrackedFile>) -> Option<BaselineContent> {
        let tracked = tracked.filter(|_| !file.stat.is_link());
        let object = |tracked: &TrackedFile| Some(BaselineContent::Object(hex(&tracked.object)));
        if let Some(tracked) = tracked.filter(|tracked| tracked.matches_stat(&file.stat, self.tracked.written_at)) {
            return object(tracked);
        }
        if file.stat.size > MAX_FILE_BYTES {
            return None;
        }
        if self.read_bytes.saturating_add(file.stat.size) > MAX_READ_BYTES {
            return None;
        }
        self.read_bytes += file.stat.size;
        let bytes = read(file)?;
        let has_sha256_objects = self.baseline.repository.as_ref().is_some_and(|(_, sha256)| *sha256);
        if let Some(tracked) = tracked.filter(|tracked| tracked.object == object_id(&bytes, has_sha256_objects)) {
            return object(tracked);
        }
        let sha256 = hex(&Sha256::digest(&bytes));
        let original = match into_text(bytes) {
            Ok(original) => original,
            Err(bytes) => return Some(BaselineContent::Binary { object: hex(&object_id(&bytes, false)), sha256 }),
        };
        if self.stored_bytes.saturating_add(original.len() as u64) > MAX_STORED_BYTES {
            return Some(BaselineContent::Hash(sha256));
        }
        let text = self.tracker.mask.redact(&original).into_owned();
        self.stored_bytes += text.len() as u64;
        Some(BaselineContent::Text { masked: text != original, text, sha256 })
    }

    /// Adds the tracked files that the walk didn't visit because they are ignored or missing.
    fn add_missing_tracked_files(&mut self, last_path: Option<&Path>) {
        let workspace = &self.tracker.workspace;
        let mut missing: Vec<(PathBuf, TrackedFile)> = self.tracked.files.drain().collect();
        missing.retain(|(path, _)| !workspace.is_excluded(path) && last_path.is_none_or(|last| path.as_path() <= last));
        missing.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (path, tracked) in missing {
            let parent = self.tracker.open_parent(&path);
            let found = parent.as_ref().map(|(folder, name)| (self.tracker.stat(folder, name), folder, *name));
            match found {
                Some(((_, true), ..)) => {}
                Some(((Some(stat), _), folder, name)) => {
                    self.add_file(
                        &WalkedFile { path: path.clone(), stat, folder: folder.as_fd(), name },
                        Some(&tracked),
                    );
                }
                _ if self.tracker.has_secret(&path) => self.baseline.secret_paths += 1,
                _ => {
                    let missing = BaselineFile { stat: None, content: BaselineContent::Unknown };
                    self.baseline.files.insert(path, missing);
                }
            }
        }
    }
}

/// A content as text, or as it is if it is binary.
pub(super) fn into_text(bytes: Vec<u8>) -> Result<String, Vec<u8>> {
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(text) => Err(text.into_bytes()),
        Err(error) => Err(error.into_bytes()),
    }
}

/// A file's content, or a link's target; `None` if it can't be read or is too large.
pub(super) fn read(file: &WalkedFile<'_>) -> Option<Vec<u8>> {
    if file.stat.is_link() {
        return Some(readlinkat(file.folder, file.name, Vec::new()).ok()?.into_bytes());
    }
    let opened = open_beneath::open_regular_file(file.folder, file.name).ok()??;
    let bytes = read_expected(opened, file.stat.size, MAX_FILE_BYTES + 1).ok()?;
    (bytes.len() as u64 <= MAX_FILE_BYTES).then_some(bytes)
}
