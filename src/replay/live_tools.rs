//! The tools of a replay that run for real.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use crate::agent::ToolDeps;
use crate::error::Error;
use crate::event::RunStarted;
use crate::run::{Confinement, RecordAccess, RunSecrets};

/// Tools that run for real.
pub struct LiveTools {
    /// What they work with.
    pub deps: ToolDeps,
    /// Cancelled by a signal.
    pub stop: CancellationToken,
}

impl LiveTools {
    /// Refuses a run whose tools can't run again.
    ///
    /// # Errors
    /// Says why.
    pub fn check(started: &RunStarted) -> Result<(), Error> {
        let plan = &started.plan;
        let why = match () {
            () if !plan.mcp.is_empty() => "it uses tool servers",
            () if plan.copies_workspace() => "a subagent has `workspace: own`",
            () => return Ok(()),
        };
        Err(Error::usage(
            format!("the tools of a run can't run again if {why}"),
            "Remove --tools: without it, the replay takes all results from the record.",
        ))
    }

    /// Opens the workspace for the tools, as for a run, but they can't change the record.
    ///
    /// # Errors
    /// The workspace can't be opened, or the existing objects of git can't be kept.
    pub fn open(
        record: &Path,
        workspace: &Path,
        secrets: RunSecrets,
        confinement: Confinement,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let access = RecordAccess::read_only(record);
        let confined = confinement.for_record(&access, std::iter::empty())?.without_record();
        let deps = confined.open(workspace, vec![record.to_owned()], secrets, None)?;
        Ok(Self { deps, stop })
    }
}
