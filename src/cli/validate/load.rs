//! Loads and checks one file: a job with its folder, or a script with its job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read_files;
use crate::context_files::WorkspaceFiles;
use crate::diagnostic::{Diagnostic, Source};
use crate::job::Job;
use crate::lints::{self, JobTrust, UserConfig};
use crate::template::JobDir;
use crate::yaml;

/// The path that stands for standard input.
pub(super) const STDIN: &str = "-";

/// Loads and checks the files of a command.
pub(super) struct Checker<'a> {
    /// The name for standard input, which needn't exist.
    pub(super) stdin: &'a Path,
    pub(super) origin: JobTrust,
    pub(super) user_config: UserConfig,
    /// The workspace for context files and skills.
    pub(super) workspace: WorkspaceFiles,
}

/// The findings about a file.
#[derive(Debug, Default)]
pub(super) struct CheckedFile {
    pub(super) findings: Vec<Diagnostic>,
    /// The names of the prompt files that were read.
    pub(super) prompts: Vec<String>,
}

impl CheckedFile {
    /// What was found about a file that can't be read.
    pub(super) fn unreadable(finding: Diagnostic) -> Self {
        Self { findings: vec![finding], prompts: Vec::new() }
    }
}

/// A file that was read.
pub(super) struct LoadedFile {
    pub(super) source: Arc<Source>,
    /// Its path; `None` for standard input.
    pub(super) path: Option<PathBuf>,
    /// The folder for its prompt files.
    pub(super) folder: PathBuf,
    pub(super) kind: LoadedKind,
}

/// The kind of a file.
pub(super) enum LoadedKind {
    /// A job, with its folder if that could be opened.
    Job(Option<JobDir>),
    /// A script, with its job if that could be read.
    Script(Option<Box<Job>>),
}

impl Checker<'_> {
    /// Reads a file.
    ///
    /// # Errors
    /// A finding that says why the file can't be read.
    pub(super) fn load(&self, path: &Path) -> Result<LoadedFile, Diagnostic> {
        let is_stdin = path == Path::new(STDIN);
        let (name, source) = if is_stdin {
            (self.stdin, read_files::read_stdin(self.stdin)?)
        } else {
            read_files::reject_symlinks(path, self.origin)?;
            (path, read_files::read_job_source(path)?)
        };
        let folder = read_files::parent_folder(name).to_owned();
        let kind = if read_files::is_script(name) {
            LoadedKind::Script(job_of_script(name).map(Box::new))
        } else {
            match JobDir::open(&folder) {
                Ok(folder) => LoadedKind::Job(Some(folder)),
                // An editor may save its buffer to a folder that doesn't exist yet.
                Err(_) if is_stdin => LoadedKind::Job(None),
                Err(error) => return Err(read_files::unreadable_file(&folder, &error.to_string())),
            }
        };
        Ok(LoadedFile { source, path: (!is_stdin).then(|| path.to_owned()), folder, kind })
    }

    /// Checks a file.
    pub(super) fn check(&self, loaded: &LoadedFile) -> CheckedFile {
        match &loaded.kind {
            LoadedKind::Job(folder) => self.check_job(&loaded.source, folder.as_ref()),
            LoadedKind::Script(job) => {
                CheckedFile { findings: lints::check_script(&loaded.source, job.as_deref()), prompts: Vec::new() }
            }
        }
    }

    /// Checks a job.
    pub(super) fn check_job(&self, source: &Arc<Source>, folder: Option<&JobDir>) -> CheckedFile {
        let report = lints::check_in(source, folder, self.origin, &self.user_config, Some(&self.workspace));
        CheckedFile { findings: report.findings, prompts: report.prompts }
    }
}

/// The job of the same name next to a script, if it decodes without mistakes.
fn job_of_script(script: &Path) -> Option<Job> {
    let stem = Path::new(script.file_stem()?).file_stem()?;
    let job_files = ["yaml", "yml"].map(|ending| script.with_file_name(stem).with_added_extension(ending));
    let source = job_files.iter().find_map(|path| read_files::read_source(path).ok())?;
    let decoded = yaml::read::<Job>(&source);
    decoded.value.filter(|_| decoded.gaps.is_empty())
}
