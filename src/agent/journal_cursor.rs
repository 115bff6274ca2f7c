//! What an agent's journal already holds. A run that is resumed takes the same steps as before; as long as the journal
//! has what came of a step, it is taken from there, and nothing happens twice.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::compaction::CompactionStep;
use super::raised_limits::{JournalSplit, RaisedLimits};
use crate::budget::LimitHit;
use crate::event::{
    AgentFinished, CheckFinished, Event, JournalEntry, LimitRaised, Outcome, ReplyReceived, RequestFailed,
    RequestStarted, ResultsTruncated,
};
use crate::message::{ToolResult, Usage};
use crate::tools::FileVersion;

/// An agent's past, oldest first.
#[derive(Debug, Default)]
pub struct JournalCursor {
    steps: VecDeque<JournalEntry>,
    /// How long the agent ran in it.
    pub(super) elapsed: Duration,
    /// What a raised limit took out of it.
    rolled_back: Vec<JournalEntry>,
    /// What has to be recorded before the agent goes on from before a limit.
    pub(super) limit_raised: Option<LimitRaised>,
}

/// A request that was made.
#[derive(Debug)]
pub(super) struct JournaledRequest {
    pub(super) asked: RequestStarted,
    pub(super) at: Timestamp,
    /// What tries before the last have used.
    pub(super) failed_tries: Usage,
    pub(super) end: RequestEnd,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum RequestEnd {
    Replied(Box<ReplyReceived>),
    Failed(RequestFailed),
    /// The run was cut off meanwhile.
    Unfinished,
}

/// What the journal holds in place of the next request.
#[derive(Debug)]
pub(super) enum NextRequest {
    Sent(Box<JournaledRequest>),
    /// None could be made.
    LimitReached(LimitHit),
}

/// The calls of one reply, as far as they were begun.
#[derive(Debug, Default)]
pub(super) struct JournaledCalls {
    /// Those that were begun, in the order of the calls: the call's id, and who answers a `task`.
    pub(super) begun: VecDeque<(String, Option<String>)>,
    /// The answers, in their order.
    answers: HashMap<String, VecDeque<JournaledResult>>,
    /// The subagents that had ended.
    pub(super) children: HashMap<String, AgentFinished>,
}

/// What a call was told, and which file the agent saw by it.
pub(super) type JournaledResult = (ToolResult, Option<FileVersion>);

impl JournaledCalls {
    /// The answer that a call had, once for each call of that id.
    pub(super) fn take_result(&mut self, call_id: &str) -> Option<JournaledResult> {
        self.answers.get_mut(call_id)?.pop_front()
    }
}

impl JournalCursor {
    /// What an agent's journal holds. `resumed` are the times at which the run went on, in order; `raised` the limits from
    /// before which it goes on now.
    pub fn new(
        agent: &str,
        entries: impl IntoIterator<Item = JournalEntry>,
        resumed: &[Timestamp],
        raised: &RaisedLimits,
    ) -> Self {
        let mut steps = VecDeque::new();
        let mut clock = Stopwatch::new(resumed);
        let entries = entries.into_iter().inspect(|entry| clock.advance(entry.at));
        let split = JournalSplit::new(agent, entries, raised);
        for entry in split.active {
            let is_a_step = match &entry.event {
                Event::RunStarted(_) | Event::Resumed(_) | Event::WorkspaceChanged(_) | Event::RunFinished(_) => false,
                // Such an end was the run's, and the agent goes on from there.
                Event::AgentFinished(finished) => !finished.outcome.was_cut_off(),
                _ => entry.agent == agent,
            };
            if is_a_step {
                steps.push_back(entry);
            }
        }
        Self { steps, elapsed: clock.total, rolled_back: split.rolled_back, limit_raised: split.limit_raised }
    }

    /// The agent has run for so long, by what else is known than its journal.
    pub fn ran_for(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
    }

    /// What requests used that are no longer part of the conversation.
    pub(super) fn rolled_back_spend(&self) -> Vec<RequestSpend> {
        spend_of(&self.rolled_back)
    }

