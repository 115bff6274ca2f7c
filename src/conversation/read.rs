//! Builds a conversation from the journals of a run.
//!
//! Each journal is read once, entry by entry. What is kept of a text is bounded by the reader's choice, so memory grows with
//! the number of events only.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use jiff::Timestamp;
use serde_json::Value;

use super::{AgentConversation, Call, CheckAttempt, Conversation, ReplyBlock, Step, StepKind, Text, Turn, TurnKind};
use crate::error::Error;
use crate::event::{
    AgentFinished, CallFinished, CallStarted, CheckFinished, Event, JournalEntry, LimitRaised, ModelChanged, PARENT,
    ReplyReceived, RequestStarted, RunModel, RunResult, request_cost,
};
use crate::job::Keep;
use crate::journal::{JournalError, journal_file};
use crate::message::{BlockContent, StopReason, Usage};
use crate::plan::Plan;
use crate::pricing::Prices;
use crate::providers::Model;
use crate::text::surrogates::replace_unpaired;
use crate::text::truncate;
use crate::tools::call_subject;

/// The most characters that are kept of each text for people to read. The journals have the full texts.
pub const MAX_SHOWN_CHARS: usize = 10_000;

/// A recorded total and the sum of the requests' costs may differ by this part, because both are rounded.
const COST_TOLERANCE: f64 = 1e-9;

impl Conversation {
    /// Reads the journals of a run. `open` opens the journal of an agent, if it exists; `agents` are the ids of those that
    /// have one. `result` is that of `result.json`; without it, the result follows from the parent's journal. Of each text, the
    /// first `max_chars` characters are kept, or all.
    ///
    /// What is missing or damaged isn't an error: [`Conversation::missing`] names it.
    pub fn read<J>(
        plan: &Plan,
        result: Option<RunResult>,
        agents: &[String],
        open: impl Fn(&str) -> Result<Option<J>, Error>,
        max_chars: Option<usize>,
    ) -> Self
    where
        J: Iterator<Item = Result<JournalEntry, JournalError>>,
    {
        let max_chars = max_chars.unwrap_or(usize::MAX);
        let mut missing = Defects::default();
        let mut summary = RunModel::default();
        let mut parent = AgentReader::new(plan, PARENT, max_chars);
        let has_journal = read_journal(&open, PARENT, &mut missing, |entry| {
            summary.apply(&entry.agent, &entry.event, entry.at);
            parent.add(entry);
        });
        if !has_journal {
            missing.add(format!("There is no {}: nothing is known of the conversation.", journal_file(PARENT)));
        }
        let result = result.or_else(|| summary.result());
        let keeps_journals = match (plan.keep, &result) {
            (Keep::Always, _) | (_, None) => true,
            (Keep::OnFailure, Some(result)) => result.exit_code != 0,
            (Keep::Never, Some(_)) => false,
        };
        let mut parent = parent.finish();
        let mut claimed = HashSet::new();
        let mut read_child = |id: &str, missing: &mut Defects| {
            let mut reader = AgentReader::new(plan, id, max_chars);
            let has_journal = read_journal(&open, id, missing, |entry| {
                summary.apply(&entry.agent, &entry.event, entry.at);
                reader.add(entry);
            });
            has_journal.then(|| reader.finish())
        };
        for call in parent.calls_mut() {
            let Some(child) = &mut call.child else { continue };
            if !claimed.insert(child.id.clone()) {
                missing.add(format!("Several calls name the subagent {}: it is shown with the first one.", child.id));
                call.child = None;
                continue;
            }
            match read_child(&child.id, &mut missing) {
                Some(found) => child.adopt(found),
                None => {
                    child.has_no_journal = child.finished.is_some();
                    if child.has_no_journal && keeps_journals {
                        let file = journal_file(&child.id);
                        missing.add(format!("There is no {file}: only the result of {} is known.", child.id));
                    }
                }
            }
        }
        let mut orphans = Vec::new();
        for id in agents.iter().filter(|id| *id != PARENT && !claimed.contains(*id)) {
            if let Some(found) = read_child(id, &mut missing) {
                missing.add(format!("The call that started {id} isn't in the parent's journal."));
                orphans.push(found);
            }
        }
        Self {
            plan: plan.clone(),
            proposed: summary.proposed_outputs(),
            started: summary.started,
            result,
            parent,
            orphans,
            changes: summary.changed,
            missing: missing.sentences,
            is_damaged: missing.is_damaged,
        }
    }

