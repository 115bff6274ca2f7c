//! The recorded steps of one agent. Both `resume` and `replay` run the same loop as a live run; before each step the loop
//! asks the cursor how that step ended when it was recorded.
//!
//! The two differ in what happens at the end of the record. A resumed agent goes live. A replayed agent stops: the way the
//! recorded agent was stopped, or with a difference. A resume is strict, because the plan is the recorded one: a step that
//! doesn't match its journal is an error. A replay may run an edited plan, so it looks for the next recorded step that fits,
//! and every event is recorded again for the comparison.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::raised_limits::{JournalSplit, MAX_TURNS, RaisedLimits, is_call_event};
use super::run_abort::RunAbort;
use crate::event::{
    AgentFinished, BeforeFinished, CallFinished, CheckFinished, CheckStarted, Event, JournalEntry, LimitRaised,
    LimitReached, MergedChanges, Outcome, RequestStarted, ResultsTruncated, StateRead, Stopwatch,
};
use crate::message::{ToolCall, Usage};
use crate::outputs::Proposal;
use crate::tools::set_state::SetState;
use crate::tools::skill::SkillTool;
use crate::tools::submit_result::SubmitResult;
use crate::tools::task::Task;

/// The recorded steps of an agent, oldest first.
#[derive(Debug, Default)]
pub struct JournalCursor {
    agent: String,
    steps: VecDeque<JournalEntry>,
    /// The calls of the last reply.
    calls: RecordedCalls,
    /// Set for a replay.
    replay: Option<ReplayRules>,
    /// How long the recorded agent ran. The caller can know more about it than the agent's own journal.
    pub elapsed: Duration,
    /// The steps that a raised limit removed from the conversation.
    rolled_back: Vec<JournalEntry>,
    /// The event to record before an agent continues from before a limit.
    pub(super) limit_raised: Option<LimitRaised>,
}

/// How the record of an agent is replayed.
#[derive(Debug, Clone, Default)]
pub struct ReplayRules {
    /// What stopped the recorded agent before it had finished, if anything did. The replay stops at the same step.
    pub stopped: Option<RunAbort>,
    /// Whether the recorded run ended while this agent waited for its start.
    pub never_started: bool,
    /// Whether tools and checks run for real.
    pub runs_tools: bool,
    /// Whether the replayed plan gives the agent another `max_turns` than the recorded one.
    pub has_other_max_turns: bool,
}

/// What the record says about the end of a step that it has.
#[derive(Debug)]
pub(super) enum Recorded<T> {
    /// The step ended like this.
    Known(T),
    /// The step started, and its end isn't recorded.
    Unfinished,
    /// The step ended, but a replay runs it again to compare.
    Rerun,
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub(super) started: RequestStarted,
    /// Its events: its start, the failed tries before the last one, and its end, if that is recorded.
    pub(super) entries: Vec<JournalEntry>,
}

/// What the record says about how the next request was made to fit the model's window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CompactionStep {
    /// The request is sent as it is.
    Proceed,
    /// The results of these calls are truncated.
    TruncateResults {
        call_ids: Vec<String>,
        /// The most characters that are left of each.
        chars: u64,
    },
    /// All turns but the last ones are replaced by a summary.
    Summarize { kept_turns: u32 },
    /// Nothing helps: the agent ends.
    GiveUp,
}

/// A call that was started.
#[derive(Debug)]
pub(super) struct RecordedCall {
    /// The subagent that was started for it.
    pub(super) child: Option<String>,
    /// How the subagent ended, if it had and doesn't run again.
    pub(super) child_end: Option<AgentFinished>,
    pub(super) end: Recorded<CallFinished>,
    /// How the changes of the subagent came back into the workspace.
    pub(super) merged: Option<MergedChanges>,
}

/// The calls of one reply.
#[derive(Debug, Default)]
struct RecordedCalls {
    /// The calls that were started, in order: the id of the call, and the subagent that answers it.
    started: VecDeque<(String, Option<String>)>,
    /// The ends by the id of the call, in order.
    ends: HashMap<String, VecDeque<CallFinished>>,
    /// The subagents that had ended.
    child_ends: HashMap<String, AgentFinished>,
}

