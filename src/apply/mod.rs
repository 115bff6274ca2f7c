//! Puts the changes of runs into a workspace: each run's patch is merged three-way, whole or not at all.

mod patch_policy;
pub(crate) mod patch_reader;
mod report;
mod run_changes;
mod target_files;
#[cfg(test)]
mod tests;
mod write_back;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::patch_policy::check_patch;
use self::patch_reader::{FilePatch, LINK_MODE, PROGRAM_MODE};
pub use self::report::{APPLY_REPORTS, AppliedRun, ApplyReport, ApplyStatus, FileProblem, UnwrittenFile};
pub use self::run_changes::RunChanges;
pub use self::target_files::TargetFiles;
pub(crate) use self::write_back::overwrite;
pub use self::write_back::{WriteReport, write_back};
use crate::git::objects::object_id;
use crate::text::hex;
use crate::text::merge::merge;

/// How much content a session may hold at once, in bytes.
const MAX_SESSION_BYTES: usize = 1 << 30;
/// The longest target of a symbolic link in bytes, as in Linux.
const MAX_LINK_BYTES: usize = 4095;
/// How many earlier runs a conflict names.
const MAX_NAMED_RUNS: usize = 5;
/// How many lines a conflict names.
const MAX_NAMED_LINES: usize = 5;

/// The state of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// Its content, or the target of a link.
    pub content: Vec<u8>,
    /// What kind of file it is.
    pub kind: FileKind,
}

/// The kinds of files that a patch can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A regular file that can be executed.
    Executable,
    /// A symbolic link.
    Link,
}

/// Where the contents of files come from.
pub trait FileSource {
    /// The present state of a file; `None` if it doesn't exist.
    ///
    /// # Errors
    /// Why it can't be used: it is a folder, or can't be read.
    fn current(&self, path: &Path) -> Result<Option<FileState>, String>;

    /// The earlier content of a file that has this name in git, if it is known.
    fn content_of(&self, path: &Path, object: &str) -> Option<Vec<u8>>;

    /// Why there is no file at a path, if something else is in its place.
    fn blocker(&self, path: &Path) -> Option<Blocker>;
}

/// What is in the place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// A folder with these files and empty folders.
    Folder(Vec<PathBuf>),
    /// A file that has the name of a folder above it.
    FileAbove,
}

/// Why a file of a patch can't be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConflict {
    /// The file; empty if it concerns the whole patch.
    pub path: PathBuf,
    /// Why, in a few words.
    pub why: String,
    /// The lines that both sides changed, counted from 1 in the content at the start of the run.
    pub lines: Vec<usize>,
    /// The labels of the earlier patches of this session that changed the same place. Without them, the conflict is with the
    /// workspace.
    pub earlier: Vec<String>,
}

/// The files that patches change, before anything is written.
#[derive(Debug)]
pub struct MergeSession<S> {
    source: S,
    files: BTreeMap<PathBuf, SessionFile>,
    /// The size of the contents in `files`.
    bytes: usize,
    /// The files whose content at the start of the session wasn't the one that a patch was made from.
    diverged: RefCell<BTreeSet<PathBuf>>,
    /// The files that begin with the content that the first patch was made from.
    replayed: BTreeSet<PathBuf>,
    /// The changes of `replayed` files, in order.
    replay: Vec<ContentChange>,
    /// For files about which it is known, the changes that are there already; `None` if the session doesn't look for such
    /// changes.
    present: Option<HashMap<PathBuf, HashSet<BlobIds>>>,
}

/// The git object ids of a file's content before and after a run.
type BlobIds = (String, String);

/// A change of a file's content, and the result of its merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentChange {
    path: PathBuf,
    names: BlobIds,
    /// The name in git of the merged content.
    merged: String,
}

/// A file that a patch of the session names.
#[derive(Debug)]
struct SessionFile {
    /// Before the first patch.
    original: Option<FileState>,
    /// After the patches so far.
    state: Option<FileState>,
    edits: Vec<Edit>,
}

/// What a patch changed in a file.
#[derive(Debug, Clone)]
struct Edit {
    label: String,
    /// The name of the content that the patch was made from.
    base: Option<String>,
    /// The name of the content that the patch gives.
    target: Option<String>,
    /// The changed lines of that content.
    lines: Vec<Range<usize>>,
}

/// A patch that was merged, and isn't part of the session yet.
#[derive(Debug)]
pub struct MergedPatch {
    files: BTreeMap<PathBuf, MergedFile>,
    bytes: usize,
}

