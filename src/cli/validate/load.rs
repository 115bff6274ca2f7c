//! Loads and checks one file: a job with its folder, or a script with its job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::input_files::InputFile;
use super::read_files;
use crate::diagnostic::{Diagnostic, Source};
use crate::job::Job;
use crate::lints::{self, JobTrust, UserConfig};
use crate::template::JobDir;
use crate::yaml;

/// The findings about a file.
#[derive(Debug, Default)]
pub(super) struct CheckedFile {
    pub(super) findings: Vec<Diagnostic>,
    /// The names of the prompt files that were read.
    pub(super) prompts: Vec<String>,
}

/// A file that was read.
pub(super) struct LoadedFile {
    pub(super) source: Arc<Source>,
    /// Its path; `None` for standard input.
    pub(super) path: Option<PathBuf>,
    /// The folder for its prompt files.
    pub(super) folder: PathBuf,
    pub(super) kind: LoadedKind,
    pub(super) origin: JobTrust,
    pub(super) user_config: UserConfig,
}

/// The kind of a file.
pub(super) enum LoadedKind {
    /// A job, with its folder if that could be opened.
    Job(Option<JobDir>),
    /// A script, with its job if that could be read.
    Script(Option<Box<Job>>),
}

/// Reads a file. `stdin` is the name for standard input, and needn't exist.
///
/// # Errors
/// A finding that says why the file can't be read.
pub(super) fn load(
    file: &InputFile,
    stdin: &Path,
    origin: JobTrust,
    user_config: &UserConfig,
) -> Result<LoadedFile, Diagnostic> {
    let (name, source, path) = match file {
        InputFile::Path(path) => {
            read_files::reject_symlinks(path, origin)?;
            (path.as_path(), read_files::read_job_source(path)?, Some(path.clone()))
        }
        InputFile::Stdin => (stdin, read_files::read_stdin(stdin)?, None),
    };
    let folder = match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let kind = if read_files::is_script(name) {
        LoadedKind::Script(job_of_script(name).map(Box::new))
    } else {
        match (JobDir::open(&folder), file) {
            (Ok(folder), _) => LoadedKind::Job(Some(folder)),
            // An editor may save its buffer to a folder that doesn't exist yet.
            (Err(_), InputFile::Stdin) => LoadedKind::Job(None),
            (Err(error), InputFile::Path(_)) => return Err(read_files::unreadable_file(&folder, &error.to_string())),
        }
    };
    Ok(LoadedFile { source, path, folder, kind, origin, user_config: user_config.clone() })
}

/// Checks a file.
pub(super) fn check(loaded: &LoadedFile) -> CheckedFile {
    match &loaded.kind {
        LoadedKind::Job(folder) => {
            let lints::LintReport { findings, prompts, .. } =
                lints::check_with(&loaded.source, folder.as_ref(), loaded.origin, &loaded.user_config);
            CheckedFile { findings, prompts }
        }
        LoadedKind::Script(job) => {
            CheckedFile { findings: lints::check_script(&loaded.source, job.as_deref()), prompts: Vec::new() }
        }
    }
}

/// The job of the same name next to a script, if it decodes without mistakes.
fn job_of_script(script: &Path) -> Option<Job> {
    let stem = Path::new(script.file_stem()?).file_stem()?.to_owned();
    let job_files = ["yaml", "yml"].map(|ending| {
        let mut name = stem.clone();
        name.push(".");
        name.push(ending);
        script.with_file_name(name)
    });
    let source = job_files.iter().find_map(|path| read_files::read_source(path).ok())?;
    let decoded = yaml::read::<Job>(&source);
    decoded.value.filter(|_| decoded.gaps.is_empty())
}
