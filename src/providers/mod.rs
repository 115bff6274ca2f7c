//! Where replies come from. A new provider is one file here and one line in [`PROVIDERS`].

pub mod anthropic;
pub mod base_url;
#[cfg(test)]
mod captured_streams;
#[cfg(test)]
mod conformance;
mod env_config;
pub mod errors;
pub mod gemini;
mod lossy_string;
pub mod openai;
pub mod openai_chat;
pub mod replay;
mod retired_models;
#[cfg(test)]
mod test_server;
mod tool_input;
pub mod transport;
pub mod user_servers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::Thinking;
use crate::message::{Message, Reply, Usage};
use crate::pricing::{PriceKey, vendor};
use crate::redaction::Redactor;
use crate::tools::ToolSpec;

pub use crate::providers::errors::unsupported_options::{RequestOptions, UnsupportedOption};

/// A model as a job names it: `provider/name`, with what it is asked to do beyond the defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// The provider's name, such as `anthropic`, or that of a server of the user's own.
    pub provider: String,
    /// The model's name as the provider knows it; for `replay` a path.
    pub name: String,
    /// How much the model may think before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// How freely it picks its words; what the numbers mean is the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Texts at which a reply ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How many tokens its prompt and reply may have together, where the job says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// What speaks at the server that `provider` names; absent where that is a provider of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerInfo>,
}

/// How a server of the user's own is spoken to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// The provider of ours whose API it speaks.
    pub api: String,
    /// Whether that is the provider's own address, so that it has the provider's models and no others.
    pub is_official: bool,
}

impl Model {
    /// A model without options.
    pub fn new(provider: impl Into<String>, name: impl Into<String>) -> Self {
        Self { provider: provider.into(), name: name.into(), ..Self::default() }
    }

    /// Whether it is that model, whatever is asked of it.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.provider, &self.name) == (&other.provider, &other.name)
    }

    /// What its replies come from: models of one provider share it, but each script is a source of its own.
    pub fn reply_source(&self) -> String {
        if self.provider == "replay" { self.to_string() } else { self.provider.clone() }
    }

    /// The provider of ours that speaks its API.
    pub fn spec(&self) -> Option<&'static ProviderSpec> {
        find(self.server.as_ref().map_or(&self.provider, |server| &server.api))
    }

    /// The provider in the table of prices that may have its price, wherever it is asked: a gateway takes about what the
    /// model's maker does. Empty where there is none.
    pub fn price_provider(&self) -> &'static str {
        self.price_lookup().0
    }

    /// That provider, and the model's name there.
    fn price_lookup(&self) -> (&'static str, &str) {
        let made = vendor::identify(&self.name);
        let own = self.spec().map_or("", |entry| entry.price_provider);
        match made {
            Some(made) if self.allows_unknown_names() => made,
            // At its own address a provider has no model of another maker, whatever its list in the table holds.
            Some((list, _)) if list != own => ("", &self.name),
            _ => (own, &self.name),
        }
    }

    /// Whether a name that its list lacks is no sign of a mistake, for most of what is asked like that has models of its own.
    pub fn allows_unknown_names(&self) -> bool {
        match &self.server {
            Some(server) => !server.is_official,
            None => self.provider == openai_chat::SPEC.name,
        }
    }

    /// Whether the model's thinking may be sent back only behind the very messages it was produced behind.
    ///
    /// Claude's newer models refuse the request otherwise, over whatever API they are asked. OpenAI's drop such reasoning
    /// themselves (<https://developers.openai.com/api/docs/guides/keep-prefix-unchanged>), and Gemini's signatures are
    /// required on the calls of the turn that goes on, whatever stands before them
    /// (<https://ai.google.dev/gemini-api/docs/thought-signatures>): both are always sent back.
    pub fn has_prefix_bound_thinking(&self) -> bool {
        anthropic::has_prefix_bound_thinking(&self.name)
    }

    /// What its price is looked up by.
    pub fn price_key(&self) -> PriceKey<'_> {
        let (list, listed) = self.price_lookup();
        PriceKey { provider: &self.provider, name: &self.name, price_provider: list, price_model: listed }
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.name)
    }
}

/// A provider as a job can name it.
pub struct ProviderSpec {
    /// The part before the `/` of a model's name.
    pub name: &'static str,
    /// The environment variables that hold its keys; of several that are set a later one goes before. They are never given
    /// to a tool and never shown.
    pub key_envs: &'static [&'static str],
    /// Its own base address, up to what stands before an API's path, and the variable that names another one, which may
    /// hold credentials; absent where no server is asked.
    pub default_endpoint: Option<DefaultEndpoint>,
    /// What a model is asked for and it, or the provider, is known not to take: all of it at once. A name that isn't known
    /// takes what the provider does.
    pub unsupported_options: fn(&RequestOptions<'_>) -> Vec<UnsupportedOption>,
    /// The provider of this name in the table of prices has its prices; empty for none.
    pub price_provider: &'static str,
    /// Makes it ready. Contacts nobody: a missing or malformed key is found here, before anything else happens.
    pub connect: fn(&ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError>,
}

/// Where a provider is.
#[derive(Debug, Clone, Copy)]
pub struct DefaultEndpoint {
    /// The base address: `https://api.anthropic.com`.
    pub base_url: &'static str,
    /// The environment variable for another one.
    pub base_url_env: &'static str,
}

/// What a provider gets from outside the job.
pub struct ConnectContext<'a> {
    /// Reads the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The server of the user's own that is meant, instead of where the environment says.
    pub server: Option<&'a user_servers::UserServer>,
    /// The script, for the provider that answers from one.
    pub script: Option<Arc<replay::Script>>,
    /// How we name ourselves to servers: `legwork/1.2.3`.
    pub user_agent: &'a str,
    /// The run's secrets, which no text of a server may show.
    pub redactor: &'a Redactor,
}

