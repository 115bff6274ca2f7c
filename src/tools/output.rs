//! The tools with which agents propose outputs. They aren't granted by name, but by `{ output: [NAME, ...] }`.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::tool::{CallFuture, Tool, ToolContext, ToolOutput};
use crate::job::NOTHING_TO_DO;
use crate::message::ToolError;
use crate::outputs::{
    Checker, Kind, NOT_ACCEPTED, Output, Proposal, Proposals, REFUSED, Request, Target, nothing_to_do_schema,
};
use crate::redaction::MARKER_PREFIX;

/// The tool of one output, for one agent.
pub struct OutputTool {
    name: String,
    output: Output,
    agent: String,
    checker: Checker,
    proposals: Arc<Proposals>,
}

impl OutputTool {
    /// The tool for an output of the job; `None` if the job has no such output.
    ///
    /// # Errors
    /// The schema of a command's data is invalid. A plan that was made from a job has valid ones.
    pub fn new(name: &str, agent: &str, proposals: &Arc<Proposals>) -> Result<Option<Self>, String> {
        let Some(output) = proposals.outputs().allowed.get(name).cloned() else { return Ok(None) };
        let (name, agent, proposals) = (name.to_owned(), agent.to_owned(), Arc::clone(proposals));
        Ok(Some(Self { checker: Checker::new(&output)?, name, output, agent, proposals }))
    }

    async fn propose(&self, input: &RawValue, context: &ToolContext<'_>) -> Result<ToolOutput, String> {
        self.proposals.check_changes(&self.output).await?;
        refuse_secrets(input, context)?;
        let checked = self.checker.check_input(self.proposals.outputs(), &self.output, input.get())?;
        self.proposals.check_review_lines(&self.output, checked.target, &checked.data).await?;
        let (entry, text) = self.proposals.accept(Request {
            agent: &self.agent,
            call_id: context.call_id,
            name: &self.name,
            key: checked.key,
            target: checked.target,
            data: checked.data,
        })?;
        Ok(ToolOutput { text, proposal: Some(Proposal::Accepted(Box::new(entry))), ..ToolOutput::default() })
    }
}

/// What is published or kept must not have a secret, not even a masked one.
pub(super) fn refuse_secrets(input: &RawValue, context: &ToolContext<'_>) -> Result<(), String> {
    match context.redactor.contains_secret(input.get()) || input.get().contains(MARKER_PREFIX) {
        true => Err("it contains the value of a secret: leave that out".to_owned()),
        false => Ok(()),
    }
}

fn refused(why: &str) -> ToolError {
    ToolError(format!("{REFUSED}{why}{NOT_ACCEPTED}"))
}

impl Tool for OutputTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        let what = match &self.output.kind {
            Kind::Comment { update: true, .. } => "a comment, in place of the one of earlier runs",
            Kind::Comment { .. } => "a comment",
            Kind::Review { request_changes: true, .. } => "a review of the pull request that requests changes",
            Kind::Review { .. } => "a review of the pull request, with comments on its lines",
            Kind::PullRequest { .. } => "a pull request with all changes of this run's files",
            Kind::Push { .. } => "a commit with all changes of this run's files, on the branch of the pull request",
            Kind::Issue { .. } => "a new issue",
            Kind::Labels { .. } => "labels to add or remove",
            Kind::Close {} => "that the issue is closed",
            Kind::Check { .. } => "the result of a check",
            Kind::Command { .. } => "data for a command of the job",
        };
        let target = match self.output.target {
            Some(Target::Trigger) => " It is for the issue or pull request that started this run.",
            Some(Target::Any) => " `number` says for which issue or pull request.",
            Some(Target::Number(_)) | None => "",
        };
        let most = self.output.max;
        let noun = if matches!(self.output.kind, Kind::Labels { .. }) { "labels" } else { "calls" };
        let rules = self.proposals.outputs().rules.describe();
        format!(
            "Proposes {what}.{target} It is checked now and published after the run. At most {most} {noun} are accepted in a \
             run.{rules}"
        )
    }

    fn input_schema(&self) -> Value {
        self.checker.input_schema().clone()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move { self.propose(input, context).await.map_err(|why| refused(&why)) })
    }
}

/// The tool with which an agent says that there is nothing to do.
pub struct NothingToDo {
    proposals: Arc<Proposals>,
}

impl NothingToDo {
    /// The tool of an agent.
    pub fn new(proposals: &Arc<Proposals>) -> Self {
        Self { proposals: Arc::clone(proposals) }
    }
}

impl Tool for NothingToDo {
    fn name(&self) -> &str {
        NOTHING_TO_DO
    }

    fn description(&self) -> String {
        "Says that this run has nothing to propose, and why. Call it instead of the tools that propose something."
            .to_owned()
    }

    fn input_schema(&self) -> Value {
        nothing_to_do_schema()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            refuse_secrets(input, context).map_err(|why| refused(&why))?;
            let input: Value = serde_json::from_str(input.get()).unwrap_or_default();
            let reason = input.get("reason").and_then(Value::as_str).map(str::trim).unwrap_or_default();
            if reason.is_empty() || reason.chars().count() > 2_000 {
                return Err(refused("`reason` must be a text of 1 to 2,000 characters"));
            }
            let proposal = self.proposals.declare_nothing(reason).map_err(|why| refused(&why))?;
            Ok(ToolOutput { text: "noted".to_owned(), proposal: Some(proposal), ..ToolOutput::default() })
        })
    }
}
