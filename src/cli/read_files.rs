//! Reads files that the user names, with size limits, and reports problems as findings.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_name};
use crate::git::worktree_around;
use crate::lints::JobTrust;
use crate::template::JobDir;
use crate::text::bounded::read_up_to;
use crate::yaml;

/// How many entries of a folder are looked at for suggestions.
const MAX_ENTRIES: usize = 1_000;

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
    if is_script(path) && !source.text.lines().any(|line| line.starts_with("model")) {
        let place = SourceSpan { source, range: 0..0 };
        let finding = Diagnostic::error("unreadable", place, "this is a script with the replies of models, not a job");
        let help =
            format!("run the job with the replies of the script: `legwork run JOB --model replay/{}`", path.display());
        return Err(finding.help(help));
    }
    let folder = parent_folder(path);
    let folder = JobDir::open(folder).map_err(|error| unreadable_file(folder, &error.to_string()))?;
    Ok((source, Some(folder)))
}

/// Reads a job file. If it doesn't exist, the finding suggests a similar one.
pub(super) fn read_job_source(path: &Path) -> Result<Arc<Source>, Diagnostic> {
    read_source(path).map_err(|finding| suggest_job(path, finding))
}

/// Adds a suggestion to the finding about a file that can't be read: `first` may mean `jobs/first.yaml`, `x.yml` may mean
/// `x.yaml`, and a folder one of its jobs.
pub(super) fn suggest_job(path: &Path, finding: Diagnostic) -> Diagnostic {
    if path.is_dir() {
        let folders = [path.to_owned(), path.join("jobs")];
        let first = folders.iter().find_map(|folder| Some(folder.join(jobs_in(folder).first()?)));
        let Some(first) = first else { return finding };
        let first = first.strip_prefix(".").unwrap_or(&first);
        return finding.help(format!("name one of its jobs, such as `{}`", first.display()));
    }
    if ["http:", "https:"].iter().any(|scheme| path.starts_with(scheme)) {
        return finding.help("a job is a file on this machine: download it, read what it may do, and name the file");
    }
    if path.file_name().is_none() || fs::symlink_metadata(path).is_ok() {
        return finding;
    }
    let folders: &[&str] = if path.is_relative() { &["", "jobs"] } else { &[""] };
    let endings = |file: PathBuf| {
        let added = ["yaml", "yml"].map(|ending| file.with_added_extension(ending));
        let changed = ["yaml", "yml"].map(|ending| file.with_extension(ending));
        let changed = changed.into_iter().filter(|_| is_yaml(&file)).collect::<Vec<_>>();
        std::iter::once(file).chain(added).chain(changed)
    };
    let named = folders.iter().flat_map(|folder| endings(Path::new(folder).join(path)));
    let exact = { named }.find(|file| is_yaml(file) && file.is_file() && !is_script(file));
    // A misspelled name.
    let near = || {
        let name = path.file_name()?.to_str()?;
        folders.iter().find_map(|folder| {
            let folder = Path::new(folder).join(path.parent()?);
            let jobs = jobs_in(if folder.as_os_str().is_empty() { Path::new(".") } else { &folder });
            let stems = jobs.iter().flat_map(|job| [Some(job.as_str()), job.rsplit_once('.').map(|(stem, _)| stem)]);
            let near = suggest_name(name, stems.flatten())?;
            let job =
                jobs.iter().find(|job| *job == near || job.rsplit_once('.').is_some_and(|(stem, _)| stem == near))?;
            Some(folder.join(job))
        })
    };
    match exact.or_else(near) {
        Some(job) => finding.help(format!("did you mean `{}`?", job.display())),
        None => finding.help("name the file of a job; `legwork init NAME` writes a new one to jobs/NAME.yaml"),
    }
}

/// The names of the jobs in a folder, sorted.
fn jobs_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let files = entries.map(|entry| entry.path()).filter(|file| is_yaml(file) && !is_script(file) && file.is_file());
    let mut names: Vec<String> = files.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
    names.sort();
    names
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
        worktree_around(&folder)
            .or(Some(current.as_path()).filter(|current| folder.starts_with(current)))
            .is_some_and(|root| !target.starts_with(root))
    })
}

/// Reads YAML from standard input, as a file called `name`.
pub(super) fn read_stdin(name: &Path) -> Result<Arc<Source>, Diagnostic> {
    let read = read_up_to(io::stdin().lock(), yaml::MAX_BYTES as u64 + 1);
    let bytes = read.map_err(|error| unreadable_file(name, &io_error_text(&error)))?;
    yaml::read_bytes(&name.to_string_lossy(), &bytes)
}

/// Reads a regular file, up to one byte more than `max`, so that callers notice files that are too large. Never blocks on a
/// FIFO or a device.
pub(super) fn read_bounded(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    // Check first, as opening a device can have side effects.
    require_regular_file(&fs::metadata(path).map_err(|error| open_error_text(path, &error))?)?;
    read_up_to(open_regular(path)?, max as u64 + 1).map_err(|error| io_error_text(&error))
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
