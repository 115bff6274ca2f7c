//! The state of one agent: its plan, its progress so far, and its conversation.

use super::check_repairs::StructuredOutput;
use super::context_window::AgentContext;
use super::journal_cursor::JournalCursor;
use super::message_history::MessageHistory;
use super::run_state::{RunAbort, RunState};
use super::tool_calls::StuckDetector;
use crate::event::{AgentFinished, Durability, Event, LimitReached};
use crate::job::Compaction;
use crate::models::token_estimate::TokenEstimator;
use crate::plan::PlannedAgent;
use crate::providers::ConversationConfig;
use crate::tools::toolbox::Toolbox;

/// One agent of a run.
pub struct Agent<'t> {
    pub(super) run: &'t RunState,
    pub(super) planned: &'t PlannedAgent,
    /// Its id and its totals, as the `agent_finished` event will have them.
    pub(super) summary: AgentFinished,
    pub(super) context: AgentContext,
    pub(super) toolbox: Toolbox,
    pub(super) output: StructuredOutput,
    pub(super) stuck_detector: StuckDetector,
    /// The limit of the run that the last calls reached.
    pub(super) limit: Option<LimitReached>,
    /// The `max_tokens` of the last request and the limit that lowered it, if the budget did.
    pub(super) budget_cap: Option<(u32, &'static str)>,
    /// How many times the checks have run.
    pub(super) check_attempt: u32,
    pub(super) cursor: JournalCursor,
}

impl<'t> Agent<'t> {
    /// Prepares an agent. `summary` has its id and nothing else yet.
    pub(super) fn open(run: &'t RunState, planned: &'t PlannedAgent, summary: AgentFinished) -> Result<Self, RunAbort> {
        let mut cursor = run.take_cursor(&summary.id)?;
        let toolbox = run.toolbox(planned, summary.subagent.is_none())?;
        let conversation = run.provider(&planned.model)?.open(ConversationConfig {
            agent: summary.id.clone(),
            model: planned.model.clone(),
            system: planned.system.clone(),
            tools: toolbox.specs(),
        })?;
        if let Some(raised) = cursor.limit_raised.take() {
            run.record(&summary.id, raised, Durability::Written)?;
        }
        let prices = &run.deps.prices;
        let mut agent = Self {
            run,
            planned,
            summary,
            context: AgentContext {
                conversation,
                history: MessageHistory {
                    binds_thinking: planned.model.has_prefix_bound_thinking(),
                    is_off: run.deps.plan.compaction == Compaction::Off,
                    ..MessageHistory::default()
                },
                pending: None,
                estimator: TokenEstimator::default(),
                known_window: planned.model.context.or_else(|| prices.context_window(planned.model.price_key())),
                // If the job says how large the window is, all of it can be used.
                prompt_limit: match planned.model.context {
                    Some(_) => u64::MAX,
                    None => prices.prompt_limit(planned.model.price_key()).unwrap_or(u64::MAX),
                },
            },
            toolbox,
            output: StructuredOutput::new(run, planned)?,
            stuck_detector: StuckDetector::default(),
            limit: None,
            budget_cap: None,
            check_attempt: 0,
            cursor,
        };
        agent.count_rolled_back();
        Ok(agent)
    }

    /// The summary of an agent that hasn't done anything yet.
    pub(super) fn empty_summary(id: String, subagent: Option<String>, description: Option<String>) -> AgentFinished {
        AgentFinished { id, subagent, description, cost_usd: Some(0.0), ..AgentFinished::default() }
    }

    pub(super) fn id(&self) -> &str {
        &self.summary.id
    }

    /// Whether this is the job's parent.
    pub(super) fn is_parent(&self) -> bool {
        self.summary.subagent.is_none()
    }

    /// Records an event, unless the journal of a resumed run has it.
    pub(super) fn record(&mut self, event: impl Into<Event>) -> Result<(), RunAbort> {
        let event = event.into();
        if self.cursor.advance(&event)? { self.run.record(self.id(), event, Durability::Written) } else { Ok(()) }
    }

    /// Records an event of a recorded step again, where the replay compares it.
    pub(super) fn record_again(&self, event: impl Into<Event>) -> Result<(), RunAbort> {
        if self.cursor.is_replay() { self.run.record(self.id(), event, Durability::Written) } else { Ok(()) }
    }

    /// Checks that a step that isn't recorded may be taken. `kind` is its event; `difference` says what it means for a
    /// replay, which takes no such step.
    pub(super) fn go_live(&self, kind: &str, difference: &str) -> Result<(), RunAbort> {
        if self.cursor.is_replay() {
            return Err(self.leave_record(difference));
        }
        if !self.cursor.is_exhausted() {
            return Err(self.cursor.mismatch(kind));
        }
        self.run.check_running()
    }

    /// Ends a replayed agent: it stops as the recorded agent was stopped, or it differs from the record.
    pub(super) fn leave_record(&self, difference: &str) -> RunAbort {
        match self.cursor.stopped() {
            _ if self.run.is_stopped() => RunAbort::interrupted(),
            Some(stopped) => stopped.clone(),
            None => self.run.diverge(self.id(), difference),
        }
    }
}
