//! Replies that were written down before: in a script, or in the record of a run. No key, no network, the same every time.

mod moved;
mod read;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use self::moved::{moved, value as moved_value};
pub use self::read::{Call, Read, ScriptFile};
pub use self::script::{Left, List, Script};
use super::{Ask, Connect, Conversation, Entry, Fault, FaultKind, Provider, Setup, Untaken, Watch, Wish};
use crate::diagnostic::{Rule, rule};
use crate::message::{Block, Message, Reply, View};

/// What can be wrong with a script, beside what is wrong with any file.
pub const RULES: &[Rule] = &[rule!(Error "empty-reply")];

/// How a job names this provider.
pub const ENTRY: Entry = Entry { name: "replay", keys: &[], home: None, untaken, prices: "", connect };

/// What is written down takes no wishes; how long a conversation may be is ours to keep.
fn untaken(wish: &Wish<'_>) -> Vec<Untaken> {
    let model = wish.model;
    let asked = [
        ("thinking", model.thinking.is_some()),
        ("temperature", model.temperature.is_some()),
        ("stop", !model.stop.is_empty()),
    ];
    let untaken = |(option, _)| Untaken::new(option, format!("the provider `replay` takes no `{option}`"), "remove it");
    asked.into_iter().filter(|(_, asked)| *asked).map(untaken).collect()
}

fn connect(connect: &Connect<'_>) -> Result<Arc<dyn Provider>, Fault> {
    match &connect.script {
        Some(script) => Ok(Arc::new(Replay { script: script.clone() })),
        None => Err(Fault::new(FaultKind::Rejected, "there is no script to reply from")
            .hint("name its file, as in `--model replay/tour.script.yaml`")),
    }
}

struct Replay {
    script: Arc<Script>,
}

impl Provider for Replay {
    fn unasked(&self, given: &dyn Fn(&str) -> usize) -> Option<Fault> {
        self.script.unasked(given)
    }

    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        let tools = setup
            .tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len());
        let size = setup.system.len() + tools.sum::<usize>();
        Ok(Box::new(Dialogue {
            script: self.script.clone(),
            agent: setup.agent,
            next: 0,
            pushed: 0,
            fixed: size,
            size,
        }))
    }
}

struct Dialogue {
    script: Arc<Script>,
    agent: String,
    /// The index of the reply that comes next.
    next: usize,
    /// How many replies are part of the conversation already: after a resumption they come from the journal.
    pushed: usize,
    /// Size in bytes of system prompt and tools.
    fixed: usize,
    size: usize,
}

impl Conversation for Dialogue {
    fn push(&mut self, message: &Message) {
        self.size += match message {
            Message::User(message) => {
                let results: usize = message.results.iter().map(|result| result.text.len()).sum();
                results + message.text.as_ref().map_or(0, String::len)
            }
            Message::Assistant(reply) => {
                self.pushed += 1;
                self.next = self.next.max(self.pushed);
                reply.blocks.iter().map(size).sum()
            }
        };
    }

    fn ask<'a>(&'a mut self, _: Ask, watch: &'a dyn Watch) -> BoxFuture<'a, Result<Reply, Fault>> {
        let reply = self.script.reply(&self.agent, self.next);
        if let Ok(reply) = &reply {
            self.next += 1;
            for block in &reply.blocks {
                if let View::Text(text) = &block.view {
                    watch.text(text);
                }
            }
        }
        Box::pin(std::future::ready(reply))
    }

    fn recall(&mut self) {
        self.next += 1;
    }

    fn clear(&mut self) {
        // From here on the caller knows how many replies it got.
        self.pushed = 0;
        self.size = self.fixed;
    }

    fn summary_ahead(&self) -> Option<u32> {
        self.script.summary(&self.agent, self.next)
    }

    fn size(&self) -> usize {
        self.size
    }
}

fn size(block: &Block) -> usize {
    match (&block.raw, &block.view) {
        (Some(raw), _) => raw.get().len(),
        (None, View::Text(text) | View::Thinking(text) | View::Other(text)) => text.len(),
        (None, View::Call(call)) => call.tool.len() + call.input.get().len(),
    }
}
