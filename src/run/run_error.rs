//! Why a run didn't complete, and what to do about it.

use std::io;
use std::path::Path;

use crate::agent::RunState;
use crate::error::recovery_hint;
use crate::event::{AgentFinished, ErrorInfo, Outcome, RunResult};
use crate::job::Compaction;

/// Turns the result of a run into that of one whose record can't be written.
pub(super) fn mark_record_failure(result: &mut RunResult, failure: &io::Error, folder: &Path) {
    result.outcome = Outcome::EnvironmentFailed;
    result.exit_code = result.outcome.exit_code(None);
    result.error = Some(ErrorInfo {
        code: result.outcome.to_string(),
        message: format!("the run's record can't be written: {failure}"),
        hint: Some(recovery_hint(failure, folder)),
    });
}

/// Why the parent didn't complete; `None` if it did.
pub(super) fn error_info(run: &RunState, parent: &AgentFinished) -> Option<ErrorInfo> {
    if parent.outcome.is_success() {
        return None;
    }
    if let Some(abort) = run.abort().filter(|abort| abort.outcome == parent.outcome) {
        return Some(abort.error_info());
    }
    let (message, hint) = match parent.outcome {
        Outcome::ChecksFailed => {
            let hint = "Their output is in transcript.md. With `repairs`, the parent gets it and tries again.";
            ("a check doesn't pass", Some(hint))
        }
        Outcome::TurnLimit => (
            "the parent used all its turns",
            Some("Raise parent.max_turns or delegate more; `legwork resume --limit max_turns=N` continues this run."),
        ),
        Outcome::BudgetExceeded => (
            "a limit of the run was reached",
            Some("Raise it in `limits`; `legwork resume --limit NAME=VALUE` continues this run."),
        ),
        Outcome::Stuck => ("the same call failed again and again", Some("Read the last calls in transcript.md.")),
        Outcome::ReplyCut => ("the last answer was cut by max_tokens", Some("Raise parent.max_tokens.")),
        Outcome::Refused => {
            ("the model refused", Some("Explain the purpose of the work in the prompt, or try another model."))
        }
        Outcome::ResultInvalid => (
            "the parent ended without a result that matches its schema",
            Some("Read the tool's errors in transcript.md, and say in the prompt what the result must contain."),
        ),
        Outcome::ContextFull => {
            let hint = match run.deps.plan.compaction {
                _ if parent.turns == 0 => {
                    "Shorten the prompt, lower `max_tokens`, or use a model with a larger window. `model: { context: TOKENS }` says \
                     how large the window is."
                }
                Compaction::Off => "Remove `compaction: off`, or delegate more to subagents.",
                Compaction::Results => {
                    "Remove `compaction: results`, so that the model writes summaries, or delegate more to subagents."
                }
                Compaction::Summary => {
                    "Delegate more to subagents, read less at once, lower `max_tokens`, or use a model with a larger window."
                }
            };
            ("the conversation fills the model's window", Some(hint))
        }
        _ => ("the run didn't complete", None),
    };
    let message = run.last_note(parent.outcome).unwrap_or_else(|| message.to_owned());
    Some(ErrorInfo { code: parent.outcome.to_string(), message, hint: hint.map(str::to_owned) })
}
