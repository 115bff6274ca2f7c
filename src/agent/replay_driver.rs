//! How far agents may go: the limits, the clock and signals decide it, or the record of a run that is replayed.

use tokio_util::sync::CancellationToken;

use super::compaction::CompactionStep;
use super::run_state::interrupted;
use super::{RunAbort, RunState};
use crate::budget::{LimitHit, RequestEstimate, Reservation};
use crate::event::AgentFinished;
use crate::message::{ToolCall, ToolResult, Usage};
use crate::plan::PlannedAgent;

/// What an agent is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentStep<'a> {
    /// To begin.
    Start,
    /// To make a request; whether the model may call tools.
    Request(bool),
    /// To begin the next call of a reply.
    StartCall,
    /// To answer a call that it has begun; by the call's id.
    FinishCall(&'a str),
    /// To go on after the answers to a reply.
    Continue,
    /// To run a check.
    StartCheck,
    /// To take what came of a check that it has begun.
    FinishCheck,
}

/// What a record knows of a run that is replayed: it takes the place of limits, clock and signals. Agents are named by
/// their ids. Each of an agent's requests and calls is asked for once, in order.
pub trait ReplayDriver: Send + Sync {
    /// Whether the agent took this step.
    ///
    /// # Errors
    /// How it ended instead.
    fn admit(&self, agent: &str, step: AgentStep<'_>) -> Result<(), RunAbort>;

    /// What the agent did next to make room in the model's window. `tools_allowed`: whether it is to ask for a turn.
    fn next_compaction_step(&self, agent: &str, tools_allowed: bool) -> CompactionStep;

    /// Takes note that results were shortened.
    fn results_truncated(&self, agent: &str);

    /// The output tokens that the next request asked for, where `max_tokens` is what the agent wants; for a summary or else.
    ///
    /// # Errors
    /// The limit that had no room for it.
    fn admit_request(&self, agent: &str, is_summary: bool, max_tokens: u32) -> Result<u32, LimitHit>;

    /// Why the request that is under way came to no end, where it didn't.
    fn unfinished_request(&self, agent: &str) -> Option<RunAbort>;

    /// Takes note of a failed try of the request that is under way.
    ///
    /// # Errors
    /// The limit that had no room for another one.
    fn count_failed_try(&self, agent: &str) -> Result<(), LimitHit>;

    /// Whether a call was run.
    ///
    /// # Errors
    /// The limit that had no room for it.
    fn admit_call(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit>;

    /// Whether a subagent was started for a call.
    ///
    /// # Errors
    /// The limit that had no room for it.
    fn admit_subagent(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit>;

    /// How many turns the agent has, where the plan says `planned`.
    fn max_turns(&self, agent: &str, planned: u32) -> u32;

    /// The limit that ended the agent, in the words in which it was told; `hit` where none did.
    fn reached_limit(&self, agent: &str, hit: LimitHit) -> LimitHit;

    /// How a subagent ended of which only its end is known.
    fn subagent_end(&self, child: &str) -> Option<AgentFinished>;

    /// How the run ends that a subagent's end or its absence ends.
    fn run_abort(&self) -> Option<RunAbort>;

    /// Why a subagent that was called for never began, where it didn't.
    fn unstarted_subagent(&self, child: &str) -> Option<RunAbort>;

    /// What a call was told; `None` where it is to be run.
    fn recorded_result(&self, agent: &str, call_id: &str) -> Option<ToolResult>;
}

impl RunState {
    /// Whether an agent may take a step.
    pub(super) fn admit(&self, agent: &str, step: AgentStep<'_>) -> Result<(), RunAbort> {
        match (&self.replay_driver, step) {
            (None, AgentStep::Start | AgentStep::FinishCall(_) | AgentStep::FinishCheck) => Ok(()),
            (None, _) => self.check_running(),
            (Some(_), _) if self.stop.is_cancelled() => Err(interrupted()),
            (Some(recorded), step) => recorded.admit(agent, step),
        }
    }

    /// Waits until an agent's request can come to no end any more, and says why.
    pub(super) async fn wait_for_abort(&self, agent: &str) -> RunAbort {
        match &self.replay_driver {
            None => self.wait_for_stop().await,
            Some(recorded) => abort_or_cancelled(recorded.unfinished_request(agent), &self.stop).await,
        }
    }

    /// Waits until a subagent that waits for its turn can't begin any more, and says why.
    pub(super) async fn wait_for_abort_before_start(&self, child: &str) -> RunAbort {
        match &self.replay_driver {
            None => self.wait_for_stop().await,
            Some(recorded) => abort_or_cancelled(recorded.unstarted_subagent(child), &self.stop).await,
        }
    }

    /// Sets aside what a request may use.
    pub(super) async fn reserve(
        &self,
        agent: &str,
        is_summary: bool,
        mut wish: RequestEstimate,
    ) -> Result<Reservation<'_>, LimitHit> {
        if let Some(recorded) = &self.replay_driver {
            wish.max_tokens = recorded.admit_request(agent, is_summary, wish.max_tokens)?;
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
        match &self.replay_driver {
            None => reservation.count_failed(used, cost),
            Some(recorded) => recorded.count_failed_try(agent),
        }
    }

    /// Counts a call that is about to be made.
    pub(super) fn count_call(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        match &self.replay_driver {
            None => self.budget.count_call(),
            Some(recorded) => recorded.admit_call(agent, call),
        }
    }

    /// Counts a subagent that is about to be started.
    pub(super) fn count_subagent(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        match &self.replay_driver {
            None => self.budget.count_subagent(),
            Some(recorded) => recorded.admit_subagent(agent, call),
        }
    }

    /// How many turns an agent has.
    pub(super) fn max_turns(&self, agent: &str, planned: &PlannedAgent) -> u32 {
        match &self.replay_driver {
            None => planned.max_turns,
            Some(recorded) => recorded.max_turns(agent, planned.max_turns),
        }
    }

    /// The limit of the run that ends an agent, as it is told.
    pub(super) fn reached_limit(&self, agent: &str, hit: LimitHit) -> LimitHit {
        match &self.replay_driver {
            None => hit,
            Some(recorded) => recorded.reached_limit(agent, hit),
        }
    }

    /// How a subagent ended that can't be run again.
    pub(super) fn recorded_end(&self, child: &str) -> Option<AgentFinished> {
        self.replay_driver.as_ref()?.subagent_end(child)
    }
}

async fn abort_or_cancelled(halt: Option<RunAbort>, stop: &CancellationToken) -> RunAbort {
    match halt {
        Some(halt) => halt,
        None => {
            stop.cancelled().await;
            interrupted()
        }
    }
}
