//! The state of one agent: its plan, its progress so far, and its conversation.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::journal_cursor::JournalCursor;
use super::message_store::{MessageFile, MessageStore};
use super::run_abort::RunAbort;
use super::run_state::RunState;
use super::stuck_detector::StuckDetector;
use crate::event::{AgentFinished, Event, LimitReached, ModelChanged, Outcome};
use crate::job::Compaction;
use crate::message::{Message, Reply, ToolCall, ToolResult, UserMessage};
use crate::models::token_estimate::TokenEstimator;
use crate::plan::PlannedAgent;
use crate::providers::{Conversation, ConversationConfig, Model, ProviderError};
use crate::tools::submit_result::SubmitResult;
use crate::tools::task::Task;
use crate::tools::toolbox::Toolbox;

/// One agent of a run.
pub struct Agent<'t> {
    pub(super) run: &'t RunState,
    pub(super) planned: &'t PlannedAgent,
    /// The model that it asks: its own, or a fallback.
    pub(super) model: &'t Model,
    /// The most output tokens of one reply of that model.
    pub(super) max_tokens: u32,
    /// How many fallbacks have replaced a model.
    pub(super) fallbacks: usize,
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
    /// The messages as the provider sends them.
    pub(super) conversation: Box<dyn Conversation>,
    /// The same messages on disk, so that compaction can shorten them.
    pub(super) history: MessageStore,
    pub(super) message_file: Arc<MessageFile>,
    /// The message that the next request adds.
    pub(super) pending: Option<UserMessage>,
    /// The calls whose results have images or documents that the model hasn't replied to.
    pub(super) new_images: Vec<String>,
    /// The call ids that a fallback gets, by those of the journal.
    pub(super) call_aliases: HashMap<String, String>,
    /// Estimates the tokens of the prompt.
    pub(super) estimator: TokenEstimator,
    /// The model's window as the job or the price table has it.
    pub(super) known_window: Option<u64>,
    /// The most tokens of a prompt, independent of the window.
    pub(super) prompt_limit: u64,
}

impl AgentContext {
    /// Adds a message at the end.
    pub(super) fn append(&mut self, message: Message) {
        self.conversation.push(&message);
        self.history.push(&self.message_file, message);
    }

    /// Adds a reply at the end. Its own count covers the conversation up to here.
    pub(super) fn append_reply(&mut self, reply: Reply) {
        let tokens = reply.usage.total();
        self.append(Message::Assistant(reply));
        let bytes = self.bytes();
        self.estimator.set(tokens, bytes);
    }

    /// The size of the next prompt in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.conversation.prompt_bytes()
    }

    /// An estimate of the tokens of the next prompt.
    pub(super) fn likely_tokens(&self) -> u64 {
        self.estimator.likely(self.bytes())
    }

    /// A high estimate of the tokens of the next prompt.
    pub(super) fn high_tokens(&self) -> u64 {
        self.estimator.high(self.bytes())
    }
}

/// The data that an agent has to end with.
#[derive(Debug, Default)]
pub(super) struct StructuredOutput {
    /// The tool that checks the data; `None` if the agent ends with a text.
    pub(super) tool: Option<SubmitResult>,
    /// The last data that matched the schema.
    pub(super) result: Option<Value>,
    /// Whether it was the text of a reply.
    pub(super) is_from_text: bool,
    pub(super) was_reminded: bool,
    /// Whether the parent was reminded that the run must propose something.
    pub(super) was_asked_to_propose: bool,
}

impl StructuredOutput {
    /// Takes a call and its result, in the order of the calls; from the record as well as from the tool.
    pub(super) fn record_call(&mut self, call: &ToolCall, answer: &ToolResult) {
        let Some(tool) = self.tool.as_ref().filter(|_| call.tool == SubmitResult::NAME) else { return };
        if !answer.is_error
            && call.input_error.is_none()
            && let Some(data) = tool.accepted(&call.input)
        {
            (self.result, self.is_from_text) = (Some(data), false);
        }
    }
}

/// Opens a conversation of an agent with a model.
fn open_conversation(
    run: &RunState,
    planned: &PlannedAgent,
    model: &Model,
    id: &str,
    toolbox: &Toolbox,
) -> Result<Box<dyn Conversation>, RunAbort> {
    let missing = || RunAbort::new(Outcome::EnvironmentFailed, format!("no provider was opened for {model}"));
    let provider = run.deps.providers.get(&model.reply_source()).ok_or_else(missing)?;
    Ok(provider.open(ConversationConfig {
        agent: id.to_owned(),
        model: model.clone(),
        system: run.deps.plan.system_prompt(planned),
        tools: toolbox.specs(),
        caches_for_hour: run.caches_for_hour(planned, model),
    })?)
}

