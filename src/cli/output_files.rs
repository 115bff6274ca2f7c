//! The files that `run` and `resume` write in addition to the record: `--result`, `--junit` and `--dotenv`.

use std::fs;
use std::path::{Path, PathBuf};

use super::env::CliEnv;
use super::output_target::{self, OutputTarget, is_file};
use crate::error::Error;
use crate::event::{RunModel, RunResult};
use crate::plan::Plan;
use crate::record::is_record_file;
use crate::reports::{ci_variables, junit};

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
    /// Where it is written, once its folder is open.
    target: Option<OutputTarget>,
}

/// The files of a run.
#[derive(Debug)]
pub(super) struct OutputFiles(Vec<OutputFile>);

impl OutputFileArgs {
    fn files(&self) -> Vec<OutputFile> {
        let named = [(Content::Result, &self.result), (Content::Junit, &self.junit), (Content::Dotenv, &self.dotenv)];
        let file = |(content, path): (Content, &Option<PathBuf>)| {
            Some(OutputFile { content, path: path.clone()?, target: None })
        };
        named.into_iter().filter_map(file).collect()
    }

    /// Refuses files that are the job file or part of a record, and two options with the same file.
    pub(super) fn check(&self, job: Option<&Path>) -> Result<(), Error> {
        let files = self.files();
        for (number, file) in files.iter().enumerate() {
            let real = file.path.canonicalize().ok();
            if real.is_some() && real == job.and_then(|job| job.canonicalize().ok()) {
                return Err(file.usage_error("it is the job file"));
            }
            if is_record_file(&file.path) {
                return Err(file.usage_error("it is part of a record"));
            }
            if let Some(other) = files[..number].iter().find(|other| other.path == file.path) {
                return Err(file.usage_error(&format!("{} names the same file", other.content.option())));
            }
        }
        Ok(())
    }

    /// Opens the file of `--junit` for the results of a map. `rows` is the file of its rows.
    ///
    /// # Errors
    /// If it is the rows file or of the job, part of a record or of a map, or can't be written.
    pub(super) fn open_junit(path: &Path, job: Option<&Path>, rows: Option<&Path>) -> Result<OutputTarget, Error> {
        Self { junit: Some(path.to_owned()), ..Self::default() }.check(job)?;
        let is_rows = path
            .canonicalize()
            .is_ok_and(|junit| rows.is_some_and(|rows| rows.canonicalize().is_ok_and(|rows| rows == junit)));
        if is_rows {
            let message = format!("--junit {}: it is the rows file", path.display());
            return Err(Error::usage(message, "Name another file."));
        }
        OutputTarget::of_option("--junit", path)
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
    /// Opens the folders of the files before an agent starts, and creates missing ones.
    pub(super) fn open_folders(&mut self) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(|file| {
            file.target = Some(OutputTarget::of_option(file.content.option(), &file.path)?);
            Ok(())
        })
    }

    /// Writes all files, each atomically. A run without a result leaves no file of `--result`. `record` is the run's folder.
    ///
    /// # Errors
    /// The first failure; the other files are written anyway.
    pub(super) fn write(&self, result: &RunResult, model: &RunModel, record: &Path, env: &CliEnv) -> Result<(), Error> {
        let written: Vec<_> = self.0.iter().map(|file| file.write(result, model, record, env)).collect();
        written.into_iter().collect()
    }

    /// The file with the result, if the run has one.
    pub(super) fn result_path(&self, result: &RunResult) -> Option<&Path> {
        let file = self.0.iter().find(|file| file.content == Content::Result && result.result.is_some())?;
        Some(&file.path)
    }
}

impl OutputFile {
    fn write(&self, result: &RunResult, model: &RunModel, record: &Path, env: &CliEnv) -> Result<(), Error> {
        let Some(target) = &self.target else { return Ok(()) };
        let content = match self.content {
            Content::Result => match &result.result {
                Some(data) => format!("{data:#}\n"),
                None => return target.remove(),
            },
            Content::Junit => junit::run_report(result, model, &record.to_string_lossy()),
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
        target.write(&content)
    }

    fn remove_stale(&self) -> Result<(), Error> {
        if !is_file(&self.path).map_err(|error| self.usage_error(&error.to_string()))? {
            return Ok(());
        }
        fs::remove_file(&self.path)
            .map_err(|error| self.usage_error(&format!("the existing file can't be replaced: {error}")))
    }

    fn usage_error(&self, why: &str) -> Error {
        output_target::usage_error(self.content.option(), &self.path, why)
    }
}
