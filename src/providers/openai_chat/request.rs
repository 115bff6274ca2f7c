//! A conversation in the API's own form, each part written once.
//!
//! The prompt cache needs no marks: what it finds again is a beginning that stays the same, byte for byte.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::reply::OpenaiChatAssembler;
use super::{reasoning, tool_calls};
use crate::message::{Block, BlockContent, Message, Reply, ToolResult, UserMessage};
use crate::providers::anthropic::is_prefix_mismatch;
use crate::providers::openai::{assign_call_ids, cache_key, mark_failure, model_limits};
use crate::providers::transport::http_conversation;
use crate::providers::transport::json_body::{is_blank, join_body};
use crate::providers::{ConversationConfig, ReplyRequest};

/// What stands for a text that is empty, which some servers refuse.
const EMPTY_TEXT: &str = "(nothing)";
/// What asks for usage.
const STREAM_OPTIONS: &str = "stream_options";
/// The older name of the greatest number of tokens.
const MAX_TOKENS: &str = "max_tokens";
/// The newer one.
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

/// What depends on where the conversation goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestDialect {
    /// The effort to ask for.
    pub(super) effort: Option<&'static str>,
    /// Whether `max_completion_tokens` is known there, and `max_tokens` refused.
    pub(super) has_openai_rules: bool,
    /// Whether `prompt_cache_key` is known there.
    pub(super) takes_cache_key: bool,
}

/// A message as it is sent.
#[derive(Debug)]
struct EncodedMessage {
    json: Bytes,
    /// Whether it is a text of ours, which a further one becomes part of.
    is_text: bool,
}

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct OpenaiChatEncoder {
    model: String,
    /// The tools' names.
    tools: Arc<[String]>,
    /// What stays the same and is no prompt, with a comma before each member.
    options: String,
    /// `tools`, with a comma before it, and the start of the messages.
    prefix: Bytes,
    messages: Vec<EncodedMessage>,
    /// How many of them stand before the conversation: the system prompt, where there is one.
    system_messages: usize,
    size: usize,
    /// Whether usage is asked for, which most servers count in a stream only then, and Mistral's refuses
    /// (<https://github.com/openai/openai-agents-python/issues/442>).
    asks_usage: bool,
    /// What the greatest number of tokens is called: `max_tokens` nearly everywhere, and what OpenAI's newer models take
    /// where they answer behind a gateway.
    max_tokens_field: &'static str,
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    r#type: &'static str,
    function: FunctionSpec<'a>,
}

#[derive(Serialize)]
struct FunctionSpec<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a serde_json::Value,
}

#[derive(Serialize)]
struct TextMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct ToolMessage<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: &'a str,
}

