//! A script: the replies of every agent of a run, in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::moved;
use crate::message::Reply;
use crate::providers::{Fault, FaultKind};

/// The replies of every agent of a run, by the agents' ids (`parent`, `explorer-1`).
#[derive(Debug)]
pub struct Script {
    name: String,
    recorded: bool,
    agents: BTreeMap<String, Agent>,
    /// What stands for the workspace in the calls.
    workspace: Option<String>,
}

#[derive(Debug)]
struct Agent {
    replies: Vec<Reply>,
    given: AtomicUsize,
}

/// An agent that was asked less often than the script has replies for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The agent's id.
    pub agent: String,
    /// How many replies were given.
    pub given: usize,
    /// How many there are.
    pub total: usize,
}

impl Script {
    /// What a run's agents were told, by their ids. `name` stands for it in messages, such as `the record 0192`.
    pub fn from_replies(name: impl Into<String>, replies: BTreeMap<String, Vec<Reply>>) -> Self {
        Self::new(name.into(), true, replies)
    }

    pub(super) fn new(name: String, recorded: bool, replies: BTreeMap<String, Vec<Reply>>) -> Self {
        let agent = |(id, replies)| (id, Agent { replies, given: AtomicUsize::new(0) });
        Self { name, recorded, agents: replies.into_iter().map(agent).collect(), workspace: None }
    }

    /// Says which path stands for the workspace in its calls.
    #[must_use]
    pub fn made_in(mut self, workspace: impl Into<String>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// Puts another workspace's path in place of its own, in all calls.
    #[must_use]
    pub fn moved_to(mut self, workspace: &str) -> Self {
        let Some(own) = self.workspace.replace(workspace.to_owned()).filter(|own| own != workspace) else {
            return self;
        };
        for agent in self.agents.values_mut() {
            let replies = std::mem::take(&mut agent.replies);
            agent.replies = replies.into_iter().map(|reply| moved::reply(reply, &own, workspace)).collect();
        }
        self
    }

    /// The agents that were asked less often than the script has replies for them, those that never came included.
    pub fn left(&self) -> Vec<Left> {
        let left = self.agents.iter().map(|(id, agent)| Left {
            agent: id.clone(),
            given: agent.given.load(Ordering::Relaxed),
            total: agent.replies.len(),
        });
        left.filter(|left| left.given < left.total).collect()
    }

    /// An agent's reply, by its index.
    pub(super) fn reply(&self, id: &str, index: usize) -> Result<Reply, Fault> {
        let agent = self.agents.get(id);
        if let Some(agent) = agent
            && let Some(reply) = agent.replies.get(index)
        {
            agent.given.fetch_max(index + 1, Ordering::Relaxed);
            return Ok(reply.clone());
        }
        let has = match agent.map_or(0, |agent| agent.replies.len()) {
            0 => "no replies".to_owned(),
            1 => "1 reply".to_owned(),
            more => format!("{more} replies"),
        };
        let message = format!("{} has {has} for the agent {id}, and a {} was asked for", self.name, ordinal(index + 1));
        let hint = match agent {
            _ if self.recorded => "the run goes another way than the one that was recorded".to_owned(),
            Some(_) => format!("add one to the list `{id}`"),
            None => format!("add a list `{id}` below `subagents`"),
        };
        Err(Fault::new(FaultKind::Differs, message).hint(hint))
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
