//! The state of one agent: its plan, its progress so far, and its conversation.

use std::cell::OnceCell;

use super::journal_cursor::JournalCursor;
use super::message_history::MessageHistory;
use super::run_abort::RunAbort;
use super::run_state::RunState;
use super::structured_output::StructuredOutput;
use super::stuck_detector::StuckDetector;
use super::token_estimate::TokenEstimator;
use crate::event::{AgentFinished, Durability, Event, LimitReached, Outcome};
use crate::job::Compaction;
use crate::message::{Message, Reply, Usage, UserMessage};
use crate::plan::PlannedAgent;
use crate::providers::{Conversation, ConversationConfig};
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

/// An agent's conversation with its model.
pub(super) struct AgentContext {
    /// What the provider sends.
    pub(super) conversation: Box<dyn Conversation>,
    /// The same messages, so that compaction can shorten them; empty if the job switches compaction off.
    pub(super) history: MessageHistory,
    keeps_history: bool,
    /// The message that the next request adds.
    pub(super) pending: Option<UserMessage>,
    pub(super) tokens: TokenEstimator,
    /// The model's window as the plan or the price table has it.
    pub(super) known_window: OnceCell<Option<u64>>,
    pub(super) prompt_limit: OnceCell<u64>,
}

impl AgentContext {
    fn new(conversation: Box<dyn Conversation>, keeps_history: bool) -> Self {
        Self {
            conversation,
            history: MessageHistory::default(),
            keeps_history,
            pending: None,
            tokens: TokenEstimator::default(),
            known_window: OnceCell::new(),
            prompt_limit: OnceCell::new(),
        }
    }

    /// Starts the conversation with its first user message.
    pub(super) fn start(&mut self, prompt: String, binds_thinking: bool) {
        self.history = MessageHistory::new(&prompt, binds_thinking);
        self.pending = Some(UserMessage::text(prompt));
    }

    /// Adds a message at the end.
    pub(super) fn append(&mut self, message: Message) {
        self.conversation.push(&message);
        if self.keeps_history {
            self.history.push(message);
        }
    }

    /// Adds a reply at the end. Its own count covers the conversation up to here.
    pub(super) fn append_reply(&mut self, reply: Reply) {
        let tokens = reply.usage.total();
        self.append(Message::Assistant(reply));
        self.set_token_count(tokens);
    }

    /// Adds the pending message at the end.
    pub(super) fn append_pending(&mut self) {
        if let Some(message) = self.pending.take() {
            self.append(Message::User(message));
        }
    }

    /// The size of the next prompt in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.conversation.prompt_bytes()
    }

    /// An estimate of the tokens of the next prompt.
    pub(super) fn likely_tokens(&self) -> u64 {
        self.tokens.likely(self.bytes())
    }

    /// A high estimate of the tokens of the next prompt.
    pub(super) fn high_tokens(&self) -> u64 {
        self.tokens.high(self.bytes())
    }

    /// Takes the provider's token count of the current conversation.
    pub(super) fn set_token_count(&mut self, tokens: u64) {
        self.tokens.set(tokens, self.bytes());
    }
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
        let mut agent = Self {
            run,
            planned,
            summary,
            context: AgentContext::new(conversation, run.plan.compaction != Compaction::Off),
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
        AgentFinished {
            id,
            subagent,
            description,
            outcome: Outcome::EnvironmentFailed,
            text: String::new(),
            refusal: None,
            result: None,
            turns: 0,
            tool_calls: 0,
            compactions: 0,
            usage: Usage::default(),
            cost_usd: Some(0.0),
            duration_ms: 0,
        }
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
        match self.cursor.advance(&event) {
            Ok(true) => self.run.record(self.id(), event, Durability::Written),
            Ok(false) => Ok(()),
            Err(_) => Err(self.mismatch(event.kind())),
        }
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
            return Err(self.mismatch(kind));
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

    pub(super) fn mismatch(&self, kind: &str) -> RunAbort {
        RunAbort::journal_mismatch(self.id(), kind)
    }
}