impl OpenaiChatEncoder {
    /// A conversation without messages.
    ///
    /// # Errors
    /// A tool can't be written as JSON.
    pub(super) fn new(setup: &ConversationConfig, way: RequestDialect) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        let tool = |tool: &crate::tools::ToolSpec| {
            let function =
                FunctionSpec { name: &tool.name, description: &tool.description, parameters: &tool.input_schema };
            serde_json::to_string(&FunctionTool { r#type: "function", function })
        };
        let tools: Vec<String> = setup.tools.iter().map(tool).collect::<Result<_, _>>()?;
        if !tools.is_empty() {
            fixed = format!(r#","tools":[{}]"#, tools.join(","));
        }
        let mut options = String::new();
        if let Some(effort) = way.effort {
            options.push_str(&format!(r#","reasoning_effort":"{effort}""#));
        }
        if let Some(temperature) = model_limits::temperature(&setup.model, way.effort) {
            options.push_str(&format!(r#","temperature":{}"#, json!(temperature)));
        }
        if !setup.model.stop.is_empty() {
            options.push_str(&format!(r#","stop":{}"#, json!(setup.model.stop)));
        }
        if way.takes_cache_key {
            options.push_str(&cache_key(setup));
        }
        let mut body = Self {
            model: setup.model.name.clone(),
            tools: setup.tools.iter().map(|tool| tool.name.clone()).collect(),
            options,
            size: fixed.len(),
            prefix: Bytes::from(fixed + r#","messages":["#),
            messages: Vec::new(),
            system_messages: 0,
            asks_usage: true,
            max_tokens_field: if way.has_openai_rules { MAX_COMPLETION_TOKENS } else { MAX_TOKENS },
        };
        if !is_blank(&setup.system) {
            body.add(serde_json::to_string(&TextMessage { role: "system", content: &setup.system })?, false);
            body.system_messages = body.messages.len();
        }
        Ok(body)
    }

    fn add(&mut self, json: String, is_text: bool) {
        self.size += json.len() + 1;
        self.messages.push(EncodedMessage { json: Bytes::from(json), is_text });
    }

    fn add_text(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let Some(last) = self.messages.last_mut().filter(|last| last.is_text) else {
            self.add(serde_json::to_string(&TextMessage { role: "user", content: text })?, true);
            return Ok(());
        };
        // Templates of many models take no two messages of one role. Before `"}`: the end of the text, of the message.
        let begun = String::from_utf8_lossy(&last.json[..last.json.len().saturating_sub(2)]);
        let more = serde_json::to_string(&format!("\n\n{text}"))?;
        let longer = Bytes::from(format!("{begun}{}}}", more.strip_prefix('"').unwrap_or(&more)));
        self.size += longer.len() - last.json.len();
        last.json = longer;
        Ok(())
    }

    /// Leaves the reasoning of all replies out; whether there was any.
    fn drop_reasoning(&mut self) -> bool {
        let mut is_less = false;
        for message in &mut self.messages {
            if let Some(json) = reasoning::without_reasoning(&message.json) {
                self.size -= message.json.len().saturating_sub(json.len());
                message.json = Bytes::from(json);
                is_less = true;
            }
        }
        is_less
    }

    fn add_user(&mut self, message: &UserMessage) -> Result<(), serde_json::Error> {
        for ToolResult { call_id, text, is_error } in &message.results {
            let content = mark_failure(if is_blank(text) { EMPTY_TEXT } else { text }, *is_error);
            let result = ToolMessage { role: "tool", tool_call_id: call_id, content: &content };
            self.add(serde_json::to_string(&result)?, false);
        }
        let text = message.text.as_deref().filter(|text| !is_blank(text));
        match text.or(message.results.is_empty().then_some(EMPTY_TEXT)) {
            Some(text) => self.add_text(text),
            None => Ok(()),
        }
    }

    fn add_reply(&mut self, reply: &Reply) -> Result<(), serde_json::Error> {
        let calls: Vec<String> = reply.blocks.iter().filter_map(tool_calls::encode_call).collect::<Result<_, _>>()?;
        let text = reply.text();
        let content = match calls.is_empty() {
            _ if !is_blank(&text) => json!(text),
            true => json!(EMPTY_TEXT),
            false => json!(null),
        };
        let mut message = format!(r#"{{"role":"assistant","content":{content}"#);
        if !calls.is_empty() {
            for Block { content: view, raw } in &reply.blocks {
                if let (BlockContent::Thinking(_), Some(raw)) = (view, raw) {
                    message.push_str(&reasoning::encode_members(raw));
                }
            }
            message.push_str(&format!(r#","tool_calls":[{}]"#, calls.join(",")));
        }
        self.add(message + "}", false);
        Ok(())
    }
}

impl http_conversation::RequestEncoder for OpenaiChatEncoder {
    type Assembler = OpenaiChatAssembler;

    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        match message {
            Message::User(message) => self.add_user(message),
            Message::Assistant(reply) => self.add_reply(reply),
        }
    }

    fn clear(&mut self) {
        let dropped = self.messages.drain(self.system_messages..);
        self.size -= dropped.map(|message| message.json.len() + 1).sum::<usize>();
    }

    fn body_chunks(&self, ask: &ReplyRequest) -> Vec<Bytes> {
        let usage = if self.asks_usage { r#","stream_options":{"include_usage":true}"# } else { "" };
        let choice = if !self.tools.is_empty() && !ask.tools_allowed { r#","tool_choice":"none""# } else { "" };
        let head = format!(
            r#"{{"model":{},"{}":{},"stream":true{usage}{}{choice}"#,
            json!(self.model),
            self.max_tokens_field,
            ask.max_tokens,
            self.options
        );
        join_body([Bytes::from(head), self.prefix.clone()], self.messages.iter().map(|message| &message.json))
    }

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    fn new_assembler(&self) -> OpenaiChatAssembler {
        OpenaiChatAssembler::new(self.size).with_tools(self.tools.clone())
    }

    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        assign_call_ids(reply, taken);
        Ok(())
    }

    fn refused_option(&self, refusal: &str) -> Option<&'static str> {
        if self.asks_usage && refusal.contains(STREAM_OPTIONS) {
            Some(STREAM_OPTIONS)
        } else if self.max_tokens_field != MAX_COMPLETION_TOKENS && refusal.contains(MAX_COMPLETION_TOKENS) {
            Some(MAX_TOKENS)
        } else {
            None
        }
    }

    fn drop_option(&mut self, option: &'static str) -> bool {
        match option {
            STREAM_OPTIONS => std::mem::replace(&mut self.asks_usage, false),
            MAX_TOKENS => std::mem::replace(&mut self.max_tokens_field, MAX_COMPLETION_TOKENS) != MAX_COMPLETION_TOKENS,
            _ => false,
        }
    }

    fn drop_prefix_bound_thinking(&mut self, refusal: &str) -> bool {
        is_prefix_mismatch(refusal) && self.drop_reasoning()
    }
}
