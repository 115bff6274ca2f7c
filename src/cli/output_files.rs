//! The files that `run` and `resume` write in addition to the record: `--result`, `--junit` and `--dotenv`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::env::CliEnv;
use super::read_files::parent_folder;
use crate::error::Error;
use crate::event::RunResult;
use crate::formats::{ci_variables, junit};
use crate::map::{output_target, write_output_file};
use crate::plan::Plan;

/// The options that name files for how a run ended.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct OutputFileArgs {
    /// Also write the job's result to this file
    ///
    /// If the run ends without a result, the file doesn't exist afterwards.
    #[arg(long, value_name = "FILE")]
    pub(super) result: Option<PathBuf>,
    /// Also write the outcome and the checks to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Also write the outcome, the cost, the result and the paths of the record to this file, as variables for GitLab
    ///
    /// For `artifacts:reports:dotenv`. The variables are LEGWORK_OUTCOME, LEGWORK_EXIT_CODE and so on.
    #[arg(long, value_name = "FILE")]
    pub(super) dotenv: Option<PathBuf>,
}

/// What a file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Result,
    Junit,
    Dotenv,
}

impl Content {
    fn option(self) -> &'static str {
        match self {
            Self::Result => "--result",
            Self::Junit => "--junit",
            Self::Dotenv => "--dotenv",
        }
    }
}

/// A file. It is about this run or doesn't exist.
#[derive(Debug)]
struct OutputFile {
    content: Content,
    /// The path as the user wrote it.
    path: PathBuf,
}

/// The files of a run.
#[derive(Debug)]
pub(super) struct OutputFiles(Vec<OutputFile>);

impl OutputFileArgs {
    fn files(&self) -> Vec<OutputFile> {
        let named = [(Content::Result, &self.result), (Content::Junit, &self.junit), (Content::Dotenv, &self.dotenv)];
        let file = |(content, path): (Content, &Option<PathBuf>)| Some(OutputFile { content, path: path.clone()? });
        named.into_iter().filter_map(file).collect()
    }

    /// Refuses files that are the job file, and two options with the same file.
    pub(super) fn check(&self, job: Option<&Path>) -> Result<(), Error> {
        let files = self.files();
        for (number, file) in files.iter().enumerate() {
            let real = file.path.canonicalize().ok();
            if real.is_some() && real == job.and_then(|job| job.canonicalize().ok()) {
                return Err(file.usage_error("it is the job file"));
            }
            if let Some(other) = files[..number].iter().find(|other| other.path == file.path) {
                return Err(file.usage_error(&format!("{} names the same file", other.content.option())));
            }
        }
        Ok(())
    }

    /// Removes the files of an earlier run, so that they can't be mistaken for this run's.
    pub(super) fn prepare(&self) -> Result<OutputFiles, Error> {
        let files = OutputFiles(self.files());
        files.0.iter().try_for_each(OutputFile::remove_stale)?;
        Ok(files)
    }

    /// Refuses `--result` for a job without a result.
    pub(super) fn check_result_option(&self, plan: &Plan) -> Result<(), Error> {
        match &self.result {
            Some(path) if plan.parent.returns.is_none() => Err(Error::usage(
                format!("--result {}: the job `{}` has no `result`", path.display(), plan.job),
                "Add `result: { schema: ... }` to the job, or remove --result.",
            )),
            _ => Ok(()),
        }
    }
}

impl OutputFiles {
    /// Creates the folders of the files, and checks that they are writable.
    pub(super) fn make_folders(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(|file| check_output_file(file.content.option(), &file.path))
    }

    /// Writes all files, each atomically. A run without a result leaves no file of `--result`. `record` is the run's folder.
    ///
    /// # Errors
    /// The first failure; the other files are written all the same.
    pub(super) fn write(&self, result: &RunResult, record: &Path, env: &CliEnv) -> Result<(), Error> {
        let written: Vec<_> = self.0.iter().map(|file| file.write(result, record, env)).collect();
        written.into_iter().collect()
    }

    /// The file with the result, if the run has one.
    pub(super) fn result_path(&self, result: &RunResult) -> Option<&Path> {
        let file = self.0.iter().find(|file| file.content == Content::Result && result.result.is_some())?;
        Some(&file.path)
    }
}

impl OutputFile {
    fn write(&self, result: &RunResult, record: &Path, env: &CliEnv) -> Result<(), Error> {
        let content = match self.content {
            Content::Result => match &result.result {
                Some(data) => format!("{data:#}\n"),
                None => return self.remove_stale(),
            },
            Content::Junit => junit::run_report(result, &record.to_string_lossy()),
            Content::Dotenv => {
                let variables = ci_variables::of_run(result, record, &env.current_folder);
                let (text, left_out) = ci_variables::dotenv(&variables);
                if !left_out.is_empty() {
                    env.console.warning(&format!(
                        "{}: GitLab can't take the values of {}, so they aren't in the file",
                        self.path.display(),
                        left_out.join(", ")
                    ));
                }
                text
            }
        };
        let failed = Error::environment(format!("can't write {}", self.path.display()));
        write_output_file(&self.path, content.as_bytes()).map_err(failed)
    }

    fn remove_stale(&self) -> Result<(), Error> {
        let target = output_target(&self.path).map_err(|error| self.usage_error(&error.to_string()))?;
        if !target.exists() {
            return Ok(());
        }
        fs::remove_file(&target)
            .map_err(|error| self.usage_error(&format!("the existing file can't be replaced: {error}")))
    }

    fn usage_error(&self, why: &str) -> Error {
        usage_error(self.content.option(), &self.path, why)
    }
}

/// Checks before a run that a file can be written, and creates its folder.
///
/// # Errors
/// It can't be written, or exists and isn't a regular file.
pub(super) fn check_output_file(option: &str, path: &Path) -> Result<(), Error> {
    let target = output_target(path).map_err(|error| usage_error(option, path, &error.to_string()))?;
    let folder = parent_folder(&target);
    let refused =
        |error: io::Error| usage_error(option, path, &format!("can't write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(refused)?;
    tempfile::tempfile_in(folder).map(drop).map_err(refused)
}

fn usage_error(option: &str, path: &Path, why: &str) -> Error {
    Error::usage(format!("{option} {}: {why}", path.display()), "Name a file in a folder that you can write to.")
}
