//! The loop: ask the provider, answer the calls, append, until an outcome. The parent and its subagents are the same
//! loop, one level apart.

mod answer;
mod bounds;
mod closing;
mod conclude;
mod failures;
mod listener;
mod masked;
mod messages;
mod past;
mod raised;
mod recall;
mod recorded;
mod request;
mod review;
mod room;
mod submitted;
mod tree;
mod window;

use tokio::time::Instant;

pub use self::bounds::{Recorded, Step};
use self::failures::Failures;
use self::messages::Messages;
use self::past::Calls;
pub use self::past::{Past, Stopwatch};
use self::raised::MAX_TURNS;
pub use self::raised::{Raised, Split};
pub use self::recall::INTERRUPTED;
use self::request::{Answer, Kind};
pub use self::review::{Review, Reviewed};
use self::room::Effort;
pub use self::room::Way;
use self::submitted::Submitted;
pub use self::tree::{Halt, Tree, TreeParts};
use crate::budget::LimitHit;
use crate::event::{AgentFinished, AgentStarted, Dropped, Durability, Event, LimitReached, Outcome, PARENT};
use crate::job::Compaction;
use crate::message::{Message, Reply, Stop, ToolCall, Usage, UserMessage};
use crate::plan::PlannedAgent;
use crate::price;
use crate::providers::{Conversation, Setup};
use crate::tools::toolbox::Toolbox;

/// One agent at work.
pub struct Agent<'t> {
    tree: &'t Tree,
    id: String,
    subagent: Option<String>,
    description: Option<String>,
    planned: &'t PlannedAgent,
    conversation: Box<dyn Conversation>,
    /// What was said, where it may have to be said in fewer words.
    messages: Messages,
    /// The model's window in tokens, as far as it is known, once it was looked up.
    window: Option<Option<u64>>,
    /// The most tokens of a prompt, once that was looked up.
    prompt_limit: Option<u64>,
    toolbox: Toolbox,
    pending: Option<UserMessage>,
    limit: Option<LimitHit>,
    /// What the budget left of `max_tokens` for the last reply, where that was less, and the limit that left no more.
    lowered: Option<(u32, &'static str)>,
    failures: Failures,
    /// Tokens of the conversation as the last reply counted them, and its size in bytes by then.
    known: Option<(u64, usize)>,
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
    submitted: Submitted,
    past: Past,
    /// The calls of the last reply that were begun before the run was cut off.
    calls: Calls,
}

impl<'t> Agent<'t> {
    /// Runs the job's parent to its end.
    pub async fn parent(tree: &'t Tree) -> AgentFinished {
        let prompt = tree.plan.parent.prompt.clone().unwrap_or_default();
        Self::live(tree, PARENT.to_owned(), None, None, &tree.plan.parent, prompt).await
    }

