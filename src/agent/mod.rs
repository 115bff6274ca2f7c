//! The agent loop: ask the provider, answer the calls, append, until an outcome. The parent and its subagents run the same
//! loop, one level apart. The loop doesn't know whether it runs live: a journal cursor supplies the results of recorded
//! steps.

mod agent_state;
mod before_steps;
mod check_repairs;
mod compaction;
mod context_window;
mod journal_cursor;
mod message_history;
mod message_store;
mod own_workspaces;
mod raised_limits;
mod redact_reply;
mod request;
mod run_abort;
mod run_state;
mod script;
mod step_deps;
mod step_files;
mod stuck_detector;
mod text_calls;
mod network;
mod network_deps;
mod tool_calls;

use std::time::Duration;

pub use self::agent_state::Agent;
use self::compaction::CompactionState;
pub use self::journal_cursor::{JournalCursor, ReplayRules};
pub use self::message_store::MessageFile;
pub use self::network_deps::NetworkDeps;
pub use self::own_workspaces::{ConfineCopy, ConfinedCopy, OwnWorkspaces};
use self::raised_limits::MAX_TURNS;
pub use self::raised_limits::{JournalSplit, RaisedLimits};
use self::request::{RequestKind, RequestOutcome};
pub use self::run_abort::RunAbort;
pub use self::run_state::{MapShare, RunDeps, RunGates, RunHistory, RunState};
pub use self::step_deps::{ConfineSteps, FILES_VARIABLE, StepDeps};
pub use self::step_files::{copy_step_files, write_event};
use crate::attachment::Attachment;
use crate::budget::MAP_LIMIT;
use crate::event::{AgentFinished, AgentStarted, LimitReached, NoteSent, Outcome, PARENT, ReplyDiscarded};
use crate::job::SubagentWorkspace;
use crate::message::{Message, Reply, StopReason, ToolCall, ToolResult, UserMessage};
use crate::plan::PlannedAgent;
use crate::pricing;
use crate::running_clock::RunningInstant;
pub use crate::tools::toolbox::ToolDeps;

/// Why a reply is cut where the model's window ends.
const WINDOW_FULL: &str = "the reply was cut: the conversation fills the model's window";

/// How the loop treats a reply.
enum ReplyUse {
    /// It becomes part of the conversation.
    Accepted,
    /// It is discarded for this reason, and the model is asked again.
    AskAgain(String),
    /// It stays in the conversation, and the model reads this note.
    Answered(String),
    /// It is discarded for this reason, which ends the run. A resumed agent asks the model again.
    Fails(String, RunAbort),
    /// It ends the agent, because the budget had no more tokens for it.
    CutByBudget,
    /// It ends the agent.
    Ends(Outcome),
}

impl<'t> Agent<'t> {
    /// Runs an agent, which has started at this time, to its end and records the end.
    async fn run(
        run: &'t RunState,
        planned: &'t PlannedAgent,
        summary: AgentFinished,
        prompt: String,
        started: RunningInstant,
    ) -> AgentFinished {
        let mut elapsed_before = Duration::ZERO;
        let is_parent = summary.subagent.is_none();
        let mut recorded = None;
        let mut end = summary.clone();
        end.outcome = match Self::open(run, planned, summary) {
            Err(abort) => run.abort_run(abort, is_parent),
            Ok(mut agent) => {
                let outcome = agent.run_loop(prompt).await.unwrap_or_else(|abort| run.abort_run(abort, is_parent));
                elapsed_before = agent.cursor.elapsed;
                recorded = agent.cursor.final_result().cloned();
                end = agent.summary;
                end.result = agent.output.result;
                end.cost_usd = end.cost_usd.map(pricing::round_usd);
                end.cut_off_requests.reserved_cost_usd = end.cut_off_requests.reserved_cost_usd.map(pricing::round_usd);
                outcome
            }
        };
        end.duration_ms = u64::try_from((elapsed_before + started.elapsed()).as_millis()).unwrap_or(u64::MAX);
        let own_journal = recorded.is_none().then(|| end.id.clone());
        let mut end = recorded.unwrap_or(end);
        let parents_journal = (!is_parent).then(|| PARENT.to_owned());
        for journal in own_journal.into_iter().chain(parents_journal) {
            // From here on, changes in a copy of the workspace may be merged.
            let is_merged = journal == PARENT && planned.workspace == SubagentWorkspace::Own;
            let mut recorded = run.record(&journal, end.clone());
            if is_merged && recorded.is_ok() {
                recorded = run.flush(&journal).await;
            }
            if let Err(abort) = recorded {
                end.outcome = run.abort_run(abort, is_parent);
            }
        }
        end
    }

