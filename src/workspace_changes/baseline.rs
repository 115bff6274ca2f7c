//! Takes the baseline: the state of the workspace before anything can change it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::baseline_file::{BaselineContent, BaselineFile, BaselineFooter, BaselineWriter};
use super::deadline::Deadline;
use super::file_stat::{FileKind, FileStat, UnixTime};
use super::tracked_files::{TrackedFile, TrackedFiles};
use super::tracker::{ChangeTracker, MAX_FILE_BYTES};
use super::walk::{MAX_DEPTH, MAX_FILES, WalkedFile, WorkspaceWalk};
use crate::git::Repository;
use crate::git::objects::object_id;
use crate::text::{hex, pluralize};
use crate::workspace::open_beneath::{self, file_id};

/// How many bytes of files are read to compare them with the repository.
const MAX_READ_BYTES: u64 = 256 << 20;
/// How many bytes of contents are stored.
const MAX_STORED_BYTES: u64 = 32 << 20;

struct BaselineScan<'a> {
    tracker: &'a ChangeTracker,
    repository: Option<Repository>,
    tracked: HashMap<PathBuf, TrackedFile>,
    index_written: UnixTime,
    began: UnixTime,
    read_bytes: u64,
    stored_bytes: u64,
    /// How many files exceeded the limits.
    not_stored: u64,
    /// How many files have a secret in their paths.
    secret_paths: u64,
    out: BaselineWriter,
}

/// Writes the state of the workspace to the file `path` in the run's record.
pub(super) fn take_baseline(tracker: &ChangeTracker, path: &Path, deadline: &Deadline) -> io::Result<()> {
    let workspace = &tracker.workspace;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let repository = Repository::discover(workspace.root());
    let tracked = repository.as_ref().and_then(|repository| TrackedFiles::read(repository, workspace.root()));
    let repository = repository.filter(|_| tracked.is_some());
    let tracked = tracked.unwrap_or_default();
    let mut scan = BaselineScan {
        tracker,
        repository,
        tracked: tracked.files,
        index_written: tracked.written_at,
        began: (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), i64::from(now.subsec_nanos())),
        read_bytes: 0,
        stored_bytes: 0,
        not_stored: 0,
        secret_paths: 0,
        out: BaselineWriter::begin(&tracker.record)?,
    };
    let mut result = Ok(());
    let mut walk = WorkspaceWalk::for_baseline(tracker, deadline);
    walk.run(workspace.folder(), &mut |file| {
        if result.is_ok() {
            result = scan.add_file(&file);
        }
    });
    result?;
    let WorkspaceWalk { last_path, found, too_deep, found_outputs, .. } = walk;
    if deadline.is_hurried() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the run is ending"));
    }
    if deadline.is_expired() {
        // An incomplete baseline would show the files that weren't reached as unchanged.
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the workspace has too many files to read in time"));
    }
    scan.add_missing_tracked_files(last_path.as_deref())?;
    let mut gaps = Vec::new();
    if let Some(last_path) = &last_path {
        gaps.push(format!(
            "files that come after `{}` weren't checked: there are more than {MAX_FILES}",
            last_path.display()
        ));
    }
    if scan.not_stored > 0 {
        gaps.push(format!("the contents of {} were too large to store", pluralize(scan.not_stored, "file")));
    }
    if scan.secret_paths > 0 {
        gaps.push(format!("{} with a secret in the path can't be tracked", pluralize(scan.secret_paths, "file")));
    }
    if too_deep {
        gaps.push(format!("folders nested more than {MAX_DEPTH} levels deep weren't checked"));
    }
    let repository = scan.repository.map(|repository| (repository.common_dir, repository.sha256));
    let footer = BaselineFooter::new(repository, last_path.as_deref(), gaps, found, &found_outputs);
    scan.out.finish(footer, path)
}