impl JournalCursor {
    /// Continues an agent from its journal. `resumed` are the times at which the run was resumed, in order; `raised` are the
    /// limits that are raised now.
    pub fn for_resume(
        agent: &str,
        entries: impl IntoIterator<Item = JournalEntry>,
        resumed: &[Timestamp],
        raised: &RaisedLimits,
    ) -> Self {
        let mut stopwatch = Stopwatch::new(resumed);
        let entries = entries.into_iter().inspect(|entry| stopwatch.advance(entry.at, entry.suspended_ms));
        let split = JournalSplit::new(agent, entries, raised);
        let is_step = |entry: &JournalEntry| match &entry.event {
            Event::RunStarted(_)
            | Event::Resumed(_)
            | Event::WorkspaceChanged(_)
            | Event::OutputsProposed(_)
            | Event::StateSet(_)
            | Event::NetworkUsed(_)
            | Event::NetworkRefused(_)
            | Event::RunFinished(_) => false,
            // The run ended then, and the agent continues from there.
            Event::AgentFinished(end) => !end.outcome.was_cut_off(),
            _ => entry.agent == agent,
        };
        Self {
            agent: agent.to_owned(),
            steps: split.active.into_iter().filter(is_step).collect(),
            elapsed: stopwatch.total(),
            rolled_back: split.rolled_back,
            limit_raised: split.limit_raised,
            ..Self::default()
        }
    }

    /// Runs an agent again from its normalized journal.
    pub fn for_replay(entries: impl IntoIterator<Item = JournalEntry>, rules: ReplayRules) -> Self {
        Self { steps: entries.into_iter().collect(), replay: Some(rules), ..Self::default() }
    }

    /// Whether the agent is replayed.
    pub(super) fn is_replay(&self) -> bool {
        self.replay.is_some()
    }