    async fn run_loop(&mut self, prompt: String) -> Result<Outcome, RunAbort> {
        self.start(prompt)?;
        let mut compaction = CompactionState::default();
        let mut was_asked_again = false;
        loop {
            if let Some((outcome, hit)) = self.take_limit() {
                return self.finish_at_limit(outcome, hit).await;
            }
            let reply = match self.request_reply(RequestKind::Turn, std::mem::take(&mut compaction)).await? {
                RequestOutcome::Reply(reply) => reply,
                RequestOutcome::LimitReached(hit) => {
                    return self.finish_at_limit(Outcome::BudgetExceeded, hit).await;
                }
                RequestOutcome::ContextFull { reason, .. } => {
                    self.run.note(Outcome::ContextFull, &reason);
                    return Ok(Outcome::ContextFull);
                }
                // Taken care of already.
                RequestOutcome::ProviderFailed(error) | RequestOutcome::ImagesRefused(error) => {
                    return Err(error.into());
                }
            };
            self.summary.turns += 1;
            match self.judge(&reply, was_asked_again) {
                ReplyUse::Accepted => was_asked_again = false,
                ReplyUse::Answered(note) => {
                    self.continue_with_note(reply, note)?;
                    was_asked_again = true;
                    continue;
                }
                ReplyUse::CutByBudget => return self.finish_after_budget_cut(reply).await,
                ReplyUse::Ends(outcome) => return Ok(outcome),
                ReplyUse::AskAgain(reason) => {
                    if reply.stop == StopReason::ContextFull {
                        compaction.record_overflow(self, reason.clone(), false);
                    }
                    self.record(ReplyDiscarded { reason })?;
                    was_asked_again = true;
                    continue;
                }
                ReplyUse::Fails(reason, abort) => {
                    let is_new = self.cursor.is_exhausted() && !self.cursor.is_replay();
                    self.record(ReplyDiscarded { reason })?;
                    if is_new {
                        return Err(abort);
                    }
                    continue;
                }
            }
            let calls: Vec<ToolCall> = reply.tool_calls().cloned().collect();
            // A reply without calls is the last one, with or without a text. An unknown stop reason makes no
            // difference: servers may have stop reasons that this program doesn't know.
            if calls.is_empty() && reply.stop != StopReason::Pause {
                match self.conclude(reply).await? {
                    Some(outcome) => return Ok(outcome),
                    None => continue,
                }
            }
            self.context.append_reply(reply);
            if !calls.is_empty() {
                self.context.pending = Some(self.run_calls(calls).await?);
                if self.ends_stuck()? {
                    return Ok(Outcome::Stuck);
                }
            }
        }
    }

    fn start(&mut self, prompt: String) -> Result<(), RunAbort> {
        self.record(AgentStarted {
            subagent: self.summary.subagent.clone(),
            description: self.summary.description.clone(),
            model: self.planned.model.to_string(),
            prompt: prompt.clone(),
        })?;
        let inputs = &self.run.deps.plan.attachments;
        let mut attachments: Vec<Attachment> = match self.is_parent() {
            true => inputs.iter().map(|input| input.file.clone()).collect(),
            false => Vec::new(),
        };
        for attachment in &mut attachments {
            self.load(attachment)?;
        }
        self.toolbox.set_attached(&attachments);
        self.context.history.prompt.clone_from(&prompt);
        self.context.pending = Some(UserMessage { attachments, ..UserMessage::text(prompt) });
        Ok(())
    }

    /// Reads the bytes of an image or a document from the record, unless they are there.
    pub(super) fn load(&self, attachment: &mut Attachment) -> Result<(), RunAbort> {
        self.context.message_file.load(attachment).map_err(|error| RunAbort::attachment_unreadable(&error))
    }

