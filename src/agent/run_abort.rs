//! Why a run ends early.

use std::io;

use crate::event::{ErrorInfo, Outcome};
use crate::plan::PlannedLimits;
use crate::process::spawn::EnvironmentError;
use crate::providers::{Model, ProviderError};

/// Why the whole run ends before its parent agent has finished.
#[derive(Debug, Clone)]
pub struct RunAbort {
    /// The outcome of the run.
    pub outcome: Outcome,
    /// What happened, in one sentence.
    pub message: String,
    /// What the operator can do.
    pub hint: Option<String>,
}

impl RunAbort {
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into(), hint: None }
    }

    fn with_hint(self, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..self }
    }

    /// The run proposes to publish changes that can't be published.
    pub fn patch_not_publishable(why: &str) -> Self {
        Self::new(Outcome::ResultInvalid, format!("the changes of the run can't be published: {why}"))
            .with_hint("They changed after the call that proposed them. See `changes.patch` in the record.")
    }

    /// The journal can't be written. Nothing may happen that the journal doesn't record.
    pub(super) fn journal_write_failed(error: &io::Error) -> Self {
        // The owner of the record adds the hint.
        Self::new(Outcome::EnvironmentFailed, format!("the run's record can't be written: {error}"))
    }

    /// Compaction can't read the messages that it is to shorten.
    pub(super) fn messages_unreadable(error: &io::Error) -> Self {
        Self::new(Outcome::EnvironmentFailed, format!("the messages of the conversation can't be read back: {error}"))
    }

    /// An image or a document of the conversation can't be read from the record.
    pub(super) fn attachment_unreadable(error: &io::Error) -> Self {
        Self::new(Outcome::EnvironmentFailed, format!("an image of the conversation can't be sent: {error}"))
            .with_hint("Restore the file in the record, or start a new run.")
    }

    /// A subagent's copy of the workspace can't be made or merged.
    pub(super) fn workspace_copy(message: String) -> Self {
        Self::new(Outcome::EnvironmentFailed, message)
            .with_hint("Fix the cause, then `legwork resume`; or remove `workspace: own` from the subagent.")
    }

    /// The copy of the workspace in which a subagent worked is gone, and with it what the subagent did.
    pub(super) fn workspace_copy_gone(id: &str) -> Self {
        let message = format!(
            "{id} can't continue, because its copy of the workspace is gone; the effect of its work is unknown"
        );
        Self::new(Outcome::EnvironmentFailed, message).with_hint(
            "Check the workspace, then start the job again. Don't delete `.workspaces` while a run can be resumed.",
        )
    }

    /// The journal doesn't match the plan.
    pub(super) fn journal_mismatch(agent: &str, kind: &str) -> Self {
        Self::new(
            Outcome::EnvironmentFailed,
            format!("the journal of {agent} doesn't match the plan: a `{kind}` event is missing or unexpected"),
        )
        .with_hint("The record was changed, or another version of legwork wrote it. Start the job again.")
    }

    /// The model wrote a call as text, again after it was asked for another reply.
    pub(super) fn call_as_text(model: &Model, tool: &str) -> Self {
        let message = format!("{model} wrote a call of `{tool}` as text, twice, so the tool wasn't called");
        Self::new(Outcome::ProviderRejected, message).with_hint(
            "The server doesn't recognize the calls of this model. Turn on its parser for tool calls (vLLM: \
             `--enable-auto-tool-choice --tool-call-parser NAME`, SGLang: `--tool-call-parser NAME`, llama.cpp: `--jinja`), \
             or use another model. Then continue with `legwork resume`.",
        )
    }

    /// A step before the agent has failed.
    pub(super) fn step_failed(name: &str, why: &str) -> Self {
        Self::new(Outcome::EnvironmentFailed, format!("the step `{name}` before the agent failed: {why}")).with_hint(
            "Fix the cause; `legwork resume` runs the step again. With `optional: true` the run continues without it.",
        )
    }

    /// The state in the file isn't one of the job's.
    pub(super) fn unfit_state(why: &str) -> Self {
        Self::new(Outcome::EnvironmentFailed, why.to_owned()).with_hint(
            "Change the schema or the file of the state; or move the file away, and the state begins with `initial` again.",
        )
    }

    /// A template can't be rendered with what the steps before the agent have printed, or with the state.
    pub(super) fn late_template(why: &str) -> Self {
        Self::new(
            Outcome::EnvironmentFailed,
            format!("a template can't be rendered with the values of this run: {why}"),
        )
        .with_hint("Give the step a `schema`, so that its output always fits the template, or change the template.")
    }

    /// Whether commands created a git repository is unknown.
    pub fn repository_scan_incomplete() -> Self {
        Self::new(
            Outcome::EnvironmentFailed,
            "the workspace has too many files to search it for git repositories that commands created",
        )
        .with_hint("Before you run git in the workspace, look for folders named `.git` in it.")
    }

    /// The run was stopped by a signal, or because another agent ended it.
    pub(super) fn interrupted() -> Self {
        Self::new(Outcome::Interrupted, "the run was stopped")
            .with_hint("Everything up to this point is in the record.")
    }

    /// The run used up its wall clock time.
    pub(super) fn timed_out(limits: &PlannedLimits) -> Self {
        let seconds = limits.wall_clock_ms.unwrap_or_default() as f64 / 1000.0;
        Self::new(Outcome::TimedOut, format!("the run's time is up: limits.wall_clock is {seconds} s")).with_hint(
            "Raise limits.wall_clock or give the job less to do; `legwork resume --limit wall_clock=TIME` continues this \
             run.",
        )
    }

    /// Whether this also ends an agent that only sums up. A provider that fails then changes nothing.
    pub(super) fn is_fatal_during_final_request(&self) -> bool {
        matches!(self.outcome, Outcome::EnvironmentFailed | Outcome::Interrupted)
    }

    /// The error as `result.json` has it.
    pub fn error_info(&self) -> ErrorInfo {
        ErrorInfo { code: self.outcome.to_string(), message: self.message.clone(), hint: self.hint.clone() }
    }
}

impl From<EnvironmentError> for RunAbort {
    fn from(error: EnvironmentError) -> Self {
        let (message, hint) = match &error {
            // Nothing that the command left behind can be trusted.
            EnvironmentError::Tampered(error) => {
                (error.to_string(), "Read the last calls in transcript.md, and check the workspace before you use it.")
            }
            // The command's work isn't done.
            EnvironmentError::NotStarted(error) => (
                format!("a command can't be started: {error}"),
                "Allow the run more file descriptors (ulimit -n), processes or memory, or lower \
                 limits.parallel_subagents; then continue with `legwork resume`.",
            ),
            EnvironmentError::Unconfined(_) => (
                error.to_string(),
                "`legwork resume` looks for another sandbox before it continues; `legwork doctor` says which ones work here.",
            ),
            EnvironmentError::WorkspaceMoved(error) => {
                (error.to_string(), "Put it back, or name it with --workspace; then continue with `legwork resume`.")
            }
        };
        Self::new(Outcome::EnvironmentFailed, message).with_hint(hint)
    }
}

impl From<ProviderError> for RunAbort {
    fn from(error: ProviderError) -> Self {
        Self { outcome: error.kind.into(), message: error.message, hint: error.hint }
    }
}
