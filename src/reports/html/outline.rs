//! What the parts of the report share about a run: its agents in order, the anchor of every step, and what failed.

use std::collections::HashMap;

use crate::conversation::{AgentConversation, CheckAttempt, Conversation, ReplyBlock, Step, StepKind, TurnKind};

/// The agents of a run: each before the subagents that it started, in the order of the calls; orphans last.
pub(super) struct Outline<'a> {
    pub(super) agents: Vec<AgentOutline<'a>>,
}

/// One agent.
pub(super) struct AgentOutline<'a> {
    pub(super) agent: &'a AgentConversation,
    pub(super) anchor: String,
    /// How many agents are above it.
    pub(super) depth: usize,
    /// The anchors of its steps.
    pub(super) steps: Vec<String>,
    pub(super) counts: Counts,
}

/// How often something happened in an agent's own conversation.
#[derive(Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) turns: u64,
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    pub(super) retries: u64,
    pub(super) refusals: u64,
}

impl<'a> Outline<'a> {
    pub(super) fn of(conversation: &'a Conversation) -> Self {
        let mut outline = Self { agents: Vec::new() };
        let mut used = HashMap::new();
        outline.add(&conversation.parent, 0, &mut used);
        for orphan in &conversation.orphans {
            outline.add(orphan, 1, &mut used);
        }
        outline
    }

    fn add(&mut self, agent: &'a AgentConversation, depth: usize, used: &mut HashMap<String, u64>) {
        let anchor = unique(if agent.id.is_empty() { "agent" } else { &agent.id }, used);
        let steps = agent.steps.iter().enumerate().map(|(at, step)| unique(&step_anchor(&anchor, at, step), used));
        let steps = steps.collect();
        let mut counts = Counts::default();
        for turn in agent.turns() {
            counts.turns += u64::from(turn.is_turn());
            counts.calls += turn.calls.iter().filter(|call| call.end().was_run()).count() as u64;
            counts.failed_calls += turn.calls.iter().filter(|call| call.end().is_failure()).count() as u64;
            counts.retries += turn.retries.len() as u64;
            counts.refusals += u64::from(turn.blocks.iter().any(|block| matches!(block, ReplyBlock::Refusal(_))));
        }
        self.agents.push(AgentOutline { agent, anchor, depth, steps, counts });
        for child in agent.children() {
            self.add(child, depth + 1, used);
        }
    }

    /// The counts of all agents together.
    pub(super) fn totals(&self) -> Counts {
        self.agents.iter().fold(Counts::default(), |sum, AgentOutline { counts, .. }| Counts {
            turns: sum.turns + counts.turns,
            calls: sum.calls + counts.calls,
            failed_calls: sum.failed_calls + counts.failed_calls,
            retries: sum.retries + counts.retries,
            refusals: sum.refusals + counts.refusals,
        })
    }
}

/// The anchor of a call of a turn, or of a check of an attempt; `at` counts from 0.
pub(super) fn call_anchor(turn: &str, at: usize) -> String {
    format!("{turn}.c{}", at + 1)
}

/// Whether a check of an attempt failed or didn't end.
pub(super) fn checks_failed(attempt: &CheckAttempt) -> bool {
    attempt.checks.iter().any(|(_, _, end)| end.as_ref().is_none_or(|(_, finished)| !finished.passed))
}

fn step_anchor(agent: &str, at: usize, step: &Step) -> String {
    match &step.kind {
        StepKind::Turn(turn) => {
            let suffix = match turn.kind {
                TurnKind::Turn if turn.failed.is_some() => ".failed",
                TurnKind::Turn => "",
                TurnKind::FinalReply => ".final",
                TurnKind::Summary => ".summary",
            };
            format!("{agent}.t{}{suffix}", turn.number)
        }
        StepKind::Checks(checks) => format!("{agent}.checks-{}", checks.attempt),
        _ => format!("{agent}.s{}", at + 1),
    }
}

/// The anchor with a number behind it, if another element has it already. `used` has the last number of each anchor.
fn unique(anchor: &str, used: &mut HashMap<String, u64>) -> String {
    let mut free = anchor.to_owned();
    while used.contains_key(&free) {
        let number = used.entry(anchor.to_owned()).or_insert(1);
        *number += 1;
        free = format!("{anchor}-{number}");
    }
    used.insert(free.clone(), 1);
    free
}