    /// How many replies there were to them.
    pub(super) fn rolled_back_replies(&self) -> usize {
        self.rolled_back.iter().filter(|entry| matches!(entry.event, Event::ReplyReceived(_))).count()
    }

    /// Whether the journal holds nothing more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.is_empty()
    }

    fn peek(&self) -> Option<&Event> {
        self.steps.front().map(|entry| &entry.event)
    }

    /// Takes an event out, where it comes next.
    pub(super) fn take_event(&mut self, event: &Event) -> bool {
        let same = match (self.peek(), event) {
            (Some(Event::AgentStarted(then)), Event::AgentStarted(now)) => {
                (&then.subagent, &then.model, &then.prompt) == (&now.subagent, &now.model, &now.prompt)
            }
            (Some(Event::CheckStarted(then)), Event::CheckStarted(now)) => {
                (&then.name, then.attempt) == (&now.name, now.attempt)
            }
            (next, event) => next.is_some_and(|next| next.kind() == event.kind()),
        };
        if same {
            self.steps.pop_front();
        }
        same
    }

    /// The limit that comes next, left where it is.
    pub(super) fn peek_limit(&self) -> Option<LimitHit> {
        match self.peek() {
            Some(Event::LimitReached(reached)) => Some(LimitHit::from(reached)),
            _ => None,
        }
    }

    /// The agent's own end, where it comes next.
    pub(super) fn peek_end(&self) -> Option<&AgentFinished> {
        match self.peek() {
            Some(Event::AgentFinished(finished)) => Some(finished),
            _ => None,
        }
    }

    /// Whether the agent's own end comes next.
    pub(super) fn is_at_end(&self) -> bool {
        self.peek_end().is_some()
    }

    /// What was done next to make room in the model's window.
    pub(super) fn next_compaction_step(&self) -> CompactionStep {
        match self.peek() {
            Some(Event::ResultsTruncated(ResultsTruncated { call_ids, chars, .. })) => {
                CompactionStep::TruncateResults { call_ids: call_ids.clone(), chars: *chars }
            }
            Some(Event::RequestStarted(RequestStarted { kept_turns: Some(kept_turns), .. })) => {
                CompactionStep::Summarize { kept_turns: *kept_turns }
            }
            Some(Event::AgentFinished(end)) if end.outcome == Outcome::ContextFull => CompactionStep::GiveUp,
            _ => CompactionStep::Proceed,
        }
    }

    /// How the check that was just taken ended, where it did.
    pub(super) fn take_check_result(&mut self) -> Option<CheckFinished> {
        match self.steps.pop_front_if(|entry| matches!(entry.event, Event::CheckFinished(_)))?.event {
            Event::CheckFinished(finished) => Some(finished),
            _ => None,
        }
    }

    /// What the model was told, where that comes next; left where it is.
    pub(super) fn peek_note(&self) -> Option<String> {
        match self.peek() {
            Some(Event::NoteSent(told)) => Some(told.text.clone()),
            _ => None,
        }
    }

    /// What came of the request that comes next; `None` where there was none.
    pub(super) fn take_request(&mut self) -> Option<NextRequest> {
        if let Some(hit) = self.peek_limit() {
            return Some(NextRequest::LimitReached(hit));
        }
        let first = self.steps.pop_front_if(|entry| matches!(entry.event, Event::RequestStarted(_)))?;
        let Event::RequestStarted(asked) = first.event else { return None };
        let mut made =
            JournaledRequest { asked, at: first.at, failed_tries: Usage::default(), end: RequestEnd::Unfinished };
        while let Some(Event::Retrying(retrying)) = self.peek() {
            made.failed_tries += retrying.retry.usage;
            self.steps.pop_front();
        }
        let is_end =
            |entry: &mut JournalEntry| matches!(entry.event, Event::ReplyReceived(_) | Event::RequestFailed(_));
        match self.steps.pop_front_if(is_end).map(|entry| entry.event) {
            Some(Event::ReplyReceived(replied)) => made.end = RequestEnd::Replied(Box::new(replied)),
            Some(Event::RequestFailed(failed)) => made.end = RequestEnd::Failed(failed),
            _ => {}
        }
        Some(NextRequest::Sent(Box::new(made)))
    }