#[derive(Debug)]
struct MergedFile {
    before: Option<FileState>,
    after: Option<FileState>,
    edit: Edit,
}

impl MergedPatch {
    /// The files whose state the patch changes.
    pub fn changed_files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter(|(_, file)| file.before != file.after).map(|(path, _)| path.as_path())
    }

    /// The targets of the links that the patch creates or changes, by path.
    pub fn new_links(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.files.iter().filter(|(_, file)| file.before != file.after).filter_map(|(path, file)| {
            let link = file.after.as_ref().filter(|after| after.kind == FileKind::Link)?;
            Some((path.as_path(), Path::new(OsStr::from_bytes(&link.content))))
        })
    }

    /// The changes of contents, for [`MergeSession::repeat`].
    pub fn content_changes(&self) -> Vec<ContentChange> {
        let change = |(path, file): (&PathBuf, &MergedFile)| {
            let names = file.edit.base.clone().zip(file.edit.target.clone())?;
            let merged = hex(&object_id(&file.after.as_ref()?.content, false));
            Some(ContentChange { path: path.clone(), names, merged })
        };
        self.files.iter().filter_map(change).collect()
    }

    /// Whether the patch is about a file, also one that already has the state after it.
    pub fn contains(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }
}

/// Why a section of a patch can't be merged.
struct SectionConflict {
    why: String,
    lines: Vec<usize>,
    /// Whether the patch is wrong in itself, whatever the workspace has.
    is_defect: bool,
}

impl SectionConflict {
    fn defect(why: &str) -> Self {
        Self { why: why.to_owned(), lines: Vec::new(), is_defect: true }
    }
}

impl From<String> for SectionConflict {
    fn from(why: String) -> Self {
        Self { why, lines: Vec::new(), is_defect: false }
    }
}

impl From<&str> for SectionConflict {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

impl<S: FileSource> MergeSession<S> {
    /// Starts with the files as they are.
    pub fn new(source: S) -> Self {
        Self {
            source,
            files: BTreeMap::new(),
            bytes: 0,
            diverged: RefCell::default(),
            replayed: BTreeSet::new(),
            replay: Vec::new(),
            present: None,
        }
    }

    /// Starts with the contents that patches were made from, for the `diverged` files of an earlier session. If a file of the
    /// workspace has a content that this session gives it, patches have been applied to it already.
    pub fn replay(source: S, diverged: BTreeSet<PathBuf>) -> Self {
        Self { replayed: diverged, ..Self::new(source) }
    }

    /// Starts with the files as they are, in which there can be changes of the patches already. `changes` are those of an
    /// earlier session, in order: where a file still has the content after one of them, that one and those before it are in it.
    /// In other files, contents are compared.
    pub fn repeat(source: S, changes: &[ContentChange]) -> Self {
        let mut found: HashMap<&Path, Option<FileState>> = HashMap::new();
        let mut present: HashMap<PathBuf, HashSet<BlobIds>> = HashMap::new();
        for ContentChange { path, names, merged } in changes.iter().rev() {
            let found = found.entry(path).or_insert_with(|| source.current(path).ok().flatten());
            let has_result =
                || found.as_ref().is_some_and(|found| is_object_with_any_line_ends(Some(merged), &found.content));
            if present.contains_key(path) || has_result() {
                present.entry(path.clone()).or_default().insert(names.clone());
            }
        }
        Self { present: Some(present), ..Self::new(source) }
    }

    /// The files whose content at the start of the session wasn't the one that a patch was made from.
    pub fn diverged(&self) -> BTreeSet<PathBuf> {
        self.diverged.borrow().clone()
    }

    /// What a session that was started with [`MergeSession::replay`] did, for [`MergeSession::repeat`].
    pub fn into_replay(self) -> Vec<ContentChange> {
        self.replay
    }

    /// Merges a patch whole and makes it part of the session, or reports its conflicts and merges nothing of it. `label` names
    /// the run to users. Returns the files that it changed.
    ///
    /// # Errors
    /// All conflicts, or one with an empty path if the patch can't be read.
    pub fn merge_patch(&mut self, label: &str, patch: &str) -> Result<Vec<PathBuf>, Vec<FileConflict>> {
        let merged = self.prepare(label, patch)?;
        let changed = merged.changed_files().map(Path::to_owned).collect();
        self.accept(merged);
        Ok(changed)
    }

