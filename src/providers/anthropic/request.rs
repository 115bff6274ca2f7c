//! Encodes a conversation for the API, each message once.
//!
//! Up to four cache markers (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>) are set: on the
//! last tool, the system prompt, and the ends of the last two user messages. The next request reads the cache up to the
//! newest marker. This request reads it up to the marker before, even if more than 20 blocks, the API's search limit,
//! are in between.

use std::collections::HashSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::block;
use super::reply::AnthropicAssembler;
use super::thinking::{self, VENDOR};
use crate::message::{Block, BlockContent, Message, Reply, ToolResult, UserMessage};
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::json::{EMPTY_TEXT, is_blank, or_placeholder};
use crate::providers::tool_calls::{is_valid_call_id, tool_name};
use crate::providers::transport::http_conversation::RequestEncoder;
use crate::providers::unsupported_options::explicit_temperature;

const CACHE_MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;
/// The maximum length of a tool's name.
const MAX_TOOL_NAME_CHARS: usize = 128;

/// An encoded message.
#[derive(Debug)]
struct EncodedMessage {
    json: Bytes,
    is_user: bool,
}

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct AnthropicEncoder {
    config: ConversationConfig,
    /// `tools` and `system` with their markers, with a comma before each.
    prefix: Bytes,
    messages: Vec<EncodedMessage>,
    size: usize,
    /// Whether the first reply of this turn starts with thinking; `None` before the first reply.
    starts_with_thinking: Option<bool>,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct ResultBlock<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
}

#[derive(Serialize)]
struct CallBlock<'a> {
    r#type: &'static str,
    id: &'a str,
    name: String,
    input: &'a RawValue,
}

