//! A conversation in words no provider owns.
//!
//! A provider turns these into its wire format and back. Whatever a provider says beyond text and calls is kept
//! as raw JSON ([`Block::raw`]) and sent back as it came.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// One message of a conversation.
#[derive(Debug, Clone)]
pub enum Message {
    /// What legwork says: a prompt, the answers to the calls of the reply before, or both.
    User(UserMessage),
    /// What the model said.
    Assistant(Reply),
}

/// What legwork says to a model: answers to its calls first, then text.
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    /// The answers, in the order of the calls; every call of the reply before has exactly one.
    pub results: Vec<ToolResult>,
    /// A prompt or a remark. Never empty when present.
    pub text: Option<String>,
}

impl UserMessage {
    /// A message that is only text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { results: Vec::new(), text: Some(text.into()) }
    }
}

/// One whole reply of a model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
    /// What it consists of, in the order in which it was said.
    pub blocks: Vec<Block>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What the request cost in tokens.
    pub usage: Usage,
    /// The model as the provider names it, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's own id of the request or reply, for support requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Reply {
    /// All its text, the blocks joined as they came.
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(|block| block.content.as_text()).collect()
    }

    /// Whether it holds nothing but perhaps thoughts, and ends there.
    pub fn is_empty_reply(&self) -> bool {
        let says = |block: &Block| match &block.content {
            BlockContent::Text(text) => !text.trim().is_empty(),
            BlockContent::Call(_) | BlockContent::Other(_) => true,
            BlockContent::Thinking(_) => false,
        };
        self.stop == StopReason::EndTurn && !self.blocks.iter().any(says)
    }

    /// Why it was refused, where the provider says so beside the reply's own blocks.
    pub fn refusal_reason(&self) -> Option<&str> {
        self.blocks.iter().rev().find_map(|block| block.refusal_reason(&self.stop))
    }

    /// Why it is none, where it was asked for as a summary: `is empty`.
    pub fn unusable_summary_reason(&self) -> Option<&'static str> {
        match self.stop {
            StopReason::Refusal => Some("was refused"),
            StopReason::ContextFull => Some("was cut by the window"),
            _ if self.text().trim().is_empty() => Some("is empty"),
            _ => None,
        }
    }

    /// Puts raw JSON on one line, as a journal keeps it: what is sent now is then what is sent after a resumption. A line end
    /// within a text is written as an escape, so that only those between the parts of a value are replaced.
    pub fn flatten(&mut self) {
        let flat = |json: &mut Arc<RawValue>| {
            if json.get().contains(['\n', '\r'])
                && let Ok(line) = RawValue::from_string(json.get().replace(['\n', '\r'], " "))
            {
                *json = Arc::from(line);
            }
        };
        for Block { content: view, raw } in &mut self.blocks {
            raw.iter_mut().for_each(flat);
            if let BlockContent::Call(call) = view {
                flat(&mut call.input);
            }
        }
    }

    /// The tool calls in their order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match &block.content {
            BlockContent::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// A piece of a reply.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// What legwork understands of it.
    pub content: BlockContent,
    /// The provider's own JSON, byte for byte, where it says more than the view does (signatures, citations,
    /// unknown kinds). It is what the provider gets back; without it, the provider rebuilds the block from the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub raw: Option<Arc<RawValue>>,
}

impl Block {
    /// Why a reply with this stop was refused, where this block is what says so: a provider's word, and no part of the reply.
    pub fn refusal_reason(&self, stop: &StopReason) -> Option<&str> {
        match (&self.content, &self.raw) {
            (BlockContent::Other(why), None) if *stop == StopReason::Refusal => Some(why),
            _ => None,
        }
    }
}

impl From<BlockContent> for Block {
    fn from(view: BlockContent) -> Self {
        Self { content: view, raw: None }
    }
}

/// What legwork understands of a block.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockContent {
    /// Text for the reader.
    Text(String),
    /// A tool call.
    Call(ToolCall),
    /// The model's reasoning, where the provider shows it; empty where it is hidden.
    Thinking(String),
    /// A kind that legwork doesn't know, by the name that the provider gives it.
    Other(String),
}

impl BlockContent {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A model's wish to use a tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The provider's id; answers carry it.
    pub id: String,
    /// The tool's name as the model wrote it; there need not be such a tool.
    pub tool: String,
    /// The input as the model wrote it. Where that can't be used it is a stand-in that the provider accepts back.
    #[schemars(with = "Value")]
    pub input: Arc<RawValue>,
    /// Why the input can't be used: it is no JSON, too long or nested too deep. Such a call is answered with this and
    /// never runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_error: Option<String>,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The id of the call that it answers.
    pub call_id: String,
    /// Bounded and masked text; may be empty.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
}

/// The error text that a model gets as the result of a failed tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError(pub String);

impl ToolError {
    /// An error with this text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said everything.
    EndTurn,
    /// It waits for the answers to its calls.
    ToolUse,
    /// The reply reached `max_tokens`.
    MaxTokens,
    /// It refused to go on.
    Refusal,
    /// The provider paused a long reply and wants to be asked again with it.
    Pause,
    /// The conversation fills the model's window.
    ContextFull,
    /// A reason that legwork doesn't know, as the provider wrote it.
    Other(String),
}

/// Tokens of one request, or the sum over many.
///
/// The four are disjoint, as Anthropic counts them: the prompt's tokens are `input_tokens + cache_read_tokens +
/// cache_write_tokens`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens of the reply, reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Prompt tokens read from a cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Prompt tokens written to a cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
}

impl Usage {
    /// All tokens together: what `limits.tokens` counts.
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output_tokens)
    }

    /// The prompt's tokens, cached or not.
    pub fn prompt(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
    }
}
