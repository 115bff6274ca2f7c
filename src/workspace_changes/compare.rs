//! Compares the workspace with the baseline.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::baseline::read;
use super::baseline_file::{Baseline, BaselineContent, BaselineFile, unescape_path};
use super::deadline::Deadline;
use super::file_stat::{FileKind, FileStat};
use super::patch::{self, PatchSide};
use super::tracker::{ChangeTracker, MAX_FILE_BYTES};
use super::walk::{WalkedFile, WorkspaceWalk};
use crate::event::{Change, ChangeKind, WorkspaceChanged};
use crate::git::objects::{GitObjects, object_id};
use crate::text::{hex, pluralize, sanitize};
use crate::workspace::open_beneath::{self, file_id};

/// The most changes that are listed.
const MAX_CHANGES: usize = 5_000;
/// The longest patch, in bytes.
const MAX_PATCH_BYTES: usize = 1 << 20;
/// How many of the files that were left out are named.
const MAX_NAMED: usize = 5;
/// How long git may take to read all objects.
const GIT_TIMEOUT: Duration = Duration::from_secs(8);

/// A file that may have changed, with its state before and after.
type Candidate = (PathBuf, Option<BaselineFile>, Option<FileStat>);

/// The content of one side, as far as it can be shown.
enum ShownContent {
    /// The file doesn't exist.
    Absent,
    Text(String),
    /// It isn't text, is too large, or wasn't stored.
    Hidden,
}

/// The content of a file now.
enum CurrentContent {
    Absent,
    File(Vec<u8>),
    Link(Vec<u8>),
    /// The file is too large or can't be read.
    Unreadable,
}

struct Comparison<'a> {
    tracker: &'a ChangeTracker,
    baseline: Baseline,
    deadline: &'a Deadline,
    /// The git process, or `Some(None)` if it couldn't be started.
    objects: Option<Option<GitObjects>>,
    changes: Vec<Change>,
    patch: String,
    /// How many changes exceed [`MAX_CHANGES`].
    more: usize,
    /// Changes whose content can't be shown.
    hidden: Vec<PathBuf>,
    /// Changes for which the patch had no space left.
    beyond: Vec<PathBuf>,
    masked: bool,
}

/// Lists everything that has changed since the baseline was taken.
pub(super) fn compare(tracker: &ChangeTracker, mut baseline: Baseline, deadline: &Deadline) -> WorkspaceChanged {
    let mut gaps = std::mem::take(&mut baseline.footer.gaps);
    let mut files = std::mem::take(&mut baseline.files);
    let mut candidates: Vec<Candidate> = Vec::new();
    let last_path = baseline.footer.last_path.as_deref().map(unescape_path);
    let mut walk = WorkspaceWalk::for_comparison(tracker, deadline, &baseline.ignore_files, last_path.as_deref());
    let mut secret_paths = 0_u64;
    walk.run(tracker.workspace.folder(), &mut |file| match files.remove(&file.path) {
        None if tracker.has_secret(&file.path) => secret_paths += 1,
        Some(before) if before.stat == Some(file.stat) && !before.is_racy => {}
        before => candidates.push((file.path, before, Some(file.stat))),
    });
    let WorkspaceWalk { last_path: cut_short_at, mut newly_ignored, .. } = walk;
    newly_ignored.retain(|path| !files.contains_key(path));
    // Files of the baseline that the walk didn't visit are deleted or now ignored.
    let mut unvisited: Vec<(PathBuf, BaselineFile)> = files.into_iter().collect();
    unvisited.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut is_late = cut_short_at.is_some();
    for (path, before) in unvisited {
        if deadline.is_expired() {
            is_late = true;
            break;
        }
        let stat =
            open(tracker, &path).and_then(|(folder, name)| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        if stat.as_ref().is_some_and(|stat| tracker.outputs.contains(&file_id(stat))) {
            continue;
        }
        let stat = stat.as_ref().and_then(FileStat::of);
        if stat != before.stat || before.is_racy {
            candidates.push((path, Some(before), stat));
        }
    }
    // A run that was resumed may have printed elsewhere before.
    let outputs: Vec<PathBuf> = baseline.footer.outputs.iter().map(|path| unescape_path(path)).collect();
    candidates.retain(|(path, ..)| !outputs.contains(path));
    candidates.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut comparison = Comparison {
        tracker,
        baseline,
        deadline,
        objects: None,
        changes: Vec::new(),
        patch: String::new(),
        more: 0,
        hidden: Vec::new(),
        beyond: Vec::new(),
        masked: false,
    };
    for (path, before, stat) in candidates {
        if deadline.is_expired() {
            is_late = true;
            break;
        }
        comparison.compare_file(&path, before.as_ref(), stat);
    }
    if secret_paths > 0 && !gaps.iter().any(|gap| gap.contains("with a secret in the path")) {
        gaps.push(format!("{} with a secret in the path can't be tracked", pluralize(secret_paths, "file")));
    }
    if is_late {
        gaps.push("there was no time to check every file".to_owned());
    }
    if !newly_ignored.is_empty() {
        let named = summarize_paths(&newly_ignored);
        gaps.push(format!("new files that the run itself added to ignore files aren't listed ({named})"));
    }
    comparison.finish(gaps)
}

/// Opens the folder that contains a file; with the file's name.
fn open<'a>(tracker: &ChangeTracker, path: &'a Path) -> Option<(OwnedFd, &'a std::ffi::OsStr)> {
    let folder = open_beneath::open_dir(tracker.workspace.folder(), path.parent().unwrap_or(Path::new(""))).ok()?;
    Some((folder, path.file_name()?))
}