/// Every provider that a job can name.
pub static PROVIDERS: &[ProviderSpec] = &[anthropic::SPEC, openai::SPEC, openai_chat::SPEC, gemini::SPEC, replay::SPEC];

/// The provider of that name.
pub fn find(name: &str) -> Option<&'static ProviderSpec> {
    PROVIDERS.iter().find(|entry| entry.name == name)
}

/// What stays the same over a whole conversation.
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
}

/// A source of replies, shared by all agents of a run that use it.
pub trait Provider: Send + Sync {
    /// Starts an empty conversation. Contacts nobody.
    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError>;

    /// What the operator should know before the first request, in one sentence.
    fn warning(&self) -> Option<String> {
        None
    }

    /// What of its replies nobody asked for, at the end of a run that has completed; `given` says how many an agent got
    /// from it. Only what was written down in advance can be left.
    fn unused_replies(&self, given: &dyn Fn(&str) -> usize) -> Option<ProviderError> {
        let _ = given;
        None
    }
}

/// One agent's conversation. It keeps each message in the provider's own form from the moment it is pushed, so that
/// a turn costs what is new in it.
pub trait Conversation: Send {
    /// Appends a message, a user message first. A reply that goes on where the last one was paused, and a remark behind
    /// a question whose reply was dropped, become part of the message before.
    fn push(&mut self, message: &Message);

    /// Asks for the next reply, trying again where that can help. The reply isn't appended: push it to go on from it.
    fn ask<'a>(
        &'a mut self,
        ask: ReplyRequest,
        watch: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// Takes note of a reply that the journal holds and that is not asked for again. Push it to go on from it.
    fn skip_recorded_reply(&mut self) {}

    /// Drops all messages, to begin anew with others: system and tools stay, and ids of calls stay taken.
    fn clear(&mut self);

    /// How many turns the next reply leaves as they are, where replies are known in advance and the next one is a summary
    /// of all before these.
    fn upcoming_summary(&self) -> Option<u32> {
        None
    }

    /// Size in bytes of what the next request would send as prompt: system, tools and messages.
    fn prompt_bytes(&self) -> usize;
}

/// What changes from request to request.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The greatest number of output tokens of this reply.
    pub max_tokens: u32,
    /// Whether the model may call tools. They are listed either way, so that the prompt cache stays whole.
    pub tools_allowed: bool,
    /// Whether a first reply with nothing in it is a failure after some tries, and no end: where nobody else would notice.
    pub requires_content: bool,
    /// When the run's time is up; no retry is begun that would wait past it.
    pub deadline: Instant,
}

/// Told what happens while a reply is awaited.
pub trait StreamObserver: Send + Sync {
    /// A piece of the reply's text has come; to be shown, never recorded. What came in a try that fails is void:
    /// `retrying` or the fault follows it, and the next try begins from the start.
    fn on_text(&self, piece: &str);
    /// A try has failed and another follows after `retry.wait`.
    fn on_retry(&self, retry: &Retry);
}

/// A failed try that will be repeated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Retry {
    /// Number of the failed try, from 1.
    pub attempt: u32,
    /// How long until the next one, in milliseconds.
    pub wait_ms: u64,
    /// What happened, in one sentence, without secrets.
    pub reason: String,
    /// What the failed try has used of tokens, as far as it is known.
    pub usage: Usage,
}

impl Retry {
    /// How long until the next try.
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

/// Why no reply came in the end.
#[derive(Debug, Clone)]
pub struct ProviderError {
    /// What that means for the run.
    pub kind: ProviderErrorKind,
    /// What happened, in one sentence, without secrets.
    pub message: String,
    /// What the operator can do about it.
    pub hint: Option<String>,
    /// What the last failed try has used of tokens, as far as it is known.
    pub usage: Usage,
    /// How many tokens prompt and reply may have together, where the prompt was too long and the server says so.
    pub context_window: Option<u64>,
}

/// What a fault means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderErrorKind {
    /// No key, or the provider refuses the key, the model or the request for good.
    Rejected,
    /// Throttled, overloaded, broken or unreachable after all retries.
    Failed,
    /// The conversation doesn't fit the model's window.
    ContextFull,
    /// A replay has no reply for what is asked.
    Differs,
}

impl ProviderError {
    /// A fault without a hint.
    pub fn new(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, usage: Usage::default(), context_window: None }
    }

    /// Says what the operator can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
