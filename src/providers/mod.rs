//! Where replies come from. A new provider is one file here and one line in [`PROVIDERS`].

pub mod address;
pub mod anthropic;
mod behind;
#[cfg(test)]
mod conformance;
mod dialogue;
mod fault;
mod foreign;
pub mod gemini;
mod http;
mod input;
mod lossy;
pub mod named;
mod notice;
pub mod openai;
pub mod openai_chat;
mod options;
mod outside;
mod rate_governor;
mod rate_headers;
#[cfg(test)]
mod recorded;
pub mod replay;
mod retired;
mod retry;
#[cfg(test)]
mod scripted;
mod secured;
mod sse;
mod stale;
mod unsent;
mod window;
mod written;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::Thinking;
use crate::mask::Mask;
use crate::message::{Message, Reply, Usage};
use crate::price::{Item, maker};
use crate::tools::ToolSpec;

pub use self::options::{Untaken, Wish};

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
    pub server: Option<Served>,
}

/// How a server of the user's own is spoken to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Served {
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
    pub fn source(&self) -> String {
        if self.provider == "replay" { self.to_string() } else { self.provider.clone() }
    }

    /// The provider of ours that speaks its API.
    pub fn entry(&self) -> Option<&'static Entry> {
        find(self.server.as_ref().map_or(&self.provider, |server| &server.api))
    }

    /// The provider in the table of prices that may have its price, wherever it is asked: a gateway takes about what the
    /// model's maker does. Empty where there is none.
    pub fn price_list(&self) -> &'static str {
        self.listed().0
    }

    /// That provider, and the model's name there.
    fn listed(&self) -> (&'static str, &str) {
        let made = maker::of(&self.name);
        let own = self.entry().map_or("", |entry| entry.prices);
        match made {
            Some(made) if self.may_have_any_name() => made,
            // At its own address a provider has no model of another maker, whatever its list in the table holds.
            Some((list, _)) if list != own => ("", &self.name),
            _ => (own, &self.name),
        }
    }

    /// Whether a name that its list lacks is no sign of a mistake, for most of what is asked like that has models of its own.
    pub fn may_have_any_name(&self) -> bool {
        match &self.server {
            Some(server) => !server.is_official,
            None => self.provider == openai_chat::ENTRY.name,
        }
    }

    /// Whether the model's thinking may be sent back only behind the very messages it was produced behind.
    ///
    /// Claude's newer models refuse the request otherwise, over whatever API they are asked. OpenAI's drop such reasoning
    /// themselves (<https://developers.openai.com/api/docs/guides/keep-prefix-unchanged>), and Gemini's signatures are
    /// required on the calls of the turn that goes on, whatever stands before them
    /// (<https://ai.google.dev/gemini-api/docs/thought-signatures>): both are always sent back.
    pub fn binds_thinking(&self) -> bool {
        anthropic::binds_thinking(&self.name)
    }

    /// What its price is looked up by.
    pub fn item(&self) -> Item<'_> {
        let (list, listed) = self.listed();
        Item { provider: &self.provider, name: &self.name, list, listed }
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.name)
    }
}

/// A provider as a job can name it.
pub struct Entry {
    /// The part before the `/` of a model's name.
    pub name: &'static str,
    /// The environment variables that hold its keys; of several that are set a later one goes before. They are never given
    /// to a tool and never shown.
    pub keys: &'static [&'static str],
    /// Its own base address, up to what stands before an API's path, and the variable that names another one, which may
    /// hold credentials; absent where no server is asked.
    pub home: Option<Home>,
    /// What a model is asked for and it, or the provider, is known not to take: all of it at once. A name that isn't known
    /// takes what the provider does.
    pub untaken: fn(&Wish<'_>) -> Vec<Untaken>,
    /// The provider of this name in the table of prices has its prices; empty for none.
    pub prices: &'static str,
    /// Makes it ready. Contacts nobody: a missing or malformed key is found here, before anything else happens.
    pub connect: fn(&Connect<'_>) -> Result<Arc<dyn Provider>, Fault>,
}

/// Where a provider is.
#[derive(Debug, Clone, Copy)]
pub struct Home {
    /// The base address: `https://api.anthropic.com`.
    pub address: &'static str,
    /// The environment variable for another one.
    pub variable: &'static str,
}

/// What a provider gets from outside the job.
pub struct Connect<'a> {
    /// Reads the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The server of the user's own that is meant, instead of where the environment says.
    pub server: Option<&'a named::Server>,
    /// The script, for the provider that answers from one.
    pub script: Option<Arc<replay::Script>>,
    /// How we name ourselves to servers: `legwork/1.2.3`.
    pub user_agent: &'a str,
    /// The run's secrets, which no text of a server may show.
    pub mask: &'a Mask,
}

