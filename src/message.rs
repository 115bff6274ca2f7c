//! The messages of a conversation, independent of any provider.
//!
//! A provider converts them to and from its wire format. Anything else in a reply than text and calls is kept as raw JSON
//! ([`Block::raw`]) and sent back unchanged.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::attachment::Attachment;

/// One message of a conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Message {
    /// A message from legwork: a prompt, the results of the previous reply's calls, or both.
    User(UserMessage),
    /// A reply of the model.
    Assistant(Reply),
}

/// A message from legwork to the model: results of its calls first, then text.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UserMessage {
    /// The results in the order of the calls. Every call of the previous reply has exactly one.
    pub results: Vec<ToolResult>,
    /// A prompt or a note. Never empty if present.
    pub text: Option<String>,
    /// Images and documents that belong to the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

impl UserMessage {
    /// A message with only text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A message with only the results of calls.
    pub fn results(results: Vec<ToolResult>) -> Self {
        Self { results, ..Self::default() }
    }

    /// All images and documents, those of results first.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.results.iter().flat_map(|result| &result.attachments).chain(&self.attachments)
    }

    /// All images and documents, those of results first.
    pub fn attachments_mut(&mut self) -> impl Iterator<Item = &mut Attachment> {
        self.results.iter_mut().flat_map(|result| &mut result.attachments).chain(&mut self.attachments)
    }
}

/// A complete reply of a model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
    /// The content in its original order.
    pub blocks: Vec<Block>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// The tokens that the request used.
    pub usage: Usage,
    /// The model's name as reported by the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's id of the request or reply, for support requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Reply {
    /// The text of all blocks, joined.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match &block.content {
            BlockContent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Whether the model ended its turn with no content except thinking.
    pub fn is_empty_reply(&self) -> bool {
        let says = |block: &Block| match &block.content {
            BlockContent::Text(text) => !text.trim().is_empty(),
            BlockContent::Call(_) | BlockContent::Other(_) => true,
            BlockContent::Thinking(_) => false,
        };
        self.stop == StopReason::EndTurn && !self.blocks.iter().any(says)
    }

    /// Why the model refused, if the provider gives a reason outside of the reply's content.
    pub fn refusal_reason(&self) -> Option<&str> {
        self.blocks.iter().rev().find_map(|block| block.refusal_reason(&self.stop))
    }

    /// Why the reply can't be used as a summary, such as `is empty`.
    pub fn unusable_summary_reason(&self) -> Option<&'static str> {
        match self.stop {
            StopReason::Refusal => Some("was refused"),
            StopReason::ContextFull => Some("was cut off by the context window"),
            _ if self.text().trim().is_empty() => Some("is empty"),
            _ => None,
        }
    }

    /// Puts raw JSON on one line, as in the journal, so that the same is sent before and after the run is resumed. Line breaks
    /// inside strings are escaped in JSON, so only those between tokens are replaced.
    pub fn flatten(&mut self) {
        let flat = |json: &mut Arc<RawValue>| {
            if json.get().contains(['\n', '\r'])
                && let Ok(line) = RawValue::from_string(json.get().replace(['\n', '\r'], " "))
            {
                *json = Arc::from(line);
            }
        };
        for Block { content, raw } in &mut self.blocks {
            raw.iter_mut().for_each(flat);
            if let BlockContent::Call(call) = content {
                flat(&mut call.input);
            }
        }
    }

    /// The tool calls in their original order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match &block.content {
            BlockContent::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// A part of a reply.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// The content that legwork understands.
    pub content: BlockContent,
    /// The provider's JSON, byte for byte, if it contains more than `content` does (signatures, citations, unknown kinds). It
    /// is sent back to the provider. Without it, the block is rebuilt from `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub raw: Option<Arc<RawValue>>,
}

impl Block {
    /// The provider's reason for a refusal, if this block has it instead of content of the reply.
    pub fn refusal_reason(&self, stop: &StopReason) -> Option<&str> {
        match (&self.content, &self.raw) {
            (BlockContent::Other(reason), None) if *stop == StopReason::Refusal => Some(reason),
            _ => None,
        }
    }
}

impl From<BlockContent> for Block {
    fn from(content: BlockContent) -> Self {
        Self { content, raw: None }
    }
}

/// The content of a block that legwork understands.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockContent {
    /// Text for the reader.
    Text(String),
    /// A tool call.
    Call(ToolCall),
    /// The model's reasoning, empty if the provider hides it.
    Thinking(String),
    /// A kind that legwork doesn't know, with the provider's name for it.
    Other(String),
}

/// A model's request to run a tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The provider's id, which the result refers to.
    pub id: String,
    /// The tool's name as the model wrote it. The tool may not exist.
    pub tool: String,
    /// The input as the model wrote it, or a placeholder that the provider accepts back if the input can't be used.
    #[schemars(with = "Value")]
    pub input: Arc<RawValue>,
    /// Why the input can't be used: it isn't JSON, or is too long or nested too deep. The tool isn't run then, and
    /// the model gets this as the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_error: Option<String>,
}

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The text, truncated and redacted; may be empty.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// Images and documents that the model gets with the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
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
    /// The reply is complete.
    EndTurn,
    /// It waits for the results of its calls.
    ToolUse,
    /// The reply reached `max_tokens`.
    MaxTokens,
    /// It refused to continue.
    Refusal,
    /// The provider paused a long reply; it continues if the conversation is sent again with it.
    Pause,
    /// The conversation fills the model's context window.
    ContextFull,
    /// A reason that legwork doesn't know, in the provider's words.
    Other(String),
}

/// The tokens of one request, or the sum for several.
///
/// The first four are disjoint, as Anthropic counts them: the prompt's tokens are `input_tokens + cache_read_tokens +
/// cache_write_tokens`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Prompt tokens neither read from nor written to a cache.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens of the reply, including reasoning.
    #[serde(default)]
    pub output_tokens: u64,
    /// Prompt tokens read from a cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Prompt tokens written to a cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Those of `cache_write_tokens` that are kept for an hour, which costs more. Absent: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_1h_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// All tokens, as counted for `limits.tokens`.
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output_tokens)
    }

    /// All prompt tokens, cached or not.
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
        self.cache_write_1h_tokens = self.cache_write_1h_tokens.saturating_add(other.cache_write_1h_tokens);
    }
}