    /// Merges a patch, without making it part of the session.
    ///
    /// # Errors
    /// As for [`MergeSession::merge_patch`].
    pub fn prepare(&self, label: &str, patch: &str) -> Result<MergedPatch, Vec<FileConflict>> {
        let of_patch =
            |why: String| vec![FileConflict { path: PathBuf::new(), why, lines: Vec::new(), earlier: Vec::new() }];
        let sections = patch_reader::read(patch)
            .map_err(|error| of_patch(format!("line {} of the patch: {}", error.line, error.why)))?;
        let mut merged = MergedPatch { files: BTreeMap::new(), bytes: 0 };
        let mut conflicts = Vec::new();
        let mut files = Vec::new();
        // The links of the patch that are there already. What it deletes to make room for them is gone then.
        let is_created = |section: &&FilePatch| {
            section.old.is_none() && section.is_link() && !self.files.contains_key(&section.path)
        };
        let is_there = |section: &&FilePatch| match (self.source.current(&section.path), section.apply_exactly(b"")) {
            (Ok(Some(state)), Some(target)) => state.kind == FileKind::Link && state.content == target,
            _ => false,
        };
        let present_links: Vec<&Path> =
            sections.iter().filter(is_created).filter(is_there).map(|section| section.path.as_path()).collect();
        let mut sections = sections.iter().peekable();
        while let Some(section) = sections.next() {
            // A file that becomes a link, or a link that becomes a file, has two sections.
            let is_replacement =
                |next: &&FilePatch| section.new.is_none() && next.old.is_none() && next.path == section.path;
            files.push((section, sections.next_if(is_replacement)));
        }
        // Deleted files make room for others: a folder can become a file.
        files.sort_by_key(|(section, replacement)| section.new.is_some() || replacement.is_some());
        for (section, replacement) in files {
            let is_only_deleted = section.new.is_none() && replacement.is_none();
            if is_only_deleted && section.path.ancestors().skip(1).any(|above| present_links.contains(&above)) {
                continue;
            }
            match self.merge_file(&merged, section, replacement) {
                Ok((before, after)) => {
                    merged.bytes += content_size(&before) + content_size(&after);
                    let base = section.old.as_ref().and_then(|old| old.object.clone());
                    let target = section.new.as_ref().and_then(|new| new.object.clone());
                    let edit = Edit { label: label.to_owned(), base, target, lines: section.changed_lines() };
                    if merged.files.insert(section.path.clone(), MergedFile { before, after, edit }).is_some() {
                        return Err(of_patch(format!("the patch has `{}` twice", section.path.display())));
                    }
                }
                Err(SectionConflict { why, is_defect: true, .. }) => {
                    return Err(of_patch(format!("`{}`: {why}", section.path.display())));
                }
                Err(SectionConflict { why, lines, .. }) => {
                    let earlier = self.earlier_edits(section);
                    conflicts.push(FileConflict { path: section.path.clone(), why, lines, earlier });
                }
            }
            if self.bytes + merged.bytes > MAX_SESSION_BYTES {
                return Err(of_patch(
                    "the changed files together are larger than 1 GiB; apply fewer runs at once".into(),
                ));
            }
        }
        for path in merged.files.iter().filter(|(_, file)| file.after.is_some()).map(|(path, _)| path) {
            if let Some((why, others)) = self.shape_conflict(&merged, path) {
                let edits = others.iter().filter_map(|other| self.files.get(*other)).flat_map(|file| &file.edits);
                let mut earlier: Vec<String> = Vec::new();
                for Edit { label, .. } in edits {
                    if earlier.len() < MAX_NAMED_RUNS && !earlier.contains(label) {
                        earlier.push(label.clone());
                    }
                }
                conflicts.push(FileConflict { path: path.clone(), why, lines: Vec::new(), earlier });
            }
        }
        conflicts.sort_by(|one: &FileConflict, other| one.path.cmp(&other.path));
        if conflicts.is_empty() { Ok(merged) } else { Err(conflicts) }
    }

