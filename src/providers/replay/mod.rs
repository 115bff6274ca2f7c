//! Replies that were written down before: in a script, or in the record of a run. No key, no network, the same every time.

mod parse;
mod relocate;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use self::parse::{CallSite, ParsedScript, ScriptFile};
pub use self::relocate::{relocate_path, relocate_value as moved_value};
pub use self::script::{AgentReplies, Script, UnusedReplies};
use super::{
    ConnectContext, Conversation, ConversationConfig, Provider, ProviderError, ProviderErrorKind, ProviderSpec,
    ReplyRequest, RequestOptions, StreamObserver, UnsupportedOption,
};
use crate::diagnostic::{Rule, rule};
use crate::message::{Block, BlockContent, Message, Reply};

/// What can be wrong with a script, beside what is wrong with any file.
pub const RULES: &[Rule] = &[rule!(Error "empty-reply")];

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "replay",
    key_envs: &[],
    default_endpoint: None,
    unsupported_options,
    price_provider: "",
    connect,
};

/// What is written down takes no wishes; how long a conversation may be is ours to keep.
fn unsupported_options(wish: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
    let model = wish.model;
    let asked = [
        ("thinking", model.thinking.is_some()),
        ("temperature", model.temperature.is_some()),
        ("stop", !model.stop.is_empty()),
    ];
    let untaken =
        |(option, _)| UnsupportedOption::new(option, format!("the provider `replay` takes no `{option}`"), "remove it");
    asked.into_iter().filter(|(_, asked)| *asked).map(untaken).collect()
}

fn connect(connect: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    match &connect.script {
        Some(script) => Ok(Arc::new(ReplayProvider { script: script.clone() })),
        None => Err(ProviderError::new(ProviderErrorKind::Rejected, "there is no script to reply from")
            .with_hint("name its file, as in `--model replay/tour.script.yaml`")),
    }
}

struct ReplayProvider {
    script: Arc<Script>,
}

impl Provider for ReplayProvider {
    fn unused_replies(&self, given: &dyn Fn(&str) -> usize) -> Option<ProviderError> {
        self.script.unused_replies_error(given)
    }

    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let tools = setup
            .tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len());
        let size = setup.system.len() + tools.sum::<usize>();
        Ok(Box::new(ReplayConversation {
            script: self.script.clone(),
            agent: setup.agent,
            next: 0,
            pushed: 0,
            fixed_bytes: size,
            message_bytes: size,
        }))
    }
}

struct ReplayConversation {
    script: Arc<Script>,
    agent: String,
    /// The index of the reply that comes next.
    next: usize,
    /// How many replies are part of the conversation already: after a resumption they come from the journal.
    pushed: usize,
    /// Size in bytes of system prompt and tools.
    fixed_bytes: usize,
    message_bytes: usize,
}

impl Conversation for ReplayConversation {
    fn push(&mut self, message: &Message) {
        self.message_bytes += match message {
            Message::User(message) => {
                let results: usize = message.results.iter().map(|result| result.text.len()).sum();
                results + message.text.as_ref().map_or(0, String::len)
            }
            Message::Assistant(reply) => {
                self.pushed += 1;
                self.next = self.next.max(self.pushed);
                reply.blocks.iter().map(block_size).sum()
            }
        };
    }

    fn ask<'a>(
        &'a mut self,
        _: ReplyRequest,
        watch: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let reply = self.script.reply(&self.agent, self.next);
        if let Ok(reply) = &reply {
            self.next += 1;
            for block in &reply.blocks {
                if let BlockContent::Text(text) = &block.content {
                    watch.on_text(text);
                }
            }
        }
        Box::pin(std::future::ready(reply))
    }

    fn skip_recorded_reply(&mut self) {
        self.next += 1;
    }

    fn clear(&mut self) {
        // From here on the caller knows how many replies it got.
        self.pushed = 0;
        self.message_bytes = self.fixed_bytes;
    }

    fn upcoming_summary(&self) -> Option<u32> {
        self.script.summary_kept_turns(&self.agent, self.next)
    }

    fn prompt_bytes(&self) -> usize {
        self.message_bytes
    }
}

fn block_size(block: &Block) -> usize {
    match (&block.raw, &block.content) {
        (Some(raw), _) => raw.get().len(),
        (None, BlockContent::Text(text) | BlockContent::Thinking(text) | BlockContent::Other(text)) => text.len(),
        (None, BlockContent::Call(call)) => call.tool.len() + call.input.get().len(),
    }
}