impl Comparison<'_> {
    fn compare_file(&mut self, path: &Path, before: Option<&BaselineFile>, stat: Option<FileStat>) {
        let before = before.and_then(|before| Some((before, before.stat?)));
        let now = self.read_current(path, stat);
        let change = match (before, stat) {
            (None, None) => return,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some((before, old_stat)), Some(new_stat)) => {
                if self.is_same(&before.content, &old_stat, &new_stat, &now) {
                    if old_stat.executable == new_stat.executable {
                        return;
                    }
                    // Only the mode changed, so the content needn't be known.
                    let side = |stat: &FileStat| ShownContent::Text(String::new()).side(stat.mode());
                    return self.record_change(path, ChangeKind::Modified, &side(&old_stat), &side(&new_stat));
                }
                ChangeKind::Modified
            }
        };
        if self.changes.len() >= MAX_CHANGES {
            self.more += 1;
            return;
        }
        let old = before.map_or(ShownContent::Absent, |(file, stat)| self.baseline_content(file, &stat));
        let new = self.current_content(now);
        let side =
            |shown: ShownContent, stat: Option<FileStat>| stat.map_or(DiffSide::Absent, |stat| shown.side(stat.mode()));
        self.record_change(path, change, &side(old, before.map(|(_, stat)| stat)), &side(new, stat));
    }

    fn read_current(&self, path: &Path, stat: Option<FileStat>) -> CurrentContent {
        let Some(stat) = stat else { return CurrentContent::Absent };
        let Some((folder, name)) = open(self.tracker, path) else { return CurrentContent::Unreadable };
        match stat.kind {
            FileKind::Link => readlinkat(&folder, name, Vec::new())
                .map_or(CurrentContent::Unreadable, |target| CurrentContent::Link(target.as_bytes().to_vec())),
            FileKind::File => {
                let file = WalkedFile { path: PathBuf::new(), stat, folder: folder.as_fd(), name };
                read(&file).map_or(CurrentContent::Unreadable, CurrentContent::File)
            }
        }
    }

    /// Whether the content is the same, whatever the metadata says.
    fn is_same(
        &self,
        before: &BaselineContent,
        old_stat: &FileStat,
        new_stat: &FileStat,
        now: &CurrentContent,
    ) -> bool {
        let sha256 = self.baseline.footer.repository.as_ref().is_some_and(|(_, sha256)| *sha256);
        match (before, now) {
            (BaselineContent::Object(name), CurrentContent::File(bytes)) => {
                old_stat.kind == new_stat.kind
                    && (hex(&object_id(bytes, sha256)) == *name
                        || (old_stat.size == new_stat.size && hex(&object_id(&with_lf(bytes), sha256)) == *name))
            }
            (BaselineContent::Text { sha256: hash, .. } | BaselineContent::Hash(hash), CurrentContent::File(bytes))
            | (BaselineContent::Link(_, hash), CurrentContent::Link(bytes)) => hex(&Sha256::digest(bytes)) == *hash,
            // Only the metadata of a large file is known, and it is the same if the file is a candidate just because it is young.
            (BaselineContent::Unknown | BaselineContent::Object(_), _) => old_stat == new_stat,
            _ => false,
        }
    }

    fn baseline_content(&mut self, file: &BaselineFile, stat: &FileStat) -> ShownContent {
        match &file.content {
            BaselineContent::Text { masked, .. } => {
                self.masked |= masked;
                self.baseline.text(file).map_or(ShownContent::Hidden, ShownContent::Text)
            }
            BaselineContent::Link(target, _) => ShownContent::Text(target.clone()),
            BaselineContent::Object(name) if stat.size <= MAX_FILE_BYTES => {
                let Some(bytes) = self.object(name) else { return ShownContent::Hidden };
                let bytes = if bytes.len() as u64 == stat.size { bytes } else { with_crlf(&bytes) };
                if bytes.len() as u64 == stat.size { self.text(bytes) } else { ShownContent::Hidden }
            }
            BaselineContent::Object(_) | BaselineContent::Hash(_) | BaselineContent::Unknown => ShownContent::Hidden,
        }
    }

    fn current_content(&mut self, now: CurrentContent) -> ShownContent {
        match now {
            CurrentContent::Absent => ShownContent::Absent,
            CurrentContent::File(bytes) | CurrentContent::Link(bytes) => self.text(bytes),
            CurrentContent::Unreadable => ShownContent::Hidden,
        }
    }

    fn text(&mut self, bytes: Vec<u8>) -> ShownContent {
        let Some(text) = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) else {
            return ShownContent::Hidden;
        };
        let redacted = self.tracker.mask.redact(&text).into_owned();
        self.masked |= redacted != text;
        ShownContent::Text(redacted)
    }

    fn object(&mut self, name: &str) -> Option<Vec<u8>> {
        let deadline = self.deadline.end().min(Instant::now() + GIT_TIMEOUT);
        let (git_dir, sha256) = self.baseline.footer.repository.as_ref()?;
        let git = self.tracker.git.as_deref();
        let open = || GitObjects::open(git?, git_dir, *sha256, MAX_FILE_BYTES, deadline).ok();
        self.objects.get_or_insert_with(open).as_mut()?.content(name)
    }

    fn record_change(&mut self, path: &Path, change: ChangeKind, old: &DiffSide, new: &DiffSide) {
        if self.changes.len() >= MAX_CHANGES {
            self.more += 1;
            return;
        }
        let is_shown = !matches!(old, DiffSide::Hidden) && !matches!(new, DiffSide::Hidden);
        let section = is_shown.then(|| patch::section(path, old.patch_side(), new.patch_side()));
        let lines = section.as_ref().map(|section| (section.added, section.removed));
        let name = self.tracker.mask.redact(&path.to_string_lossy()).into_owned();
        self.changes.push(Change {
            path: name,
            change,
            lines_added: lines.map(|(added, _)| added),
            lines_removed: lines.map(|(_, removed)| removed),
        });
        match section {
            None => self.hidden.push(path.to_owned()),
            Some(section) if self.patch.len() + section.text.len() > MAX_PATCH_BYTES => {
                self.beyond.push(path.to_owned());
            }
            Some(section) => self.patch += &section.text,
        }
    }

    fn finish(self, mut gaps: Vec<String>) -> WorkspaceChanged {
        let total = (self.more > 0).then(|| (self.changes.len() + self.more) as u64);
        if let Some(total) = total {
            gaps.push(format!("{total} files have changed, and only the first {} are listed", self.changes.len()));
        }
        if !self.hidden.is_empty() {
            let named = summarize_paths(&self.hidden);
            gaps.push(format!(
                "the patch leaves out files that aren't text, are too large or weren't stored ({named})"
            ));
        }
        if !self.beyond.is_empty() {
            gaps.push(format!(
                "the patch leaves out files that would make it too long ({})",
                summarize_paths(&self.beyond)
            ));
        }
        if self.masked {
            gaps.push("secrets are masked in the patch, so it can't be applied".to_owned());
        }
        let mask = &self.tracker.mask;
        let mut patch = self.patch;
        if !self.tracker.shows_content {
            patch.clear();
            gaps.push(
                "there is no patch, because it could hold the former value of a secret that changed before the run was resumed"
                    .to_owned(),
            );
        }
        if !patch.is_empty() {
            gaps.iter().for_each(|gap| patch += &format!("# {gap}\n"));
        }
        let incomplete = (!gaps.is_empty()).then(|| mask.redact(&gaps.join("; ")).into_owned());
        WorkspaceChanged { changes: self.changes, total, patch: mask.redact(&patch).into_owned(), incomplete }
    }
}

