//! The end of a run beside its start.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::baseline::read;
use super::baseline_file::{Baseline, BaselineContent, BaselineFile, unescape_path};
use super::deadline::Deadline;
use super::file_stat::{FileKind, FileStat, id};
use super::git_objects::GitObjects;
use super::patch::{self, PatchSide};
use super::walk::{WalkedFile, WorkspaceWalk};
use super::{ChangeTracker, MAX_FILE_BYTES, contains_secret, display_path, git_object_id, hex};
use crate::event::{Change, ChangeKind, WorkspaceChanged};
use crate::message::pluralize;
use crate::workspace::open_beneath;

/// The most changes that are listed.
const MOST_CHANGES: usize = 5_000;
/// The longest patch, in bytes.
const LONGEST_PATCH: usize = 1 << 20;
/// How many files of a kind are named where something is left out.
const MOST_NAMED: usize = 5;

/// How long git may take for all its answers.
const GIT_TIMEOUT: Duration = Duration::from_secs(8);

/// A file that may have changed: how it was, and how it is.
type Candidate = (PathBuf, Option<BaselineFile>, Option<FileStat>);

/// What can be shown of a file.
enum ShownContent {
    /// It isn't there.
    Absent,
    Text(String),
    /// It is no text, too large, or nothing is kept of it.
    Hidden,
}

/// What is there now.
enum CurrentContent {
    Absent,
    File(Vec<u8>),
    Link(Vec<u8>),
    /// It is too large, or can't be read.
    Unreadable,
}

struct Comparison<'a> {
    tracker: &'a ChangeTracker,
    baseline: Baseline,
    deadline: &'a Deadline,
    /// Whether git was looked for, and what came of it.
    objects: Option<Option<GitObjects>>,
    changes: Vec<Change>,
    patch: String,
    /// Files beyond the bounds of the list.
    more: usize,
    hidden: Vec<PathBuf>,
    beyond: Vec<PathBuf>,
    masked: bool,
}

/// Everything that differs.
pub(super) fn compare(looker: &ChangeTracker, mut start: Baseline, pace: &Deadline) -> WorkspaceChanged {
    let mut gaps = std::mem::take(&mut start.footer.gaps);
    let mut files = std::mem::take(&mut start.files);
    let mut suspects: Vec<Candidate> = Vec::new();
    let last = start.footer.last_path.as_deref().map(unescape_path);
    let mut walk = WorkspaceWalk::for_comparison(looker, pace, &start.ignore_files, last.as_deref());
    let mut unnamed = 0_u64;
    walk.run(looker.workspace.folder(), &mut |seen| match files.remove(&seen.path) {
        None if contains_secret(&looker.mask, &seen.path) => unnamed += 1,
        Some(known) if known.stat == Some(seen.stat) && !known.is_racy => {}
        known => suspects.push((seen.path, known, Some(seen.stat))),
    });
    let WorkspaceWalk { last_path: cut, mut newly_ignored, .. } = walk;
    newly_ignored.retain(|path| !files.contains_key(path));
    // What was there and wasn't come by: it is gone, or ignored by now.
    let mut unseen: Vec<(PathBuf, BaselineFile)> = files.into_iter().collect();
    unseen.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut late = cut.is_some();
    for (path, known) in unseen {
        if pace.is_expired() {
            late = true;
            break;
        }
        let stat = open(looker, &path).and_then(|(folder, name)| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        if stat.as_ref().is_some_and(|stat| looker.outputs.contains(&id(stat))) {
            continue;
        }
        let marks = stat.as_ref().and_then(FileStat::of);
        if marks != known.stat || known.is_racy {
            suspects.push((path, Some(known), marks));
        }
    }
    // The run's first part may have printed elsewhere.
    let printed: Vec<PathBuf> = start.footer.outputs.iter().map(|path| unescape_path(path)).collect();
    suspects.retain(|(path, ..)| !printed.contains(path));
    suspects.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut comparison = Comparison {
        tracker: looker,
        baseline: start,
        deadline: pace,
        objects: None,
        changes: Vec::new(),
        patch: String::new(),
        more: 0,
        hidden: Vec::new(),
        beyond: Vec::new(),
        masked: false,
    };
    for (path, known, marks) in suspects {
        if pace.is_expired() {
            late = true;
            break;
        }
        comparison.compare_file(&path, known.as_ref(), marks);
    }
    if unnamed > 0 && !gaps.iter().any(|gap| gap.contains("with a secret in the name")) {
        gaps.push(format!("{} with a secret in the name or the path can't be followed", pluralize(unnamed, "file")));
    }
    if late {
        gaps.push("there was no time to look at every file".to_owned());
    }
    if !newly_ignored.is_empty() {
        let named = summarize_paths(&newly_ignored);
        gaps.push(format!("new files that only ignore files of the run's own leave out aren't listed ({named})"));
    }
    comparison.end(gaps)
}

/// The folder that a file lies in, opened, and its name there.
fn open<'a>(looker: &ChangeTracker, path: &'a Path) -> Option<(OwnedFd, &'a std::ffi::OsStr)> {
    let folder = open_beneath::open_dir(looker.workspace.folder(), path.parent().unwrap_or(Path::new(""))).ok()?;
    Some((folder, path.file_name()?))
}

