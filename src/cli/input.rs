//! Files that a user names, read with bounds and with findings that say where.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Place, Source};
use crate::template::Folder;
use crate::yaml;

/// Whether a file is a script by its name.
pub(super) fn is_script(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".script.yaml") || name.ends_with(".script.yml")
}

/// Reads a job file, and opens the folder that its prompts come from.
pub(super) fn read_job(path: &Path) -> Result<(Arc<Source>, Option<Folder>), Diagnostic> {
    let source = read_source(path)?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = Folder::open(folder).map_err(|error| unreadable(folder, &error.to_string()))?;
    Ok((source, Some(folder)))
}

/// Reads a YAML file as text.
pub(super) fn read_source(path: &Path) -> Result<Arc<Source>, Diagnostic> {
    let bytes = read_bounded(path, yaml::MAX_BYTES).map_err(|why| unreadable(path, &why))?;
    yaml::read_bytes(&path.to_string_lossy(), &bytes)
}

/// Reads a regular file up to one byte more than `largest`, so that what is too large shows.
pub(super) fn read_bounded(path: &Path, largest: usize) -> Result<Vec<u8>, String> {
    let kind = fs::metadata(path).map_err(|error| words(&error))?;
    if kind.is_dir() {
        return Err("it is a folder".into());
    }
    if !kind.is_file() {
        return Err("it is no regular file".into());
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| words(&error))?;
    file.take(largest as u64 + 1).read_to_end(&mut bytes).map_err(|error| words(&error))?;
    Ok(bytes)
}

/// The finding for a file that can't be read at all.
pub(super) fn unreadable(path: &Path, why: &str) -> Diagnostic {
    let source = Source::new(path.to_string_lossy(), "");
    Diagnostic::error("unreadable", Place { source, span: 0..0 }, format!("this file can't be read: {why}"))
        .help("name a regular file that you may read")
}

fn words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
