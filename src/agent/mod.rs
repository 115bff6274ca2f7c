//! The loop: ask the provider, answer the calls, append, until an outcome. The parent and its subagents are the same
//! loop, one level apart.

mod check_repairs;
mod compaction;
mod conclude;
mod context_window;
mod final_request;
mod journal_cursor;
mod message_history;
mod raised_limits;
mod recorded_tool;
mod redact_reply;
mod replay_driver;
mod request;
mod request_observer;
mod resume;
mod run_state;
mod structured_output;
mod stuck_detector;
mod tool_calls;

use tokio::time::Instant;

pub use self::check_repairs::{CheckRun, CheckRunner};
use self::compaction::CompactionState;
pub use self::compaction::CompactionStep;
use self::journal_cursor::JournaledCalls;
pub use self::journal_cursor::{JournalCursor, Stopwatch};
use self::message_history::MessageHistory;
use self::raised_limits::MAX_TURNS;
pub use self::raised_limits::{JournalSplit, RaisedLimits};
pub use self::replay_driver::{AgentStep, ReplayDriver};
use self::request::{RequestKind, RequestOutcome};
pub use self::resume::INTERRUPTED_CALL_NOTE;
pub use self::run_state::{RunAbort, RunDeps, RunState};
use self::structured_output::StructuredOutput;
use self::stuck_detector::StuckDetector;
use crate::budget::LimitHit;
use crate::event::{AgentFinished, AgentStarted, Durability, Event, LimitReached, Outcome, PARENT, ReplyDiscarded};
use crate::job::Compaction;
use crate::message::{Message, Reply, StopReason, ToolCall, Usage, UserMessage};
use crate::plan::PlannedAgent;
use crate::pricing;
use crate::providers::{Conversation, ConversationConfig};
use crate::tools::toolbox::Toolbox;

/// One agent at work.
pub struct Agent<'t> {
    tree: &'t RunState,
    id: String,
    subagent: Option<String>,
    description: Option<String>,
    planned: &'t PlannedAgent,
    conversation: Box<dyn Conversation>,
    /// What was said, where it may have to be said in fewer words.
    history: MessageHistory,
    /// The model's window in tokens, as far as it is known, once it was looked up.
    window: Option<Option<u64>>,
    /// The most tokens of a prompt, once that was looked up.
    prompt_limit: Option<u64>,
    toolbox: Toolbox,
    pending: Option<UserMessage>,
    limit: Option<LimitHit>,
    /// What the budget left of `max_tokens` for the last reply, where that was less, and the limit that left no more.
    budget_cap: Option<(u32, &'static str)>,
    stuck_detector: StuckDetector,
    /// Tokens of the conversation as the last reply counted them, and its size in bytes by then.
    last_measured: Option<(u64, usize)>,
    turns: u32,
    /// How often the checks were run.
    attempt: u32,
    tool_calls: u64,
    /// How often room was made for a request.
    compactions: u32,
    usage: Usage,
    cost_usd: Option<f64>,
    last_text: String,
    /// Why the model refused.
    refusal: Option<String>,
    structured_output: StructuredOutput,
    cursor: JournalCursor,
    /// The calls of the last reply that were begun before the run was cut off.
    journaled_calls: JournaledCalls,
}

impl<'t> Agent<'t> {
    /// Runs the job's parent to its end.
    pub async fn run_parent(tree: &'t RunState) -> AgentFinished {
        let prompt = tree.plan.parent.prompt.clone().unwrap_or_default();
        Self::run(tree, PARENT.to_owned(), None, None, &tree.plan.parent, prompt).await
    }

    async fn run(
        tree: &'t RunState,
        id: String,
        subagent: Option<String>,
        description: Option<String>,
        planned: &'t PlannedAgent,
        prompt: String,
    ) -> AgentFinished {
        let mut begun = Instant::now();
        // Its end, where its journal has it already.
        let mut known = None;
        let mut finished = AgentFinished {
            id: id.clone(),
            subagent: subagent.clone(),
            description: description.clone(),
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
        };
        match Self::open(tree, id.clone(), subagent, description, planned) {
            Ok(mut agent) => {
                finished.outcome = match agent.run_loop(prompt).await {
                    Ok(outcome) => outcome,
                    Err(halt) => tree.abort_run(halt, finished.subagent.is_none()),
                };
                finished.text = agent.last_text;
                finished.refusal = agent.refusal;
                finished.result = agent.structured_output.into_result();
                finished.turns = agent.turns;
                finished.tool_calls = agent.tool_calls;
                finished.compactions = agent.compactions;
                finished.usage = agent.usage;
                finished.cost_usd = agent.cost_usd.map(pricing::round_usd);
                begun = begun.checked_sub(agent.cursor.elapsed).unwrap_or(begun);
                known = agent.cursor.peek_end().cloned();
            }
            Err(halt) => finished.outcome = tree.abort_run(halt, finished.subagent.is_none()),
        }
        finished.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let is_new = known.is_none();
        finished = known.unwrap_or(finished);
        let own = is_new.then_some(finished.id.as_str());
        for journal in [own, finished.subagent.is_some().then_some(PARENT)].into_iter().flatten() {
            if let Err(halt) = tree.record(journal, finished.clone(), Durability::Written) {
                finished.outcome = tree.abort_run(halt, finished.subagent.is_none());
            }
        }
        finished
    }