impl Comparison<'_> {
    fn compare_file(&mut self, path: &Path, known: Option<&BaselineFile>, marks: Option<FileStat>) {
        let before = known.and_then(|known| Some((known, known.stat?)));
        let now = self.read_current(path, marks);
        let change = match (before, marks) {
            (None, None) => return,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some((known, then)), Some(marks)) => {
                if self.is_same(&known.content, &then, &marks, &now) {
                    if then.executable == marks.executable {
                        return;
                    }
                    // Only the mode is another; what the file holds needn't be known for that.
                    let side = |marks: &FileStat| ShownContent::Text(String::new()).side(marks.mode());
                    return self.record_change(path, ChangeKind::Modified, &side(&then), &side(&marks));
                }
                ChangeKind::Modified
            }
        };
        if self.changes.len() >= MOST_CHANGES {
            self.more += 1;
            return;
        }
        let old = before.map_or(ShownContent::Absent, |(known, then)| self.baseline_content(known, &then));
        let new = self.current_content(now);
        let (then, marks) = (before.map(|(_, then)| then), marks);
        let side = |shown: ShownContent, marks: Option<FileStat>| {
            marks.map_or(DiffSide::Absent, |marks| shown.side(marks.mode()))
        };
        self.record_change(path, change, &side(old, then), &side(new, marks));
    }

    fn read_current(&self, path: &Path, marks: Option<FileStat>) -> CurrentContent {
        let Some(marks) = marks else { return CurrentContent::Absent };
        let Some((folder, name)) = open(self.tracker, path) else { return CurrentContent::Unreadable };
        match marks.kind {
            FileKind::Link => readlinkat(&folder, name, Vec::new())
                .map_or(CurrentContent::Unreadable, |target| CurrentContent::Link(target.as_bytes().to_vec())),
            FileKind::File => {
                let seen = WalkedFile { path: PathBuf::new(), stat: marks, folder: folder.as_fd(), name };
                read(&seen).map_or(CurrentContent::Unreadable, CurrentContent::File)
            }
        }
    }

    /// Whether the content is the same, whatever its marks say.
    fn is_same(&self, content: &BaselineContent, then: &FileStat, marks: &FileStat, now: &CurrentContent) -> bool {
        let sha256 = self.baseline.footer.repository.as_ref().is_some_and(|(_, sha256)| *sha256);
        match (content, now) {
            (BaselineContent::Object(name), CurrentContent::File(bytes)) => {
                then.kind == marks.kind
                    && (hex(&git_object_id(bytes, sha256)) == *name
                        || (then.size == marks.size && hex(&git_object_id(&with_lf(bytes), sha256)) == *name))
            }
            (BaselineContent::Text { sha256: sum, .. } | BaselineContent::Hash(sum), CurrentContent::File(bytes))
            | (BaselineContent::Link(_, sum), CurrentContent::Link(bytes)) => hex(&Sha256::digest(bytes)) == *sum,
            // Of a large one only the marks are known; one that is merely young may have them still.
            (BaselineContent::Unknown | BaselineContent::Object(_), _) => then == marks,
            _ => false,
        }
    }

    fn baseline_content(&mut self, known: &BaselineFile, then: &FileStat) -> ShownContent {
        match &known.content {
            BaselineContent::Text { masked, .. } => {
                self.masked |= masked;
                self.baseline.text(known).map_or(ShownContent::Hidden, ShownContent::Text)
            }
            BaselineContent::Link(target, _) => ShownContent::Text(target.clone()),
            BaselineContent::Object(name) if then.size <= MAX_FILE_BYTES => {
                let Some(bytes) = self.object(name) else { return ShownContent::Hidden };
                let bytes = if bytes.len() as u64 == then.size { bytes } else { with_crlf(&bytes) };
                if bytes.len() as u64 == then.size { self.text(bytes) } else { ShownContent::Hidden }
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
        let shown = self.tracker.mask.redact(&text).into_owned();
        self.masked |= shown != text;
        ShownContent::Text(shown)
    }

    fn object(&mut self, name: &str) -> Option<Vec<u8>> {
        let end = self.deadline.end().min(Instant::now() + GIT_TIMEOUT);
        let (folder, sha256) = self.baseline.footer.repository.as_ref()?;
        let git = self.tracker.git.as_deref();
        let open = || GitObjects::open(git?, folder, *sha256, end).ok();
        self.objects.get_or_insert_with(open).as_mut()?.content(name)
    }

    fn record_change(&mut self, path: &Path, change: ChangeKind, old: &DiffSide, new: &DiffSide) {
        if self.changes.len() >= MOST_CHANGES {
            self.more += 1;
            return;
        }
        let known = !matches!(old, DiffSide::Hidden) && !matches!(new, DiffSide::Hidden);
        let section = known.then(|| patch::section(path, old.patch_side(), new.patch_side()));
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
            Some(section) if self.patch.len() + section.text.len() > LONGEST_PATCH => self.beyond.push(path.to_owned()),
            Some(section) => self.patch += &section.text,
        }
    }

    fn end(self, mut gaps: Vec<String>) -> WorkspaceChanged {
        let total = (self.more > 0).then(|| (self.changes.len() + self.more) as u64);
        if let Some(total) = total {
            gaps.push(format!("{total} files have changed, and the first {} of them are listed", self.changes.len()));
        }
        if !self.hidden.is_empty() {
            let named = summarize_paths(&self.hidden);
            gaps.push(format!("the patch is without what is no text, too large or wasn't kept ({named})"));
        }
        if !self.beyond.is_empty() {
            gaps.push(format!("the patch would be too long with the rest of it ({})", summarize_paths(&self.beyond)));
        }
        if self.masked {
            gaps.push("secrets are masked in the patch, so it can't be applied as it is".to_owned());
        }
        let mask = &self.tracker.mask;
        let mut patch = self.patch;
        if !self.tracker.shows_content {
            patch.clear();
            gaps.push(
                "there is no patch, for it could hold a secret that had another value before the run went on"
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
    let named: Vec<String> = paths.iter().take(MOST_NAMED).map(|path| format!("`{}`", display_path(path))).collect();
    let more = paths.len().saturating_sub(MOST_NAMED);
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// A content as git checks it out where line ends are CRLF.
fn with_crlf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    let mut before = 0;
    for byte in bytes {
        if *byte == b'\n' && before != b'\r' {
            out.push(b'\r');
        }
        out.push(*byte);
        before = *byte;
    }
    out
}

/// The way back.
fn with_lf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'\r' || bytes.get(at + 1) != Some(&b'\n') {
            out.push(*byte);
        }
    }
    out
}
