//! Encodes a conversation for the API, each message once.
//!
//! Up to four cache markers (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>) are set: on the
//! last tool, the system prompt, and the ends of the last two user messages. The next request reads the cache up to the
//! newest marker. This request reads it up to the marker before, even if more than 20 blocks, the API's search limit,
//! are in between. If many runs share the tools and the system prompt, their markers are for an hour instead of five
//! minutes. Markers for an hour must precede the others.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::block;
use super::reply::AnthropicDecoder;
use super::thinking::{self, VENDOR};
use crate::attachment::{Attachment, MediaType};
use crate::message::{Block, BlockContent, Message, Reply, ToolResult, UserMessage};
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::attachments::AttachmentEncoder;
use crate::providers::json::{
    EMPTY_TEXT, EncodedBody, Fields, field, is_blank, or_placeholder, parse_fields, string_field, text_to_send,
};
use crate::providers::model::Model;
use crate::providers::tool_calls::{is_valid_call_id, tool_name};
use crate::providers::transport::http_conversation::RequestEncoder;
use crate::providers::unsupported_options::explicit_temperature;

const CACHE_MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;
const HOUR_CACHE_MARKER: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;
/// The option of [`HOUR_CACHE_MARKER`] that a server may refuse.
const CACHE_TTL: &str = "ttl";
/// The version of the API on Vertex AI (<https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai>).
const VERTEX_VERSION: &str = "vertex-2023-10-16";
/// The maximum length of a tool's name.
const MAX_TOOL_NAME_CHARS: usize = 128;
/// How a user message starts.
const USER_START: &str = r#"{"role":"user","content":["#;
/// How an assistant message starts.
const ASSISTANT_START: &str = r#"{"role":"assistant","content":["#;

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct AnthropicEncoder {
    model: Model,
    /// Whether the model is in the address, and the version of the API in the body.
    is_vertex: bool,
    has_tools: bool,
    /// `tools` and `system` with their markers, and the messages.
    body: EncodedBody,
    /// The start of `body` with the usual markers, if it has markers for an hour.
    usual_prefix: Option<String>,
    attachments: AttachmentEncoder,
    /// Whether the first reply of this turn starts with thinking; `None` before the first reply.
    starts_with_thinking: Option<bool>,
}

impl AnthropicEncoder {
    /// A conversation without messages.
    pub(super) fn new(config: &ConversationConfig, is_vertex: bool) -> Self {
        let usual_prefix = encode_prefix(config, CACHE_MARKER);
        let (prefix, usual_prefix) = match config.caches_for_hour {
            true => (encode_prefix(config, HOUR_CACHE_MARKER), Some(usual_prefix)),
            false => (usual_prefix, None),
        };
        Self {
            model: config.model.clone(),
            is_vertex,
            has_tools: !config.tools.is_empty(),
            body: EncodedBody::new(prefix),
            usual_prefix,
            attachments: AttachmentEncoder::new(&config.model),
            starts_with_thinking: None,
        }
    }
}

impl RequestEncoder for AnthropicEncoder {
    type Decoder = AnthropicDecoder;

    fn prompt_bytes(&self) -> usize {
        self.attachments.prompt_bytes(self.body.size())
    }

    /// Encodes a message. Consecutive messages of one role are merged: a reply that continues a paused one, and a user
    /// message after another one whose reply was discarded. The API merges them itself
    /// (<https://platform.claude.com/docs/en/api/messages>), but not every compatible server accepts them.
    fn push(&mut self, message: &Message) {
        let (start, blocks) = match message {
            Message::User(message) => (USER_START, user_blocks(message, &mut self.attachments)),
            Message::Assistant(reply) => (ASSISTANT_START, assistant_blocks(reply)),
        };
        let blocks = blocks.join(",");
        let continues_last = self.body.extend_last(start, &format!(",{blocks}"), "]}".len());
        if !continues_last {
            self.body.push(format!("{start}{blocks}]}}"));
        }
        match message {
            Message::User(message) if message.results.is_empty() && !continues_last => self.starts_with_thinking = None,
            Message::Assistant(reply) if self.starts_with_thinking.is_none() => {
                self.starts_with_thinking = Some(starts_with_thinking(reply));
            }
            _ => {}
        }
    }

    fn clear(&mut self) {
        self.body.clear();
        self.attachments.clear();
        self.starts_with_thinking = None;
    }

    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes> {
        let model = &self.model;
        let name = match self.is_vertex {
            true => format!(r#""anthropic_version":"{VERTEX_VERSION}""#),
            false => format!(r#""model":{}"#, json!(model.name)),
        };
        let mut head = format!(r#"{{{name},"max_tokens":{},"stream":true"#, request.max_tokens);
        let choice = (!request.tools_allowed && self.has_tools).then(|| ("tool_choice", json!({ "type": "none" })));
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
        let mut chunks = self.body.chunks(head);
        let users = chunks.iter().enumerate().rev().filter(|(_, chunk)| chunk.starts_with(USER_START.as_bytes()));
        let marked: Vec<usize> = users.map(|(at, _)| at).take(2).collect();
        for at in marked {
            let json = chunks[at].clone();
            // Before the final `}]}`, in the last block.
            let end = json.len().saturating_sub(3);
            let marker = Bytes::from_static(CACHE_MARKER.as_bytes());
            chunks.splice(at..=at, [json.slice(..end), marker, json.slice(end..)]);
        }
        chunks
    }

    fn new_decoder(&self) -> AnthropicDecoder {
        AnthropicDecoder::default()
    }

    // Such as `tools.20.custom.cache_control.ephemeral.ttl: Extra inputs are not permitted`, from older models on Bedrock.
    fn refused_option(&self, message: &str) -> Option<&'static str> {
        let mut words = message.split(|char: char| !char.is_ascii_alphanumeric());
        (self.usual_prefix.is_some() && words.any(|word| word == CACHE_TTL)).then_some(CACHE_TTL)
    }

    fn drop_option(&mut self, option: &'static str) -> bool {
        let prefix = self.usual_prefix.take_if(|_| option == CACHE_TTL);
        let is_sent = prefix.is_some();
        prefix.into_iter().for_each(|prefix| self.body.replace_prefix(prefix));
        is_sent
    }

    fn drop_thinking(&mut self) -> bool {
        self.body.shorten(without_thinking)
    }

    // The API requires unique ids, and some gateways count from zero in every reply. The API's own ids consist of
    // letters, digits, `_` and `-`, but a server accepts the ids that it sent and may need them: Kimi's look like
    // `functions.glob:0`, and LiteLLM stores Gemini's signatures in them.
    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) {
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
                block::set_call_id(block, id);
            }
        }
    }
}

