//! A look at the workspace before anything can change it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::baseline_file::{BaselineContent, BaselineFile, BaselineFooter, BaselineWriter};
use super::deadline::Deadline;
use super::file_stat::{FileKind, FileStat, UnixTime, id};
use super::git_index::{GitIndex, TrackedFile};
use super::walk::{MOST_FILES, WalkedFile, WorkspaceWalk};
use super::{ChangeTracker, MAX_FILE_BYTES, contains_secret, git_object_id, hex};
use crate::git::Repository;
use crate::message::pluralize;
use crate::redaction::Redactor;
use crate::sandbox::protected_paths::is_dot_git;
use crate::workspace::open_beneath;

/// How much of files may be read to see whether they are those of the repository, in bytes.
const MOST_READ: u64 = 256 << 20;
/// How much may be kept, in bytes.
const MOST_KEPT: u64 = 32 << 20;

struct BaselineScan<'a> {
    mask: &'a Redactor,
    repository: Option<Repository>,
    index: HashMap<PathBuf, TrackedFile>,
    index_written: UnixTime,
    began: UnixTime,
    read: u64,
    kept: u64,
    /// How many files have nothing kept of them for lack of room.
    not_kept: usize,
    /// How many files have a secret in their names.
    secret_paths: usize,
    out: BaselineWriter,
}

/// Looks, and writes what is to be seen into the file `name` of the run's record.
pub(super) fn take_baseline(looker: &ChangeTracker, name: &Path, pace: &Deadline) -> io::Result<()> {
    let workspace = &looker.workspace;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = (i64::try_from(began.as_secs()).unwrap_or(i64::MAX), i64::from(began.subsec_nanos()));
    let mut repository = Repository::discover(workspace.root());
    let index = repository.as_ref().and_then(|repository| GitIndex::of(repository, workspace.root()));
    if index.is_none() {
        repository = None;
    }
    let index = index.unwrap_or_default();
    let out = BaselineWriter::begin(&looker.record)?;
    let mut look = BaselineScan {
        mask: &looker.mask,
        repository,
        index: index.files,
        index_written: index.written_at,
        began,
        read: 0,
        kept: 0,
        not_kept: 0,
        secret_paths: 0,
        out,
    };
    let mut failed = Ok(());
    let mut walk = WorkspaceWalk::for_baseline(looker, pace);
    walk.run(workspace.folder(), &mut |seen| {
        if failed.is_ok() {
            failed = look.file(&seen);
        }
    });
    failed?;
    let WorkspaceWalk { last_path: cut, found, too_deep, found_outputs: passed, .. } = walk;
    if pace.is_hurried() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the run ends"));
    }
    if pace.is_expired() {
        // Half of it would show as if the other half hadn't changed.
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the workspace has too many files to be looked at in time",
        ));
    }
    look.left_over(looker, cut.as_deref())?;
    let mut gaps = Vec::new();
    if let Some(cut) = &cut {
        gaps.push(format!(
            "files that come after `{}` weren't looked at: there are more than {MOST_FILES}",
            cut.display()
        ));
    }
    if look.not_kept > 0 {
        gaps.push(format!("too little room was left to keep what {} held", pluralize(look.not_kept as u64, "file")));
    }
    if look.secret_paths > 0 {
        let files = pluralize(look.secret_paths as u64, "file");
        gaps.push(format!("{files} with a secret in the name or the path can't be followed"));
    }
    if too_deep {
        gaps.push(format!("folders with more than {} others around them weren't looked at", super::walk::MAX_DEPTH));
    }
    let repository = look.repository.map(|repository| (repository.common_dir, repository.sha256));
    look.out.finish(BaselineFooter::new(repository, cut.as_deref(), gaps, found, &passed), name)
}

