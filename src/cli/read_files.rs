//! Reads files that the user names, with size limits, and reports problems as findings.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::lints::JobTrust;
use crate::template::JobDir;
use crate::yaml;

/// The folder that a path is in.
pub(super) fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a file name is that of a YAML file.
pub(super) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// Whether a file name is that of a script.
pub(super) fn is_script(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".script.yaml") || name.ends_with(".script.yml")
}

/// Reads a job file, and opens its folder for prompt files.
pub(super) fn read_job(path: &Path, origin: JobTrust) -> Result<(Arc<Source>, Option<JobDir>), Diagnostic> {
    reject_symlinks(path, origin)?;
    let source = read_job_source(path)?;
    let folder = parent_folder(path);
    let folder = JobDir::open(folder).map_err(|error| unreadable_file(folder, &error.to_string()))?;
    Ok((source, Some(folder)))
}

/// Reads a job file. If it doesn't exist, the finding suggests a similar one.
pub(super) fn read_job_source(path: &Path) -> Result<Arc<Source>, Diagnostic> {
    read_source(path).map_err(|finding| suggest_job(path, finding))
}

/// Adds a suggestion to the finding about a missing file: `first` may mean `jobs/first.yaml`.
pub(super) fn suggest_job(path: &Path, finding: Diagnostic) -> Diagnostic {
    let is_missing = path.file_name().is_some() && fs::symlink_metadata(path).is_err();
    let folders: &[&str] = if path.is_relative() { &["", "jobs"] } else { &[""] };
    let named = folders
        .iter()
        .flat_map(|folder| ["", "yaml", "yml"].map(|ending| Path::new(folder).join(path).with_added_extension(ending)));
    let mut jobs = named.filter(|file| is_missing && is_yaml(file) && file.is_file() && !is_script(file));
    match jobs.next() {
        Some(job) => finding.help(format!("did you mean `{}`?", job.display())),
        None => finding,
    }
}

/// Refuses an untrusted job behind a symbolic link, which could lead to a private file that findings would quote. In an
/// absolute path, only the last component is untrusted.
pub(super) fn reject_symlinks(path: &Path, origin: JobTrust) -> Result<(), Diagnostic> {
    let is_untrusted = |part: &&Path| !part.as_os_str().is_empty() && (part == &path || path.is_relative());
    match path.ancestors().filter(is_untrusted).find(|part| part.is_symlink()) {
        Some(link) if origin == JobTrust::Untrusted => Err(unreadable_file(
            path,
            &format!("`{}` is a symbolic link, which an untrusted job can't use", link.display()),
        )),
        _ => Ok(()),
    }
}

/// Reads a YAML file as text.
pub(super) fn read_source(path: &Path) -> Result<Arc<Source>, Diagnostic> {
    let bytes = read_bounded(path, yaml::MAX_BYTES).map_err(|why| unreadable_file(path, &why))?;
    let read = yaml::read_bytes(&path.to_string_lossy(), &bytes);
    if !links_outside_repository(path) {
        return read;
    }
    let unquotable = |span: SourceSpan| SourceSpan { source: span.source.without_quotes(), ..span };
    read.map(|source| source.without_quotes())
        .map_err(|finding| Diagnostic { span: unquotable(finding.span.clone()), ..finding })
}

/// Whether a symbolic link in a path leads out of the repository that contains the link, or if there is none, out of the
/// current folder. The author of the repository may have created the link to read its target in findings.
fn links_outside_repository(path: &Path) -> bool {
    let current = fs::canonicalize(".").unwrap_or_default();
    let links = path.ancestors().filter(|part| !part.as_os_str().is_empty() && part.is_symlink());
    links.into_iter().any(|link| {
        let (Ok(folder), Ok(target)) = (parent_folder(link).canonicalize(), link.canonicalize()) else { return false };
        let root = folder.ancestors().find(|folder| folder.join(".git").exists());
        root.or(Some(current.as_path()).filter(|current| folder.starts_with(current)))
            .is_some_and(|root| !target.starts_with(root))
    })
}

/// Reads YAML from standard input, as a file called `name`.
pub(super) fn read_stdin(name: &Path) -> Result<Arc<Source>, Diagnostic> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(yaml::MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable_file(name, &io_error_text(&error)))?;
    yaml::read_bytes(&name.to_string_lossy(), &bytes)
}

/// Reads a regular file, up to one byte more than `max`, so that callers notice files that are too large. Never blocks on a
/// FIFO or a device.
pub(super) fn read_bounded(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    // Check first, as opening a device can have side effects.
    require_regular_file(&fs::metadata(path).map_err(|error| open_error_text(path, &error))?)?;
    let mut bytes = Vec::new();
    open_regular(path)?.take(max as u64 + 1).read_to_end(&mut bytes).map_err(|error| io_error_text(&error))?;
    Ok(bytes)
}

/// Opens a file that may have been replaced since it was checked.
fn open_regular(path: &Path) -> Result<fs::File, String> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| open_error_text(path, &error))?;
    require_regular_file(&file.metadata().map_err(|error| io_error_text(&error))?)?;
    Ok(file)
}

fn require_regular_file(metadata: &fs::Metadata) -> Result<(), String> {
    match metadata.is_file() {
        true => Ok(()),
        false if metadata.is_dir() => Err("it is a folder".to_owned()),
        false => Err("it isn't a regular file".to_owned()),
    }
}

/// The finding about a file that can't be read.
pub(super) fn unreadable_file(path: &Path, why: &str) -> Diagnostic {
    let source = Source::new(path.to_string_lossy(), "");
    Diagnostic::error("unreadable", SourceSpan { source, range: 0..0 }, format!("can't read this file: {why}"))
        .help("name a regular file that you can read")
}

fn open_error_text(path: &Path, error: &io::Error) -> String {
    let is_link = error.kind() == io::ErrorKind::NotFound && path.is_symlink();
    if is_link { "it is a dangling symbolic link".into() } else { io_error_text(error) }
}

pub(super) fn io_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_in_place_of_a_file_doesnt_block() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("job.yaml");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(open_regular(&pipe).unwrap_err(), "it isn't a regular file");
        assert_eq!(open_regular(folder.path()).unwrap_err(), "it is a folder");
    }
}
