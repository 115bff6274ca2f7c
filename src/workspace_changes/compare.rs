//! Compares the workspace with the baseline.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::baseline::{into_text, read};
use super::baseline_file::{Baseline, BaselineContent, BaselineFile};
use super::deadline::Deadline;
use super::file_stat::FileStat;
use super::patch::{self, PatchSide, SideContent};
use super::walk::{MAX_DEPTH, MAX_FILES, WalkedFile, WorkspaceWalk};
use super::{ChangeTracker, MAX_FILE_BYTES};
use crate::event::{Change, ChangeKind, WorkspaceChanged};
use crate::git::binary_patch::MAX_UNPACKED_BYTES;
use crate::git::objects::{GitObjects, object_id};
use crate::isolation::is_own_workspace;
use crate::text::{hex, pluralize, sanitize};

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

/// The content of a changed file, before or after.
enum Content {
    /// Redacted.
    Text(String),
    Binary {
        object: String,
        size: u64,
        /// The bytes, if they were read for the patch.
        bytes: Vec<u8>,
    },
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
    /// Binary files with a secret.
    secret: Vec<PathBuf>,
    /// How many bytes the patch's binary files have.
    binary_bytes: usize,
    masked: bool,
    /// Whether there was no time to check every file.
    is_late: bool,
    newly_ignored: Vec<PathBuf>,
    /// What the run made where ignore files apply, if nothing keeps it.
    ignored: Vec<String>,
}

impl ChangeTracker {
    /// Everything that has changed since the baseline was taken; `None` without a baseline.
    pub fn compare_with_baseline(&self, deadline: &Deadline) -> Option<WorkspaceChanged> {
        let mut baseline = Baseline::read(&self.record)?;
        let mut files = std::mem::take(&mut baseline.files);
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut walk = WorkspaceWalk::new(self, deadline, Some(&baseline));
        // Elsewhere, the files stay where they are.
        walk.ignored = is_own_workspace(self.workspace.root()).then(Vec::new);
        walk.run(&mut |file| match files.remove(&file.path) {
            Some(before) if before.stat == Some(file.stat) && !baseline.is_racy(&file.stat) => {}
            before => candidates.push((file.path, before, Some(file.stat))),
        });
        let WorkspaceWalk { last_path: cut_short_at, mut newly_ignored, ignored, .. } = walk;
        let ignored = self.new_ignored_paths(ignored.unwrap_or_default(), &baseline, &files, deadline);
        newly_ignored.retain(|path| !files.contains_key(path));
        // Files of the baseline that the walk didn't visit are deleted or now ignored.
        let mut unvisited: Vec<(PathBuf, BaselineFile)> = files.into_iter().collect();
        unvisited.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (path, before) in unvisited.into_iter().take_while(|_| !deadline.is_expired()) {
            let parent = self.open_parent(&path);
            let (stat, is_output) = parent.map_or((None, false), |(folder, name)| self.stat(folder, name));
            if !is_output && (stat != before.stat || stat.is_some_and(|stat| baseline.is_racy(&stat))) {
                candidates.push((path, Some(before), stat));
            }
        }
        // A run that was resumed may have printed elsewhere before.
        candidates.retain(|(path, ..)| !baseline.outputs.iter().any(|output| output == path));
        // A resumed run can have secrets that weren't known when the baseline was taken.
        let (secret, mut candidates): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|(path, ..)| self.has_secret(path));
        baseline.secret_paths = baseline.secret_paths.max(secret.len() as u64);
        candidates.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut comparison = Comparison {
            tracker: self,
            baseline,
            deadline,
            objects: None,
            changes: Vec::new(),
            patch: String::new(),
            more: 0,
            hidden: Vec::new(),
            beyond: Vec::new(),
            secret: Vec::new(),
            binary_bytes: 0,
            masked: false,
            is_late: false,
            newly_ignored,
            ignored,
        };
        for (path, before, stat) in candidates.into_iter().take_while(|_| !deadline.is_expired()) {
            comparison.compare_file(&path, before.as_ref(), stat);
        }
        comparison.is_late = cut_short_at.is_some() || deadline.is_expired();
        Some(comparison.finish())
    }
}