    fn open(
        tree: &'t RunState,
        id: String,
        subagent: Option<String>,
        description: Option<String>,
        planned: &'t PlannedAgent,
    ) -> Result<Self, RunAbort> {
        tree.admit(&id, AgentStep::Start)?;
        let toolbox = tree.toolbox(&id, planned, subagent.is_none())?;
        let conversation = tree.provider(&planned.model)?.open(ConversationConfig {
            agent: id.clone(),
            model: planned.model.clone(),
            system: planned.system.clone(),
            tools: toolbox.specs(),
        })?;
        let mut past = tree.take_cursor(&id);
        if let Some(raised) = past.limit_raised.take() {
            tree.record(&id, raised, Durability::Written)?;
        }
        let mut agent = Self {
            tree,
            id,
            subagent,
            description,
            planned,
            conversation,
            history: MessageHistory::default(),
            window: None,
            prompt_limit: None,
            toolbox,
            pending: None,
            limit: None,
            budget_cap: None,
            stuck_detector: StuckDetector::default(),
            last_measured: None,
            turns: 0,
            attempt: 0,
            tool_calls: 0,
            compactions: 0,
            usage: Usage::default(),
            cost_usd: Some(0.0),
            last_text: String::new(),
            refusal: None,
            structured_output: StructuredOutput::new(tree, planned)?,
            cursor: past,
            journaled_calls: JournaledCalls::default(),
        };
        agent.count_rolled_back();
        Ok(agent)
    }

    async fn run_loop(&mut self, prompt: String) -> Result<Outcome, RunAbort> {
        self.record(AgentStarted {
            subagent: self.subagent.clone(),
            description: self.description.clone(),
            model: self.planned.model.to_string(),
            prompt: prompt.clone(),
        })?;
        self.history = MessageHistory::new(&prompt, self.planned.model.has_prefix_bound_thinking());
        self.pending = Some(UserMessage::text(prompt));
        let mut asked_again = false;
        // What is done about a window that the last reply filled.
        let mut effort = CompactionState::default();
        loop {
            if let Some(hit) = self.limit.take() {
                let hit = self.tree.reached_limit(&self.id, hit);
                return self.finish_at_limit(Outcome::BudgetExceeded, hit.limit, &hit.message).await;
            }
            if self.is_out_of_turns() {
                let message = match self.turns {
                    1 => "the one turn of this agent is used".to_owned(),
                    turns => format!("all {turns} turns of this agent are used"),
                };
                return self.finish_at_limit(Outcome::TurnLimit, MAX_TURNS, &message).await;
            }
            let reply = match self.request_reply(true, std::mem::take(&mut effort)).await? {
                RequestOutcome::Reply(reply) => reply,
                RequestOutcome::LimitReached(hit) => {
                    return self.finish_at_limit(Outcome::BudgetExceeded, hit.limit, &hit.message).await;
                }
                RequestOutcome::ContextFull { reason: message, .. } => {
                    self.tree.note(Outcome::ContextFull, &message);
                    return Ok(Outcome::ContextFull);
                }
            };
            self.turns += 1;
            let calls: Vec<ToolCall> = reply.tool_calls().cloned().collect();
            match reply.stop {
                StopReason::MaxTokens if self.budget_cap.is_some() => return self.handle_budget_cut(reply).await,
                StopReason::MaxTokens if calls.is_empty() => return Ok(Outcome::ReplyCut),
                StopReason::MaxTokens if asked_again || self.is_last_turn() => return Ok(Outcome::ReplyCut),
                StopReason::MaxTokens => {
                    asked_again = true;
                    self.record(ReplyDiscarded {
                        reason: format!("the reply was cut by max_tokens ({}) amid its calls", self.planned.max_tokens),
                    })?;
                    continue;
                }
                StopReason::Refusal => {
                    self.note_refusal(&reply);
                    return Ok(Outcome::Refused);
                }
                StopReason::ContextFull if asked_again || !self.can_compact() => {
                    let why = "the reply was cut: the conversation fills the model's window";
                    self.tree.note(Outcome::ContextFull, why);
                    return Ok(Outcome::ContextFull);
                }
                StopReason::ContextFull => {
                    asked_again = true;
                    let why = "the reply was cut: the conversation fills the model's window".to_owned();
                    self.record_overflow(&mut effort, why.clone(), false);
                    self.record(ReplyDiscarded { reason: why })?;
                    continue;
                }
                StopReason::EndTurn | StopReason::ToolUse | StopReason::Pause | StopReason::Other(_) => {}
            }
            asked_again = false;
            let paused = reply.stop == StopReason::Pause;
            // Without calls there is nothing to go on with, so the reply is the last one, text or not, and also for a
            // reason that is unknown here: the model or its server may have more words for an end than this program.
            if calls.is_empty() && !paused {
                match self.conclude(reply).await? {
                    Some(outcome) => return Ok(outcome),
                    None => continue,
                }
            }
            let tokens = reply.usage.total();
            self.append_message(Message::Assistant(reply));
            self.last_measured = Some((tokens, self.conversation.prompt_bytes()));
            if !calls.is_empty() {
                self.pending = Some(self.run_calls(calls).await?);
                if self.limit.is_none() {
                    self.limit = self.cursor.peek_limit().filter(|hit| hit.limit.starts_with("limits"));
                }
                // Calls that a limit stopped fail all alike; the limit is why.
                if let Some(why) = self.stuck_detector.stuck_reason().filter(|_| self.limit.is_none()) {
                    self.record(LimitReached { limit: "stuck".into(), message: why.clone() })?;
                    self.tree.note(Outcome::Stuck, &why);
                    return Ok(Outcome::Stuck);
                }
            }
        }
    }