    /// Makes a patch part of the session. It must have been merged with the session as it is now.
    pub fn accept(&mut self, merged: MergedPatch) {
        if !self.replayed.is_empty() {
            let changes = merged.content_changes().into_iter();
            self.replay.extend(changes.filter(|change| self.replayed.contains(&change.path)));
        }
        for (path, MergedFile { before, after, edit }) in merged.files {
            let is_changed = before != after;
            // A file that is known already has its former state replaced. Of a new one, the state before is kept, too.
            self.bytes += content_size(&after);
            match self.files.get(&path) {
                Some(file) => self.bytes -= content_size(&file.state),
                None => self.bytes += content_size(&before),
            }
            let file = self.files.entry(path).or_insert_with(|| SessionFile {
                original: before.clone(),
                state: before,
                edits: Vec::new(),
            });
            file.state = after;
            if is_changed {
                file.edits.push(edit);
            }
        }
    }

    /// The files whose state differs from the one before the first patch: the path, the state before, and the state now.
    pub fn changed_files(&self) -> impl Iterator<Item = (&Path, Option<&FileState>, Option<&FileState>)> {
        let changed = self.files.iter().filter(|(_, file)| file.original != file.state);
        changed.map(|(path, file)| (path.as_path(), file.original.as_ref(), file.state.as_ref()))
    }

    /// The changed files in the order in which they can be written. Deletions first, the deepest folders first: a file can take
    /// the place of a folder, and a folder that of a file.
    pub fn changes_to_write(&self) -> Vec<(&Path, Option<&FileState>, Option<&FileState>)> {
        let mut changes: Vec<_> = self.changed_files().collect();
        changes.sort_by_key(|(path, _, after)| match after {
            Some(_) => (1, 0),
            None => (0, usize::MAX - path.components().count()),
        });
        changes
    }

    /// The source of the files.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The state of a file after the patches so far.
    fn state(&self, merged: &MergedPatch, path: &Path) -> Result<Option<FileState>, String> {
        if let Some(file) = self.files.get(path) {
            return Ok(file.state.clone());
        }
        // Below a file that was deleted, nothing can exist.
        let is_deleted = |above: &Path| match (merged.files.get(above), self.files.get(above)) {
            (Some(file), _) => file.before.is_some() && file.after.is_none(),
            (None, Some(file)) => file.original.is_some() && file.state.is_none(),
            (None, None) => false,
        };
        if path.ancestors().skip(1).any(is_deleted) {
            return Ok(None);
        }
        match self.source.blocker(path) {
            Some(Blocker::Folder(files)) if files.iter().all(|file| is_deleted(file)) => Ok(None),
            _ => self.source.current(path),
        }
    }

    /// Why a file can't exist together with others that patches create, and these files.
    fn shape_conflict<'a>(&'a self, merged: &MergedPatch, path: &'a Path) -> Option<(String, Vec<&'a Path>)> {
        let exists = |path: &Path| match (merged.files.get(path), self.files.get(path)) {
            (Some(file), _) => file.after.is_some(),
            (None, Some(file)) => file.state.is_some(),
            (None, None) => false,
        };
        if let Some(above) = path.ancestors().skip(1).find(|above| exists(above)) {
            return Some((format!("`{}` is a file", above.display()), vec![above]));
        }
        let in_session = self.files.range(path.to_owned()..).map(|(other, _)| other.as_path());
        let below = in_session.take_while(|other| other.starts_with(path));
        let below: Vec<&Path> = below.filter(|other| *other != path && exists(other)).collect();
        (!below.is_empty()).then(|| ("it is a folder".to_owned(), below))
    }

    /// The labels of the patches of the session that changed the same place of a file.
    fn earlier_edits(&self, section: &FilePatch) -> Vec<String> {
        let Some(file) = self.files.get(&section.path) else { return Vec::new() };
        let (base, lines) = (section.old.as_ref().and_then(|old| old.object.as_ref()), section.changed_lines());
        let touches = |edit: &&Edit| {
            edit.base.as_ref() != base
                || lines.is_empty()
                || edit.lines.is_empty()
                || edit.lines.iter().any(|one| lines.iter().any(|it| one.start <= it.end && it.start <= one.end))
        };
        file.edits.iter().filter(touches).take(MAX_NAMED_RUNS).map(|edit| edit.label.clone()).collect()
    }

    /// The state of a file before and after a section, and after the one that creates it again.
    fn merge_file(
        &self,
        merged: &MergedPatch,
        section: &FilePatch,
        replacement: Option<&FilePatch>,
    ) -> Result<(Option<FileState>, Option<FileState>), SectionConflict> {
        let is_only_deleted = section.new.is_none() && replacement.is_none();
        if is_only_deleted && !self.files.contains_key(&section.path) && self.source.blocker(&section.path).is_some() {
            return Ok((None, None));
        }
        let mut before = self.state(merged, &section.path)?;
        if let Some(base) = self.replayed_base(section) {
            before = before.map(|state| FileState { content: base, ..state });
        }
        let Some(replacement) = replacement else {
            let after = self.merge_section(before.clone(), section)?;
            return Ok((before, after));
        };
        let after = self.merge_section(None, replacement)?;
        if before != after {
            if before.is_none() {
                return Err("it was deleted, and the run changed it".into());
            }
            self.merge_section(before.clone(), section)?;
        }
        Ok((before, after))
    }