    /// The calls that were begun for the reply that was just taken.
    pub(super) fn take_calls(&mut self) -> JournaledCalls {
        let mut calls = JournaledCalls::default();
        while let Some(Event::CallStarted(_) | Event::CallFinished(_) | Event::AgentFinished(_)) = self.peek() {
            // The agent's own end stands after the last of its calls.
            let own_end =
                |entry: &JournalEntry| matches!(&entry.event, Event::AgentFinished(end) if end.id == entry.agent);
            if self.steps.front().is_some_and(own_end) {
                break;
            }
            match self.steps.pop_front().map(|entry| entry.event) {
                Some(Event::CallStarted(started)) => calls.begun.push_back((started.call_id, started.child)),
                Some(Event::CallFinished(finished)) => {
                    let of_call = calls.answers.entry(finished.result.call_id.clone()).or_default();
                    of_call.push_back((finished.result, finished.file_version));
                }
                Some(Event::AgentFinished(finished)) => {
                    calls.children.insert(finished.id.clone(), finished);
                }
                _ => {}
            }
        }
        calls
    }

    /// Every request of it with what it used: what it had reserved, where nobody knows.
    pub fn request_spend(&self) -> Vec<RequestSpend> {
        let mut all = self.rolled_back_spend();
        all.extend(spend_of(&self.steps));
        all
    }

    /// The windows that servers named when a prompt was too long.
    pub(super) fn windows(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().filter_map(|entry| match &entry.event {
            Event::RequestFailed(failed) => failed.window,
            _ => None,
        })
    }

    /// How many calls were begun, and how many of them for a subagent.
    pub fn calls_begun(&self) -> (u64, u64) {
        let started = self.steps.iter().filter_map(|entry| match &entry.event {
            Event::CallStarted(started) => Some(u64::from(started.child.is_some())),
            _ => None,
        });
        started.fold((0, 0), |(all, children), child| (all + 1, children + child))
    }
}

/// Every request of a journal with what it used.
fn spend_of<'a>(entries: impl IntoIterator<Item = &'a JournalEntry>) -> Vec<RequestSpend> {
    let mut all = Vec::new();
    let mut under_way: Option<(Timestamp, &RequestStarted)> = None;
    for entry in entries {
        let known = |usage| under_way.map(|(at, _)| RequestSpend { at, usage, reserved_cost_usd: None });
        match &entry.event {
            Event::Retrying(retrying) => {
                all.extend(known(retrying.retry.usage));
                continue;
            }
            Event::ReplyReceived(replied) => all.extend(known(replied.reply.usage)),
            Event::RequestFailed(failed) => all.extend(known(failed.usage)),
            _ => all.extend(under_way.map(|(at, asked)| RequestSpend::unfinished(asked, at))),
        }
        under_way = match &entry.event {
            Event::RequestStarted(asked) => Some((entry.at, asked)),
            _ => None,
        };
    }
    all.extend(under_way.map(|(at, asked)| RequestSpend::unfinished(asked, at)));
    all
}

/// What a request used.
#[derive(Debug, Clone, Copy)]
pub struct RequestSpend {
    /// When.
    pub at: Timestamp,
    /// How many tokens.
    pub usage: Usage,
    /// What was set aside for it, where the usage isn't known but only that; in US dollars.
    pub reserved_cost_usd: Option<Option<f64>>,
}

impl RequestSpend {
    /// A request whose end nobody saw.
    fn unfinished(asked: &RequestStarted, at: Timestamp) -> Self {
        let output_tokens = u64::from(asked.max_tokens).min(asked.reserved_tokens);
        let input_tokens = asked.reserved_tokens - output_tokens;
        let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        Self { at, usage, reserved_cost_usd: Some(asked.reserved_cost_usd) }
    }
}