    /// Whether the agent's turns are used up. What the journal has already was decided by the limit of that time.
    fn is_out_of_turns(&self) -> bool {
        if self.cursor.is_exhausted() {
            return self.turns >= self.tree.max_turns(&self.id, self.planned);
        }
        self.cursor.peek_limit().is_some_and(|hit| hit.limit == MAX_TURNS)
    }

    /// Whether a reply that can't be used may not be asked for again, for lack of turns.
    fn is_last_turn(&self) -> bool {
        if self.cursor.is_exhausted() {
            return self.turns >= self.tree.max_turns(&self.id, self.planned);
        }
        self.cursor.is_at_end()
    }

    /// Takes note of why the model refused, where its provider says so.
    fn note_refusal(&mut self, reply: &Reply) {
        self.refusal = reply.refusal_reason().map(str::to_owned);
        if let Some(why) = self.refusal.as_ref().filter(|_| self.subagent.is_none()) {
            self.tree.note(Outcome::Refused, &format!("the model refused ({why})"));
        }
    }

    /// Adds a message to the conversation.
    fn append_message(&mut self, message: Message) {
        self.conversation.push(&message);
        if self.tree.plan.compaction != Compaction::Off {
            self.history.push(message);
        }
    }

    /// Asks for the next reply, in a conversation that fits the model's window.
    async fn request_reply(
        &mut self,
        tools_allowed: bool,
        mut effort: CompactionState,
    ) -> Result<RequestOutcome, RunAbort> {
        if let Some(message) = self.pending.take() {
            self.append_message(Message::User(message));
        }
        loop {
            if let Some(answer) = self.compact(&mut effort, tools_allowed).await? {
                return Ok(answer);
            }
            match self.send_request(if tools_allowed { RequestKind::Turn } else { RequestKind::Final }).await? {
                RequestOutcome::ContextFull { reason: why, is_new_window: is_news } => {
                    // A server that names another window each time is believed once.
                    let is_news = is_news && effort.is_fresh();
                    self.record_overflow(&mut effort, why, is_news);
                }
                answer => return Ok(answer),
            }
        }
    }

    /// What the next prompt will take: the last reply's own count, and about three bytes a token for what is new.
    fn prompt_tokens(&self) -> u64 {
        let size = self.conversation.prompt_bytes();
        let (tokens, new) = match self.last_measured {
            Some((tokens, before)) if tokens > 0 => (tokens, size.saturating_sub(before)),
            _ => (0, size),
        };
        tokens.saturating_add(new as u64 / 3)
    }

    /// Writes an event down, unless the journal has it from before.
    fn record(&mut self, event: impl Into<Event>) -> Result<(), RunAbort> {
        let event = event.into();
        if self.cursor.is_exhausted() {
            return self.tree.record(&self.id, event, Durability::Written);
        }
        if self.cursor.take_event(&event) { Ok(()) } else { Err(RunAbort::journal_mismatch(&self.id, event.kind())) }
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