impl<'t> Agent<'t> {
    /// Prepares an agent. `summary` has its id and nothing else yet.
    pub(super) fn open(run: &'t RunState, planned: &'t PlannedAgent, summary: AgentFinished) -> Result<Self, RunAbort> {
        let mut cursor = run.take_cursor(&summary.id)?;
        let plan = &run.deps.plan;
        let failed = |message: String| RunAbort::new(Outcome::EnvironmentFailed, message);
        let deps = run.take_tools(&summary.id);
        let servers = deps.servers.clone();
        let mut toolbox = Toolbox::new(&planned.tools, deps).map_err(failed)?;
        for tool in plan.server_tools(planned) {
            toolbox.add(Box::new(tool.performed_by(&summary.id, servers.clone())));
        }
        if summary.subagent.is_none() && toolbox.has(Task::NAME) {
            toolbox.add(Box::new(plan.task_tool()));
        }
        if let Some(tool) = plan.skill_tool(planned) {
            toolbox.add(Box::new(tool));
        }
        if let Some(tool) = plan.submit_result(planned).map_err(failed)? {
            toolbox.add(Box::new(tool));
        }
        if let Some(tool) = plan.set_state(planned).map_err(failed)? {
            toolbox.add(Box::new(tool));
        }
        if let Some(proposals) = &run.proposals {
            plan.output_tools(planned, &summary.id, proposals)
                .map_err(failed)?
                .into_iter()
                .for_each(|it| toolbox.add(it));
        }
        toolbox.set_media(planned.model.media());
        toolbox.set_git(plan.git);
        let conversation = open_conversation(run, planned, &planned.model, &summary.id, &toolbox)?;
        // A fallback that can't be used is reported now, and not after hours of work.
        for fallback in planned.fallback.iter().filter(|_| !cursor.is_replay()) {
            open_conversation(run, planned, &fallback.model, &summary.id, &toolbox)?;
        }
        if let Some(raised) = cursor.limit_raised.take() {
            run.record(&summary.id, raised)?;
        }
        let (known_window, prompt_limit) = run.known_limits(&planned.model);
        let mut agent = Self {
            run,
            planned,
            model: &planned.model,
            max_tokens: planned.max_tokens,
            fallbacks: 0,
            summary,
            context: AgentContext {
                conversation,
                message_file: Arc::clone(&run.deps.message_file),
                history: MessageStore {
                    binds_thinking: planned.model.has_prefix_bound_thinking(),
                    model: planned.model.clone(),
                    is_off: plan.compaction == Compaction::Off && planned.fallback.is_empty(),
                    ..MessageStore::default()
                },
                pending: None,
                new_images: Vec::new(),
                call_aliases: HashMap::new(),
                estimator: TokenEstimator::default(),
                known_window,
                prompt_limit,
            },
            toolbox,
            output: StructuredOutput {
                tool: plan.submit_result(planned).map_err(failed)?,
                ..StructuredOutput::default()
            },
            stuck_detector: StuckDetector::default(),
            limit: None,
            budget_cap: None,
            check_attempt: 0,
            cursor,
        };
        agent.count_rolled_back();
        Ok(agent)
    }

    /// Continues with the next fallback, because the model has failed: it gets the conversation in a form that any model
    /// accepts. The caller has checked that there is one.
    pub(super) fn fall_back(&mut self, error: ProviderError) -> Result<(), RunAbort> {
        let Some(next) = self.planned.fallback.get(self.fallbacks) else { return Err(error.into()) };
        let (from, to) = (self.model.to_string(), next.model.to_string());
        self.record(ModelChanged { from, to, reason: error.message })?;
        let mut history = self.load_history()?;
        history.adapt_to_other_model(&mut self.context.call_aliases);
        let conversation = open_conversation(self.run, self.planned, &next.model, &self.summary.id, &self.toolbox)?;
        (self.model, self.max_tokens) = (&next.model, next.max_tokens);
        self.fallbacks += 1;
        let context = &mut self.context;
        context.conversation = conversation;
        context.history.binds_thinking = next.model.has_prefix_bound_thinking();
        context.history.model = next.model.clone();
        self.toolbox.set_media(next.model.media());
        (context.known_window, context.prompt_limit) = self.run.known_limits(&next.model);
        // Other models count other tokens.
        context.estimator = TokenEstimator::default();
        self.rebuild_conversation(&history.messages, None);
        self.replace_history(history);
        Ok(())
    }

    /// Whether another model can answer if this one fails.
    pub(super) fn has_fallback(&self) -> bool {
        self.fallbacks < self.planned.fallback.len()
    }

    /// The fallback that the agent asks, if it is one.
    pub(super) fn fallback_name(&self) -> Option<String> {
        (self.fallbacks > 0).then(|| self.model.to_string())
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
        if self.cursor.advance(&event)? { self.run.record(self.id(), event) } else { Ok(()) }
    }

    /// Records an event of a recorded step again, where the replay compares it.
    pub(super) fn record_again(&self, event: impl Into<Event>) -> Result<(), RunAbort> {
        if self.cursor.is_replay() { self.run.record(self.id(), event) } else { Ok(()) }
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