impl JournaledRequest {
    pub(super) fn request_spend(&self) -> Vec<RequestSpend> {
        let known = |usage| RequestSpend { at: self.at, usage, reserved_cost_usd: None };
        let last = match &self.end {
            RequestEnd::Replied(replied) => known(replied.reply.usage),
            RequestEnd::Failed(failed) => known(failed.usage),
            RequestEnd::Unfinished => RequestSpend::unfinished(&self.asked, self.at),
        };
        vec![known(self.failed_tries), last]
    }
}

/// Adds up the time between events, without the pauses in which nothing ran.
pub struct Stopwatch<'a> {
    resumed: &'a [Timestamp],
    last: Option<Timestamp>,
    total: Duration,
}

impl<'a> Stopwatch<'a> {
    /// `resumed` are the times at which the run went on, in order.
    pub fn new(resumed: &'a [Timestamp]) -> Self {
        Self { resumed, last: None, total: Duration::ZERO }
    }

    /// Takes an event's time; events come in order, each journal's or several journals' sorted.
    pub fn advance(&mut self, at: Timestamp) {
        let mut from = self.last;
        while let Some(first) = self.resumed.first().filter(|resumed| **resumed <= at) {
            // What began later hasn't run since.
            from = from.map(|_| *first);
            self.resumed = &self.resumed[1..];
        }
        if let Some(from) = from {
            // A clock that was set back counts nothing.
            self.total += Duration::try_from(at.duration_since(from)).unwrap_or_default();
        }
        self.last = Some(at);
    }

    /// The sum.
    pub fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ran(resumed: &[i64], events: &[i64]) -> u64 {
        let resumed: Vec<Timestamp> = resumed.iter().copied().map(at).collect();
        let mut clock = Stopwatch::new(&resumed);
        events.iter().for_each(|second| clock.advance(at(*second)));
        clock.total().as_secs()
    }

    #[test]
    fn pauses_and_what_came_before_an_agent_are_no_running_time() {
        assert_eq!(ran(&[], &[10, 15, 30]), 20);
        assert_eq!(ran(&[100], &[10, 15, 103]), 5 + 3);
        assert_eq!(ran(&[100, 200], &[10, 15, 203]), 5 + 3, "it was cut off twice");
        assert_eq!(ran(&[100], &[150, 160]), 10, "it began after the run had gone on");
        assert_eq!(ran(&[], &[30, 10, 15]), 5, "the clock was set back");
    }

    #[test]
    fn what_requests_used_is_the_same_ahead_and_as_they_are_taken() {
        let asked = |turn| {
            Event::RequestStarted(RequestStarted {
                turn,
                max_tokens: 30,
                tools_allowed: true,
                reserved_tokens: 100,
                reserved_cost_usd: Some(0.5),
                kept_turns: None,
            })
        };
        let failed = |tokens| {
            let spent = Usage { input_tokens: tokens, ..Usage::default() };
            Event::RequestFailed(RequestFailed {
                kind: crate::providers::ProviderErrorKind::Failed,
                reason: String::new(),
                usage: spent,
                window: None,
            })
        };
        let events = [asked(1), failed(7), asked(1), asked(1), failed(9), asked(2)];
        let entry = |event| JournalEntry { seq: 1, at: at(1), agent: "parent".to_owned(), event };
        let mut past = JournalCursor::new("parent", events.map(entry), &[], &RaisedLimits::default());
        let sum = |all: &[RequestSpend]| {
            all.iter().fold(Usage::default(), |mut sum, spent| {
                sum += spent.usage;
                sum
            })
        };
        let ahead = past.request_spend();
        let mut taken = Vec::new();
        while let Some(NextRequest::Sent(made)) = past.take_request() {
            taken.extend(made.request_spend());
        }
        assert!(past.is_exhausted());
        assert_eq!(sum(&ahead), sum(&taken));
        assert_eq!(sum(&ahead), Usage { input_tokens: 7 + 9 + 2 * 70, output_tokens: 2 * 30, ..Usage::default() });
        assert_eq!(ahead.iter().filter(|spent| spent.reserved_cost_usd == Some(Some(0.5))).count(), 2);
    }
}
