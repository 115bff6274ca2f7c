//! How far agents may go: the limits, the clock and signals decide it, or the record of a run that is replayed.

use tokio_util::sync::CancellationToken;

use super::room::Way;
use super::tree::interrupted;
use super::{Halt, Tree};
use crate::budget::{LimitHit, Reservation, Wish};
use crate::event::AgentFinished;
use crate::message::{ToolCall, ToolResult, Usage};
use crate::plan::PlannedAgent;

/// What an agent is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// To begin.
    Begin,
    /// To make a request; whether the model may call tools.
    Request(bool),
    /// To begin the next call of a reply.
    Call,
    /// To answer a call that it has begun; by the call's id.
    Answer(&'a str),
    /// To go on after the answers to a reply.
    GoOn,
    /// To run a check.
    Check,
    /// To take what came of a check that it has begun.
    Checked,
}

/// What a record knows of a run that is replayed: it takes the place of limits, clock and signals. Agents are named by
/// their ids. Each of an agent's requests and calls is asked for once, in order.
pub trait Recorded: Send + Sync {
    /// Whether the agent took this step.
    ///
    /// # Errors
    /// How it ended instead.
    fn may(&self, agent: &str, step: Step<'_>) -> Result<(), Halt>;

    /// What the agent did next to make room in the model's window. `tools_allowed`: whether it is to ask for a turn.
    fn way(&self, agent: &str, tools_allowed: bool) -> Way;

    /// Takes note that results were shortened.
    fn shortened(&self, agent: &str);

    /// The output tokens that the next request asked for, where `max_tokens` is what the agent wants; for a summary or else.
    ///
    /// # Errors
    /// The limit that had no room for it.
    fn request(&self, agent: &str, is_summary: bool, max_tokens: u32) -> Result<u32, LimitHit>;

    /// Why the request that is under way came to no end, where it didn't.
    fn lost(&self, agent: &str) -> Option<Halt>;

    /// Takes note of a failed try of the request that is under way.
    ///
    /// # Errors
    /// The limit that had no room for another one.
    fn failed_try(&self, agent: &str) -> Result<(), LimitHit>;

    /// Whether a call was run.
    ///
    /// # Errors
    /// The limit that had no room for it.
    fn call(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit>;

    /// Whether a subagent was started for a call.
    ///
    /// # Errors
    /// The limit that had no room for it.
    fn subagent(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit>;

    /// How many turns the agent has, where the plan says `planned`.
    fn max_turns(&self, agent: &str, planned: u32) -> u32;

    /// The limit that ended the agent, in the words in which it was told; `hit` where none did.
    fn limit(&self, agent: &str, hit: LimitHit) -> LimitHit;

    /// How a subagent ended of which only its end is known.
    fn ended(&self, child: &str) -> Option<AgentFinished>;

    /// How the run ends that a subagent's end or its absence ends.
    fn halted(&self) -> Option<Halt>;

    /// Why a subagent that was called for never began, where it didn't.
    fn unbegun(&self, child: &str) -> Option<Halt>;

    /// What a call was told; `None` where it is to be run.
    fn result(&self, agent: &str, call_id: &str) -> Option<ToolResult>;
}

impl Tree {
    /// Whether an agent may take a step.
    pub(super) fn may(&self, agent: &str, step: Step<'_>) -> Result<(), Halt> {
        match (&self.recorded, step) {
            (None, Step::Begin | Step::Answer(_) | Step::Checked) => Ok(()),
            (None, _) => self.may_go_on(),
            (Some(_), _) if self.stop.is_cancelled() => Err(interrupted()),
            (Some(recorded), step) => recorded.may(agent, step),
        }
    }

    /// Waits until an agent's request can come to no end any more, and says why.
    pub(super) async fn cut_off(&self, agent: &str) -> Halt {
        match &self.recorded {
            None => self.stopped().await,
            Some(recorded) => first(recorded.lost(agent), &self.stop).await,
        }
    }

    /// Waits until a subagent that waits for its turn can't begin any more, and says why.
    pub(super) async fn cut_off_before(&self, child: &str) -> Halt {
        match &self.recorded {
            None => self.stopped().await,
            Some(recorded) => first(recorded.unbegun(child), &self.stop).await,
        }
    }

    /// Sets aside what a request may use.
    pub(super) async fn reserve(
        &self,
        agent: &str,
        is_summary: bool,
        mut wish: Wish,
    ) -> Result<Reservation<'_>, LimitHit> {
        if let Some(recorded) = &self.recorded {
            wish.max_tokens = recorded.request(agent, is_summary, wish.max_tokens)?;
        }
        self.budget.reserve(wish).await
    }

    /// Counts what a failed try of an agent's request has used.
    pub(super) fn count_failed(
        &self,
        agent: &str,
        reservation: &Reservation<'_>,
        used: &Usage,
        cost: Option<f64>,
    ) -> Result<(), LimitHit> {
        match &self.recorded {
            None => reservation.count_failed(used, cost),
            Some(recorded) => recorded.failed_try(agent),
        }
    }

    /// Counts a call that is about to be made.
    pub(super) fn count_call(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        match &self.recorded {
            None => self.budget.count_call(),
            Some(recorded) => recorded.call(agent, call),
        }
    }

    /// Counts a subagent that is about to be started.
    pub(super) fn count_subagent(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        match &self.recorded {
            None => self.budget.count_subagent(),
            Some(recorded) => recorded.subagent(agent, call),
        }
    }

    /// How many turns an agent has.
    pub(super) fn max_turns(&self, agent: &str, planned: &PlannedAgent) -> u32 {
        match &self.recorded {
            None => planned.max_turns,
            Some(recorded) => recorded.max_turns(agent, planned.max_turns),
        }
    }

    /// The limit of the run that ends an agent, as it is told.
    pub(super) fn limit(&self, agent: &str, hit: LimitHit) -> LimitHit {
        match &self.recorded {
            None => hit,
            Some(recorded) => recorded.limit(agent, hit),
        }
    }

    /// How a subagent ended that can't be run again.
    pub(super) fn known_end(&self, child: &str) -> Option<AgentFinished> {
        self.recorded.as_ref()?.ended(child)
    }
}

async fn first(halt: Option<Halt>, stop: &CancellationToken) -> Halt {
    match halt {
        Some(halt) => halt,
        None => {
            stop.cancelled().await;
            interrupted()
        }
    }
}