    /// Whether the journal has no further step.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.is_empty()
    }

    /// What stopped the recorded agent of a replay before it had finished.
    pub(super) fn stopped(&self) -> Option<&RunAbort> {
        self.replay.as_ref()?.stopped.as_ref()
    }

    /// Why a replayed subagent doesn't start, if it never did.
    pub(super) fn never_started(&self) -> Option<&RunAbort> {
        self.stopped().filter(|_| self.replay.as_ref().is_some_and(|replay| replay.never_started))
    }

    /// The journal has another step than the one that the loop takes, which has an event of this kind.
    pub(super) fn mismatch(&self, kind: &str) -> RunAbort {
        RunAbort::journal_mismatch(&self.agent, kind)
    }

    /// What the recorded calls proposed to do outside, with their times.
    pub(super) fn proposals(&self) -> impl Iterator<Item = (Timestamp, &Proposal)> {
        self.rolled_back.iter().chain(&self.steps).filter_map(|entry| match &entry.event {
            Event::CallFinished(finished) => Some((entry.at, finished.proposal.as_ref()?)),
            _ => None,
        })
    }

    /// Takes an event that the loop is about to record. Returns whether it must be recorded: in a resume, only if the
    /// journal doesn't have it.
    pub(super) fn advance(&mut self, event: &Event) -> Result<bool, RunAbort> {
        if self.replay.is_some() {
            self.skip_through(event.kind());
            return Ok(true);
        }
        if self.steps.is_empty() {
            return Ok(true);
        }
        let is_same = match (self.peek(), event) {
            (Some(Event::AgentStarted(then)), Event::AgentStarted(now)) => {
                (&then.subagent, &then.model, &then.prompt) == (&now.subagent, &now.model, &now.prompt)
            }
            (next, event) => next.is_some_and(|next| next.kind() == event.kind()),
        };
        if !is_same {
            return Err(self.mismatch(event.kind()));
        }
        self.steps.pop_front();
        Ok(false)
    }

    /// Whether images that were refused are removed next.
    pub(super) fn is_removal_next(&self) -> bool {
        matches!(self.peek(), Some(Event::ResultsTruncated(removed)) if removed.refused)
    }

    /// Whether a reply was discarded next; `None` where the record doesn't decide it.
    pub(super) fn is_discarded_next(&self) -> Option<bool> {
        self.decides().then(|| matches!(self.peek(), Some(Event::ReplyDiscarded(_))))
    }

    /// The data that was taken from a text next, if any; `None` where the record doesn't decide it.
    pub(super) fn next_result_taken(&self) -> Option<Option<&Value>> {
        self.decides().then(|| match self.peek() {
            Some(Event::ResultTaken(taken)) => Some(&taken.result),
            _ => None,
        })
    }

    /// Whether the record decides what comes next, rather than the agent that goes live.
    fn decides(&self) -> bool {
        self.is_replay() || !self.is_exhausted()
    }

    /// The limit that the agent reached next, if it is one of the whole run.
    pub(super) fn next_run_limit(&self) -> Option<LimitReached> {
        self.peek_limit().filter(LimitReached::is_run_limit)
    }

    /// The recorded form of a limit that the agent reached next.
    pub(super) fn recorded_limit(&self, hit: &LimitReached) -> Option<LimitReached> {
        self.peek_limit().filter(|next| next.limit == hit.limit || (next.is_run_limit() && hit.is_run_limit()))
    }

    /// Whether the agent reached its turn limit next, where the record decides it.
    pub(super) fn is_turn_limit_next(&self) -> Option<bool> {
        self.decides_turns().then(|| self.peek_limit().is_some_and(|hit| hit.limit == MAX_TURNS))
    }

    /// Whether the agent ended next, where the record decides how many turns it has.
    pub(super) fn is_end_next(&self) -> Option<bool> {
        self.decides_turns().then(|| self.is_at_end())
    }

    fn decides_turns(&self) -> bool {
        match &self.replay {
            Some(replay) => !replay.has_other_max_turns,
            None => !self.is_exhausted(),
        }
    }

    /// The recorded end of a resumed agent, if that comes next. A replayed agent computes its own, for the comparison.
    pub(super) fn final_result(&self) -> Option<&AgentFinished> {
        self.peek_end().filter(|_| self.replay.is_none())
    }

    /// Whether the agent's own end comes next.
    pub(super) fn is_at_end(&self) -> bool {
        self.peek_end().is_some()
    }

    /// The next step that made room in the model's window; `None` where the record doesn't decide it.
    pub(super) fn next_compaction_step(&self, is_final: bool) -> Option<CompactionStep> {
        if self.is_exhausted() && self.replay.is_none() {
            return None;
        }
        let next = self.steps.iter().find(|entry| !is_before_request(entry, is_final));
        Some(match next.map(|entry| &entry.event) {
            Some(Event::ResultsTruncated(ResultsTruncated { call_ids, chars, .. })) => {
                CompactionStep::TruncateResults { call_ids: call_ids.clone(), chars: *chars }
            }
            Some(Event::RequestStarted(RequestStarted { kept_turns: Some(kept_turns), .. })) => {
                CompactionStep::Summarize { kept_turns: *kept_turns }
            }
            Some(Event::AgentFinished(end)) if end.outcome == Outcome::ContextFull => CompactionStep::GiveUp,
            _ => CompactionStep::Proceed,
        })
    }

    /// Takes the next request, or the limit because of which none could be sent; `None` where the record has none here.
    pub(super) fn take_request(&mut self, is_final: bool) -> Option<Result<RecordedRequest, LimitReached>> {
        if self.replay.is_some() {
            while self.steps.pop_front_if(|entry| is_before_request(entry, is_final)).is_some() {}
        }
        if let Some(hit) = self.next_run_limit() {
            return Some(Err(hit));
        }
        if is_final && self.is_at_end() {
            return Some(Err(LimitReached::new("limits", "there was no room for another request")));
        }
        let first = self.steps.pop_front_if(|entry| matches!(entry.event, Event::RequestStarted(_)))?;
        let Event::RequestStarted(started) = &first.event else { return None };
        let (started, mut entries) = (started.clone(), vec![first]);
        while let Some(retry) = self.steps.pop_front_if(|entry| matches!(entry.event, Event::Retrying(_))) {
            entries.push(retry);
        }
        let is_end = |entry: &mut JournalEntry| {
            matches!(entry.event, Event::ReplyReceived(_) | Event::RequestFailed(_) | Event::RequestInterrupted(_))
        };
        entries.extend(self.steps.pop_front_if(is_end));
        Some(Ok(RecordedRequest { started, entries }))
    }

    /// Collects the recorded calls of the reply that was just taken.
    pub(super) fn begin_calls(&mut self) {
        self.calls = RecordedCalls::default();
        while let Some(entry) = self.steps.pop_front_if(|entry| is_call_event(entry)) {
            match entry.event {
                Event::CallStarted(started) => self.calls.started.push_back((started.call_id, started.child)),
                Event::CallFinished(finished) => {
                    self.calls.ends.entry(finished.result.call_id.clone()).or_default().push_back(finished);
                }
                Event::AgentFinished(end) => drop(self.calls.child_ends.insert(end.id.clone(), end)),
                _ => {}
            }
        }
    }

    /// Takes the next recorded call, which is `call`; `None` where no further one was started. `has_tool`: whether the agent
    /// has the tool now.
    pub(super) fn take_call(&mut self, call: &ToolCall, has_tool: bool) -> Result<Option<RecordedCall>, RunAbort> {
        let Some((call_id, child)) = self.calls.started.pop_front() else { return Ok(None) };
        if self.replay.is_none() && call_id != call.id {
            return Err(self.mismatch("call_started"));
        }
        let child_end = child.as_ref().and_then(|id| self.calls.child_ends.remove(id));
        let end = self.calls.ends.get_mut(&call.id).and_then(VecDeque::pop_front);
        let is_rerun = self.replay.as_ref().is_some_and(|replay| {
            // legwork itself answers these, from the plan.
            let is_internal = [Task::NAME, SkillTool::NAME, SubmitResult::NAME, SetState::NAME]
                .contains(&call.tool.as_str())
                || !has_tool;
            // A call that wasn't run, or has no recorded end, can't be compared.
            let has_own_result = end.as_ref().is_none_or(|end| end.no_result.is_none());
            has_own_result && (is_internal || (replay.runs_tools && end.is_some()))
        });
        let merged = end.as_ref().and_then(|end| end.merged.clone());
        let end = match end {
            _ if is_rerun => Recorded::Rerun,
            Some(end) => Recorded::Known(end),
            None => Recorded::Unfinished,
        };
        Ok(Some(RecordedCall { child, child_end, end, merged }))
    }

    /// Checks that the loop has taken all recorded calls of a reply.
    pub(super) fn end_calls(&mut self) -> Result<(), RunAbort> {
        let calls = std::mem::take(&mut self.calls);
        if self.replay.is_some() || calls.started.is_empty() { Ok(()) } else { Err(self.mismatch("call_started")) }
    }

    /// Takes the next check; `None` where the record has none here, or another one.
    pub(super) fn take_check(&mut self, check: &CheckStarted) -> Option<Recorded<CheckFinished>> {
        let is_any = self.replay.is_some();
        self.steps.pop_front_if(|entry| match &entry.event {
            Event::CheckStarted(then) => is_any || (&then.name, then.attempt) == (&check.name, check.attempt),
            _ => false,
        })?;
        let end = self.steps.pop_front_if(|entry| matches!(entry.event, Event::CheckFinished(_)));
        Some(match end.map(|entry| entry.event) {
            Some(Event::CheckFinished(_)) if self.replay.as_ref().is_some_and(|replay| replay.runs_tools) => {
                Recorded::Rerun
            }
            Some(Event::CheckFinished(finished)) => Recorded::Known(finished),
            _ => Recorded::Unfinished,
        })
    }

    /// The prompt with which a resumed agent has started, if it has.
    pub(super) fn recorded_prompt(&self) -> Option<String> {
        match self.peek() {
            Some(Event::AgentStarted(started)) if !self.is_replay() => Some(started.prompt.clone()),
            _ => None,
        }
    }

    /// Takes the state with which the run began; `None` where the record has none here.
    pub(super) fn take_state(&mut self) -> Option<StateRead> {
        match self.steps.pop_front_if(|entry| matches!(entry.event, Event::StateRead(_)))?.event {
            Event::StateRead(read) => Some(read),
            _ => None,
        }
    }

    /// Takes a step before the agent; `None` where the record has no such step here. One that failed runs again when the run
    /// is resumed, unless it may fail.
    pub(super) fn take_step(&mut self, name: &str, is_optional: bool) -> Option<Recorded<BeforeFinished>> {
        let mut found = None;
        while self
            .steps
            .pop_front_if(|entry| matches!(&entry.event, Event::BeforeStarted(step) if step.name == name))
            .is_some()
        {
            let end = self.steps.pop_front_if(|entry| matches!(entry.event, Event::BeforeFinished(_)));
            found = Some(match end.map(|entry| entry.event) {
                Some(Event::BeforeFinished(end)) if end.error.is_none() || is_optional || self.is_replay() => {
                    return Some(Recorded::Known(end));
                }
                _ => Recorded::Unfinished,
            });
        }
        found
    }

    /// The note that the model read next.
    pub(super) fn next_note(&self) -> Option<String> {
        match self.peek() {
            Some(Event::NoteSent(note)) => Some(note.text.clone()),
            _ => None,
        }
    }

    /// The usage of every request in the journal. A request without a recorded end counts as what was reserved for it.
    pub fn request_spend(&self) -> Vec<RequestSpend> {
        request_spend(self.rolled_back.iter()).into_iter().chain(request_spend(&self.steps)).collect()
    }

    /// The usage of the requests that are no longer part of the conversation.
    pub(super) fn rolled_back_spend(&self) -> Vec<RequestSpend> {
        request_spend(&self.rolled_back)
    }

    /// How many replies are no longer part of the conversation.
    pub(super) fn rolled_back_replies(&self) -> usize {
        self.rolled_back.iter().filter(|entry| matches!(entry.event, Event::ReplyReceived(_))).count()
    }

    /// The context windows that servers reported when a prompt was too long, each with the fallback that was asked.
    pub(super) fn reported_windows(&self) -> impl Iterator<Item = (Option<&str>, u64)> {
        let mut fallback = None;
        self.steps.iter().filter_map(move |entry| match &entry.event {
            Event::RequestStarted(request) => {
                fallback = request.model.as_deref();
                None
            }
            Event::RequestFailed(failed) => Some((fallback, failed.window?)),
            _ => None,
        })
    }

    /// Whether another model replaced the agent's next.
    pub(super) fn is_model_change_next(&self) -> bool {
        matches!(self.peek(), Some(Event::ModelChanged(_)))
    }

    /// How many calls were started, and how many of them for a subagent.
    pub fn calls_started(&self) -> (u64, u64) {
        let started = self.steps.iter().filter_map(|entry| match &entry.event {
            Event::CallStarted(started) => Some(u64::from(started.child.is_some())),
            _ => None,
        });
        started.fold((0, 0), |(calls, subagents), subagent| (calls + 1, subagents + subagent))
    }

    fn peek(&self) -> Option<&Event> {
        self.steps.front().map(|entry| &entry.event)
    }

    fn peek_limit(&self) -> Option<LimitReached> {
        match self.peek() {
            Some(Event::LimitReached(reached)) => Some(reached.clone()),
            _ => None,
        }
    }

    fn peek_end(&self) -> Option<&AgentFinished> {
        match self.steps.front() {
            Some(JournalEntry { agent, event: Event::AgentFinished(end), .. }) if end.id == *agent => Some(end),
            _ => None,
        }
    }

    /// Drops the steps up to and including the next one of this kind, unless a request comes before it.
    fn skip_through(&mut self, kind: &str) {
        let is_final = kind == "results_truncated";
        for (at, entry) in self.steps.iter().enumerate() {
            if entry.event.kind() == kind {
                self.steps.drain(..=at);
                return;
            }
            if !is_before_request(entry, is_final) {
                return;
            }
        }
    }
}