/// `tools` and `system` with a marker each, and the start of the messages.
fn encode_prefix(config: &ConversationConfig, marker: &str) -> String {
    let with_marker = |object: &str| format!("{}{marker}}}", object.strip_suffix('}').unwrap_or(object));
    let mut prefix = String::new();
    let mut tools: Vec<String> = config.tools.iter().map(|tool| json!(tool).to_string()).collect();
    if let Some(last) = tools.last_mut() {
        *last = with_marker(last);
        prefix = format!(r#","tools":[{}]"#, tools.join(","));
    }
    if !is_blank(&config.system) {
        prefix.push_str(&format!(r#","system":[{}]"#, with_marker(&text_block(&config.system))));
    }
    prefix + r#","messages":["#
}

fn text_block(text: &str) -> String {
    json!({ "type": "text", "text": text }).to_string()
}

/// An image or a PDF (<https://platform.claude.com/docs/en/build-with-claude/vision>, `/pdf-support`). The content of a
/// result can have the same blocks (<https://platform.claude.com/docs/en/api/messages>).
fn attachment_block(attachment: &Attachment, base64: &str) -> Value {
    let kind = if attachment.media_type == MediaType::Pdf { "document" } else { "image" };
    let source = json!({ "type": "base64", "media_type": attachment.media_type.mime(), "data": base64 });
    json!({ "type": kind, "source": source })
}

fn user_blocks(message: &UserMessage, attachments: &mut AttachmentEncoder) -> Vec<String> {
    let mut blocks = Vec::with_capacity(message.results.len() + 1);
    for ToolResult { call_id, text, is_error, attachments: files } in &message.results {
        let mut text = or_placeholder(text).to_owned();
        let parts = attachments.encode(files, &mut text, attachment_block);
        let id = wire_call_id(call_id);
        let content = match parts.is_empty() {
            true => json!(text),
            false => [json!({ "type": "text", "text": text })].into_iter().chain(parts).collect(),
        };
        let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
        if *is_error {
            block["is_error"] = json!(true);
        }
        blocks.push(block.to_string());
    }
    // Images work best before the text that is about them.
    let mut text = text_to_send(message).unwrap_or_default().to_owned();
    let parts = attachments.encode(&message.attachments, &mut text, attachment_block);
    blocks.extend(parts.iter().map(Value::to_string));
    blocks.extend((!text.is_empty()).then(|| text_block(&text)));
    blocks
}

fn assistant_blocks(reply: &Reply) -> Vec<String> {
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
            (BlockContent::Call(call), _) => {
                let (id, name) = (json!(wire_call_id(&call.id)), json!(tool_name(&call.tool, MAX_TOOL_NAME_CHARS)));
                format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{}}}"#, call.input)
            }
            (_, Some(raw)) => raw.get().to_owned(),
            (BlockContent::Text(text), None) => text_block(text),
            // Another provider's thinking, which can't be sent back.
            (BlockContent::Thinking(_) | BlockContent::Other(_), None) => continue,
        };
        blocks.push(block);
        ends_with_thinking = matches!(content, BlockContent::Thinking(_));
    }
    // The API refuses a message without blocks, and one that ends with thinking.
    if ends_with_thinking {
        blocks.push(text_block(EMPTY_TEXT));
    }
    blocks
}

/// An encoded reply without its thinking. `None` if it has none, or isn't a reply.
fn without_thinking(json: &[u8]) -> Option<String> {
    if !json.starts_with(ASSISTANT_START.as_bytes()) {
        return None;
    }
    let message: Fields = serde_json::from_slice(json).ok()?;
    let content: Vec<Box<RawValue>> = field(&message, "content")?;
    let is_thinking = |block: &RawValue| {
        let kind = string_field(&parse_fields(block), "type");
        kind.is_some_and(|kind| matches!(kind.as_str(), "thinking" | "redacted_thinking"))
    };
    let kept: Vec<&str> = content.iter().filter(|block| !is_thinking(block)).map(|block| block.get()).collect();
    let blocks = if kept.is_empty() { text_block(EMPTY_TEXT) } else { kept.join(",") };
    (kept.len() < content.len()).then(|| format!("{ASSISTANT_START}{blocks}]}}"))
}

fn starts_with_thinking(reply: &Reply) -> bool {
    let mut sent =
        reply.blocks.iter().filter(|block| !matches!(&block.content, BlockContent::Text(text) if is_blank(text)));
    sent.next().is_some_and(|Block { content, raw }| matches!(content, BlockContent::Thinking(_)) && raw.is_some())
}

fn wire_call_id(id: &str) -> &str {
    if is_valid_call_id(id) { id } else { "_" }
}
