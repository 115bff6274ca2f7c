//! Counts what happened in a run, from its events.

use std::collections::{BTreeMap, HashMap};

use crate::event::{Event, JournalEntry, Outcome};

/// The counts of a run.
#[derive(Debug, Default)]
pub(super) struct RunCounts {
    /// The run id, once the run has started.
    pub(super) run_id: Option<String>,
    /// The counts of agents, by id.
    pub(super) agents: BTreeMap<String, AgentCounts>,
}

/// The counts of an agent.
#[derive(Debug, Default)]
pub(super) struct AgentCounts {
    /// The number of replies.
    pub(super) replies: usize,
    /// The number of calls that were run and have ended, by tool.
    pub(super) calls: BTreeMap<String, u64>,
    /// The failed calls, in the order in which the model asked for them.
    pub(super) failed_calls: Vec<FailedCall>,
    /// The end: outcome, turns and last text.
    pub(super) end: Option<(Outcome, u32, String)>,
    /// The positions of the calls in the last reply, by their ids.
    positions: HashMap<String, usize>,
}

/// A failed call.
#[derive(Debug)]
pub(super) struct FailedCall {
    /// The number of its reply, and its position there.
    place: (usize, usize),
    pub(super) tool: String,
    /// The text of the error.
    pub(super) error: String,
}

impl RunCounts {
    /// Adds an event of any agent, in the order in which they happened.
    pub(super) fn add_event(&mut self, entry: JournalEntry) {
        let counts = self.agents.entry(entry.agent.clone()).or_default();
        match entry.event {
            Event::RunStarted(started) => self.run_id = Some(started.run_id),
            Event::ReplyReceived(received) => {
                counts.replies += 1;
                let calls = received.reply.tool_calls().enumerate();
                counts.positions = calls.map(|(position, call)| (call.id.clone(), position)).collect();
            }
            Event::CallFinished(finished) => {
                *counts.calls.entry(finished.tool.clone()).or_default() += u64::from(finished.end().was_run());
                if finished.end().is_failure() {
                    // Parallel calls end in any order.
                    let position = counts.positions.get(&finished.result.call_id).copied().unwrap_or_default();
                    let place = (counts.replies, position);
                    let at = counts.failed_calls.partition_point(|call| call.place <= place);
                    let call = FailedCall { place, tool: finished.tool, error: finished.result.text };
                    counts.failed_calls.insert(at, call);
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::event::{CallFinished, PARENT, ReplyReceived};
    use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall, ToolResult, Usage};

    #[test]
    fn failed_calls_are_in_the_order_in_which_the_model_asked_for_them() {
        let mut counts = RunCounts::default();
        let mut add = |event: Event| {
            counts.add_event(JournalEntry { seq: 1, at: Timestamp::UNIX_EPOCH, agent: PARENT.into(), event });
        };
        let mut reply = |asked: &[&str], ended: &[&str]| {
            let block = |id: &&str| {
                let input = serde_json::value::to_raw_value(&json!({})).unwrap().into();
                let call = ToolCall { id: (*id).into(), tool: (*id).into(), input, input_error: None };
                Block::from(BlockContent::Call(call))
            };
            let blocks = asked.iter().map(block).collect();
            let (stop, usage) = (StopReason::ToolUse, Usage::default());
            let reply = Reply { blocks, stop, usage, model: None, request_id: None };
            add(ReplyReceived { turn: 1, reply, duration_ms: 1 }.into());
            for id in ended {
                let result = ToolResult {
                    call_id: (*id).into(),
                    text: String::new(),
                    is_error: *id != "fine",
                    ..ToolResult::default()
                };
                let (tool, duration_ms) = ((*id).to_owned(), 1);
                let ended =
                    CallFinished { tool, result, duration_ms, file_version: None, no_result: None, merged: None };
                add(ended.into());
            }
        };
        reply(&["a", "fine", "b", "c"], &["c", "fine", "a", "b"]);
        reply(&["c", "a"], &["a", "c"]);
        let counts = &counts.agents[PARENT];
        let failed: Vec<&str> = counts.failed_calls.iter().map(|call| call.tool.as_str()).collect();
        assert_eq!(failed, ["a", "b", "c", "c", "a"]);
        assert_eq!((counts.replies, counts.calls["a"], counts.calls["fine"]), (2, 2, 1));
    }
}
