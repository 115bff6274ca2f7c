//! A file as it is checked: a job with its folder, or a script with its job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::input_files::InputFile;
use super::{CheckedFile, read_files};
use crate::diagnostic::{Diagnostic, Source};
use crate::job::Job;
use crate::lints::{self, JobTrust, UserConfig};
use crate::template::JobDir;
use crate::yaml;

/// A file that could be read.
pub(super) struct LoadedFile {
    pub(super) source: Arc<Source>,
    /// Where it can be written; standard input can't.
    pub(super) path: Option<PathBuf>,
    /// Where its prompts are looked up.
    pub(super) folder: PathBuf,
    pub(super) kind: LoadedKind,
    pub(super) origin: JobTrust,
    pub(super) user_config: UserConfig,
}

/// What it is.
pub(super) enum LoadedKind {
    /// A job, with its folder where that could be opened.
    Job(Option<JobDir>),
    /// A script, with the job that it belongs to where that can be read.
    Script(Option<Box<Job>>),
}

/// Reads a file. Standard input is read as the file `stdin`, which need not be there.
///
/// # Errors
/// Where it can't be read: a finding that says why.
pub(super) fn load(
    file: &InputFile,
    stdin: &Path,
    origin: JobTrust,
    own: &UserConfig,
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
            // An editor's buffer may be saved to a folder that is yet to come.
            (Err(_), InputFile::Stdin) => LoadedKind::Job(None),
            (Err(error), InputFile::Path(_)) => return Err(read_files::unreadable_file(&folder, &error.to_string())),
        }
    };
    Ok(LoadedFile { source, path, folder, kind, origin, user_config: own.clone() })
}

/// Everything that is wrong with a file.
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

/// The job that a script lies beside, by its name, where its form has no mistake.
fn job_of_script(script: &Path) -> Option<Job> {
    let stem = Path::new(script.file_stem()?).file_stem()?.to_owned();
    let beside = ["yaml", "yml"].map(|ending| {
        let mut name = stem.clone();
        name.push(".");
        name.push(ending);
        script.with_file_name(name)
    });
    let source = beside.iter().find_map(|path| read_files::read_source(path).ok())?;
    let decoded = yaml::read::<Job>(&source);
    decoded.value.filter(|_| decoded.gaps.is_empty())
}
