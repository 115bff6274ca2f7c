//! A script: the replies of every agent of a run, in order.

use std::collections::BTreeMap;

use super::relocate;
use crate::message::Reply;
use crate::providers::{ProviderError, ProviderErrorKind};

/// The replies of every agent of a run, by the agents' ids (`parent`, `explorer-1`).
#[derive(Debug)]
pub struct Script {
    name: String,
    recorded: bool,
    agents: BTreeMap<String, AgentReplies>,
    /// What stands for the workspace in the calls.
    workspace: Option<String>,
}

/// The replies of one agent.
#[derive(Debug)]
pub struct AgentReplies {
    /// Each with its place, such as `tour.script.yaml:7:5`.
    pub replies: Vec<(Reply, String)>,
    /// The list's own.
    pub place: String,
    /// Those that sum up what went before, by their index, with how many turns each leaves as they are.
    pub summaries: BTreeMap<usize, u32>,
}

/// An agent that was asked less often than the script has replies for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedReplies {
    /// The agent's id.
    pub agent: String,
    /// How many replies it got.
    pub consumed: usize,
    /// How many there are.
    pub total: usize,
    /// The place of the first that it didn't get.
    pub place: String,
}

impl Script {
    /// What a run's agents were told, by their ids. `name` stands for it in messages, such as `the record 0192`.
    pub fn from_replies(name: impl Into<String>, replies: BTreeMap<String, AgentReplies>) -> Self {
        Self::new(name.into(), true, replies)
    }

    pub(super) fn new(name: String, recorded: bool, agents: BTreeMap<String, AgentReplies>) -> Self {
        Self { name, recorded, agents, workspace: None }
    }

    /// Says which path stands for the workspace in its calls.
    #[must_use]
    pub fn with_workspace(mut self, workspace: impl Into<String>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// Puts another workspace's path in place of its own, in all calls.
    #[must_use]
    pub fn relocated_to(mut self, workspace: &str) -> Self {
        let Some(own) = self.workspace.replace(workspace.to_owned()).filter(|own| own != workspace) else {
            return self;
        };
        for list in self.agents.values_mut() {
            let replies = std::mem::take(&mut list.replies);
            let moved = |(reply, place)| (relocate::relocate_reply(reply, &own, workspace), place);
            list.replies = replies.into_iter().map(moved).collect();
        }
        self
    }

    /// The agents that were asked less often than the script has replies for them, those that never came included;
    /// `given` says how many replies an agent got.
    pub fn unused(&self, given: impl Fn(&str) -> usize) -> Vec<UnusedReplies> {
        let left = self.agents.iter().filter_map(|(id, list)| {
            let (given, total) = (given(id), list.replies.len());
            let (_, place) = list.replies.get(given)?;
            Some(UnusedReplies { agent: id.clone(), consumed: given, total, place: place.clone() })
        });
        left.collect()
    }

    /// What that means for a run, where it is so for an agent.
    pub(super) fn unused_replies_error(&self, given: impl Fn(&str) -> usize) -> Option<ProviderError> {
        let left = self.unused(given);
        let UnusedReplies { agent, consumed: given, total, place } = left.first()?;
        let others = match left.len() - 1 {
            0 => String::new(),
            1 => ", and so it is for another agent".to_owned(),
            others => format!(", and so it is for {others} other agents"),
        };
        let message = match given {
            0 => format!("{place}: the run ended, and the agent {agent} was never asked for a reply{others}"),
            given => {
                format!("{place}: the run ended, and the agent {agent} got only {given} of {total} replies{others}")
            }
        };
        let hint = match self.recorded {
            true => "the run went another way than the one that was recorded",
            false => "remove the replies that are too many, or find out why the run ended before them",
        };
        Some(ProviderError::new(ProviderErrorKind::Differs, message).with_hint(hint))
    }

    /// How many turns an agent's reply leaves as they are, where it sums up what went before.
    pub(super) fn summary_kept_turns(&self, id: &str, index: usize) -> Option<u32> {
        self.agents.get(id)?.summaries.get(&index).copied()
    }

    /// An agent's reply, by its index.
    pub(super) fn reply(&self, id: &str, index: usize) -> Result<Reply, ProviderError> {
        let agent = self.agents.get(id);
        if let Some(agent) = agent
            && let Some((reply, _)) = agent.replies.get(index)
        {
            return Ok(reply.clone());
        }
        let has = match agent.map_or(0, |agent| agent.replies.len()) {
            0 => "no replies".to_owned(),
            1 => "1 reply".to_owned(),
            more => format!("{more} replies"),
        };
        let place = agent.map_or(&self.name, |agent| &agent.place);
        let message = format!("{place} has {has} for the agent {id}, and a {} was asked for", ordinal(index + 1));
        let hint = match agent {
            _ if self.recorded => "the run goes another way than the one that was recorded".to_owned(),
            Some(_) => format!("add one to the list `{id}`"),
            None => format!("add a list `{id}` below `subagents`"),
        };
        Err(ProviderError::new(ProviderErrorKind::Differs, message).with_hint(hint))
    }
}

fn ordinal(number: usize) -> String {
    match (number, number % 100, number % 10) {
        (1, ..) => "first".to_owned(),
        (_, 11..=13, _) => format!("{number}th"),
        (_, _, 1) => format!("{number}st"),
        (_, _, 2) => format!("{number}nd"),
        (_, _, 3) => format!("{number}rd"),
        _ => format!("{number}th"),
    }
}
