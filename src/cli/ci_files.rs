//! The files in which a step of a GitHub workflow leaves its summary and its outputs.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::env::CliEnv;
use crate::event::{RunModel, RunResult};
use crate::map::tables::{self, MapTable};
use crate::publish::PublishReport;
use crate::reports::ci_variables::{self, Variable};
use crate::reports::step_summary;

/// The most bytes of such a file: GitHub shows nothing of a longer summary, and takes no more outputs
/// (<https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>).
const MAX_BYTES: u64 = 1 << 20;

/// Leaves the summary and the outputs of a run. `model` is what happened in it; `next` says how to continue it. A failure is only a warning.
pub(super) fn write_run(env: &CliEnv, result: &RunResult, model: &RunModel, record: &Path, next: Option<&str>) {
    let variables = || ci_variables::of_run(result, record, &env.current_folder);
    write(env, || step_summary::page(result, model, &record.to_string_lossy(), next), variables);
}

/// Leaves the summary and the outputs of a map.
pub(super) fn write_map(env: &CliEnv, table: &MapTable, exit_code: u8, folder: &Path, next: Option<&str>) {
    let variables = || tables::ci_variables(table, exit_code, folder, &env.current_folder);
    write(env, || tables::step_summary(table, exit_code, &folder.to_string_lossy(), next), variables);
}

/// Leaves the summary of what was published.
pub(super) fn write_publication(env: &CliEnv, report: &PublishReport, is_dry_run: bool) {
    write(env, || report.step_summary(is_dry_run), || vec![("exit-code", report.exit_code().to_string())]);
}

fn write(env: &CliEnv, summary: impl Fn() -> String, variables: impl Fn() -> Vec<Variable>) {
    if env.variable("GITHUB_ACTIONS") != Some("true") {
        return;
    }
    let outputs = || ci_variables::github_output(&variables());
    let files: [(&str, &str, &dyn Fn() -> String); 2] =
        [("GITHUB_STEP_SUMMARY", "the step summary", &summary), ("GITHUB_OUTPUT", "the outputs of the step", &outputs)];
    for (variable, what, content) in files {
        if let Some(Err(error)) = env.variable(variable).map(|path| append(Path::new(path), &content())) {
            env.console.warning(&format!("can't write {what}: {error}"));
        }
    }
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    // Don't block on a FIFO.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut file = OpenOptions::new().append(true).create(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if data.len().saturating_add(text.len() as u64) > MAX_BYTES {
        return Err(io::Error::other("the file is full"));
    }
    file.write_all(text.as_bytes())
}
