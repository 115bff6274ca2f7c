//! What happened in a run, counted from its events.

use std::collections::BTreeMap;

use crate::event::{CallOrder, Event, JournalEntry, Outcome};

/// Counts of one run.
#[derive(Debug, Default)]
pub(super) struct RunCounts {
    /// The run's id, once it began.
    pub(super) run_id: Option<String>,
    /// The agents, by their ids.
    pub(super) agents: BTreeMap<String, AgentCounts>,
    /// What each agent's events are read in.
    call_orders: BTreeMap<String, CallOrder>,
}

/// Counts of one agent.
#[derive(Debug, Default)]
pub(super) struct AgentCounts {
    /// Replies that came.
    pub(super) replies: usize,
    /// Calls that were answered, by tool.
    pub(super) calls: BTreeMap<String, u64>,
    /// Those of them that were answered with an error, with what was said, in order.
    pub(super) failed_calls: Vec<(String, String)>,
    /// How it ended: outcome, turns, last text.
    pub(super) end: Option<(Outcome, u32, String)>,
}

impl RunCounts {
    /// Takes an event of any agent, as it happened.
    pub(super) fn add_event(&mut self, entry: JournalEntry) {
        let agent = entry.agent.clone();
        self.call_orders.entry(agent.clone()).or_default().push(entry);
        self.count_reply(&agent);
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        let agents: Vec<String> = self.call_orders.keys().cloned().collect();
        for agent in agents {
            self.call_orders.entry(agent.clone()).or_default().flush();
            self.count_reply(&agent);
        }
    }

    fn count_reply(&mut self, agent: &str) {
        while let Some(entry) = self.call_orders.get_mut(agent).and_then(CallOrder::pop) {
            self.count_event(entry);
        }
    }

    fn count_event(&mut self, entry: JournalEntry) {
        let of_agent = self.agents.entry(entry.agent.clone()).or_default();
        match entry.event {
            Event::RunStarted(started) => self.run_id = Some(started.run_id),
            Event::ReplyReceived(_) => of_agent.replies += 1,
            Event::CallFinished(finished) => {
                *of_agent.calls.entry(finished.tool.clone()).or_default() += 1;
                if finished.result.is_error {
                    of_agent.failed_calls.push((finished.tool, finished.result.text));
                }
            }
            Event::AgentFinished(finished) if finished.id == entry.agent => {
                of_agent.end = Some((finished.outcome, finished.turns, finished.text));
            }
            _ => {}
        }
    }

    /// How often all agents together called a tool.
    pub(super) fn total_calls(&self, tool: &str) -> u64 {
        self.agents.values().filter_map(|agent| agent.calls.get(tool)).sum()
    }

    /// Replies that no agent asked for: the agent, how many it got, and how many there are.
    pub(super) fn unused_replies(&self, totals: &BTreeMap<String, usize>) -> Vec<(String, usize, usize)> {
        let got = |agent: &str| self.agents.get(agent).map_or(0, |agent| agent.replies);
        let all = totals.iter().map(|(agent, total)| (agent.clone(), got(agent), *total));
        all.filter(|(_, got, total)| got < total).collect()
    }
}