    /// All agents: the parent, the subagents in the order of their calls, and those without a call.
    pub fn agents(&self) -> impl Iterator<Item = &AgentConversation> {
        std::iter::once(&self.parent).chain(self.parent.children()).chain(&self.orphans)
    }
}

/// What is missing of a record.
#[derive(Default)]
struct Defects {
    sentences: Vec<String>,
    is_damaged: bool,
}

impl Defects {
    fn add(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    fn add_damage(&mut self, sentence: String) {
        self.is_damaged = true;
        self.add(sentence);
    }
}

/// Reads a journal up to its end or the first defect, which `missing` then names. Returns whether there is a journal.
fn read_journal<J>(
    open: &impl Fn(&str) -> Result<Option<J>, Error>,
    agent: &str,
    missing: &mut Defects,
    mut add: impl FnMut(JournalEntry),
) -> bool
where
    J: Iterator<Item = Result<JournalEntry, JournalError>>,
{
    let file = journal_file(agent);
    let journal = match open(agent) {
        Ok(Some(journal)) => journal,
        Ok(None) => return false,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            missing.add_damage(format!("{file} can't be opened: {error}{cause}."));
            return true;
        }
    };
    for entry in journal {
        match entry {
            Ok(entry) if entry.agent == agent => add(entry),
            Ok(_) => {
                missing.add_damage(format!("{file} contains another agent's events; what follows them isn't shown."));
                break;
            }
            Err(error @ JournalError::Torn { .. }) => {
                missing.add(format!("{file} ends early: {error}."));
                break;
            }
            Err(error) => {
                missing.add_damage(format!("{file} can't be read to its end: {error}."));
                break;
            }
        }
    }
    true
}

impl AgentConversation {
    /// Its turns: requests with their replies, final replies and requests for summaries included.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> + Clone {
        self.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Turn(turn) => Some(&**turn),
            _ => None,
        })
    }

    /// Its subagents in the order of their calls.
    pub fn children(&self) -> impl Iterator<Item = &AgentConversation> {
        self.turns().flat_map(|turn| &turn.calls).filter_map(|call| call.child.as_deref())
    }

    fn turns_mut(&mut self) -> impl Iterator<Item = &mut Turn> {
        self.steps.iter_mut().filter_map(|step| match &mut step.kind {
            StepKind::Turn(turn) => Some(&mut **turn),
            _ => None,
        })
    }

    fn calls_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.turns_mut().flat_map(|turn| &mut turn.calls)
    }

    fn turn_mut(&mut self, at: usize) -> Option<&mut Turn> {
        match &mut self.steps.get_mut(at)?.kind {
            StepKind::Turn(turn) => Some(turn),
            _ => None,
        }
    }

    /// A subagent of which only the call is known yet.
    fn of_call(plan: &Plan, id: &str, at: Timestamp) -> Self {
        let planned = plan.agent(id);
        Self {
            id: id.to_owned(),
            subagent: id.rsplit_once('-').map(|(name, _)| name.to_owned()),
            model: planned.map(|planned| planned.model.to_string()).unwrap_or_default(),
            started_at: Some(at),
            ..Self::default()
        }
    }

    /// Takes what the agent's own journal says. The parent's journal knows the end if the agent's journal ends early.
    fn adopt(&mut self, found: Self) {
        let before = std::mem::replace(self, found);
        if self.started_at.is_none() {
            self.subagent = before.subagent;
            self.description = before.description;
            self.model = before.model;
            self.prompt = before.prompt;
            self.started_at = before.started_at;
        }
        // An agent that was cut off continues when the run is resumed, and its own journal shows it first.
        self.finished = self.finished.take().or(before.finished.filter(|end| !end.outcome.was_cut_off()));
    }
}

/// Calls of one id in a reply, by their indexes.
#[derive(Debug, Default)]
struct SameId {
    not_started: BTreeSet<usize>,
    running: VecDeque<usize>,
    ended: BTreeSet<usize>,
}

/// The calls of one turn by their ids. It is kept up to date rather than built again, so that a planted journal can't make each
/// of its lines take long.
#[derive(Debug)]
struct CallIndex {
    /// The index of the turn's step.
    step: usize,
    by_id: HashMap<String, SameId>,
}