    /// The limit that ends the agent before its next turn.
    fn take_limit(&mut self) -> Option<(Outcome, LimitReached)> {
        if let Some(hit) = self.limit.take() {
            return Some((Outcome::BudgetExceeded, hit));
        }
        let turns = self.summary.turns;
        if !self.cursor.is_turn_limit_next().unwrap_or(turns >= self.planned.max_turns) {
            return None;
        }
        let message = match turns {
            1 => "the one turn of this agent is used".to_owned(),
            turns => format!("all {turns} turns of this agent are used"),
        };
        Some((Outcome::TurnLimit, LimitReached::new(MAX_TURNS, message)))
    }

    /// Sends the pending message and asks for a reply, in a conversation that fits the model's window.
    async fn request_reply(
        &mut self,
        kind: RequestKind,
        mut compaction: CompactionState,
    ) -> Result<RequestOutcome, RunAbort> {
        if let Some(message) = self.context.pending.take() {
            let has_images = |result: &&ToolResult| !result.attachments.is_empty();
            let new = message.results.iter().filter(has_images).map(|result| result.call_id.clone());
            self.context.new_images = new.collect();
            self.context.append(Message::User(message));
        }
        loop {
            let outcome = match self.compact(&mut compaction, kind).await? {
                Some(outcome @ RequestOutcome::ContextFull { .. }) => return Ok(outcome),
                Some(outcome) => outcome,
                None => self.send_request(kind).await?,
            };
            match outcome {
                RequestOutcome::ProviderFailed(error) => {
                    self.fall_back(error)?;
                    compaction = CompactionState::default();
                }
                RequestOutcome::ImagesRefused(_) => {
                    let call_ids = std::mem::take(&mut self.context.new_images);
                    self.remove_refused_images(&call_ids)?;
                }
                RequestOutcome::ContextFull { reason, is_new_window } => {
                    // A server that reports another window each time is believed once.
                    let is_new_window = is_new_window && compaction.is_fresh();
                    compaction.record_overflow(self, reason, is_new_window);
                }
                outcome => return Ok(outcome),
            }
        }
    }

    /// Decides how to treat a reply by its stop reason.
    fn judge(&mut self, reply: &Reply, was_asked_again: bool) -> ReplyUse {
        match reply.stop {
            StopReason::EndTurn | StopReason::ToolUse | StopReason::Pause | StopReason::Other(_) => {
                let Some(tool) = self.call_as_text(reply) else { return ReplyUse::Accepted };
                let reason = format!("the model wrote a call of `{tool}` as text, so no tool was called");
                match was_asked_again {
                    true => ReplyUse::Fails(reason, RunAbort::call_as_text(self.model, &tool)),
                    // Earlier builds sent the same request again.
                    false if self.cursor.is_discarded_next() == Some(true) => ReplyUse::AskAgain(reason),
                    false => ReplyUse::Answered(text_calls::note(&tool)),
                }
            }
            StopReason::MaxTokens if self.budget_cap.is_some() => ReplyUse::CutByBudget,
            StopReason::MaxTokens => {
                let is_last_turn = self.cursor.is_end_next().unwrap_or(self.summary.turns >= self.planned.max_turns);
                if reply.tool_calls().next().is_none() || was_asked_again || is_last_turn {
                    return ReplyUse::Ends(Outcome::ReplyCut);
                }
                let most = self.max_tokens;
                ReplyUse::AskAgain(format!("the reply was cut by max_tokens ({most}) amid its calls"))
            }
            StopReason::ContextFull if was_asked_again || !self.can_compact() => {
                self.run.note(Outcome::ContextFull, WINDOW_FULL);
                ReplyUse::Ends(Outcome::ContextFull)
            }
            StopReason::ContextFull => ReplyUse::AskAgain(WINDOW_FULL.to_owned()),
            StopReason::Refusal => {
                self.summary.refusal = reply.refusal_reason().map(str::to_owned);
                if let Some(why) = self.summary.refusal.as_ref().filter(|_| self.is_parent()) {
                    self.run.note(Outcome::Refused, &format!("the model refused ({why})"));
                }
                ReplyUse::Ends(Outcome::Refused)
            }
        }
    }

