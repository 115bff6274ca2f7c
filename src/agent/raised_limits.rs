//! What a raised limit removes from a journal. An agent that a limit had ended continues from before the limit was reached:
//! its final request and the reply stay in the journal, but are no longer part of the conversation.

use std::collections::BTreeSet;

use crate::event::{CallFinished, Event, JournalEntry, LimitRaised, NoResult, Outcome, PARENT};
use crate::message::StopReason;

/// The key of an agent's own limit in `limit_reached`.
pub(super) const MAX_TURNS: &str = "max_turns";

/// The name of a map's limits, which are no limit of a run.
const MAP: &str = "map";
/// The limits of the whole run after which an agent sends a final request.
const RUN_LIMITS: [&str; 6] = ["cost_usd", "tokens", "tool_calls", "subagents", "upload", MAP];

/// The limits that `--limit` raises.
#[derive(Debug, Clone, Default)]
pub struct RaisedLimits {
    /// Their names for `--limit`.
    pub names: BTreeSet<String>,
    /// The subagents that have a journal, so that they can continue.
    pub subagents: BTreeSet<String>,
}

impl RaisedLimits {
    /// Adds the limits of the map that the run is a row of.
    pub fn add_map_limits(&mut self) {
        self.names.insert(MAP.to_owned());
    }

    /// Whether the limit that ended an agent is among them.
    fn has(&self, agent: &str, limit: &str) -> bool {
        if limit == MAX_TURNS {
            return match agent.rsplit_once('-') {
                Some((subagent, _)) if agent != PARENT => self.names.contains(&format!("{subagent}.{MAX_TURNS}")),
                _ => self.names.contains(MAX_TURNS),
            };
        }
        match limit.strip_prefix("limits.") {
            Some(name) => self.names.contains(name),
            None => limit == "limits" && RUN_LIMITS.iter().any(|name| self.names.contains(*name)),
        }
    }
}

/// An agent's journal, split by what raised limits removed from it.
#[derive(Debug, Default)]
pub struct JournalSplit {
    /// The events that are part of the agent's work.
    pub active: Vec<JournalEntry>,
    /// The events that no longer are. What they used counts as spent.
    pub rolled_back: Vec<JournalEntry>,
    /// The event to record if the agent now continues from before a limit.
    pub limit_raised: Option<LimitRaised>,
}

impl JournalSplit {
    /// Splits a journal. If it ends with a limit that is `raised`, the agent continues from before that.
    pub fn new(agent: &str, entries: impl IntoIterator<Item = JournalEntry>, raised: &RaisedLimits) -> Self {
        let mut split = Self::default();
        for entry in entries {
            match &entry.event {
                Event::LimitRaised(raised) if entry.agent == agent => {
                    let raised = raised.clone();
                    split.roll_back(&raised);
                }
                _ => split.active.push(entry),
            }
        }
        split.limit_raised = split.last_limit(agent, raised);
        if let Some(raised) = split.limit_raised.clone() {
            split.roll_back(&raised);
        }
        split
    }

    /// What must be rolled back if the journal ends with a limit that was raised.
    fn last_limit(&self, agent: &str, raised: &RaisedLimits) -> Option<LimitRaised> {
        let at = self.limit_position()?;
        let Event::LimitReached(reached) = &self.active[at].event else { return None };
        if !raised.has(agent, &reached.limit) {
            return None;
        }
        let mut found = LimitRaised { limit: reached.limit.clone(), subagents: Vec::new(), calls: Vec::new() };
        if reached.limit != MAX_TURNS {
            let of_calls = self.active[..at]
                .iter()
                .rev()
                .take_while(|entry| is_call_event(entry) || matches!(entry.event, Event::Resumed(_)));
            let calls: Vec<&JournalEntry> = of_calls.collect();
            found.subagents = subagents_ended_by_limit(&calls, raised);
            found.calls = calls_refused_by_limit(&calls, |limit| raised.has(agent, limit));
        }
        Some(found)
    }

    /// The position of the limit that ended the agent.
    fn limit_position(&self) -> Option<usize> {
        self.active.iter().rposition(|entry| matches!(entry.event, Event::LimitReached(_)))
    }