/// Builds the conversation of one agent from the entries of its journal.
pub struct AgentReader<'p> {
    plan: &'p Plan,
    max_chars: usize,
    agent: AgentConversation,
    /// The index of the step with the request that has no end yet.
    open_request: Option<usize>,
    /// The cost that is reserved for it.
    reserved_cost: Option<f64>,
    /// The calls of each reply that has any.
    calls: Vec<CallIndex>,
    /// The indexes of the steps with checks, and with limits.
    check_steps: Vec<usize>,
    limit_steps: Vec<usize>,
    /// Where the call of each subagent is: the step, and the index in its calls.
    child_calls: HashMap<String, (usize, usize)>,
    costs: Costs,
}

impl<'p> AgentReader<'p> {
    /// Starts the conversation of an agent. Of each text, the first `max_chars` characters are kept.
    pub fn new(plan: &'p Plan, id: &str, max_chars: usize) -> Self {
        Self {
            plan,
            max_chars,
            agent: AgentConversation { id: id.to_owned(), ..AgentConversation::default() },
            open_request: None,
            reserved_cost: None,
            calls: Vec::new(),
            check_steps: Vec::new(),
            limit_steps: Vec::new(),
            child_calls: HashMap::new(),
            costs: Costs::new(plan.agent(id).map(|planned| planned.model.clone())),
        }
    }

    /// The conversation so far. Subagents are known by their calls only.
    pub fn agent(&self) -> &AgentConversation {
        &self.agent
    }

    /// Adds the next entry.
    pub fn add(&mut self, entry: JournalEntry) {
        let JournalEntry { at, event, .. } = entry;
        self.agent.last_at = Some(at);
        match event {
            // The summary of the run has them.
            Event::RunStarted(_) | Event::WorkspaceChanged(_) | Event::OutputsProposed(_) | Event::RunFinished(_) => {
                return;
            }
            // After the end of the parent.
            Event::StateSet(set) => {
                let shown = if set.difference.is_empty() { format!("{:#}", set.value) } else { set.difference };
                let text = self.text(&shown);
                return self.push(at, StepKind::StateSet(text));
            }
            Event::AgentFinished(end) if end.id == self.agent.id => {
                self.agent.finished = Some(end);
                return;
            }
            Event::AgentFinished(end) => return self.finish_child(end),
            _ => {}
        }
        // An agent that continues hasn't finished.
        self.agent.finished = None;
        match event {
            Event::AgentStarted(started) => {
                self.agent.started_at = Some(at);
                self.agent.subagent = started.subagent;
                self.agent.description = started.description.map(|text| self.shorten(text));
                self.agent.model = self.shorten(started.model);
                self.agent.prompt = self.text(&started.prompt);
            }
            Event::RequestStarted(request) => self.start_request(at, &request),
            Event::Retrying(retrying) => {
                let mut retry = retrying.retry;
                self.costs.add(&retry.usage, at);
                retry.reason = self.shorten(retry.reason);
                if let Some(turn) = self.open_turn(at) {
                    turn.retries.push((at, retry));
                }
            }
            Event::ReplyReceived(received) => self.add_reply(at, received),
            Event::RequestFailed(failed) => {
                let reason = self.shorten(failed.reason);
                let cost = self.costs.add(&failed.usage, at);
                if let Some(turn) = self.open_turn(at) {
                    turn.failed = Some(reason);
                    turn.usage = failed.usage;
                    turn.cost_usd = cost;
                    turn.replied_at = Some(at);
                }
                self.open_request = None;
            }
            Event::RequestInterrupted(interrupted) => {
                self.costs.add(&interrupted.usage, at);
                self.reserved_cost = Some(0.0);
            }
            Event::ReplyDiscarded(discarded) => {
                let reason = self.shorten(discarded.reason);
                let last = self.agent.steps.len().saturating_sub(1);
                if let Some(turn) = self.agent.turn_mut(last) {
                    turn.discarded = Some(reason);
                }
            }
            Event::ModelChanged(ModelChanged { from, to, reason }) => {
                let [from, to, reason] = [from, to, reason].map(|text| self.shorten(text));
                self.push(at, StepKind::ModelChanged(ModelChanged { from, to, reason }));
            }
            Event::ResultsTruncated(event) => self.push(at, StepKind::ResultsTruncated(event)),
            Event::ContextCompacted(mut event) => {
                let summary = self.text(&std::mem::take(&mut event.summary));
                self.push(at, StepKind::Compacted(event, summary));
            }
            Event::CallStarted(started) => self.start_call(at, started),
            Event::CallFinished(finished) => self.finish_call(at, finished),
            Event::NoteSent(note) => {
                let text = self.text(&note.text);
                self.push(at, StepKind::Note(text));
            }
            Event::ResultTaken(_) => self.push(at, StepKind::ResultTaken),
            Event::LimitReached(mut reached) => {
                reached.message = self.shorten(reached.message);
                self.limit_steps.push(self.agent.steps.len());
                self.push(at, StepKind::LimitReached(reached));
            }
            Event::LimitRaised(raised) => {
                self.roll_back(&raised);
                self.push(at, StepKind::LimitRaised(self.shorten(raised.limit)));
            }
            Event::Resumed(resumed) => self.push(at, StepKind::Resumed(Box::new(resumed))),
            Event::CheckStarted(started) => {
                let name = self.shorten(started.name);
                if let Some(attempt) = self.attempt(at, started.attempt) {
                    attempt.checks.push((name, at, None));
                }
            }
            Event::CheckFinished(finished) => self.finish_check(at, finished),
            Event::BeforeFinished(mut finished) => {
                let text = self.text(&finished.shown());
                finished.value = Value::Null;
                finished.name = self.shorten(finished.name);
                finished.error = finished.error.map(|error| self.shorten(error));
                self.push(at, StepKind::Before(finished, text));
            }
            Event::RunSkipped(skipped) => self.push(at, StepKind::Skipped(self.shorten(skipped.condition))),
            Event::NetworkUsed(mut used) => {
                (used.call, used.host) = (self.shorten(used.call), self.shorten(used.host));
                self.push(at, StepKind::NetworkUsed(used));
            }
            Event::NetworkRefused(mut refused) => {
                (refused.call, refused.host) = (self.shorten(refused.call), self.shorten(refused.host));
                self.push(at, StepKind::NetworkRefused(refused));
            }
            Event::StateRead(read) => {
                let text = self.text(&format!("{:#}", read.value));
                self.push(at, StepKind::StateRead(text));
            }
            Event::BeforeStarted(_)
            | Event::RunStarted(_)
            | Event::StateSet(_)
            | Event::WorkspaceChanged(_)
            | Event::OutputsProposed(_)
            | Event::RunFinished(_)
            | Event::AgentFinished(_) => {}
        }
    }

