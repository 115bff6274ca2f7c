//! The interface of providers: open a conversation, push messages, ask for replies.

use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::Model;
use crate::message::{Message, Reply, Usage};
use crate::running_clock::RunningInstant;
use crate::tools::ToolSpec;

/// A source of replies, shared by all agents of a run that use it.
pub trait Provider: Send + Sync {
    /// Starts an empty conversation. Sends nothing yet.
    fn open(&self, config: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError>;

    /// A warning for the operator before the first request, in one sentence.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Does what must be done before the first request and takes time: runs the command that prints the key. `None` for
    /// nothing.
    fn prepare(&self) -> Option<BoxFuture<'_, Result<(), ProviderError>>> {
        None
    }

    /// Asks the server for the list of its models, which costs nothing. `None` if replies don't come from a server.
    fn check_server(&self) -> Option<BoxFuture<'_, Result<ServerCheck, ProviderError>>> {
        None
    }

    /// What the requests to its server have shown so far.
    fn contact(&self) -> Contact {
        Contact::Answered
    }

    /// The error for replies that were never requested, at the end of a completed run. `consumed` returns how many
    /// replies an agent received. Only scripts and records can have unused replies.
    fn unused_replies(&self, consumed: &dyn Fn(&str) -> usize) -> Option<ProviderError> {
        let _ = consumed;
        None
    }
}

/// How a server answered when it was asked for its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCheck {
    /// It accepts the key.
    Accepted,
    /// It answers, but doesn't list models, so the key wasn't checked.
    NoModelList,
}

/// What the requests to a server have shown so far, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Contact {
    /// No response has arrived.
    None,
    /// Each response refused the key, the account, the model or the address, or wasn't from the API.
    Refused,
    /// The server has answered a request as this API does.
    Answered,
}

/// The settings that stay the same for a whole conversation.
#[derive(Debug, Clone)]
pub struct ConversationConfig {
    /// The agent's id in the run (`parent`, `explorer-1`); the replay provider finds its replies by it.
    pub agent: String,
    /// The model to ask.
    pub model: Model,
    /// The system prompt; empty for none.
    pub system: String,
    /// The tools, in the order of the allowlist.
    pub tools: Vec<ToolSpec>,
    /// Whether the provider's cache should keep the system prompt and the tools for an hour, because many runs share them.
    /// Only for models with [`Model::has_hour_cache`].
    pub caches_for_hour: bool,
}

/// One agent's conversation. Each message is encoded once, when it is pushed, so a turn encodes only its new messages.
pub trait Conversation: Send {
    /// Appends a message. The first is a user message. A reply that continues a paused one, and a user message after
    /// one whose reply was discarded, are merged into the previous message.
    fn push(&mut self, message: &Message);

    /// Asks for the next reply, with retries. The reply isn't appended: push it to continue from it.
    fn ask<'a>(
        &'a mut self,
        request: ReplyRequest,
        observer: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// Counts a reply that the journal already holds, so that it isn't requested again. Push it to continue from it.
    fn skip_recorded_reply(&mut self) {}

    /// Drops all messages. System prompt and tools stay, and the ids of earlier calls remain reserved.
    fn clear(&mut self);

    /// How many turns the next reply keeps, if it is known in advance and is a compaction summary.
    fn upcoming_summary(&self) -> Option<u32> {
        None
    }

    /// The body of a request with the current messages. `None` if replies don't come from an API.
    fn request_body(&self, request: &ReplyRequest) -> Option<Vec<u8>> {
        let _ = request;
        None
    }

    /// Size in bytes of the next request's prompt: system prompt, tools and messages.
    fn prompt_bytes(&self) -> usize;
}

/// The settings of a single request.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The maximum number of output tokens.
    pub max_tokens: u32,
    /// Whether the model may call tools. They are listed either way, which keeps the prompt cache valid.
    pub tools_allowed: bool,
    /// Whether an empty first reply is retried, and then an error, instead of the end of the conversation.
    pub requires_content: bool,
    /// The end of the run's time limit; no retry waits beyond it.
    pub deadline: RunningInstant,
    /// Whether another model can answer, so that waiting for this one for long makes no sense.
    pub has_fallback: bool,
}

/// Receives notifications while a reply is being received.
pub trait StreamObserver: Send + Sync {
    /// An attempt has failed, and the next one follows after `retry.wait()`.
    fn on_retry(&self, retry: &Retry);

    /// The attempt would have used this much if it ended now.
    fn on_progress(&self, usage: Usage) {
        let _ = usage;
    }
}

/// A failed attempt that will be repeated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Retry {
    /// The number of the failed attempt, from 1.
    pub attempt: u32,
    /// How long until the next one, in milliseconds.
    pub wait_ms: u64,
    /// What happened, in one sentence, without secrets.
    pub reason: String,
    /// The tokens that the failed attempt used, if known.
    pub usage: Usage,
}

impl Retry {
    /// How long until the next attempt.
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

/// Why a provider sends no reply.
#[derive(Debug, Clone)]
pub struct ProviderError {
    /// What that means for the run.
    pub kind: ProviderErrorKind,
    /// What happened, in one sentence, without secrets.
    pub message: String,
    /// What the operator can do about it.
    pub hint: Option<String>,
    /// The tokens that the last attempt used, if known.
    pub usage: Usage,
    /// The size of the context window in tokens, if the prompt was too long and the server reported the size.
    pub context_window: Option<u64>,
}

/// What a provider error means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderErrorKind {
    /// There is no key, or the provider permanently refuses the key, the model or the request.
    Rejected,
    /// Throttled, overloaded, broken or unreachable after all retries.
    Failed,
    /// The conversation exceeds the model's context window.
    ContextFull,
    /// A replay has no reply for what is asked.
    Differs,
}

impl ProviderError {
    /// An error without a hint.
    pub fn new(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, usage: Usage::default(), context_window: None }
    }

    /// A permanent error: no retry helps.
    pub(crate) fn rejected(message: impl Into<String>) -> Self {
        Self::new(ProviderErrorKind::Rejected, message)
    }

    /// Adds what the operator can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
