//! The tools of a replay that run for real.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use crate::agent::{NetworkDeps, ToolDeps};
use crate::egress::Egress;
use crate::error::Error;
use crate::event::RunStarted;
use crate::plan::Plan;
use crate::run::{Confinement, RecordAccess, RunSecrets};

/// Tools that run for real.
pub struct LiveTools {
    /// What they work with.
    pub deps: ToolDeps,
    /// The ways out of commands.
    pub network: NetworkDeps,
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

    /// Opens the workspace for the tools, as for a run, but they can't change the record. Commands reach the lists of the plan by the
    /// way out.
    ///
    /// # Errors
    /// The workspace can't be opened, or the existing objects of git can't be kept.
    pub fn open(
        record: &Path,
        workspace: &Path,
        secrets: RunSecrets,
        confinement: Confinement,
        (plan, egress): (&Plan, Option<Egress>),
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let access = RecordAccess::read_only(record);
        let confined = confinement.for_record(&access, std::iter::empty())?.without_record();
        let mut deps = confined.open(workspace, vec![record.to_owned()], secrets, None)?;
        deps.egress = plan.network.hosts().and(egress.clone());
        let network = NetworkDeps { egress, narrowed: confined.narrowed.clone(), refused_lines: 0 };
        Ok(Self { deps, network, stop })
    }
}