    fn text(&self, text: &str) -> Text {
        Text::new(text, self.max_chars)
    }

    /// Cuts a line of legwork or a server, which is short unless the journal is planted.
    fn shorten(&self, text: String) -> String {
        if text.len() <= self.max_chars { text } else { truncate::ellipsize(&text, self.max_chars) }
    }

    fn push(&mut self, at: Timestamp, kind: StepKind) {
        self.agent.steps.push(Step { at, kind });
    }

    fn start_request(&mut self, at: Timestamp, request: &RequestStarted) {
        // The run was interrupted during the request before, and now it is sent again.
        if let Some(open) = self.open_request.take() {
            let step = self.agent.steps.remove(open);
            // No reply has come since that request.
            for indexes in [&mut self.check_steps, &mut self.limit_steps] {
                indexes.iter_mut().rev().take_while(|at| **at > open).for_each(|at| *at -= 1);
            }
            self.agent.dropped.push(step);
            self.costs.add_reserved(self.reserved_cost);
        }
        self.reserved_cost = request.reserved_cost_usd;
        let planned = self.plan.agent(&self.agent.id);
        self.costs.model = planned.map(|planned| planned.model_named(request.model.as_deref()).clone());
        let kind = match (request.kept_turns, request.tools_allowed) {
            (Some(_), _) => TurnKind::Summary,
            (None, true) => TurnKind::Turn,
            (None, false) => TurnKind::FinalReply,
        };
        self.open_request = Some(self.agent.steps.len());
        let number = request.turn;
        let fallback = request.model.clone().map(|model| self.shorten(model));
        self.push(at, StepKind::Turn(Box::new(Turn { number, kind, fallback, ..Turn::default() })));
    }