/// One side of a change.
enum DiffSide {
    Absent,
    Hidden,
    Present(&'static str, String),
}

impl DiffSide {
    fn patch_side(&self) -> Option<PatchSide<'_>> {
        match self {
            Self::Present(mode, text) => Some(PatchSide { mode, text }),
            Self::Absent | Self::Hidden => None,
        }
    }
}

impl ShownContent {
    fn side(self, mode: &'static str) -> DiffSide {
        match self {
            Self::Absent => DiffSide::Absent,
            Self::Hidden => DiffSide::Hidden,
            Self::Text(text) => DiffSide::Present(mode, text),
        }
    }
}

fn summarize_paths(paths: &[PathBuf]) -> String {
    let named: Vec<String> =
        paths.iter().take(MAX_NAMED).map(|path| format!("`{}`", sanitize::line(&path.to_string_lossy()))).collect();
    let more = paths.len().saturating_sub(MAX_NAMED);
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Content as git checks it out with CRLF line endings.
fn with_crlf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    let mut previous = 0;
    for byte in bytes {
        if *byte == b'\n' && previous != b'\r' {
            out.push(b'\r');
        }
        out.push(*byte);
        previous = *byte;
    }
    out
}

/// Reverses [`with_crlf`].
fn with_lf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'\r' || bytes.get(at + 1) != Some(&b'\n') {
            out.push(*byte);
        }
    }
    out
}