    /// The content that a patch was made from, if the session starts with it.
    fn replayed_base(&self, section: &FilePatch) -> Option<Vec<u8>> {
        let is_first = self.replayed.contains(&section.path) && !self.files.contains_key(&section.path);
        let object = section.old.as_ref().filter(|_| is_first)?.object.as_ref()?;
        self.source.content_of(&section.path, object).filter(|content| is_object(Some(object), content))
    }

    /// The changes that are in a file of the workspace already, if it is known.
    fn known_changes(&self, path: &Path) -> Option<&HashSet<BlobIds>> {
        self.present.as_ref()?.get(path)
    }

    fn merge_section(
        &self,
        current: Option<FileState>,
        section: &FilePatch,
    ) -> Result<Option<FileState>, SectionConflict> {
        let kind = |mode: Option<&String>| match mode.map(String::as_str) {
            Some(LINK_MODE) => FileKind::Link,
            Some(PROGRAM_MODE) => FileKind::Executable,
            _ => FileKind::Regular,
        };
        if let (Some(old), Some(current)) = (&section.old, &current) {
            match (kind(old.mode.as_ref()) == FileKind::Link, current.kind == FileKind::Link) {
                (true, false) => return Err("it was a symbolic link, and is a file now".into()),
                (false, true) => return Err("it was a file, and is a symbolic link now".into()),
                _ => {}
            }
        }
        match (&section.old, &section.new) {
            (None, None) => Err(SectionConflict::defect("the patch says nothing about it")),
            (None, Some(new)) => {
                let content = section
                    .apply_exactly(b"")
                    .ok_or_else(|| SectionConflict::defect("its new content isn't in the patch"))?;
                check_object(new.object.as_deref(), &content)?;
                let state = FileState { content, kind: kind(new.mode.as_ref()) };
                check_link(&state)?;
                match current {
                    Some(current) if current.content != state.content => {
                        Err("it exists already, with another content".into())
                    }
                    Some(current) if current.kind != state.kind => Err("it exists already, with another mode".into()),
                    _ => Ok(Some(state)),
                }
            }
            (Some(old), None) => {
                let is_old = |content: &[u8]| match section.is_binary() {
                    true => is_object(old.object.as_deref(), content),
                    false => is_object_with_any_line_ends(old.object.as_deref(), content),
                };
                match current {
                    Some(current) if !is_old(&current.content) => Err("it was changed, and the run deleted it".into()),
                    _ => Ok(None),
                }
            }
            (Some(old), Some(new)) => {
                let current = current.ok_or("it was deleted, and the run changed it")?;
                let kind = match (&old.mode, &new.mode) {
                    (Some(old), Some(new)) if old != new => kind(Some(new)),
                    _ => current.kind,
                };
                if kind == FileKind::Link && current.kind != FileKind::Link {
                    return Err(SectionConflict::defect("the patch doesn't say what it links to"));
                }
                let (Some(old_object), Some(new_object)) = (&old.object, &new.object) else {
                    return Ok(Some(FileState { kind, ..current }));
                };
                let names = (old_object.clone(), new_object.clone());
                if is_object(Some(new_object), &current.content)
                    || self.known_changes(&section.path).is_some_and(|known| known.contains(&names))
                {
                    return Ok(Some(FileState { kind, ..current }));
                }
                let content = self.merge_content(section, old_object, new_object, &current.content)?;
                let state = FileState { content, kind };
                check_link(&state)?;
                Ok(Some(state))
            }
        }
    }