impl BaselineScan<'_> {
    fn add_file(&mut self, file: &WalkedFile<'_>) -> io::Result<()> {
        let tracked = self.tracked.remove(&file.path);
        if self.tracker.has_secret(&file.path) {
            self.secret_paths += 1;
            return Ok(());
        }
        let (content, text) = self.content(file, tracked.as_ref());
        self.out.file(&file.path, BaselineFile::new(Some(file.stat), content, self.began), &text)
    }

    /// What the baseline records of a file's content, and the text that is stored with it.
    fn content(&mut self, file: &WalkedFile<'_>, tracked: Option<&TrackedFile>) -> (BaselineContent, String) {
        let mask = &self.tracker.mask;
        let without_text = |content| (content, String::new());
        if file.stat.kind == FileKind::Link {
            let Ok(target) = readlinkat(file.folder, file.name, Vec::new()) else {
                return without_text(BaselineContent::Unknown);
            };
            let sha256 = hex(&Sha256::digest(target.as_bytes()));
            let target = target.to_string_lossy();
            return without_text(BaselineContent::Link(mask.redact(&target).into_owned(), sha256));
        }
        if let Some(tracked) = tracked.filter(|tracked| tracked.matches_stat(&file.stat, self.index_written)) {
            return without_text(BaselineContent::Object(hex(&tracked.object)));
        }
        if file.stat.size > MAX_FILE_BYTES {
            return without_text(BaselineContent::Unknown);
        }
        if self.read_bytes.saturating_add(file.stat.size) > MAX_READ_BYTES {
            self.not_stored += 1;
            return without_text(BaselineContent::Unknown);
        }
        self.read_bytes += file.stat.size;
        let Some(bytes) = read(file) else { return without_text(BaselineContent::Unknown) };
        let has_sha256_objects = self.repository.as_ref().is_some_and(|repository| repository.sha256);
        if let Some(tracked) = tracked.filter(|tracked| tracked.object == object_id(&bytes, has_sha256_objects)) {
            return without_text(BaselineContent::Object(hex(&tracked.object)));
        }
        let sha256 = hex(&Sha256::digest(&bytes));
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let Some(text) = text else { return without_text(BaselineContent::Hash(sha256)) };
        if self.stored_bytes.saturating_add(text.len() as u64) > MAX_STORED_BYTES {
            self.not_stored += 1;
            return without_text(BaselineContent::Hash(sha256));
        }
        let redacted = mask.redact(&text).into_owned();
        self.stored_bytes += redacted.len() as u64;
        (BaselineContent::Text { length: redacted.len(), sha256, masked: redacted != text }, redacted)
    }

    /// Adds the tracked files that the walk didn't visit because they are ignored or missing.
    fn add_missing_tracked_files(&mut self, last_path: Option<&Path>) -> io::Result<()> {
        let workspace = &self.tracker.workspace;
        let mut missing: Vec<(PathBuf, TrackedFile)> = self.tracked.drain().collect();
        missing.retain(|(path, _)| !workspace.is_excluded(path) && last_path.is_none_or(|last| path.as_path() <= last));
        missing.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (path, tracked) in missing {
            if self.tracker.has_secret(&path) {
                self.secret_paths += 1;
                continue;
            }
            let (Some(name), parent) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else { continue };
            let found = open_beneath::open_dir(workspace.folder(), parent)
                .ok()
                .and_then(|folder| Some((statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?, folder)));
            if found.as_ref().is_some_and(|(stat, _)| self.tracker.outputs.contains(&file_id(stat))) {
                continue;
            }
            let file_stat = found.as_ref().and_then(|(stat, _)| FileStat::of(stat));
            match (file_stat, &found) {
                (Some(stat), Some((_, folder))) => {
                    let file = WalkedFile { path: path.clone(), stat, folder: folder.as_fd(), name };
                    let (content, text) = self.content(&file, Some(&tracked));
                    self.out.file(&path, BaselineFile::new(Some(stat), content, self.began), &text)?;
                }
                _ => self.out.file(&path, BaselineFile::new(None, BaselineContent::Unknown, self.began), "")?,
            }
        }
        Ok(())
    }
}

/// A file's content; `None` if it can't be read or is too large.
pub(super) fn read(file: &WalkedFile<'_>) -> Option<Vec<u8>> {
    let opened = open_beneath::open_regular_file(file.folder, file.name).ok()??;
    let mut bytes = Vec::with_capacity(usize::try_from(file.stat.size.min(MAX_FILE_BYTES)).unwrap_or_default() + 1);
    opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE_BYTES).then_some(bytes)
}
