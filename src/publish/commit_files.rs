//! The files of a commit: a run's patch, applied to the contents that the forge has.

use std::path::Path;

use super::failure::Failure;
use super::forge::{CommitFile, Forge, ForgeFile, NewFile};
use crate::apply::patch_reader::{self, FilePatch, PatchSide};
use crate::git::objects::object_id;
use crate::text::hex;

/// The mode of a file where nothing says another.
const FILE_MODE: &str = "100644";

/// Applies a patch to a commit on the forge.
///
/// # Errors
/// The patch can't be read, or the commit's files aren't those that the run started from.
pub(super) fn commit_files(forge: &dyn Forge, base: &str, patch: &str) -> Result<Vec<CommitFile>, Failure> {
    let sections = patch_reader::read(patch)
        .map_err(|error| Failure::Refused(format!("line {} of its patch: {}", error.line, error.why)))?;
    let mut files: Vec<CommitFile> = Vec::new();
    for section in &sections {
        let path = path_text(&section.path)?;
        // A file that becomes a link is deleted and created.
        let deleted = files.iter_mut().find(|file| file.path == path);
        match deleted {
            Some(file) if file.new.is_none() && section.old.is_none() => file.new = new_file(section, None, b"")?,
            Some(_) => return Err(Failure::Refused(format!("its patch changes `{path}` twice"))),
            None => files.push(commit_file(forge, base, path, section)?),
        }
    }
    Ok(files)
}

fn commit_file(forge: &dyn Forge, base: &str, path: String, section: &FilePatch) -> Result<CommitFile, Failure> {
    let found = forge.file(base, &path)?;
    let differs = || {
        let why = "it isn't what the run started from: it had changes that weren't committed";
        Failure::Refused(format!("`{path}` in the commit {}: {why}", short(base)))
    };
    let is_as_before = match (&section.old, &found) {
        (None, None) => true,
        (Some(old), Some(found)) => is_same(old, found),
        _ => false,
    };
    if !is_as_before {
        return Err(differs());
    }
    let is_changed = section.new.as_ref().is_some_and(|new| new.object.is_some());
    let content = match &found {
        // A binary file's patch doesn't need it.
        Some(file) if is_changed && !section.is_binary() => {
            let content = forge.content(base, &path, file)?;
            if hex(&object_id(&content, false)) != file.object {
                return Err(Failure::Unclear(format!("the forge's content of `{path}` isn't the one that it names")));
            }
            content
        }
        _ => Vec::new(),
    };
    let new = new_file(section, found.as_ref(), &content)?;
    Ok(CommitFile { path, is_in_base: found.is_some(), new })
}

fn new_file(section: &FilePatch, found: Option<&ForgeFile>, base: &[u8]) -> Result<Option<NewFile>, Failure> {
    let Some(new) = &section.new else { return Ok(None) };
    let in_base = found.and_then(|file| file.mode.clone());
    let mode = new.mode.clone().or(in_base).unwrap_or_else(|| FILE_MODE.to_owned());
    let shown = section.path.display();
    let (object, content) = match (&new.object, found) {
        (Some(object), _) => {
            let content = section.apply_exactly(base);
            let content = content.filter(|content| hex(&object_id(content, false)) == *object);
            let wrong = || Failure::Refused(format!("its patch of `{shown}` doesn't give the file that it names"));
            (object.clone(), Some(content.ok_or_else(wrong)?))
        }
        // Only the mode changes.
        (None, Some(found)) => (found.object.clone(), None),
        // An empty file has no content to name.
        (None, None) => (hex(&object_id(b"", false)), Some(Vec::new())),
    };
    Ok(Some(NewFile { mode, object, content }))
}

/// Whether a file of the forge is the one that a patch starts from.
fn is_same(old: &PatchSide, found: &ForgeFile) -> bool {
    let has_mode = match (&old.mode, &found.mode) {
        (Some(old), Some(found)) => old == found,
        _ => true,
    };
    has_mode && old.object.as_ref().is_none_or(|object| *object == found.object)
}

fn path_text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::Refused(format!("`{}` isn't UTF-8, which the forge needs", path.display())))
}

/// The beginning of a commit's id.
pub(super) fn short(sha: &str) -> &str {
    sha.get(..10).unwrap_or(sha)
}
