//! Encodes a conversation for the API, each message once.
//!
//! The prompt cache needs no markers: it recognizes an identical prefix.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::reply::OpenaiChatAssembler;
use super::{reasoning, tool_calls};
use crate::message::{Block, BlockContent, Message, Reply, ToolResult, UserMessage};
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::json::{EMPTY_TEXT, is_blank, join_body, or_placeholder};
use crate::providers::openai_platform::{cache_key, mark_failure, temperature};
use crate::providers::transport::http_conversation::RequestEncoder;

/// The option that requests usage.
const STREAM_OPTIONS: &str = "stream_options";
/// The older name of the limit on output tokens.
const MAX_TOKENS: &str = "max_tokens";
/// The newer name.
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

/// The parts of a request that depend on the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestDialect {
    /// The reasoning effort to request.
    pub(super) effort: Option<&'static str>,
    /// Whether the server requires `max_completion_tokens` instead of `max_tokens`.
    pub(super) has_openai_rules: bool,
    /// Whether the server accepts `prompt_cache_key`.
    pub(super) takes_cache_key: bool,
}

/// An encoded message.
#[derive(Debug)]
struct EncodedMessage {
    json: Bytes,
    /// Whether it is a user's text, to which further texts are appended.
    is_text: bool,
}

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct OpenaiChatEncoder {
    model: String,
    /// The tools' names.
    tools: Arc<[String]>,
    /// The options, with a comma before each member.
    options: String,
    /// `tools`, with a comma before it, and the start of the messages.
    prefix: Bytes,
    messages: Vec<EncodedMessage>,
    /// How many of them precede the conversation: the system prompt, if any.
    system_messages: usize,
    size: usize,
    /// Whether usage is requested. Most servers include it in a stream only then, but Mistral's refuses the option
    /// (<https://github.com/openai/openai-agents-python/issues/442>).
    asks_usage: bool,
    /// The name of the limit on output tokens: `max_tokens` on most servers, except for OpenAI's newer models behind a
    /// gateway.
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
    /// A tool can't be serialized.
    pub(super) fn new(config: &ConversationConfig, dialect: RequestDialect) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        let tool = |tool: &crate::tools::ToolSpec| {
            let function =
                FunctionSpec { name: &tool.name, description: &tool.description, parameters: &tool.input_schema };
            serde_json::to_string(&FunctionTool { r#type: "function", function })
        };
        let tools: Vec<String> = config.tools.iter().map(tool).collect::<Result<_, _>>()?;
        if !tools.is_empty() {
            fixed = format!(r#","tools":[{}]"#, tools.join(","));
        }
        let mut options = String::new();
        if let Some(effort) = dialect.effort {
            options.push_str(&format!(r#","reasoning_effort":"{effort}""#));
        }
        if let Some(temperature) = temperature(&config.model, dialect.effort) {
            options.push_str(&format!(r#","temperature":{}"#, json!(temperature)));
        }
        if !config.model.stop.is_empty() {
            options.push_str(&format!(r#","stop":{}"#, json!(config.model.stop)));
        }
        if dialect.takes_cache_key {
            options.push_str(&cache_key(config));
        }
        let mut body = Self {
            model: config.model.name.clone(),
            tools: config.tools.iter().map(|tool| tool.name.clone()).collect(),
            options,
            size: fixed.len(),
            prefix: Bytes::from(fixed + r#","messages":["#),
            messages: Vec::new(),
            system_messages: 0,
            asks_usage: true,
            max_tokens_field: if dialect.has_openai_rules { MAX_COMPLETION_TOKENS } else { MAX_TOKENS },
        };
        if !is_blank(&config.system) {
            body.add(serde_json::to_string(&TextMessage { role: "system", content: &config.system })?, false);
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
        // Chat templates of many models don't accept consecutive messages of one role. Insert before the final `"}`.
        let start = String::from_utf8_lossy(&last.json[..last.json.len().saturating_sub(2)]);
        let more = serde_json::to_string(&format!("\n\n{text}"))?;
        let longer = Bytes::from(format!("{start}{}}}", more.strip_prefix('"').unwrap_or(&more)));
        self.size += longer.len() - last.json.len();
        last.json = longer;
        Ok(())
    }

    fn add_user(&mut self, message: &UserMessage) -> Result<(), serde_json::Error> {
        for ToolResult { call_id, text, is_error } in &message.results {
            let content = mark_failure(or_placeholder(text), *is_error);
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
            for Block { content, raw } in &reply.blocks {
                if let (BlockContent::Thinking(_), Some(raw)) = (content, raw) {
                    message.push_str(&reasoning::encode_members(raw));
                }
            }
            message.push_str(&format!(r#","tool_calls":[{}]"#, calls.join(",")));
        }
        self.add(message + "}", false);
        Ok(())
    }
}

impl RequestEncoder for OpenaiChatEncoder {
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

    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes> {
        let usage = if self.asks_usage { r#","stream_options":{"include_usage":true}"# } else { "" };
        let choice = if !self.tools.is_empty() && !request.tools_allowed { r#","tool_choice":"none""# } else { "" };
        let head = format!(
            r#"{{"model":{},"{}":{},"stream":true{usage}{}{choice}"#,
            json!(self.model),
            self.max_tokens_field,
            request.max_tokens,
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

    fn refused_option(&self, message: &str) -> Option<&'static str> {
        if self.asks_usage && message.contains(STREAM_OPTIONS) {
            Some(STREAM_OPTIONS)
        } else if self.max_tokens_field != MAX_COMPLETION_TOKENS && message.contains(MAX_COMPLETION_TOKENS) {
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

    fn drop_thinking(&mut self) -> bool {
        let mut has_changed = false;
        for message in &mut self.messages {
            if let Some(json) = reasoning::without_reasoning(&message.json) {
                self.size -= message.json.len().saturating_sub(json.len());
                message.json = Bytes::from(json);
                has_changed = true;
            }
        }
        has_changed
    }
}
