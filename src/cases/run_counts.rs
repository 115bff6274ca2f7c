//! Counts what happened in a run, from its events.

use std::collections::BTreeMap;

use crate::event::{CallOrder, Event, JournalEntry, Outcome};

/// The counts of a run.
#[derive(Debug, Default)]
pub(super) struct RunCounts {
    /// The run id, once the run has started.
    pub(super) run_id: Option<String>,
    /// The counts of agents, by id.
    pub(super) agents: BTreeMap<String, AgentCounts>,
    /// The reordering of each agent's events.
    call_orders: BTreeMap<String, CallOrder>,
}

/// The counts of an agent.
#[derive(Debug, Default)]
pub(super) struct AgentCounts {
    /// The number of replies.
    pub(super) replies: usize,
    /// The number of finished calls, by tool.
    pub(super) calls: BTreeMap<String, u64>,
    /// The tools and error texts of failed calls, in order.
    pub(super) failed_calls: Vec<(String, String)>,
    /// The end: outcome, turns and last text.
    pub(super) end: Option<(Outcome, u32, String)>,
}

impl RunCounts {
    /// Adds an event of any agent, in the order in which they happened.
    pub(super) fn add_event(&mut self, entry: JournalEntry) {
        let agent = entry.agent.clone();
        self.call_orders.entry(agent.clone()).or_default().push(entry);
        self.count_ready(&agent);
    }

    /// Counts the events that are still pending, at the end of the run.
    pub(super) fn finish(&mut self) {
        let agents: Vec<String> = self.call_orders.keys().cloned().collect();
        for agent in agents {
            self.call_orders.entry(agent.clone()).or_default().flush();
            self.count_ready(&agent);
        }
    }

    fn count_ready(&mut self, agent: &str) {
        while let Some(entry) = self.call_orders.get_mut(agent).and_then(CallOrder::pop) {
            self.count_event(entry);
        }
    }

    fn count_event(&mut self, entry: JournalEntry) {
        let counts = self.agents.entry(entry.agent.clone()).or_default();
        match entry.event {
            Event::RunStarted(started) => self.run_id = Some(started.run_id),
            Event::ReplyReceived(_) => counts.replies += 1,
            Event::CallFinished(finished) => {
                *counts.calls.entry(finished.tool.clone()).or_default() += 1;
                if finished.result.is_error {
                    counts.failed_calls.push((finished.tool, finished.result.text));
                }
            }
            Event::AgentFinished(finished) if finished.id == entry.agent => {
                counts.end = Some((finished.outcome, finished.turns, finished.text));
            }
            _ => {}
        }
    }

    /// The number of calls of a tool by all agents together.
    pub(super) fn total_calls(&self, tool: &str) -> u64 {
        self.agents.values().filter_map(|agent| agent.calls.get(tool)).sum()
    }
}