impl Comparison<'_> {
    fn compare_file(&mut self, path: &Path, before: Option<&BaselineFile>, stat: Option<FileStat>) {
        let before = before.and_then(|before| Some((&before.content, before.stat?)));
        let now = stat.and_then(|stat| self.read_current(path, stat));
        let mut only_mode = false;
        let change = match (before, stat) {
            (None, None) => return,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some((content, old)), Some(new)) => {
                only_mode = self.is_same(content, &old, &new, now.as_deref());
                if only_mode && old.mode == new.mode {
                    return;
                }
                ChangeKind::Modified
            }
        };
        if self.changes.len() >= MAX_CHANGES {
            self.more += 1;
            return;
        }
        let (old_content, new_content) = match only_mode {
            // The content needn't be known.
            true => (Some(Content::Text(String::new())), Some(Content::Text(String::new()))),
            false => (
                before.and_then(|(content, stat)| self.baseline_content(content, &stat)?.of_file(&stat)),
                now.zip(stat).and_then(|(bytes, stat)| self.content(bytes).of_file(&stat)),
            ),
        };
        let sizes = [&new_content, &old_content].map(|content| match content {
            Some(Content::Binary { size, .. }) => Some(*size),
            _ => None,
        });
        let binary = sizes.into_iter().flatten().next();
        let new_size = match &new_content {
            Some(Content::Text(text)) => text.len(),
            Some(Content::Binary { bytes, .. }) => bytes.len(),
            None => 0,
        };
        let unpacked = self.binary_bytes + if binary.is_some() { new_size } else { 0 };
        let has_secret = binary.is_some() && self.has_binary_secret(&new_content);
        let is_known = match (before, &old_content, stat, &new_content) {
            (Some(_), None, ..) | (_, _, Some(_), None) => false,
            _ => binary.is_none() || (self.tracker.keeps_binary && !has_secret),
        };
        let section = is_known.then(|| {
            let old = before.zip(old_content.as_ref()).map(|((_, stat), content)| content.side(&stat));
            let new = stat.zip(new_content.as_ref()).map(|(stat, content)| content.side(&stat));
            // More than all of the patch may have isn't packed.
            if unpacked > MAX_UNPACKED_BYTES { None } else { Some(patch::section(path, old, new)) }
        });
        let lines = section.as_ref().and_then(|section| section.as_ref()?.lines);
        self.changes.push(Change {
            path: path.to_string_lossy().into_owned(),
            change,
            lines_added: lines.map(|(added, _)| added),
            lines_removed: lines.map(|(_, removed)| removed),
            binary,
        });
        match section {
            None if has_secret => self.secret.push(path.to_owned()),
            None => self.hidden.push(path.to_owned()),
            Some(Some(section)) if self.patch.len() + section.text.len() <= MAX_PATCH_BYTES => {
                self.patch += &section.text;
                self.binary_bytes = unpacked;
            }
            Some(_) => self.beyond.push(path.to_owned()),
        }
    }

    /// The content of a file now; `None` if it is too large or can't be read.
    fn read_current(&self, path: &Path, stat: FileStat) -> Option<Vec<u8>> {
        let (folder, name) = self.tracker.open_parent(path)?;
        read(&WalkedFile { path: PathBuf::new(), stat, folder: folder.as_fd(), name })
    }

    /// Whether the content is the same, whatever the metadata says.
    fn is_same(&self, before: &BaselineContent, old: &FileStat, new: &FileStat, now: Option<&[u8]>) -> bool {
        let sha256 = self.baseline.repository.as_ref().is_some_and(|(_, sha256)| *sha256);
        match (before, now) {
            _ if old.is_link() != new.is_link() => false,
            (BaselineContent::Object(name), Some(bytes)) => {
                hex(&object_id(bytes, sha256)) == *name
                    || (old.size == new.size && hex(&object_id(&with_lf(bytes), sha256)) == *name)
            }
            (
                BaselineContent::Text { sha256: hash, .. }
                | BaselineContent::Binary { sha256: hash, .. }
                | BaselineContent::Hash(hash),
                Some(bytes),
            ) => hex(&Sha256::digest(bytes)) == *hash,
            // Only the metadata of a large file is known, and it is the same if the file is a candidate just because it is young.
            (BaselineContent::Unknown | BaselineContent::Object(_), _) => old == new,
            (_, None) => false,
        }
    }

    /// The content of a file in the baseline, if it is known.
    fn baseline_content(&mut self, content: &BaselineContent, stat: &FileStat) -> Option<Content> {
        match content {
            BaselineContent::Text { text, masked, .. } => {
                self.masked |= masked;
                Some(self.content(text.clone().into_bytes()))
            }
            BaselineContent::Binary { object, .. } => {
                Some(Content::Binary { object: object.clone(), size: stat.size, bytes: Vec::new() })
            }
            BaselineContent::Object(name) if stat.size <= MAX_FILE_BYTES => {
                let mut bytes = self.object(name)?;
                if bytes.len() as u64 != stat.size {
                    // Git may have checked it out with CRLF line endings.
                    let text = into_text(bytes).ok()?;
                    bytes = text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes();
                }
                (bytes.len() as u64 == stat.size).then(|| self.content(bytes))
            }
            BaselineContent::Object(_) | BaselineContent::Hash(_) | BaselineContent::Unknown => None,
        }
    }

    /// A content, redacted if it is text, before it becomes part of a patch.
    fn content(&mut self, bytes: Vec<u8>) -> Content {
        match into_text(bytes) {
            Ok(text) => {
                let redacted = self.tracker.mask.redact(&text).into_owned();
                self.masked |= redacted != text;
                Content::Text(redacted)
            }
            Err(bytes) => Content::Binary { object: hex(&object_id(&bytes, false)), size: bytes.len() as u64, bytes },
        }
    }

    /// Whether a binary file has a secret, which can't be masked in it.
    fn has_binary_secret(&self, content: &Option<Content>) -> bool {
        match content {
            Some(Content::Binary { bytes, .. }) => self.tracker.mask.contains_secret_bytes(bytes),
            _ => false,
        }
    }

    fn object(&mut self, name: &str) -> Option<Vec<u8>> {
        let deadline = self.deadline.end().min(Instant::now() + GIT_TIMEOUT);
        let (git_dir, sha256) = self.baseline.repository.as_ref()?;
        let git = self.tracker.git.as_ref();
        let open = || GitObjects::open(git?, git_dir, *sha256, MAX_FILE_BYTES, deadline).ok();
        self.objects.get_or_insert_with(open).as_mut()?.content(name)
    }

    /// What isn't known or isn't shown, for people.
    fn gaps(&self) -> Vec<String> {
        let baseline = &self.baseline;
        let mut gaps = Vec::new();
        if let Some(last_path) = &baseline.last_path {
            let last_path = Path::new(last_path).display();
            gaps.push(format!("files that come after `{last_path}` weren't checked: there are more than {MAX_FILES}"));
        }
        if baseline.secret_paths > 0 {
            let files = pluralize(baseline.secret_paths, "file");
            gaps.push(format!("{files} with a secret in the path can't be tracked"));
        }
        if baseline.too_deep {
            gaps.push(format!("folders nested more than {MAX_DEPTH} levels deep weren't checked"));
        }
        if self.is_late {
            gaps.push("there was no time to check every file".to_owned());
        }
        if self.more > 0 {
            let (listed, total) = (self.changes.len(), self.changes.len() + self.more);
            gaps.push(format!("{total} files have changed, and only the first {listed} are listed"));
        }
        let hidden = match self.tracker.keeps_binary {
            true => "the patch leaves out files that are too large or weren't stored",
            false => "the patch leaves out files that aren't text, are too large or weren't stored",
        };
        for (what, paths) in [
            ("new files that the run itself added to ignore files aren't listed", &self.newly_ignored),
            (hidden, &self.hidden),
            ("the patch leaves out binary files with a secret, which can't be masked in them", &self.secret),
            ("the patch leaves out files that would make it too long", &self.beyond),
        ] {
            if !paths.is_empty() {
                gaps.push(format!("{what} ({})", summarize_paths(paths)));
            }
        }
        if self.masked {
            gaps.push("secrets are masked in the patch, so it can't be applied".to_owned());
        }
        if !self.tracker.shows_content {
            let why = "it could hold the former value of a secret that changed before the run was resumed";
            gaps.push(format!("there is no patch, because {why}"));
        }
        // The paths of ignored files can hold a secret.
        gaps.iter().map(|gap| self.tracker.mask.redact(gap).into_owned()).collect()
    }

    fn finish(self) -> WorkspaceChanged {
        let gaps = self.gaps();
        let mut patch = if self.tracker.shows_content { self.patch } else { String::new() };
        if !patch.is_empty() {
            gaps.iter().for_each(|gap| patch += &format!("# {gap}\n"));
        }
        WorkspaceChanged {
            total: (self.more > 0).then(|| (self.changes.len() + self.more) as u64),
            changes: self.changes,
            ignored: self.ignored,
            patch,
            incomplete: (!gaps.is_empty()).then(|| gaps.join("; ")),
        }
    }
}

impl Content {
    /// It, unless it is the target of a link and no text.
    fn of_file(self, stat: &FileStat) -> Option<Self> {
        (!stat.is_link() || matches!(self, Self::Text(_))).then_some(self)
    }

    fn side(&self, stat: &FileStat) -> PatchSide<'_> {
        let content = match self {
            Self::Text(text) => SideContent::Text(text),
            Self::Binary { object, bytes, .. } => SideContent::Binary { object, bytes },
        };
        PatchSide { mode: stat.mode, content }
    }
}

fn summarize_paths(paths: &[PathBuf]) -> String {
    let named: Vec<String> =
        paths.iter().take(MAX_NAMED).map(|path| format!("`{}`", sanitize::line(&path.to_string_lossy()))).collect();
    let more = paths.len().saturating_sub(MAX_NAMED);
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Content as git stores it if it checks it out with CRLF line endings.
fn with_lf(bytes: &[u8]) -> Vec<u8> {
    let is_removed = |at: usize| bytes[at..].starts_with(b"\r\n");
    bytes.iter().enumerate().filter(|(at, _)| !is_removed(*at)).map(|(_, byte)| *byte).collect()
}
