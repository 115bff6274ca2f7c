//! What an agent's journal already holds. A run that is resumed takes the same steps as before; as long as the journal
//! has what came of a step, it is taken from there, and nothing happens twice.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::budget::LimitHit;
use crate::event::{AgentFinished, AskFailed, Asked, Entry, Event, Replied};
use crate::message::{ToolResult, Usage};

/// An agent's past, oldest first.
#[derive(Debug, Default)]
pub struct Past {
    steps: VecDeque<Entry>,
    /// How long the agent ran in it.
    pub(super) elapsed: Duration,
}

/// A request that was made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) asked: Asked,
    pub(super) at: Timestamp,
    /// What tries before the last have used.
    pub(super) failed_tries: Usage,
    pub(super) end: End,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum End {
    Replied(Box<Replied>),
    Failed(AskFailed),
    /// The run was cut off meanwhile.
    Lost,
}

/// What the journal holds in place of the next request.
#[derive(Debug)]
pub(super) enum Request {
    Made(Box<Made>),
    /// None could be made.
    Refused(LimitHit),
}

/// The calls of one reply, as far as they were begun.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Those that were begun, in the order of the calls: the call's id, and who answers a `task`.
    pub(super) begun: VecDeque<(String, Option<String>)>,
    /// The answers, in their order.
    answers: HashMap<String, VecDeque<ToolResult>>,
    /// The subagents that had ended.
    pub(super) children: HashMap<String, AgentFinished>,
}

impl Calls {
    /// The answer that a call had, once for each call of that id.
    pub(super) fn answer(&mut self, call_id: &str) -> Option<ToolResult> {
        self.answers.get_mut(call_id)?.pop_front()
    }
}

impl Past {
    /// What an agent's journal holds. `resumed` are the times at which the run went on, in order.
    pub fn new(agent: &str, entries: impl IntoIterator<Item = Entry>, resumed: &[Timestamp]) -> Self {
        let mut steps = VecDeque::new();
        let mut clock = Stopwatch::new(resumed);
        for entry in entries {
            clock.note(entry.at);
            let is_a_step = match &entry.event {
                Event::RunStarted(_) | Event::Resumed(_) | Event::RunFinished(_) => false,
                // Such an end was the run's, and the agent goes on from there.
                Event::AgentFinished(finished) => !finished.outcome.can_be_resumed(),
                _ => entry.agent == agent,
            };
            if is_a_step {
                steps.push_back(entry);
            }
        }
        Self { steps, elapsed: clock.total }
    }

    /// Whether the journal holds nothing more.
    pub(super) fn is_over(&self) -> bool {
        self.steps.is_empty()
    }

    fn next(&self) -> Option<&Event> {
        self.steps.front().map(|entry| &entry.event)
    }

    /// Takes an event out, where it comes next.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        let same = self.next().is_some_and(|next| next.kind() == event.kind());
        if same {
            self.steps.pop_front();
        }
        same
    }

    /// The limit that comes next, left where it is.
    pub(super) fn limit(&self) -> Option<LimitHit> {
        match self.next() {
            Some(Event::LimitReached(reached)) => {
                Some(LimitHit { limit: key(&reached.limit), message: reached.message.clone() })
            }
            _ => None,
        }
    }

    /// Whether the agent's own end comes next.
    pub(super) fn ends(&self) -> bool {
        matches!(self.next(), Some(Event::AgentFinished(_)))
    }

    /// What came of the request that comes next; `None` where there was none.
    pub(super) fn request(&mut self) -> Option<Request> {
        if let Some(hit) = self.limit() {
            return Some(Request::Refused(hit));
        }
        let Some(Event::Asked(asked)) = self.next() else { return None };
        let mut made = Made {
            asked: asked.clone(),
            at: self.steps.pop_front()?.at,
            failed_tries: Usage::default(),
            end: End::Lost,
        };
        while let Some(Event::Retrying(retrying)) = self.next() {
            made.failed_tries += retrying.retry.spent;
            self.steps.pop_front();
        }
        match self.next() {
            Some(Event::Replied(replied)) => made.end = End::Replied(Box::new(replied.clone())),
            Some(Event::AskFailed(failed)) => made.end = End::Failed(failed.clone()),
            _ => return Some(Request::Made(Box::new(made))),
        }
        self.steps.pop_front();
        Some(Request::Made(Box::new(made)))
    }

    /// The calls that were begun for the reply that was just taken.
    pub(super) fn calls(&mut self) -> Calls {
        let mut calls = Calls::default();
        while let Some(Event::CallStarted(_) | Event::CallFinished(_) | Event::AgentFinished(_)) = self.next() {
            // The agent's own end stands after the last of its calls.
            let own_end = |entry: &Entry| matches!(&entry.event, Event::AgentFinished(end) if end.id == entry.agent);
            if self.steps.front().is_some_and(own_end) {
                break;
            }
            match self.steps.pop_front().map(|entry| entry.event) {
                Some(Event::CallStarted(started)) => calls.begun.push_back((started.call_id, started.child)),
                Some(Event::CallFinished(finished)) => {
                    calls.answers.entry(finished.result.call_id.clone()).or_default().push_back(finished.result);
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
    pub fn spent(&self) -> Vec<Spent> {
        let mut copy = Self { steps: self.steps.clone(), elapsed: self.elapsed };
        let mut all = Vec::new();
        while !copy.is_over() {
            match copy.request() {
                Some(Request::Made(made)) => all.extend(made.spent()),
                _ => drop(copy.steps.pop_front()),
            }
        }
        all
    }

    /// The subagents whose end it holds.
    pub(super) fn ended(&self) -> HashSet<String> {
        let ends = self.steps.iter().filter_map(|entry| match &entry.event {
            Event::AgentFinished(end) if end.id != entry.agent => Some(end.id.clone()),
            _ => None,
        });
        ends.collect()
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

/// What a request used.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// When.
    pub at: Timestamp,
    /// How many tokens.
    pub usage: Usage,
    /// What was set aside for it, where the usage isn't known but only that; in US dollars.
    pub reserved_cost_usd: Option<Option<f64>>,
}

impl Made {
    pub(super) fn spent(&self) -> Vec<Spent> {
        let known = |usage| Spent { at: self.at, usage, reserved_cost_usd: None };
        let last = match &self.end {
            End::Replied(replied) => known(replied.reply.usage),
            End::Failed(failed) => known(failed.spent),
            End::Lost => {
                let output_tokens = u64::from(self.asked.max_tokens).min(self.asked.reserved_tokens);
                let input_tokens = self.asked.reserved_tokens - output_tokens;
                let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
                Spent { at: self.at, usage, reserved_cost_usd: Some(self.asked.reserved_cost_usd) }
            }
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
    pub fn note(&mut self, at: Timestamp) {
        let mut from = self.last;
        while let Some(first) = self.resumed.first().filter(|resumed| **resumed <= at) {
            from = Some(*first);
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

/// The key of a limit, as the code knows it.
fn key(limit: &str) -> &'static str {
    const KEYS: &[&str] =
        &["max_turns", "stuck", "limits", "limits.tokens", "limits.cost_usd", "limits.tool_calls", "limits.subagents"];
    KEYS.iter().copied().find(|key| *key == limit).unwrap_or("limits")
}