    /// The tool that the reply calls only in its text, because the server doesn't parse the model's calls.
    fn call_as_text(&self, reply: &Reply) -> Option<String> {
        let is_last = reply.tool_calls().next().is_none() && reply.stop != StopReason::Pause;
        if !is_last {
            return None;
        }
        let tool = text_calls::called_tool(&reply.text(), &|name| self.toolbox.has(name))?;
        let is_asked_next = || self.cursor.next_note().is_some_and(|note| text_calls::is_note(&note));
        self.cursor.is_discarded_next().is_none_or(|is_discarded| is_discarded || is_asked_next()).then_some(tool)
    }

    /// Whether the agent only repeats what fails. Calls that a limit refused all fail alike; then the limit is the reason.
    fn ends_stuck(&mut self) -> Result<bool, RunAbort> {
        let Some(why) = self.stuck_detector.stuck_reason().filter(|_| self.limit.is_none()) else { return Ok(false) };
        self.record(LimitReached::new("stuck", why.as_str()))?;
        self.run.note(Outcome::Stuck, &why);
        Ok(true)
    }

    /// Ends an agent whose reply was cut because the budget had no more tokens for it. A reply with calls is discarded.
    pub(super) async fn finish_after_budget_cut(&mut self, reply: Reply) -> Result<Outcome, RunAbort> {
        let (left, limit) = self.budget_cap.unwrap_or_default();
        let message = format!("a reply was cut: the limits of the run left only {left} tokens for it");
        let hit = LimitReached::new(limit, message);
        if self.toolbox.is_empty() {
            // Its only task was to answer, and this is its answer.
            self.record_limit(Outcome::BudgetExceeded, hit)?;
            return Ok(Outcome::BudgetExceeded);
        }
        if reply.tool_calls().next().is_some() {
            self.record(ReplyDiscarded { reason: hit.message.clone() })?;
        } else {
            self.context.append(Message::Assistant(reply));
        }
        self.finish_at_limit(Outcome::BudgetExceeded, hit).await
    }

    /// Sends one last request, without tools and not a turn, for a summary of the work. Its reply does not change the
    /// outcome. After a limit of the map, the agent continues later instead.
    pub(super) async fn finish_at_limit(&mut self, outcome: Outcome, hit: LimitReached) -> Result<Outcome, RunAbort> {
        let LimitReached { limit, message } = self.record_limit(outcome, hit)?;
        // A resumed agent gets the recorded note.
        let recorded = self.cursor.next_note();
        if limit == MAP_LIMIT && recorded.is_none() {
            return Ok(outcome);
        }
        let note = format!(
            "The work ends here: {message}. You can't use tools any more. Answer now with what you have: what you did, \
             what you found, and what is still open."
        );
        self.record(NoteSent { text: note.clone() })?;
        let note = recorded.unwrap_or(note);
        let pending = self.context.pending.get_or_insert_default();
        pending.text = Some(pending.text.take().map_or(note.clone(), |before| format!("{before}\n{note}")));
        match self.send_final_request().await {
            Err(abort) if abort.is_fatal_during_final_request() => Err(abort),
            Ok(()) | Err(_) => Ok(outcome),
        }
    }

    /// Records the limit that ends the agent, in its recorded form if there is one. Returns what was recorded.
    fn record_limit(&mut self, outcome: Outcome, hit: LimitReached) -> Result<LimitReached, RunAbort> {
        let hit = self.cursor.recorded_limit(&hit).unwrap_or(hit);
        self.record(hit.clone())?;
        self.run.note(outcome, &hit.message);
        Ok(hit)
    }

    /// Sends the last request. If the limits have no room for it with all results of the last calls, results are truncated
    /// until they do: a summary of less is better than none.
    async fn send_final_request(&mut self) -> Result<(), RunAbort> {
        let mut below = u64::MAX;
        loop {
            match self.request_reply(RequestKind::Final, CompactionState::default()).await? {
                // It may have the data that the agent had no turn left to submit.
                RequestOutcome::Reply(reply) => return self.take_result_from_text(&reply).await.map(drop),
                RequestOutcome::LimitReached(_) => {}
                _ => return Ok(()),
            }
            let Some((call_ids, chars)) = self.load_history()?.results_to_truncate(1, below) else { break };
            if self.cursor.is_at_end() || self.cursor.is_replay() {
                break;
            }
            self.truncate_results(&call_ids, chars)?;
            below = chars;
        }
        Ok(())
    }
}
