//! What went wrong in a run. The report and `show --errors` list the same.

use jiff::Timestamp;

use super::step_view::{Severity, StepView, notes_after_reply, notes_before_reply, of_refusal};
use crate::conversation::{AgentConversation, Call, ReplyBlock, StepKind, Text, Turn};
use crate::event::{AgentFinished, Outcome, PARENT};
use crate::text::pluralize;

/// Something that went wrong.
pub(super) struct Problem<'c> {
    /// When.
    pub(super) at: Timestamp,
    /// The index of its step; `None` if it is the end of the agent.
    pub(super) step: Option<usize>,
    /// The index of its call or check in the step.
    pub(super) part: Option<usize>,
    /// The turn that it is a part of, or that it followed.
    pub(super) turn: Option<&'c Turn>,
    /// What it is.
    pub(super) view: StepView<'c>,
    /// What is known about it.
    pub(super) text: Text,
}

/// What went wrong in an agent's own conversation, in the order of its steps. What may still end well is left out, unless
/// the run has ended.
pub(super) fn problems_of<'c>(agent: &'c AgentConversation, has_ended: bool) -> Vec<Problem<'c>> {
    let mut problems = Vec::new();
    let mut last_turn = None;
    for (index, step) in agent.steps.iter().enumerate() {
        let (step_at, index) = (step.at, Some(index));
        let mut add = |at: Option<Timestamp>, part: Option<usize>, turn: Option<&'c Turn>, view, text| {
            problems.push(Problem { at: at.unwrap_or(step_at), step: index, part, turn, view, text });
        };
        match &step.kind {
            StepKind::Turn(turn) => {
                last_turn = Some(&**turn);
                if let [.., (at, _)] = turn.retries.as_slice() {
                    let reasons: Vec<&str> = turn.retries.iter().map(|(_, retry)| retry.reason.as_str()).collect();
                    let title = format!("{} of a request failed", pluralize(reasons.len() as u64, "attempt"));
                    let view = StepView { severity: Severity::Failure, title, ..StepView::default() };
                    add(Some(*at), None, last_turn, view, Text::whole(reasons.join("\n")));
                }
                let notes = notes_before_reply(turn, has_ended).into_iter().skip(turn.retries.len());
                for mut view in notes.chain(notes_after_reply(turn)) {
                    if view.severity == Severity::Failure {
                        let text = Text::whole(std::mem::take(&mut view.note));
                        add(turn.replied_at, None, last_turn, view, text);
                    }
                }
                for block in &turn.blocks {
                    if let ReplyBlock::Refusal(why) = block {
                        add(turn.replied_at, None, last_turn, of_refusal(""), why.clone());
                    }
                }
                // A call may still run, or was asked for in vain.
                let is_over = |call: &Call| call.result.is_some() || has_ended && turn.discarded.is_none();
                let failed = |(_, call): &(usize, &Call)| call.end().is_failure() && is_over(call);
                for (part, call) in turn.calls.iter().enumerate().filter(failed) {
                    let result = call.result.clone().unwrap_or_default();
                    add(call.finished_at, Some(part), last_turn, StepView::of_call(call), result);
                }
            }
            StepKind::Checks(attempt) => {
                for (part, (_, started, end)) in attempt.checks.iter().enumerate() {
                    let view = StepView::of_check_at(attempt, part);
                    if view.severity == Severity::Failure && (has_ended || end.is_some()) {
                        let output = end.as_ref().map(|(_, end)| end.output.clone()).unwrap_or_default();
                        let at = end.as_ref().map_or(*started, |(at, _)| *at);
                        add(Some(at), Some(part), last_turn, view, Text::whole(output));
                    }
                }
            }
            StepKind::LimitReached(limit) => {
                let view = StepView { note: String::new(), ..StepView::of_limit(limit) };
                add(None, None, last_turn, view, Text::whole(limit.message.clone()));
            }
            _ => {}
        }
    }
    // The end of the parent is that of the run.
    let ended_early = |end: &&AgentFinished| end.outcome != Outcome::Completed && agent.id != PARENT;
    if let Some(end) = agent.finished.as_ref().filter(ended_early) {
        let (at, text) = (agent.last_at.unwrap_or_default(), Text::whole(end.refusal.clone().unwrap_or_default()));
        problems.push(Problem { at, step: None, part: None, turn: last_turn, view: StepView::of_agent_end(end), text });
    }
    problems
}
