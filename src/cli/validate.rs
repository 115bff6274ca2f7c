//! `legwork validate`: all findings of all files.

use std::path::{Path, PathBuf};

use super::{Surroundings, format_parser, input};
use crate::diagnostic::{Diagnostic, Severity};
use crate::error::Error;
use crate::event::EXIT_INVALID;
use crate::formats::{self, Subject};
use crate::lints;
use crate::providers::replay::Script;

/// Options of `legwork validate`.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Job files, or folders in which every YAML file is a job (but scripts and tests/)
    #[arg(default_value = "jobs")]
    paths: Vec<PathBuf>,
    /// How to print the findings
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Diagnostics))]
    format: String,
}

pub(super) fn validate(options: &Options, around: &Surroundings) -> Result<u8, Error> {
    let mut findings = Vec::new();
    let mut files = 0;
    for path in &options.paths {
        for file in files_below(path) {
            files += 1;
            findings.extend(match file {
                Ok(file) if input::is_script(&file) => check_script(&file),
                Ok(file) => check_job(&file),
                Err(finding) => vec![finding],
            });
        }
    }
    let format = formats::find(&options.format);
    let text = format.and_then(|format| format.diagnostics(&findings, around.out.look())).unwrap_or_default();
    around.out.answer(&text);
    if findings.is_empty() && options.format == "text" {
        let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
        around.out.beside(&format!("{files} checked, no findings"));
    }
    let invalid = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if invalid { EXIT_INVALID } else { 0 })
}

fn check_job(path: &Path) -> Vec<Diagnostic> {
    match input::read_job(path) {
        Ok((source, folder)) => lints::check(&source, folder.as_ref()).findings,
        Err(finding) => vec![finding],
    }
}

fn check_script(path: &Path) -> Vec<Diagnostic> {
    let script = input::read_source(path).map_err(|finding| vec![finding]).and_then(|source| Script::read(&source));
    script.err().unwrap_or_default()
}

/// A file itself; in a folder every YAML file in the order of the names, `tests/` and ignored ones left out.
fn files_below(path: &Path) -> Vec<Result<PathBuf, Diagnostic>> {
    if !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }
    let walk = ignore::WalkBuilder::new(path)
        .sort_by_file_name(Ord::cmp)
        .require_git(false)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != "tests" || !entry.path().is_dir())
        .build();
    let mut files = Vec::new();
    for entry in walk {
        match entry {
            Ok(entry) => {
                let yaml = entry.path().extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
                // Anything but a folder: a broken link or a pipe with such a name is no job, and is said to be none.
                if yaml && !entry.path().is_dir() {
                    files.push(Ok(entry.into_path()));
                }
            }
            Err(error) => files.push(Err(input::unreadable(path, &error.to_string()))),
        }
    }
    if files.is_empty() {
        files.push(Err(input::unreadable(path, "no job file is in this folder")
            .help("name a job file, or a folder with job files")));
    }
    files
}
