//! Replies from a script or from the record of a run: no key, no network, the same every time.

mod parse;
mod relocate;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use self::parse::{CallSite, ParsedScript, ScriptFile};
pub use self::relocate::{relocate_path, relocate_value};
pub use self::script::{AgentReplies, Script, ScriptedAnswers, UnusedReplies};
use super::api::{Conversation, ConversationConfig, Provider, ProviderError, ReplyRequest, StreamObserver};
use super::model::Model;
use super::spec::{ConnectContext, ProviderSpec};
use super::unsupported_options::{RequestOptions, UnsupportedOption};
use crate::diagnostic::{Rule, rule};
use crate::message::{Block, BlockContent, Message, Reply};
use crate::models::token_estimate::text_bytes;
use crate::redaction::Redactor;

/// The rules for scripts, in addition to those for any file.
pub const RULES: &[Rule] = &[rule!(Error "empty-reply")];

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "replay",
    aliases: &[],
    alias_help: "",
    key_envs: &[],
    default_endpoint: None,
    api: None,
    is_common_api: false,
    unsupported_options,
    takes_gifs: true,
    takes_pdfs: true,
    has_hour_cache: false,
    vendor: "",
    connect,
};

/// A script supports no options of models, except for the size of the context window, which legwork itself enforces.
fn unsupported_options(request: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
    let model = request.model;
    let options = [
        ("thinking", model.thinking.is_some()),
        ("temperature", model.temperature.is_some()),
        ("stop", !model.stop.is_empty()),
        ("tier", model.tier.is_some()),
    ];
    let unsupported = |(option, _)| {
        UnsupportedOption::new(option, format!("the provider `{}` doesn't support `{option}`", SPEC.name), "remove it")
    };
    options.into_iter().filter(|(_, is_set)| *is_set).map(unsupported).collect()
}

fn connect(connect: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    match &connect.script {
        Some(script) => Ok(Arc::new(ReplayProvider { script: script.clone(), redactor: connect.redactor.clone() })),
        None => Err(ProviderError::rejected("there is no script to reply from")
            .with_hint("name its file, as in `--model replay/tour.script.yaml`")),
    }
}

struct ReplayProvider {
    script: Arc<Script>,
    redactor: Redactor,
}

/// The error of a script without secrets: it names places and agents.
fn without_secrets(redactor: &Redactor, error: ProviderError) -> ProviderError {
    ProviderError { message: redactor.redact(&error.message).into_owned(), ..error }
}

impl Provider for ReplayProvider {
    fn unused_replies(&self, consumed: &dyn Fn(&str) -> usize) -> Option<ProviderError> {
        self.script.unused_replies_error(consumed).map(|error| without_secrets(&self.redactor, error))
    }

    fn open(&self, config: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let tools = config
            .tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len());
        let size = config.system.len() + tools.sum::<usize>();
        Ok(Box::new(ReplayConversation {
            script: self.script.clone(),
            redactor: self.redactor.clone(),
            agent: config.agent,
            model: config.model,
            next: 0,
            pushed: 0,
            fixed_bytes: size,
            message_bytes: size,
        }))
    }
}

struct ReplayConversation {
    script: Arc<Script>,
    redactor: Redactor,
    agent: String,
    model: Model,
    /// The index of the next reply.
    next: usize,
    /// How many replies the conversation already contains; when a run is resumed, they come from the journal.
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
                let tokens: u64 = message.attachments().map(|file| self.model.attachment_tokens(file)).sum();
                results + message.text.as_ref().map_or(0, String::len) + text_bytes(tokens)
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
        _: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let reply = self.script.reply(&self.agent, self.next);
        let reply = reply.map_err(|error| without_secrets(&self.redactor, error));
        self.next += usize::from(reply.is_ok());
        Box::pin(std::future::ready(reply))
    }

    fn skip_recorded_reply(&mut self) {
        self.next += 1;
    }

    fn clear(&mut self) {
        // From now on, `next` alone counts.
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
