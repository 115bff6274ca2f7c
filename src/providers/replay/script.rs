//! A script: the replies of every agent of a run, in order.

use std::collections::BTreeMap;

use super::relocate;
use crate::message::Reply;
use crate::providers::api::{ProviderError, ProviderErrorKind};
use crate::tools::ToolDefinition;

/// The replies of every agent of a run, by the agents' ids (`parent`, `explorer-1`).
#[derive(Debug, Clone)]
pub struct Script {
    /// The source in messages, such as `the record 0192`.
    pub name: String,
    /// Whether they are from the record of a run.
    pub is_recorded: bool,
    /// The agents.
    pub agents: BTreeMap<String, AgentReplies>,
    /// The path that calls use for the workspace.
    pub workspace: Option<String>,
    /// The tool servers whose answers it has, with what is known about their tools.
    pub servers: BTreeMap<String, BTreeMap<String, ToolDefinition>>,
    /// The answers of their tools.
    pub answers: ScriptedAnswers,
}

/// Answers of servers' tools, or their errors, by the ids of agents and calls.
pub type ScriptedAnswers = BTreeMap<(String, String), Result<String, String>>;

/// The replies of one agent.
#[derive(Debug, Clone)]
pub struct AgentReplies {
    /// Each with its location, such as `tour.script.yaml:7:5`.
    pub replies: Vec<(Reply, String)>,
    /// The location of the list.
    pub place: String,
    /// Compaction summaries, by their index, with the number of turns that each keeps.
    pub summaries: BTreeMap<usize, u32>,
}

/// Replies of an agent that were never requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedReplies {
    /// The agent's id.
    pub agent: String,
    /// How many replies it received.
    pub consumed: usize,
    /// How many there are.
    pub total: usize,
    /// The location of the first unused one.
    pub place: String,
}

impl Script {
    /// Replaces its workspace's path in all calls.
    #[must_use]
    pub fn relocated_to(mut self, workspace: &str) -> Self {
        let Some(earlier) = self.workspace.replace(workspace.to_owned()).filter(|earlier| earlier != workspace) else {
            return self;
        };
        for list in self.agents.values_mut() {
            let replies = std::mem::take(&mut list.replies);
            let moved = |(reply, place)| (relocate::relocate_reply(reply, &earlier, workspace), place);
            list.replies = replies.into_iter().map(moved).collect();
        }
        self
    }

    /// Agents with unused replies, including those that never started; `consumed` returns how many an agent received.
    pub fn unused(&self, consumed: impl Fn(&str) -> usize) -> Vec<UnusedReplies> {
        let left = self.agents.iter().filter_map(|(id, list)| {
            let (consumed, total) = (consumed(id), list.replies.len());
            let (_, place) = list.replies.get(consumed)?;
            Some(UnusedReplies { agent: id.clone(), consumed, total, place: place.clone() })
        });
        left.collect()
    }

    /// The error for unused replies, if any.
    pub(super) fn unused_replies_error(&self, consumed: impl Fn(&str) -> usize) -> Option<ProviderError> {
        let left = self.unused(consumed);
        let UnusedReplies { agent, consumed, total, place } = left.first()?;
        let others = match left.len() {
            1 => "",
            _ => "; other agents have unused replies, too",
        };
        let message = match consumed {
            0 => format!("{place}: the run ended before the agent {agent} requested a reply{others}"),
            consumed => {
                format!("{place}: the run ended after the agent {agent} used {consumed} of {total} replies{others}")
            }
        };
        let hint = match self.is_recorded {
            true => "the run differs from the recorded one",
            false => "remove the unused replies, or find out why the run ended before them",
        };
        Some(ProviderError::new(ProviderErrorKind::Differs, message).with_hint(hint))
    }

    /// How many turns a reply keeps, if it is a compaction summary.
    pub(super) fn summary_kept_turns(&self, id: &str, index: usize) -> Option<u32> {
        self.agents.get(id)?.summaries.get(&index).copied()
    }

    /// An agent's reply by index.
    pub(super) fn reply(&self, id: &str, index: usize) -> Result<Reply, ProviderError> {
        let agent = self.agents.get(id);
        if let Some(agent) = agent
            && let Some((reply, _)) = agent.replies.get(index)
        {
            return Ok(reply.clone());
        }
        let place = agent.map_or(&self.name, |agent| &agent.place);
        let message = format!("{place} has no reply {} for the agent {id}", index + 1);
        let hint = match agent {
            _ if self.is_recorded => "the run differs from the recorded one".to_owned(),
            Some(_) => format!("add one to the list `{id}`"),
            None => format!("add a list `{id}` below `subagents`"),
        };
        Err(ProviderError::new(ProviderErrorKind::Differs, message).with_hint(hint))
    }
}