/// Whether a step comes before the next request and its compaction. The limit that made a request the final one does, too.
fn is_before_request(entry: &JournalEntry, is_final: bool) -> bool {
    match &entry.event {
        Event::RequestStarted(_) | Event::ResultsTruncated(_) => false,
        Event::LimitReached(_) => is_final,
        Event::AgentFinished(end) => end.id != entry.agent,
        _ => true,
    }
}

/// The usage of one request.
#[derive(Debug, Clone)]
pub struct RequestSpend {
    /// When it was made.
    pub at: Timestamp,
    /// The fallback that it was sent to; `None` for the agent's own model.
    pub fallback: Option<String>,
    /// Its tokens.
    pub usage: Usage,
    /// The cost in US dollars that was reserved for it, if its real usage isn't known.
    pub reserved_cost_usd: Option<Option<f64>>,
    /// The tokens and the cost that the budget counts instead, if the request was interrupted.
    pub in_budget: Option<(u64, Option<f64>)>,
}

/// The usage of every request of a journal. One without a recorded end counts as what was reserved for it.
pub(super) fn request_spend<'a>(entries: impl IntoIterator<Item = &'a JournalEntry>) -> Vec<RequestSpend> {
    let unfinished = |(at, request): (Timestamp, &RequestStarted)| {
        let output_tokens = u64::from(request.max_tokens).min(request.reserved_tokens);
        let input_tokens = request.reserved_tokens - output_tokens;
        let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        RequestSpend {
            at,
            fallback: request.model.clone(),
            usage,
            reserved_cost_usd: Some(request.reserved_cost_usd),
            in_budget: None,
        }
    };
    let mut all = Vec::new();
    let mut in_flight: Option<(Timestamp, &RequestStarted)> = None;
    for entry in entries {
        let used = match &entry.event {
            Event::Retrying(retrying) => Some(retrying.retry.usage),
            Event::ReplyReceived(received) => Some(received.reply.usage),
            Event::RequestFailed(failed) => Some(failed.usage),
            Event::RequestInterrupted(interrupted) => Some(interrupted.usage),
            _ => None,
        };
        let is_interrupted = matches!(entry.event, Event::RequestInterrupted(_));
        all.extend(in_flight.map(|request| match used {
            Some(usage) => {
                let (at, request) = request;
                let in_budget = is_interrupted.then_some((request.reserved_tokens, request.reserved_cost_usd));
                RequestSpend { at, fallback: request.model.clone(), usage, reserved_cost_usd: None, in_budget }
            }
            None => unfinished(request),
        }));
        match &entry.event {
            Event::RequestStarted(request) => in_flight = Some((entry.at, request)),
            Event::Retrying(_) => {}
            _ => in_flight = None,
        }
    }
    all.extend(in_flight.map(unfinished));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RequestFailed;

    #[test]
    fn usage_is_the_same_in_advance_and_step_by_step() {
        let started = |turn| {
            Event::RequestStarted(RequestStarted {
                turn,
                max_tokens: 30,
                tools_allowed: true,
                reserved_tokens: 100,
                reserved_cost_usd: Some(0.5),
                kept_turns: None,
                model: None,
            })
        };
        let failed = |input_tokens| {
            Event::RequestFailed(RequestFailed {
                kind: crate::providers::ProviderErrorKind::Failed,
                reason: String::new(),
                usage: Usage { input_tokens, ..Usage::default() },
                window: None,
            })
        };
        let events = [started(1), failed(7), started(1), started(1), failed(9), started(2)];
        let at = Timestamp::from_second(1).unwrap();
        let entry = |event| JournalEntry { seq: 1, at, suspended_ms: 0, agent: "parent".to_owned(), event };
        let mut cursor = JournalCursor::for_resume("parent", events.map(entry), &[], &RaisedLimits::default());
        let sum = |all: &[RequestSpend]| {
            all.iter().fold(Usage::default(), |mut sum, spend| {
                sum += spend.usage;
                sum
            })
        };
        let in_advance = cursor.request_spend();
        let mut taken = Vec::new();
        while let Some(Ok(request)) = cursor.take_request(false) {
            taken.extend(request_spend(&request.entries));
        }
        assert!(cursor.is_exhausted());
        assert_eq!(sum(&in_advance), sum(&taken));
        assert_eq!(sum(&in_advance), Usage { input_tokens: 7 + 9 + 2 * 70, output_tokens: 2 * 30, ..Usage::default() });
        assert_eq!(in_advance.iter().filter(|spend| spend.reserved_cost_usd == Some(Some(0.5))).count(), 2);
    }

    fn seconds(resumed: &[i64], events: &[i64]) -> u64 {
        let at = |second: &i64| Timestamp::from_second(*second).unwrap();
        let resumed: Vec<Timestamp> = resumed.iter().map(at).collect();
        let mut stopwatch = Stopwatch::new(&resumed);
        events.iter().for_each(|second| stopwatch.advance(at(second), 0));
        stopwatch.total().as_secs()
    }

    #[test]
    fn time_in_which_the_process_could_not_run_is_not_running_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let resumed = [at(100)];
        let mut stopwatch = Stopwatch::new(&resumed);
        let mut total = |second, suspended_ms| {
            stopwatch.advance(at(second), suspended_ms);
            stopwatch.total().as_secs()
        };
        assert_eq!([total(10, 0), total(41, 30_000), total(42, 30_000)], [0, 1, 2]);
        assert_eq!(total(63, 30_000), 23, "it isn't known yet");
        assert_eq!([total(64, 50_000), total(65, 50_000)], [4, 5]);
        assert_eq!([total(101, 0), total(108, 5_000)], [6, 8], "each part counts its own");
    }

    #[test]
    fn pauses_and_the_time_before_an_agent_started_are_not_running_time() {
        assert_eq!(seconds(&[], &[10, 15, 30]), 20);
        assert_eq!(seconds(&[100], &[10, 15, 103]), 5 + 3);
        assert_eq!(seconds(&[100, 200], &[10, 15, 203]), 5 + 3, "interrupted twice");
        assert_eq!(seconds(&[100], &[150, 160]), 10, "started after the resume");
        assert_eq!(seconds(&[], &[30, 10, 15]), 5, "the clock was set back");
    }
}