    /// The turn of the request that has no end yet.
    fn open_turn(&mut self, at: Timestamp) -> Option<&mut Turn> {
        if self.open_request.is_none() {
            // No legwork writes a reply without its request.
            self.open_request = Some(self.agent.steps.len());
            self.push(at, StepKind::Turn(Box::default()));
        }
        self.agent.turn_mut(self.open_request?)
    }

    fn add_reply(&mut self, at: Timestamp, received: ReplyReceived) {
        let ReplyReceived { turn: number, reply, duration_ms } = received;
        let cost = self.costs.add(&reply.usage, at);
        let is_empty = reply.is_empty_reply();
        let (mut blocks, mut calls) = (Vec::new(), Vec::new());
        for block in reply.blocks {
            if let Some(why) = block.refusal_reason(&reply.stop) {
                blocks.push(ReplyBlock::Refusal(self.text(why)));
                continue;
            }
            blocks.push(match block.content {
                BlockContent::Text(text) => ReplyBlock::Text(self.text(&text)),
                BlockContent::Thinking(text) if text.is_empty() => continue,
                BlockContent::Thinking(text) => ReplyBlock::Thinking(self.text(&text)),
                BlockContent::Other(kind) => ReplyBlock::Other(self.shorten(kind)),
                BlockContent::Call(call) => {
                    calls.push(Call {
                        subject: call_subject(&call),
                        input: self.text(&replace_unpaired(call.input.get())),
                        id: call.id,
                        tool: self.shorten(call.tool),
                        ..Call::default()
                    });
                    ReplyBlock::Call(calls.len() - 1)
                }
            });
        }
        let (model, request_id) =
            (reply.model.map(|name| self.shorten(name)), reply.request_id.map(|id| self.shorten(id)));
        let mut by_id: HashMap<String, SameId> = HashMap::new();
        for (index, call) in calls.iter().enumerate() {
            by_id.entry(call.id.clone()).or_default().not_started.insert(index);
        }
        let Some(turn) = self.open_turn(at) else { return };
        turn.number = number;
        turn.replied_at = Some(at);
        turn.duration_ms = duration_ms;
        (turn.blocks, turn.calls, turn.is_empty) = (blocks, calls, is_empty);
        (turn.stop, turn.model, turn.request_id) = (Some(reply.stop), model, request_id);
        (turn.usage, turn.cost_usd) = (reply.usage, cost);
        let step = self.open_request.take().filter(|_| !by_id.is_empty());
        self.calls.extend(step.map(|step| CallIndex { step, by_id }));
    }

    /// The calls of the last turn that has any, and the index of its step.
    fn last_calls(&mut self) -> Option<(usize, &mut Vec<Call>, &mut HashMap<String, SameId>)> {
        let CallIndex { step, by_id } = self.calls.last_mut()?;
        Some((*step, &mut self.agent.turn_mut(*step)?.calls, by_id))
    }

    fn start_call(&mut self, at: Timestamp, started: CallStarted) {
        let (plan, is_parent) = (self.plan, self.agent.id == PARENT);
        let subject = self.shorten(started.subject);
        let tool = self.shorten(started.tool);
        let Some((step, calls, by_id)) = self.last_calls() else { return };
        let same = by_id.entry(started.call_id.clone()).or_default();
        let index = same.not_started.pop_first().unwrap_or(calls.len());
        same.running.push_back(index);
        if index == calls.len() {
            // No reply asked for it.
            calls.push(Call { id: started.call_id, tool, ..Call::default() });
        }
        let call = &mut calls[index];
        call.started_at = Some(at);
        call.subject = subject;
        // Only the parent has subagents, and it isn't one of them.
        if let Some(id) = started.child.filter(|id| is_parent && id != PARENT) {
            let mut child = AgentConversation::of_call(plan, &id, at);
            child.prompt = task_prompt(&call.input);
            call.child = Some(Box::new(child));
            self.child_calls.entry(id).or_insert((step, index));
        }
    }

