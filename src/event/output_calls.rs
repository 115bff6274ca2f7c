//! What the calls of a run propose to do outside, and which of them were refused.

use super::CallFinished;
use crate::job::NOTHING_TO_DO;
use crate::outputs::{Accepted, NOT_ACCEPTED, Outputs, REFUSED};
use crate::text::truncate;

/// The most refused calls that are kept.
const MAX_REFUSED: usize = 100;
/// The most characters of the reason of each.
const MAX_REASON_CHARS: usize = 2_000;

/// What the calls of all agents proposed.
#[derive(Debug, Clone, Default)]
pub struct OutputCalls {
    /// What was accepted, and no later call replaced.
    pub accepted: Accepted,
    /// The first calls that were refused.
    pub refused: Vec<RefusedOutput>,
    /// How many calls were refused.
    pub refused_calls: u64,
}

/// A call that proposed something and was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedOutput {
    /// The agent that called.
    pub agent: String,
    /// The output's name.
    pub name: String,
    /// Why: the rule, and its place in the text.
    pub why: String,
}

/// What a run is known to propose outside.
#[derive(Debug, Clone, Default)]
pub struct ProposedOutputs {
    /// What the job allows.
    pub allowed: Outputs,
    /// What its calls proposed. If the run has come to its end, `accepted` is what it recorded there.
    pub calls: OutputCalls,
    /// How many files the run changed, if that is known.
    pub changed_files: u64,
    /// Whether the run has come to its end.
    pub is_final: bool,
}

impl OutputCalls {
    /// Takes the end of a call.
    pub(super) fn apply(&mut self, agent: &str, allowed: &Outputs, finished: &CallFinished) {
        if let Some(proposal) = &finished.proposal {
            self.accepted.apply(proposal);
        }
        let is_output = allowed.allowed.contains_key(&finished.tool) || finished.tool == NOTHING_TO_DO;
        if !is_output || !finished.result.is_error || finished.no_result.is_some() {
            return;
        }
        self.refused_calls += 1;
        if self.refused.len() < MAX_REFUSED {
            let why = finished.result.text.as_str();
            let why = why.strip_prefix(REFUSED).unwrap_or(why);
            let why = why.strip_suffix(NOT_ACCEPTED).unwrap_or(why);
            self.refused.push(RefusedOutput {
                agent: agent.to_owned(),
                name: finished.tool.clone(),
                why: truncate::ellipsize(why, MAX_REASON_CHARS),
            });
        }
    }

    /// Whether nothing was proposed.
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty() && self.refused_calls == 0
    }
}
