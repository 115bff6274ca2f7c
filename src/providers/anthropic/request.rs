//! A conversation in the API's own form, each part written once.
//!
//! Marks for the prompt cache (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>; at most four): the last
//! tool, the system prompt, and the ends of the last two user messages. The newest end is what the next request reads;
//! the one before is where this request reads, even where more than 20 blocks, as far as the API looks back, lie between.

use std::collections::HashSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::reply::AnthropicAssembler;
use super::{block, model_limits, thinking};
use crate::message::{Block, BlockContent, Message, Reply, ToolResult, UserMessage};
use crate::providers::openai::is_valid_call_id;
use crate::providers::transport::http_conversation;
use crate::providers::transport::json_body::is_blank;
use crate::providers::{ConversationConfig, ReplyRequest};

const CACHE_MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;
/// What stands for a text that is empty or white space, which the API refuses.
const EMPTY_TEXT: &str = "(nothing)";

/// A message as it is sent.
#[derive(Debug)]
struct EncodedMessage {
    json: Bytes,
    is_user: bool,
}

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct AnthropicEncoder {
    setup: ConversationConfig,
    /// `tools` and `system`, marks included, with a comma before each.
    prefix: Bytes,
    messages: Vec<EncodedMessage>,
    size: usize,
    /// Whether the reply that began this turn began with a thought; `None` while nobody has answered the last prompt.
    began_with_thought: Option<bool>,
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
    /// A tool can't be written as JSON.
    pub(super) fn new(setup: ConversationConfig) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        let tools: Result<Vec<String>, _> = setup.tools.iter().map(serde_json::to_string).collect();
        if let Some((last, others)) = tools?.split_last() {
            let others: String = others.iter().map(|tool| format!("{tool},")).collect();
            fixed = format!(r#","tools":[{others}{}]"#, with_cache_marker(last));
        }
        if !is_blank(&setup.system) {
            let block = serde_json::to_string(&TextBlock { r#type: "text", text: &setup.system })?;
            fixed.push_str(&format!(r#","system":[{}]"#, with_cache_marker(&block)));
        }
        let size = fixed.len();
        Ok(Self { setup, size, prefix: Bytes::from(fixed), messages: Vec::new(), began_with_thought: None })
    }
}

impl http_conversation::RequestEncoder for AnthropicEncoder {
    type Assembler = AnthropicAssembler;

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    /// Writes a message down. One after another of the same role goes on in the same message: a reply where the one
    /// before was paused, a remark behind a question whose reply was dropped. The API itself makes one message of two
    /// neighbours of a role (<https://platform.claude.com/docs/en/api/messages>), but not every compatible server takes
    /// them.
    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        let (is_user, blocks) = match message {
            Message::User(message) => (true, user_blocks(message)?),
            Message::Assistant(reply) => (false, assistant_blocks(reply)?),
        };
        let goes_on = self.messages.last().is_some_and(|last| last.is_user == is_user);
        match message {
            Message::User(message) if message.results.is_empty() && !goes_on => self.began_with_thought = None,
            Message::Assistant(reply) if self.began_with_thought.is_none() => {
                self.began_with_thought = Some(begins_with_thought(reply));
            }
            _ => {}
        }
        if let Some(EncodedMessage { json, .. }) = self.messages.last_mut().filter(|last| last.is_user == is_user) {
            // Before `]}`: the end of the list, of the message.
            let begun = String::from_utf8_lossy(&json[..json.len().saturating_sub(2)]);
            let whole = Bytes::from(format!("{begun},{}]}}", blocks.join(",")));
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
        self.began_with_thought = None;
    }

    fn body_chunks(&self, ask: &ReplyRequest) -> Vec<Bytes> {
        let model = &self.setup.model;
        let mut head = format!(r#"{{"model":{},"max_tokens":{},"stream":true"#, json!(model.name), ask.max_tokens);
        let choice =
            (!ask.tools_allowed && !self.setup.tools.is_empty()).then(|| ("tool_choice", json!({ "type": "none" })));
        let temperature = model_limits::temperature(model).map(|temperature| ("temperature", json!(temperature)));
        let stop = (!model.stop.is_empty()).then(|| ("stop_sequences", json!(model.stop)));
        // What was masked has lost its thoughts.
        let thinks = self.began_with_thought != Some(false) || !thinking::requires_leading_thinking(&model.name);
        let members: Vec<(&str, Value)> =
            thinking::request_members(&model.name, model.thinking.filter(|_| thinks), ask.max_tokens);
        for (name, value) in members.into_iter().chain(temperature).chain(stop).chain(choice) {
            head.push_str(&format!(r#","{name}":{value}"#));
        }
        let mut pieces = vec![Bytes::from(head), self.prefix.clone(), Bytes::from_static(br#","messages":["#)];
        let users = self.messages.iter().enumerate().rev().filter(|(_, message)| message.is_user);
        let marks: Vec<usize> = users.map(|(at, _)| at).take(2).collect();
        for (at, EncodedMessage { json, .. }) in self.messages.iter().enumerate() {
            if at > 0 {
                pieces.push(Bytes::from_static(b","));
            }
            if marks.contains(&at) {
                // `}]}`: the end of the last block, of the list, of the message.
                let end = json.len().saturating_sub(3);
                pieces.extend([json.slice(..end), Bytes::from_static(CACHE_MARKER.as_bytes()), json.slice(end..)]);
            } else {
                pieces.push(json.clone());
            }
        }
        pieces.push(Bytes::from_static(b"]}"));
        pieces
    }

    fn new_assembler(&self) -> AnthropicAssembler {
        AnthropicAssembler::new(self.size)
    }

    fn drop_prefix_bound_thinking(&mut self, refusal: &str) -> bool {
        if !thinking::is_prefix_mismatch(refusal) {
            return false;
        }
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

    // The API demands that ids are unique, and some gateways count from zero in every reply. Its own are letters, digits, `_`
    // and `-`; but a server that gives another takes it back, and may need it: Kimi knows its calls by `functions.glob:0`, and
    // LiteLLM keeps Gemini's signatures in them.
    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        let mut fresh: HashSet<String> = HashSet::new();
        for block in &mut reply.blocks {
            let BlockContent::Call(call) = &block.content else { continue };
            let wish = if is_valid_call_id(&call.id) { call.id.clone() } else { "call".to_owned() };
            let mut id = wish.clone();
            let mut number = 2;
            while taken.contains(&id) || !fresh.insert(id.clone()) {
                id = format!("{}-{number}", wish.chars().take(100).collect::<String>());
                number += 1;
            }
            if id != call.id {
                block::set_call_id(block, id)?;
            }
        }
        Ok(())
    }
}

/// The object with a mark as its last member.
fn with_cache_marker(object: &str) -> String {
    format!("{}{CACHE_MARKER}}}", object.strip_suffix('}').unwrap_or(object))
}

fn user_blocks(message: &UserMessage) -> Result<Vec<String>, serde_json::Error> {
    let mut blocks = Vec::with_capacity(message.results.len() + 1);
    for ToolResult { call_id, text, is_error } in &message.results {
        let content = if is_blank(text) { EMPTY_TEXT } else { text };
        blocks.push(serde_json::to_string(&ResultBlock {
            r#type: "tool_result",
            tool_use_id: wire_call_id(call_id),
            content,
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
    let mut ends_in_thought = true;
    for Block { content: view, raw } in &reply.blocks {
        let block = match (view, raw) {
            (BlockContent::Text(text), _) if is_blank(text) => continue,
            (BlockContent::Call(call), Some(raw))
                if tool_name(&call.tool) == call.tool && is_valid_call_id(&call.id) =>
            {
                raw.get().to_owned()
            }
            (BlockContent::Call(call), _) => serde_json::to_string(&CallBlock {
                r#type: "tool_use",
                id: wire_call_id(&call.id),
                name: tool_name(&call.tool),
                input: &call.input,
            })?,
            (_, Some(raw)) => raw.get().to_owned(),
            (BlockContent::Text(text), None) => serde_json::to_string(&TextBlock { r#type: "text", text })?,
            // Another provider's thoughts, which this one has no form for.
            (BlockContent::Thinking(_) | BlockContent::Other(_), None) => continue,
        };
        blocks.push(block);
        ends_in_thought = matches!(view, BlockContent::Thinking(_));
    }
    // The API refuses a message without blocks, and one whose last block is a thought.
    if ends_in_thought {
        blocks.push(serde_json::to_string(&TextBlock { r#type: "text", text: EMPTY_TEXT })?);
    }
    Ok(blocks)
}

/// A reply as it was written, without its thinking; `None` where it has none.
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

fn begins_with_thought(reply: &Reply) -> bool {
    let mut sent =
        reply.blocks.iter().filter(|block| !matches!(&block.content, BlockContent::Text(text) if is_blank(text)));
    sent.next().is_some_and(|Block { content: view, raw }| matches!(view, BlockContent::Thinking(_)) && raw.is_some())
}

fn wire_call_id(id: &str) -> &str {
    if is_valid_call_id(id) { id } else { "_" }
}

/// A tool's name as the API takes it back: what a model makes up need not be of that form.
fn tool_name(written: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = written.chars().take(128).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}