    fn finish_call(&mut self, at: Timestamp, finished: CallFinished) {
        let CallFinished { tool, result, duration_ms, no_result, merged, .. } = finished;
        let (text, tool) = (self.text(&result.text), self.shorten(tool));
        let Some((_, calls, by_id)) = self.last_calls() else { return };
        let same = by_id.entry(result.call_id.clone()).or_default();
        let index = same.running.pop_front().or_else(|| same.not_started.pop_first()).unwrap_or(calls.len());
        same.ended.insert(index);
        if index == calls.len() {
            calls.push(Call { id: result.call_id, tool, ..Call::default() });
        }
        let call = &mut calls[index];
        call.finished_at = Some(at);
        call.duration_ms = duration_ms;
        call.is_error = result.is_error;
        call.result = Some(text);
        (call.no_result, call.merged) = (no_result, merged);
        if let Some(child) = &mut call.child {
            child.last_at = Some(at);
        }
    }

    /// The call of a subagent.
    fn child_call(&mut self, id: &str) -> Option<&mut Call> {
        let (step, index) = *self.child_calls.get(id)?;
        self.agent.turn_mut(step)?.calls.get_mut(index)
    }

    fn finish_child(&mut self, end: AgentFinished) {
        let Some(child) = self.child_call(&end.id).and_then(|call| call.child.as_mut()) else { return };
        child.description.clone_from(&end.description);
        child.finished = Some(end);
    }

    /// The step with an attempt of the checks.
    fn attempt(&mut self, at: Timestamp, attempt: u32) -> Option<&mut CheckAttempt> {
        let last = self.check_steps.last().and_then(|step| self.agent.steps.get(*step));
        if !last.is_some_and(|step| matches!(&step.kind, StepKind::Checks(it) if it.attempt == attempt)) {
            self.check_steps.push(self.agent.steps.len());
            self.push(at, StepKind::Checks(CheckAttempt { attempt, checks: Vec::new() }));
        }
        match &mut self.agent.steps.get_mut(*self.check_steps.last()?)?.kind {
            StepKind::Checks(checks) => Some(checks),
            _ => None,
        }
    }

    fn finish_check(&mut self, at: Timestamp, mut finished: CheckFinished) {
        finished.output = truncate::truncate_middle(finished.output, self.max_chars);
        finished.name = self.shorten(finished.name);
        let Some(CheckAttempt { checks, .. }) = self.attempt(at, finished.attempt) else { return };
        match checks.last_mut().filter(|(name, _, end)| *name == finished.name && end.is_none()) {
            Some((_, _, end)) => *end = Some((at, finished)),
            None => checks.push((finished.name.clone(), at, Some((at, finished)))),
        }
    }

    /// Removes what an agent did because of a limit that was raised: its work continues from before that.
    fn roll_back(&mut self, raised: &LimitRaised) {
        let Some(limit) = self.limit_steps.pop() else { return };
        let is_cut = |turn: &Turn| turn.stop == Some(StopReason::MaxTokens);
        // The limit may have cut the reply before it.
        let before = limit.checked_sub(1);
        let first = before.filter(|at| self.agent.turn_mut(*at).is_some_and(|turn| is_cut(turn))).unwrap_or(limit);
        for step in self.agent.steps.split_off(first) {
            match step.kind {
                StepKind::Resumed(_) => self.agent.steps.push(step),
                _ => self.agent.dropped.push(step),
            }
        }
        if self.open_request.take_if(|at| *at >= first).is_some() {
            self.costs.add_reserved(self.reserved_cost);
        }
        while self.calls.pop_if(|calls| calls.step >= first).is_some() {}
        for indexes in [&mut self.check_steps, &mut self.limit_steps] {
            while indexes.pop_if(|at| *at >= first).is_some() {}
        }
        for id in &raised.subagents {
            let Some(call) = self.child_call(id) else { continue };
            let child = call.child.take();
            call.reset();
            call.child = child;
            call.started_at = call.child.as_ref().and_then(|child| child.started_at);
            call.child.iter_mut().for_each(|child| child.finished = None);
            // It continues.
            let (call_id, place) = (call.id.clone(), self.child_calls.get(id).copied());
            if let Some((step, _, by_id)) = self.last_calls()
                && let Some((_, index)) = place.filter(|(of, _)| *of == step)
                && let Some(same) = by_id.get_mut(&call_id).filter(|same| same.ended.contains(&index))
            {
                same.ended.remove(&index);
                same.running.push_back(index);
            }
        }
        let Some((_, calls, by_id)) = self.last_calls() else { return };
        for id in &raised.calls {
            let Some(SameId { not_started, running, ended }) = by_id.get_mut(id) else { continue };
            for index in running.drain(..).chain(std::mem::take(ended)) {
                calls[index].reset();
                not_started.insert(index);
            }
        }
    }