    async fn live(
        tree: &'t Tree,
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
                finished.outcome = match agent.converse(prompt).await {
                    Ok(outcome) => outcome,
                    Err(halt) => tree.halt(halt, finished.subagent.is_none()),
                };
                finished.text = agent.last_text;
                finished.refusal = agent.refusal;
                finished.result = agent.submitted.into_result();
                finished.turns = agent.turns;
                finished.tool_calls = agent.tool_calls;
                finished.compactions = agent.compactions;
                finished.usage = agent.usage;
                finished.cost_usd = agent.cost_usd.map(price::rounded);
                begun = begun.checked_sub(agent.past.elapsed).unwrap_or(begun);
                known = agent.past.end().cloned();
            }
            Err(halt) => finished.outcome = tree.halt(halt, finished.subagent.is_none()),
        }
        finished.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let is_new = known.is_none();
        finished = known.unwrap_or(finished);
        let own = is_new.then_some(finished.id.as_str());
        for journal in [own, finished.subagent.is_some().then_some(PARENT)].into_iter().flatten() {
            if let Err(halt) = tree.record(journal, finished.clone(), Durability::Written) {
                finished.outcome = tree.halt(halt, finished.subagent.is_none());
            }
        }
        finished
    }

    fn open(
        tree: &'t Tree,
        id: String,
        subagent: Option<String>,
        description: Option<String>,
        planned: &'t PlannedAgent,
    ) -> Result<Self, Halt> {
        tree.may(&id, Step::Begin)?;
        let toolbox = tree.toolbox(&id, planned, subagent.is_none())?;
        let conversation = tree.provider(&planned.model)?.open(Setup {
            agent: id.clone(),
            model: planned.model.clone(),
            system: planned.system.clone(),
            tools: toolbox.specs(),
        })?;
        let mut past = tree.past_of(&id);
        if let Some(raised) = past.raised.take() {
            tree.record(&id, raised, Durability::Written)?;
        }
        let mut agent = Self {
            tree,
            id,
            subagent,
            description,
            planned,
            conversation,
            messages: Messages::default(),
            window: None,
            prompt_limit: None,
            toolbox,
            pending: None,
            limit: None,
            lowered: None,
            failures: Failures::default(),
            known: None,
            turns: 0,
            attempt: 0,
            tool_calls: 0,
            compactions: 0,
            usage: Usage::default(),
            cost_usd: Some(0.0),
            last_text: String::new(),
            refusal: None,
            submitted: Submitted::new(tree, planned)?,
            past,
            calls: Calls::default(),
        };
        agent.count_undone();
        Ok(agent)
    }

    async fn converse(&mut self, prompt: String) -> Result<Outcome, Halt> {
        self.record(AgentStarted {
            subagent: self.subagent.clone(),
            description: self.description.clone(),
            model: self.planned.model.to_string(),
            prompt: prompt.clone(),
        })?;
        self.messages = Messages::new(&prompt, self.planned.model.binds_thinking());
        self.pending = Some(UserMessage::text(prompt));
        let mut asked_again = false;
        // What is done about a window that the last reply filled.
        let mut effort = Effort::default();
        loop {
            if let Some(hit) = self.limit.take() {
                let hit = self.tree.limit(&self.id, hit);
                return self.close(Outcome::BudgetExceeded, hit.limit, &hit.message).await;
            }
            if self.is_out_of_turns() {
                let message = match self.turns {
                    1 => "the one turn of this agent is used".to_owned(),
                    turns => format!("all {turns} turns of this agent are used"),
                };
                return self.close(Outcome::TurnLimit, MAX_TURNS, &message).await;
            }
            let reply = match self.ask(true, std::mem::take(&mut effort)).await? {
                Answer::Reply(reply) => reply,
                Answer::Limit(hit) => return self.close(Outcome::BudgetExceeded, hit.limit, &hit.message).await,
                Answer::Full { why: message, .. } => {
                    self.tree.note(Outcome::ContextFull, &message);
                    return Ok(Outcome::ContextFull);
                }
            };
            self.turns += 1;
            let calls: Vec<ToolCall> = reply.calls().cloned().collect();
            match reply.stop {
                Stop::MaxTokens if self.lowered.is_some() => return self.cut_by_the_budget(reply).await,
                Stop::MaxTokens if calls.is_empty() => return Ok(Outcome::ReplyCut),
                Stop::MaxTokens if asked_again || self.was_the_last_turn() => return Ok(Outcome::ReplyCut),
                Stop::MaxTokens => {
                    asked_again = true;
                    self.record(Dropped {
                        why: format!("the reply was cut by max_tokens ({}) amid its calls", self.planned.max_tokens),
                    })?;
                    continue;
                }
                Stop::Refusal => {
                    self.note_refusal(&reply);
                    return Ok(Outcome::Refused);
                }
                Stop::ContextFull if asked_again || !self.can_make_room() => {
                    let why = "the reply was cut: the conversation fills the model's window";
                    self.tree.note(Outcome::ContextFull, why);
                    return Ok(Outcome::ContextFull);
                }
                Stop::ContextFull => {
                    asked_again = true;
                    let why = "the reply was cut: the conversation fills the model's window".to_owned();
                    self.refused(&mut effort, why.clone(), false);
                    self.record(Dropped { why })?;
                    continue;
                }
                Stop::EndTurn | Stop::ToolUse | Stop::Pause | Stop::Other(_) => {}
            }
            asked_again = false;
            let paused = reply.stop == Stop::Pause;
            // Without calls there is nothing to go on with, so the reply is the last one, text or not, and also for a
            // reason that is unknown here: the model or its server may have more words for an end than this program.
            if calls.is_empty() && !paused {
                match self.conclude(reply).await? {
                    Some(outcome) => return Ok(outcome),
                    None => continue,
                }
            }
            let tokens = reply.usage.total();
            self.say(Message::Assistant(reply));
            self.known = Some((tokens, self.conversation.size()));
            if !calls.is_empty() {
                self.pending = Some(self.answer(calls).await?);
                if self.limit.is_none() {
                    self.limit = self.past.limit().filter(|hit| hit.limit.starts_with("limits"));
                }
                // Calls that a limit stopped fail all alike; the limit is why.
                if let Some(why) = self.failures.stuck().filter(|_| self.limit.is_none()) {
                    self.record(LimitReached { limit: "stuck".into(), message: why.clone() })?;
                    self.tree.note(Outcome::Stuck, &why);
                    return Ok(Outcome::Stuck);
                }
            }
        }
    }

    /// Whether the agent's turns are used up. What the journal has already was decided by the limit of that time.
    fn is_out_of_turns(&self) -> bool {
        if self.past.is_over() {
            return self.turns >= self.tree.max_turns(&self.id, self.planned);
        }
        self.past.limit().is_some_and(|hit| hit.limit == MAX_TURNS)
    }

    /// Whether a reply that can't be used may not be asked for again, for lack of turns.
    fn was_the_last_turn(&self) -> bool {
        if self.past.is_over() {
            return self.turns >= self.tree.max_turns(&self.id, self.planned);
        }
        self.past.ends()
    }

    /// Takes note of why the model refused, where its provider says so.
    fn note_refusal(&mut self, reply: &Reply) {
        self.refusal = reply.why_refused().map(str::to_owned);
        if let Some(why) = self.refusal.as_ref().filter(|_| self.subagent.is_none()) {
            self.tree.note(Outcome::Refused, &format!("the model refused ({why})"));
        }
    }

    /// Adds a message to the conversation.
    fn say(&mut self, message: Message) {
        self.conversation.push(&message);
        if self.tree.plan.compaction != Compaction::Off {
            self.messages.push(message);
        }
    }

    /// Asks for the next reply, in a conversation that fits the model's window.
    async fn ask(&mut self, tools_allowed: bool, mut effort: Effort) -> Result<Answer, Halt> {
        if let Some(message) = self.pending.take() {
            self.say(Message::User(message));
        }
        loop {
            if let Some(answer) = self.make_room(&mut effort, tools_allowed).await? {
                return Ok(answer);
            }
            match self.request(if tools_allowed { Kind::Turn } else { Kind::Closing }).await? {
                Answer::Full { why, is_news } => {
                    // A server that names another window each time is believed once.
                    let is_news = is_news && effort.is_fresh();
                    self.refused(&mut effort, why, is_news);
                }
                answer => return Ok(answer),
            }
        }
    }

    /// What the next prompt will take: the last reply's own count, and about three bytes a token for what is new.
    fn prompt_tokens(&self) -> u64 {
        let size = self.conversation.size();
        let (tokens, new) = match self.known {
            Some((tokens, before)) if tokens > 0 => (tokens, size.saturating_sub(before)),
            _ => (0, size),
        };
        tokens.saturating_add(new as u64 / 3)
    }

    /// Writes an event down, unless the journal has it from before.
    fn record(&mut self, event: impl Into<Event>) -> Result<(), Halt> {
        let event = event.into();
        if self.past.is_over() {
            return self.tree.record(&self.id, event, Durability::Written);
        }
        if self.past.take(&event) { Ok(()) } else { Err(Halt::unlike(&self.id, event.kind())) }
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