    fn merge_content(
        &self,
        section: &FilePatch,
        old_object: &str,
        new_object: &str,
        current: &[u8],
    ) -> Result<Vec<u8>, SectionConflict> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "it isn't text".to_owned());
        let applied = |base: &[u8]| -> Result<Vec<u8>, SectionConflict> {
            let mismatch = || SectionConflict::defect("the patch doesn't match the content that it names");
            let new = section.apply_exactly(base).ok_or_else(mismatch)?;
            check_object(Some(new_object), &new)?;
            Ok(new)
        };
        if is_object(Some(old_object), current) {
            return applied(current);
        }
        // Only lines can be merged.
        if section.is_binary() {
            return Err("it is a binary file, and was changed since the run started".into());
        }
        let original = self.files.get(&section.path).and_then(|file| file.original.as_ref());
        let original = original.map_or(current, |state| &state.content);
        let (base, has_diverged) = match is_object(Some(old_object), original) {
            true => (original.to_owned(), false),
            false => {
                let base = self.source.content_of(&section.path, old_object);
                let base = base.filter(|content| is_object(Some(old_object), content));
                (base.ok_or("it was changed since the run started, and its content at that time isn't known")?, true)
            }
        };
        let (base, current) = (text(base)?, text(current.to_owned())?);
        let theirs = text(applied(base.as_bytes())?)?;
        if has_diverged {
            self.diverged.borrow_mut().insert(section.path.clone());
        }
        // Git may have checked out the file with other line ends for the run.
        let (base, theirs) = match LineEnd::of(&current) {
            Some(line_end) if LineEnd::of(&base).is_some_and(|base| base != line_end) => {
                (line_end.convert(&base), line_end.convert(&theirs))
            }
            _ => (base, theirs),
        };
        let is_unknown = has_diverged && self.present.is_some() && self.known_changes(&section.path).is_none();
        if is_unknown && str::from_utf8(original).is_ok_and(|original| contains(original, &base, &theirs)) {
            return Ok(current.into_bytes());
        }
        match merge(&base, &current, &theirs) {
            Ok(merged) => Ok(merged.into_bytes()),
            Err(conflicts) => {
                let lines: Vec<usize> = conflicts.iter().take(MAX_NAMED_LINES).map(|conflict| conflict.line).collect();
                let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
                let why = format!("both changed it at line {}", shown.join(", "));
                Err(SectionConflict { why, lines, is_defect: false })
            }
        }
    }
}

fn content_size(state: &Option<FileState>) -> usize {
    state.as_ref().map_or(0, |state| state.content.len())
}

/// Whether the change from `base` to `changed` is in a text: it can be taken out of it, and applying it again gives the text.
fn contains(text: &str, base: &str, changed: &str) -> bool {
    let is_restored =
        |without: String| without != text && merge(base, &without, changed).is_ok_and(|with| with == text);
    merge(changed, text, base).is_ok_and(is_restored)
}

/// Whether a content has a name in git. Names are SHA-1.
fn is_object(object: Option<&str>, content: &[u8]) -> bool {
    object.is_some_and(|object| hex(&object_id(content, false)) == object)
}

/// Whether a content has a name in git, if only its line ends may differ.
fn is_object_with_any_line_ends(object: Option<&str>, content: &[u8]) -> bool {
    let has_other = |text: &str| {
        [LineEnd::Lf, LineEnd::Crlf].iter().any(|line_end| is_object(object, line_end.convert(text).as_bytes()))
    };
    is_object(object, content)
        || str::from_utf8(content).is_ok_and(|text| LineEnd::of(text).is_some() && has_other(text))
}

/// How all lines of a text end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Lf,
    Crlf,
}

impl LineEnd {
    /// The line end of a text; `None` if it has none, or both.
    fn of(text: &str) -> Option<Self> {
        match (text.matches('\n').count(), text.matches("\r\n").count()) {
            (0, _) => None,
            (_, 0) => Some(Self::Lf),
            (all, crlf) => (all == crlf).then_some(Self::Crlf),
        }
    }

    fn convert(self, text: &str) -> String {
        let lf = text.replace("\r\n", "\n");
        if self == Self::Lf { lf } else { lf.replace('\n', "\r\n") }
    }
}

/// Refuses a symbolic link that no file system can have.
fn check_link(state: &FileState) -> Result<(), SectionConflict> {
    let is_valid = !state.content.is_empty() && state.content.len() <= MAX_LINK_BYTES && !state.content.contains(&0);
    match state.kind != FileKind::Link || is_valid {
        true => Ok(()),
        false => Err(SectionConflict::defect("the target of the link isn't a path")),
    }
}

fn check_object(object: Option<&str>, content: &[u8]) -> Result<(), SectionConflict> {
    match is_object(object, content) {
        true => Ok(()),
        false => Err(SectionConflict::defect("the patch doesn't give the content that it names")),
    }
}