impl BaselineScan<'_> {
    fn file(&mut self, seen: &WalkedFile<'_>) -> io::Result<()> {
        let tracked = self.index.remove(&seen.path);
        if contains_secret(self.mask, &seen.path) {
            self.secret_paths += 1;
            return Ok(());
        }
        let (content, text) = self.content(seen, tracked.as_ref());
        self.out.file(&seen.path, BaselineFile::new(Some(seen.stat), content, self.began), &text)
    }

    fn content(&mut self, seen: &WalkedFile<'_>, tracked: Option<&TrackedFile>) -> (BaselineContent, String) {
        let nothing = |content| (content, String::new());
        if seen.stat.kind == FileKind::Link {
            let Ok(target) = readlinkat(seen.folder, seen.name, Vec::new()) else {
                return nothing(BaselineContent::Unknown);
            };
            let sum = hex(&Sha256::digest(target.as_bytes()));
            let target = target.to_string_lossy();
            return nothing(BaselineContent::Link(self.mask.redact(&target).into_owned(), sum));
        }
        if let Some(tracked) = tracked.filter(|tracked| tracked.matches_stat(&seen.stat, self.index_written)) {
            return nothing(BaselineContent::Object(hex(&tracked.object)));
        }
        if seen.stat.size > MAX_FILE_BYTES {
            return nothing(BaselineContent::Unknown);
        }
        if self.read.saturating_add(seen.stat.size) > MOST_READ {
            self.not_kept += 1;
            return nothing(BaselineContent::Unknown);
        }
        self.read += seen.stat.size;
        let Some(bytes) = read(seen) else { return nothing(BaselineContent::Unknown) };
        let sha256 = self.repository.as_ref().is_some_and(|repository| repository.sha256);
        if let Some(tracked) = tracked.filter(|tracked| tracked.object == git_object_id(&bytes, sha256)) {
            return nothing(BaselineContent::Object(hex(&tracked.object)));
        }
        let sum = hex(&Sha256::digest(&bytes));
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let Some(text) = text else { return nothing(BaselineContent::Hash(sum)) };
        if self.kept.saturating_add(text.len() as u64) > MOST_KEPT {
            self.not_kept += 1;
            return nothing(BaselineContent::Hash(sum));
        }
        let shown = self.mask.redact(&text).into_owned();
        self.kept += shown.len() as u64;
        (BaselineContent::Text { length: shown.len(), sha256: sum, masked: shown != text }, shown)
    }

    /// What git knows of and the walk didn't come by: it is ignored, or it isn't there.
    fn left_over(&mut self, looker: &ChangeTracker, cut: Option<&Path>) -> io::Result<()> {
        let workspace = &looker.workspace;
        let hidden = workspace.excluded();
        let mut left: Vec<(PathBuf, TrackedFile)> = self.index.drain().collect();
        left.retain(|(path, _)| {
            !hidden.contains(path) && !path.iter().any(is_dot_git) && cut.is_none_or(|cut| path.as_path() <= cut)
        });
        left.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (path, tracked) in left {
            if contains_secret(self.mask, &path) {
                self.secret_paths += 1;
                continue;
            }
            let (Some(name), parent) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else { continue };
            let stat = open_beneath::open_dir(workspace.folder(), parent)
                .ok()
                .and_then(|folder| Some((statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?, folder)));
            if stat.as_ref().is_some_and(|(stat, _)| looker.outputs.contains(&id(stat))) {
                continue;
            }
            let marks = stat.as_ref().and_then(|(stat, _)| FileStat::of(stat));
            match (marks, &stat) {
                (Some(marks), Some((_, folder))) => {
                    let seen =
                        WalkedFile { path: path.clone(), stat: marks, folder: std::os::fd::AsFd::as_fd(folder), name };
                    let (content, text) = self.content(&seen, Some(&tracked));
                    self.out.file(&path, BaselineFile::new(Some(marks), content, self.began), &text)?;
                }
                _ => self.out.file(&path, BaselineFile::new(None, BaselineContent::Unknown, self.began), "")?,
            }
        }
        Ok(())
    }
}

/// A file's content; `None` where it can't be read, or has grown too long.
pub(super) fn read(seen: &WalkedFile<'_>) -> Option<Vec<u8>> {
    let file = open_beneath::open_regular_file(seen.folder, seen.name).ok()??;
    let mut bytes = Vec::with_capacity(usize::try_from(seen.stat.size.min(MAX_FILE_BYTES)).unwrap_or_default() + 1);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE_BYTES).then_some(bytes)
}