/// Every provider that a job can name.
pub static PROVIDERS: &[Entry] = &[anthropic::ENTRY, openai::ENTRY, openai_chat::ENTRY, gemini::ENTRY, replay::ENTRY];

/// The provider of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    PROVIDERS.iter().find(|entry| entry.name == name)
}

/// What stays the same over a whole conversation.
#[derive(Debug, Clone)]
pub struct Setup {
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
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault>;

    /// What the operator should know before the first request, in one sentence.
    fn warning(&self) -> Option<String> {
        None
    }

    /// What of its replies nobody asked for, at the end of a run that has completed; `given` says how many an agent got
    /// from it. Only what was written down in advance can be left.
    fn unasked(&self, given: &dyn Fn(&str) -> usize) -> Option<Fault> {
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
    fn ask<'a>(&'a mut self, ask: Ask, watch: &'a dyn Watch) -> BoxFuture<'a, Result<Reply, Fault>>;

    /// Takes note of a reply that the journal holds and that is not asked for again. Push it to go on from it.
    fn recall(&mut self) {}

    /// Drops all messages, to begin anew with others: system and tools stay, and ids of calls stay taken.
    fn clear(&mut self);

    /// How many turns the next reply leaves as they are, where replies are known in advance and the next one is a summary
    /// of all before these.
    fn summary_ahead(&self) -> Option<u32> {
        None
    }

    /// Size in bytes of what the next request would send as prompt: system, tools and messages.
    fn size(&self) -> usize;
}

/// What changes from request to request.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The greatest number of output tokens of this reply.
    pub max_tokens: u32,
    /// Whether the model may call tools. They are listed either way, so that the prompt cache stays whole.
    pub tools_allowed: bool,
    /// Whether a first reply with nothing in it is a failure after some tries, and no end: where nobody else would notice.
    pub needs_words: bool,
    /// When the run's time is up; no retry is begun that would wait past it.
    pub deadline: Instant,
}

/// Told what happens while a reply is awaited.
pub trait Watch: Send + Sync {
    /// A piece of the reply's text has come; to be shown, never recorded. What came in a try that fails is void:
    /// `retrying` or the fault follows it, and the next try begins from the start.
    fn text(&self, piece: &str);
    /// A try has failed and another follows after `retry.wait`.
    fn retrying(&self, retry: &Retry);
}

/// A failed try that will be repeated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Retry {
    /// Number of the failed try, from 1.
    pub attempt: u32,
    /// How long until the next one, in milliseconds.
    pub wait_ms: u64,
    /// What happened, in one sentence, without secrets.
    pub why: String,
    /// What the failed try has used of tokens, as far as it is known.
    pub spent: Usage,
}

impl Retry {
    /// How long until the next try.
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

/// Why no reply came in the end.
#[derive(Debug, Clone)]
pub struct Fault {
    /// What that means for the run.
    pub kind: FaultKind,
    /// What happened, in one sentence, without secrets.
    pub message: String,
    /// What the operator can do about it.
    pub hint: Option<String>,
    /// What the last failed try has used of tokens, as far as it is known.
    pub spent: Usage,
    /// How many tokens prompt and reply may have together, where the prompt was too long and the server says so.
    pub window: Option<u64>,
}

/// What a fault means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No key, or the provider refuses the key, the model or the request for good.
    Rejected,
    /// Throttled, overloaded, broken or unreachable after all retries.
    Failed,
    /// The conversation doesn't fit the model's window.
    ContextFull,
    /// A replay has no reply for what is asked.
    Differs,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, spent: Usage::default(), window: None }
    }

    /// Says what the operator can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