    fn finish(mut self) -> AgentConversation {
        self.agent.mark_truncated_results();
        let is_known = self.agent.finished.as_ref().is_some_and(|end| self.costs.matches(end.cost_usd));
        if !is_known {
            self.agent.turns_mut().for_each(|turn| turn.cost_usd = None);
        }
        for step in self.agent.dropped.iter_mut().filter(|_| !is_known) {
            if let StepKind::Turn(turn) = &mut step.kind {
                turn.cost_usd = None;
            }
        }
        self.agent
    }
}

impl AgentConversation {
    /// Notes in each call how much the model still saw of its result later.
    fn mark_truncated_results(&mut self) {
        let mut positions: HashMap<String, Vec<(usize, usize)>> = HashMap::new();
        let mut truncated = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            match &step.kind {
                StepKind::Turn(turn) => {
                    for (index, call) in turn.calls.iter().enumerate().filter(|(_, call)| call.result.is_some()) {
                        positions.entry(call.id.clone()).or_default().push((at, index));
                    }
                }
                StepKind::ResultsTruncated(event) => {
                    // Where ids are used again, the last call is meant.
                    let calls = event.call_ids.iter().filter_map(|id| positions.get(id)?.last());
                    truncated.extend(calls.map(|place| (*place, event.chars)));
                }
                _ => {}
            }
        }
        for ((step, index), chars) in truncated {
            if let Some(call) = self.turn_mut(step).and_then(|turn| turn.calls.get_mut(index)) {
                call.truncated_to = Some(chars.min(call.truncated_to.unwrap_or(u64::MAX)));
            }
        }
    }
}

impl Call {
    /// Forgets how the call ended, because it runs again.
    fn reset(&mut self) {
        *self = Self {
            id: std::mem::take(&mut self.id),
            tool: std::mem::take(&mut self.tool),
            subject: std::mem::take(&mut self.subject),
            input: std::mem::take(&mut self.input),
            ..Self::default()
        };
    }
}

impl Text {
    /// Keeps the first characters of a text.
    pub fn new(text: &str, max_chars: usize) -> Self {
        // A text has at least as many bytes as characters.
        let shown = if text.len() <= max_chars { text } else { truncate::first(text, max_chars) };
        Self { shown: shown.to_owned(), omitted_chars: text[shown.len()..].chars().count() as u64 }
    }

    /// A text of which everything is kept.
    pub fn whole(text: impl Into<String>) -> Self {
        Self { shown: text.into(), omitted_chars: 0 }
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

/// The prompt in the input of a `task` call; empty if it can't be read.
fn task_prompt(input: &Text) -> Text {
    #[derive(serde::Deserialize)]
    struct TaskPrompt {
        prompt: String,
    }
    let task: Option<TaskPrompt> = serde_json::from_str(&input.shown).ok();
    task.map(|task| Text::whole(task.prompt)).unwrap_or_default()
}

/// The costs of an agent's requests. The record has their sum only. So the requests are priced by the table of list prices,
/// and the prices are right if they add up to the recorded sum.
struct Costs {
    model: Option<Model>,
    prices: Prices,
    total: Option<f64>,
}

impl Costs {
    fn new(model: Option<Model>) -> Self {
        Self { model, prices: Prices::new(), total: Some(0.0) }
    }

    /// The cost of a request at list prices.
    fn add(&mut self, usage: &Usage, at: Timestamp) -> Option<f64> {
        let cost = request_cost(Some(&self.prices), self.model.as_ref(), usage, at);
        self.total = self.total.zip(cost).map(|(total, cost)| total + cost);
        cost
    }

    /// Counts a request that was cut off as what was reserved for it.
    fn add_reserved(&mut self, reserved: Option<f64>) {
        let is_scripted = self.model.as_ref().is_some_and(Model::is_scripted);
        let cost = if is_scripted { Some(0.0) } else { reserved };
        self.total = self.total.zip(cost).map(|(total, cost)| total + cost);
    }

    /// Whether the costs add up to the recorded sum.
    fn matches(&self, recorded: Option<f64>) -> bool {
        let differs =
            |(total, recorded): (f64, f64)| (total - recorded).abs() > COST_TOLERANCE * recorded.abs().max(1e-3);
        self.total.zip(recorded).is_some_and(|both| !differs(both))
    }
}
