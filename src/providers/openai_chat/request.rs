//! Encodes a conversation for the API, each message once.
//!
//! The prompt cache needs no markers: it recognizes an identical prefix.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::reply::OpenaiChatDecoder;
use super::{reasoning, tool_calls};
use crate::attachment::{Attachment, MediaType};
use crate::message::{Block, BlockContent, Message, Reply, ToolResult, UserMessage};
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::attachments::{AttachmentEncoder, data_url, file_name};
use crate::providers::json::{EMPTY_TEXT, EncodedBody, is_blank, or_placeholder, text_to_send};
use crate::providers::openai_platform::{FLEX_TIER, cache_key, mark_failure, temperature};
use crate::providers::transport::http_conversation::RequestEncoder;

/// The option that requests usage.
const STREAM_OPTIONS: &str = "stream_options";
/// The older name of the limit on output tokens.
const MAX_TOKENS: &str = "max_tokens";
/// How a user's text starts.
const USER_START: &str = r#"{"role":"user","content":""#;
/// How a user's message with images starts.
const USER_PARTS_START: &str = r#"{"role":"user","content":["#;
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

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct OpenaiChatEncoder {
    model: String,
    /// The tools' names.
    tools: Arc<[String]>,
    /// The options, with a comma before each member.
    options: String,
    /// `tools`, the system prompt and the messages.
    body: EncodedBody,
    attachments: AttachmentEncoder,
    /// Whether usage is requested. Most servers include it in a stream only then, but Mistral's refuses the option
    /// (<https://github.com/openai/openai-agents-python/issues/442>).
    asks_usage: bool,
    /// The name of the limit on output tokens: `max_tokens` on most servers, except for OpenAI's newer models behind a
    /// gateway.
    max_tokens_field: &'static str,
}

impl OpenaiChatEncoder {
    /// A conversation without messages.
    pub(super) fn new(config: &ConversationConfig, dialect: RequestDialect) -> Self {
        let mut prefix = String::new();
        let tools = config.tools.iter().map(|tool| {
            let function =
                json!({ "name": tool.name, "description": tool.description, "parameters": tool.input_schema });
            json!({ "type": "function", "function": function })
        });
        if !config.tools.is_empty() {
            prefix = format!(r#","tools":{}"#, json!(tools.collect::<Vec<_>>()));
        }
        prefix.push_str(r#","messages":["#);
        if !is_blank(&config.system) {
            prefix.push_str(&json!({ "role": "system", "content": config.system }).to_string());
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
        if config.model.is_flex() {
            options.push_str(FLEX_TIER);
        }
        if dialect.takes_cache_key {
            options.push_str(&cache_key(config));
        }
        Self {
            model: config.model.name.clone(),
            tools: config.tools.iter().map(|tool| tool.name.clone()).collect(),
            options,
            body: EncodedBody::new(prefix),
            attachments: AttachmentEncoder::new(&config.model),
            asks_usage: true,
            max_tokens_field: if dialect.has_openai_rules { MAX_COMPLETION_TOKENS } else { MAX_TOKENS },
        }
    }

    fn push_user(&mut self, message: &UserMessage) {
        // A message with the role `tool` is only text, so images follow all results in a message of the user.
        let mut parts = Vec::new();
        for ToolResult { call_id, text, is_error, attachments } in &message.results {
            let mut content = mark_failure(or_placeholder(text), *is_error).into_owned();
            let files = self.attachments.encode(attachments, &mut content, attachment_part);
            if !files.is_empty() {
                parts.push(text_part(&format!("From the result of the call {call_id}:")));
                parts.extend(files);
            }
            self.body.push(json!({ "role": "tool", "tool_call_id": call_id, "content": content }).to_string());
        }
        let mut text = text_to_send(message).unwrap_or_default().to_owned();
        parts.extend(self.attachments.encode(&message.attachments, &mut text, attachment_part));
        if !parts.is_empty() {
            parts.extend((!text.is_empty()).then(|| text_part(&text)));
            self.body.push(json!({ "role": "user", "content": parts }).to_string());
            return;
        }
        if text.is_empty() {
            return;
        }
        if self.body.extend_last(USER_PARTS_START, &format!(",{}", text_part(&text)), "]}".len()) {
            return;
        }
        // Chat templates of many models don't accept consecutive messages of one role. Without its quotes.
        let more = json!(format!("\n\n{text}")).to_string();
        if !self.body.extend_last(USER_START, &more[1..more.len() - 1], "\"}".len()) {
            self.body.push(json!({ "role": "user", "content": text }).to_string());
        }
    }

    fn push_reply(&mut self, reply: &Reply) {
        let calls: Vec<String> = reply.blocks.iter().filter_map(tool_calls::encode_call).collect();
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
        self.body.push(message + "}");
    }
}

impl RequestEncoder for OpenaiChatEncoder {
    type Decoder = OpenaiChatDecoder;

    fn push(&mut self, message: &Message) {
        match message {
            Message::User(message) => self.push_user(message),
            Message::Assistant(reply) => self.push_reply(reply),
        }
    }

    fn clear(&mut self) {
        self.body.clear();
        self.attachments.clear();
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
        self.body.chunks(head)
    }

    fn prompt_bytes(&self) -> usize {
        self.attachments.prompt_bytes(self.body.size())
    }

    fn new_decoder(&self) -> OpenaiChatDecoder {
        OpenaiChatDecoder::new(self.tools.clone())
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
        self.body.shorten(reasoning::without_reasoning)
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// An image or a PDF (<https://developers.openai.com/api/docs/guides/images-vision>, `/guides/pdf-files`).
fn attachment_part(attachment: &Attachment, base64: &str) -> Value {
    let url = data_url(attachment, base64);
    match attachment.media_type {
        MediaType::Pdf => json!({ "type": "file", "file": { "filename": file_name(attachment), "file_data": url } }),
        _ => json!({ "type": "image_url", "image_url": { "url": url } }),
    }
}
