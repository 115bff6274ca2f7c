//! Puts the changes of runs into a workspace: each run's patch is merged three-way, whole or not at all.

mod patch_reader;
mod target_files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::patch_reader::{FilePatch, LINK_MODE};
pub use self::target_files::TargetFiles;
use crate::git::objects::object_id;
use crate::text::hex;
use crate::text::merge::merge;

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

    /// The content with this name in git, if it is known.
    fn content_of(&self, object: &str) -> Option<Vec<u8>>;
}

/// Why a file of a patch can't be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConflict {
    /// The file.
    pub path: PathBuf,
    /// Why, in a few words.
    pub why: String,
    /// The label of the earlier patch of this session that changed the file, if one did.
    pub earlier: Option<String>,
}

/// The files that patches change, before anything is written.
#[derive(Debug)]
pub struct MergeSession<S> {
    source: S,
    /// Files with the state that the patches so far give them, and the label of the last one.
    files: BTreeMap<PathBuf, (Option<FileState>, String)>,
    /// The states before the first patch.
    originals: BTreeMap<PathBuf, Option<FileState>>,
}

impl<S: FileSource> MergeSession<S> {
    /// Starts with the files as they are.
    pub fn new(source: S) -> Self {
        Self { source, files: BTreeMap::new(), originals: BTreeMap::new() }
    }

    /// Merges a patch whole, or reports its conflicts and merges nothing of it. `label` names the run to users.
    ///
    /// # Errors
    /// All conflicts, or one with an empty path if the patch can't be read.
    pub fn merge_patch(&mut self, label: &str, patch: &str) -> Result<Vec<PathBuf>, Vec<FileConflict>> {
        let sections = patch_reader::read(patch).map_err(|error| {
            let why = format!("line {} of the patch: {}", error.line, error.why);
            vec![FileConflict { path: PathBuf::new(), why, earlier: None }]
        })?;
        let mut merged: BTreeMap<PathBuf, Option<FileState>> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for section in &sections {
            match self.merge_section(&merged, section) {
                Ok(state) => drop(merged.insert(section.path.clone(), state)),
                Err(why) => {
                    let earlier = self.files.get(&section.path).map(|(_, label)| label.clone());
                    conflicts.push(FileConflict { path: section.path.clone(), why, earlier });
                }
            }
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        let changed = merged.keys().cloned().collect();
        for (path, state) in merged {
            if !self.originals.contains_key(&path) {
                let original = self.source.current(&path).unwrap_or_default();
                self.originals.insert(path.clone(), original);
            }
            self.files.insert(path, (state, label.to_owned()));
        }
        Ok(changed)
    }

    /// The files whose state differs from the one before the first patch.
    pub fn changed_files(&self) -> impl Iterator<Item = (&Path, Option<&FileState>)> {
        self.files.iter().filter_map(|(path, (state, _))| {
            (self.originals.get(path) != Some(state)).then_some((path.as_path(), state.as_ref()))
        })
    }

    /// The source of the files.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The state of a file after the patches so far.
    fn state(&self, merged: &BTreeMap<PathBuf, Option<FileState>>, path: &Path) -> Result<Option<FileState>, String> {
        match (merged.get(path), self.files.get(path)) {
            (Some(state), _) | (None, Some((state, _))) => Ok(state.clone()),
            (None, None) => self.source.current(path),
        }
    }

    fn merge_section(
        &self,
        merged: &BTreeMap<PathBuf, Option<FileState>>,
        section: &FilePatch,
    ) -> Result<Option<FileState>, String> {
        let current = self.state(merged, &section.path)?;
        let kind = |mode: Option<&String>| match mode.map(String::as_str) {
            Some(LINK_MODE) => FileKind::Link,
            Some("100755") => FileKind::Executable,
            _ => FileKind::Regular,
        };
        match (&section.old, &section.new) {
            (None, None) => Err("the patch says nothing about it".to_owned()),
            (None, Some(new)) => {
                let text = section.apply_exactly("").ok_or("its new content isn't in the patch")?;
                check_object(new.object.as_deref(), text.as_bytes())?;
                let state = FileState { content: text.into_bytes(), kind: kind(new.mode.as_ref()) };
                match current {
                    Some(current) if current != state => Err("it exists already, with another content".to_owned()),
                    _ => Ok(Some(state)),
                }
            }
            (Some(old), None) => match current {
                Some(current) if !is_object(old.object.as_deref(), &current.content) => {
                    Err("it was changed, and the run deleted it".to_owned())
                }
                _ => Ok(None),
            },
            (Some(old), Some(new)) => {
                let current = current.ok_or("it was deleted, and the run changed it")?;
                let kind = match (&old.mode, &new.mode) {
                    (Some(old), Some(new)) if old != new => kind(Some(new)),
                    _ => current.kind,
                };
                let (Some(old_object), Some(new_object)) = (&old.object, &new.object) else {
                    return Ok(Some(FileState { kind, ..current }));
                };
                if is_object(Some(new_object), &current.content) {
                    return Ok(Some(FileState { kind, ..current }));
                }
                let content = self.merge_content(section, old_object, new_object, &current.content)?;
                Ok(Some(FileState { content, kind }))
            }
        }
    }

    fn merge_content(
        &self,
        section: &FilePatch,
        old_object: &str,
        new_object: &str,
        current: &[u8],
    ) -> Result<Vec<u8>, String> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "it isn't text".to_owned());
        let applied = |base: &str| -> Result<String, String> {
            let new = section.apply_exactly(base).ok_or("the patch doesn't match the content that it names")?;
            check_object(Some(new_object), new.as_bytes())?;
            Ok(new)
        };
        if is_object(Some(old_object), current) {
            return applied(&text(current.to_owned())?).map(String::into_bytes);
        }
        let original = self.originals.get(&section.path).and_then(Option::as_ref).map(|state| state.content.clone());
        let base = original
            .filter(|content| is_object(Some(old_object), content))
            .or_else(|| self.source.content_of(old_object).filter(|content| is_object(Some(old_object), content)))
            .ok_or("it was changed since the run started, and its content at that time isn't known")?;
        let base = text(base)?;
        let theirs = applied(&base)?;
        match merge(&base, &text(current.to_owned())?, &theirs) {
            Ok(merged) => Ok(merged.into_bytes()),
            Err(conflicts) => {
                let lines: Vec<String> = conflicts.iter().take(5).map(|it| it.line.to_string()).collect();
                Err(format!("both changed it at line {}", lines.join(", ")))
            }
        }
    }
}

/// Whether a content has a name in git. Names are SHA-1.
fn is_object(object: Option<&str>, content: &[u8]) -> bool {
    object.is_some_and(|object| hex(&object_id(content, false)) == object)
}

fn check_object(object: Option<&str>, content: &[u8]) -> Result<(), String> {
    match is_object(object, content) {
        true => Ok(()),
        false => Err("the patch doesn't give the content that it names".to_owned()),
    }
}
