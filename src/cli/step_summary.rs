//! What GitHub shows of a run below the step that ran it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::CliEnv;
use crate::event::RunResult;
use crate::formats::step_summary;

/// The greatest size in bytes of a step's whole summary: GitHub shows nothing of a larger one
/// (<https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>).
const MAX_SUMMARY_BYTES: u64 = 1 << 20;

/// Appends to the step's summary, where a GitHub workflow runs us. That it can't be written changes nothing else.
pub(super) fn write(around: &CliEnv, result: &RunResult, folder: &Path) {
    if around.variable("GITHUB_ACTIONS") != Some("true") {
        return;
    }
    let Some(path) = around.variable("GITHUB_STEP_SUMMARY") else { return };
    if let Err(error) = append(Path::new(path), &step_summary::page(result, &folder.to_string_lossy())) {
        around.console.warning(&format!("the step's summary can't be written: {error}"));
    }
}

fn append(path: &Path, page: &str) -> io::Result<()> {
    // A pipe in its place would hold the end of the run up.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut file = OpenOptions::new().append(true).create(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if data.len().saturating_add(page.len() as u64) > MAX_SUMMARY_BYTES {
        return Err(io::Error::other("there is no room left in it"));
    }
    file.write_all(page.as_bytes())
}