impl AnthropicEncoder {
    /// A conversation without messages.
    ///
    /// # Errors
    /// A tool can't be serialized.
    pub(super) fn new(config: ConversationConfig) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        let tools: Result<Vec<String>, _> = config.tools.iter().map(serde_json::to_string).collect();
        if let Some((last, others)) = tools?.split_last() {
            let others: String = others.iter().map(|tool| format!("{tool},")).collect();
            fixed = format!(r#","tools":[{others}{}]"#, with_cache_marker(last));
        }
        if !is_blank(&config.system) {
            let block = serde_json::to_string(&TextBlock { r#type: "text", text: &config.system })?;
            fixed.push_str(&format!(r#","system":[{}]"#, with_cache_marker(&block)));
        }
        let size = fixed.len();
        Ok(Self { config, size, prefix: Bytes::from(fixed), messages: Vec::new(), starts_with_thinking: None })
    }
}

impl RequestEncoder for AnthropicEncoder {
    type Assembler = AnthropicAssembler;

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    /// Encodes a message. Consecutive messages of one role are merged: a reply that continues a paused one, and a user
    /// message after another one whose reply was discarded. The API merges them itself
    /// (<https://platform.claude.com/docs/en/api/messages>), but not every compatible server accepts them.
    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        let (is_user, blocks) = match message {
            Message::User(message) => (true, user_blocks(message)?),
            Message::Assistant(reply) => (false, assistant_blocks(reply)?),
        };
        let continues_last = self.messages.last().is_some_and(|last| last.is_user == is_user);
        match message {
            Message::User(message) if message.results.is_empty() && !continues_last => self.starts_with_thinking = None,
            Message::Assistant(reply) if self.starts_with_thinking.is_none() => {
                self.starts_with_thinking = Some(starts_with_thinking(reply));
            }
            _ => {}
        }
        if let Some(EncodedMessage { json, .. }) = self.messages.last_mut().filter(|last| last.is_user == is_user) {
            // Before the final `]}`.
            let start = String::from_utf8_lossy(&json[..json.len().saturating_sub(2)]);
            let whole = Bytes::from(format!("{start},{}]}}", blocks.join(",")));
            self.size += whole.len() - json.len();
            *json = whole;
            return Ok(());
        }
        let role = if is_user { "user" } else { "assistant" };
        let json = Bytes::from(format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(",")));
        self.size += json.len() + 1;
        self.messages.push(EncodedMessage { json, is_user });
        Ok(())
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.size = self.prefix.len();
        self.starts_with_thinking = None;
    }

    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes> {
        let model = &self.config.model;
        let mut head = format!(r#"{{"model":{},"max_tokens":{},"stream":true"#, json!(model.name), request.max_tokens);
        let choice = (!request.tools_allowed && !self.config.tools.is_empty())
            .then(|| ("tool_choice", json!({ "type": "none" })));
        let temperature =
            explicit_temperature(VENDOR, model, model.thinking).map(|temperature| ("temperature", json!(temperature)));
        let stop = (!model.stop.is_empty()).then(|| ("stop_sequences", json!(model.stop)));
        // A redacted reply has lost its thinking.
        let thinks = self.starts_with_thinking != Some(false) || !thinking::requires_leading_thinking(&model.name);
        let members: Vec<(&str, Value)> =
            thinking::request_members(&model.name, model.thinking.filter(|_| thinks), request.max_tokens);
        for (name, value) in members.into_iter().chain(temperature).chain(stop).chain(choice) {
            head.push_str(&format!(r#","{name}":{value}"#));
        }
        let mut chunks = vec![Bytes::from(head), self.prefix.clone(), Bytes::from_static(br#","messages":["#)];
        let users = self.messages.iter().enumerate().rev().filter(|(_, message)| message.is_user);
        let markers: Vec<usize> = users.map(|(at, _)| at).take(2).collect();
        for (at, EncodedMessage { json, .. }) in self.messages.iter().enumerate() {
            if at > 0 {
                chunks.push(Bytes::from_static(b","));
            }
            if markers.contains(&at) {
                // Before the final `}]}`, in the last block.
                let end = json.len().saturating_sub(3);
                chunks.extend([json.slice(..end), Bytes::from_static(CACHE_MARKER.as_bytes()), json.slice(end..)]);
            } else {
                chunks.push(json.clone());
            }
        }
        chunks.push(Bytes::from_static(b"]}"));
        chunks
    }

    fn new_assembler(&self) -> AnthropicAssembler {
        AnthropicAssembler::new(self.size)
    }

    fn drop_thinking(&mut self) -> bool {
        let mut is_less = false;
        for message in self.messages.iter_mut().filter(|message| !message.is_user) {
            if let Some(json) = without_thinking(&message.json) {
                self.size -= message.json.len().saturating_sub(json.len());
                message.json = json;
                is_less = true;
            }
        }
        is_less
    }

    // The API requires unique ids, and some gateways count from zero in every reply. The API's own ids consist of
    // letters, digits, `_` and `-`, but a server accepts the ids that it sent and may need them: Kimi's look like
    // `functions.glob:0`, and LiteLLM stores Gemini's signatures in them.
    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        let mut fresh: HashSet<String> = HashSet::new();
        for block in &mut reply.blocks {
            let BlockContent::Call(call) = &block.content else { continue };
            let wanted = if is_valid_call_id(&call.id) { call.id.clone() } else { "call".to_owned() };
            let mut id = wanted.clone();
            let mut number = 2;
            while taken.contains(&id) || !fresh.insert(id.clone()) {
                id = format!("{}-{number}", wanted.chars().take(100).collect::<String>());
                number += 1;
            }
            if id != call.id {
                block::set_call_id(block, id)?;
            }
        }
        Ok(())
    }
}

/// The object with a cache marker as its last member.
fn with_cache_marker(object: &str) -> String {
    format!("{}{CACHE_MARKER}}}", object.strip_suffix('}').unwrap_or(object))
}

fn user_blocks(message: &UserMessage) -> Result<Vec<String>, serde_json::Error> {
    let mut blocks = Vec::with_capacity(message.results.len() + 1);
    for ToolResult { call_id, text, is_error } in &message.results {
        blocks.push(serde_json::to_string(&ResultBlock {
            r#type: "tool_result",
            tool_use_id: wire_call_id(call_id),
            content: or_placeholder(text),
            is_error: *is_error,
        })?);
    }
    let text = message.text.as_deref().filter(|text| !is_blank(text));
    if let Some(text) = text.or(blocks.is_empty().then_some(EMPTY_TEXT)) {
        blocks.push(serde_json::to_string(&TextBlock { r#type: "text", text })?);
    }
    Ok(blocks)
}

fn assistant_blocks(reply: &Reply) -> Result<Vec<String>, serde_json::Error> {
    let mut blocks = Vec::with_capacity(reply.blocks.len());
    let mut ends_with_thinking = true;
    for Block { content, raw } in &reply.blocks {
        let block = match (content, raw) {
            (BlockContent::Text(text), _) if is_blank(text) => continue,
            (BlockContent::Call(call), Some(raw))
                if tool_name(&call.tool, MAX_TOOL_NAME_CHARS) == call.tool && is_valid_call_id(&call.id) =>
            {
                raw.get().to_owned()
            }
            (BlockContent::Call(call), _) => serde_json::to_string(&CallBlock {
                r#type: "tool_use",
                id: wire_call_id(&call.id),
                name: tool_name(&call.tool, MAX_TOOL_NAME_CHARS),
                input: &call.input,
            })?,
            (_, Some(raw)) => raw.get().to_owned(),
            (BlockContent::Text(text), None) => serde_json::to_string(&TextBlock { r#type: "text", text })?,
            // Another provider's thinking, which can't be sent back.
            (BlockContent::Thinking(_) | BlockContent::Other(_), None) => continue,
        };
        blocks.push(block);
        ends_with_thinking = matches!(content, BlockContent::Thinking(_));
    }
    // The API refuses a message without blocks, and one that ends with thinking.
    if ends_with_thinking {
        blocks.push(serde_json::to_string(&TextBlock { r#type: "text", text: EMPTY_TEXT })?);
    }
    Ok(blocks)
}

/// An encoded reply without its thinking. `None` if it has none.
fn without_thinking(json: &[u8]) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Content<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    let is_thinking = |block: &&RawValue| {
        let kind = serde_json::from_str::<Kind>(block.get());
        kind.is_ok_and(|kind| matches!(kind.r#type.as_str(), "thinking" | "redacted_thinking"))
    };
    let Content { content } = serde_json::from_slice(json).ok()?;
    let kept: Vec<&str> = content.iter().filter(|block| !is_thinking(block)).map(|block| block.get()).collect();
    let nothing = format!(r#"{{"type":"text","text":"{EMPTY_TEXT}"}}"#);
    let blocks = if kept.is_empty() { nothing } else { kept.join(",") };
    (kept.len() < content.len()).then(|| Bytes::from(format!(r#"{{"role":"assistant","content":[{blocks}]}}"#)))
}

fn starts_with_thinking(reply: &Reply) -> bool {
    let mut sent =
        reply.blocks.iter().filter(|block| !matches!(&block.content, BlockContent::Text(text) if is_blank(text)));
    sent.next().is_some_and(|Block { content, raw }| matches!(content, BlockContent::Thinking(_)) && raw.is_some())
}

fn wire_call_id(id: &str) -> &str {
    if is_valid_call_id(id) { id } else { "_" }
}