    fn roll_back(&mut self, raised: &LimitRaised) {
        let Some(limit) = self.limit_position() else { return };
        let tail = self.active.split_off(self.beginning(limit));
        for entry in tail {
            // These belong to the run, not to the agent.
            match &entry.event {
                Event::Resumed(_)
                | Event::WorkspaceChanged(_)
                | Event::OutputsProposed(_)
                | Event::StateSet(_)
                | Event::RunFinished(_) => {
                    self.active.push(entry);
                }
                _ => self.rolled_back.push(entry),
            }
        }
        for id in &raised.subagents {
            let call = self.active.iter().rev().find_map(|entry| match &entry.event {
                Event::CallStarted(call) if call.child.as_ref() == Some(id) => Some(call.call_id.clone()),
                _ => None,
            });
            self.take(|event| matches!(event, Event::AgentFinished(end) if end.id == *id));
            if let Some(call) = call {
                self.take(|event| matches!(event, Event::CallFinished(end) if end.result.call_id == call));
            }
        }
        for id in &raised.calls {
            self.take(|event| matches!(event, Event::CallStarted(call) if call.call_id == *id));
            self.take(|event| matches!(event, Event::CallFinished(end) if end.result.call_id == *id));
        }
    }

    /// The position of the first effect of the limit: the request whose reply it cut, or the limit itself.
    fn beginning(&self, limit: usize) -> usize {
        let mut before = self.active[..limit].iter().enumerate().rev().peekable();
        before.next_if(|(_, entry)| matches!(entry.event, Event::ReplyDiscarded(_)));
        let is_cut =
            |event: &Event| matches!(event, Event::ReplyReceived(it) if it.reply.stop == StopReason::MaxTokens);
        if before.next().is_none_or(|(_, entry)| !is_cut(&entry.event)) {
            return limit;
        }
        before.find(|(_, entry)| matches!(entry.event, Event::RequestStarted(_))).map_or(limit, |(asked, _)| asked)
    }

    /// Rolls back the last event of this kind.
    fn take(&mut self, is: impl Fn(&Event) -> bool) {
        if let Some(at) = self.active.iter().rposition(|entry| is(&entry.event)) {
            self.rolled_back.push(self.active.remove(at));
        }
    }
}

/// Whether a step belongs to the calls of a reply. The agent's own end does not.
pub(super) fn is_call_event(entry: &JournalEntry) -> bool {
    match &entry.event {
        Event::CallStarted(_) | Event::CallFinished(_) | Event::NetworkUsed(_) | Event::NetworkRefused(_) => true,
        Event::AgentFinished(end) => end.id != entry.agent,
        _ => false,
    }
}

/// The subagents that the same limit had ended and that can continue. `calls` are the events of the last calls, newest
/// first.
fn subagents_ended_by_limit(calls: &[&JournalEntry], raised: &RaisedLimits) -> Vec<String> {
    let ended = calls.iter().rev().filter_map(|entry| match &entry.event {
        Event::AgentFinished(end) if end.outcome == Outcome::BudgetExceeded => Some(end.id.clone()),
        _ => None,
    });
    ended.filter(|id| raised.subagents.contains(id)).collect()
}

/// The calls that a raised limit refused at the end of the last calls. Calls start in order, so none ran after them.
fn calls_refused_by_limit(calls: &[&JournalEntry], is_raised: impl Fn(&str) -> bool) -> Vec<String> {
    let is_refused = |id: &String| {
        calls.iter().any(|entry| match &entry.event {
            Event::CallFinished(CallFinished { result, no_result: Some(NoResult::Limit(refused)), .. }) => {
                result.call_id == *id && is_raised(refused)
            }
            _ => false,
        })
    };
    let begun = calls.iter().filter_map(|entry| match &entry.event {
        Event::CallStarted(call) => Some(&call.call_id),
        _ => None,
    });
    let mut refused: Vec<String> = begun.take_while(|id| is_refused(id)).cloned().collect();
    refused.reverse();
    refused
}
