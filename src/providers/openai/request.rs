//! Encodes a conversation for the API, each item once.
//!
//! The prompt cache needs no markers: it recognizes an identical prefix.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};

use super::output_item;
use super::reply::OpenaiDecoder;
use crate::attachment::{Attachment, MediaType};
use crate::message::{Message, ToolResult, UserMessage};
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::attachments::{AttachmentEncoder, data_url, file_name};
use crate::providers::json::{EncodedBody, is_blank, or_placeholder, text_to_send};
use crate::providers::openai_platform::{FLEX_TIER, cache_key, mark_failure, returns_reasoning, temperature};
use crate::providers::transport::http_conversation::RequestEncoder;

/// The minimum of `max_output_tokens`, according to the API's error message
/// (<https://github.com/vectorize-io/hindsight/issues/58>).
const MIN_OUTPUT_TOKENS: u32 = 16;

/// Requests reasoning that can be sent back. Azure accepts it only for some deployments.
const INCLUDE_REASONING: &str = r#","include":["reasoning.encrypted_content"]"#;

/// The parts of a request that depend on the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestDialect {
    /// The reasoning effort to request.
    pub(super) effort: Option<&'static str>,
    /// See [`crate::providers::openai_platform::has_openai_rules`].
    pub(super) has_openai_rules: bool,
}

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct OpenaiEncoder {
    dialect: RequestDialect,
    has_tools: bool,
    /// The model's name as JSON.
    model: String,
    /// The options, with a comma before each member.
    options: String,
    /// `instructions`, `tools` and the items.
    body: EncodedBody,
    attachments: AttachmentEncoder,
    /// The token limit of the last request.
    max_output_tokens: AtomicU32,
}

impl OpenaiEncoder {
    /// A conversation without messages.
    pub(super) fn new(config: &ConversationConfig, dialect: RequestDialect) -> Self {
        let mut prefix = String::new();
        if !is_blank(&config.system) {
            prefix.push_str(&format!(r#","instructions":{}"#, json!(config.system)));
        }
        // With `strict`, the API accepts only schemas whose properties are all required.
        let tools = config.tools.iter().map(|tool| {
            json!({ "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.input_schema, "strict": false })
        });
        let tools: Vec<_> = tools.collect();
        if !tools.is_empty() {
            prefix.push_str(&format!(r#","tools":{}"#, json!(tools)));
        }
        let mut options = String::from(r#","stream":true,"store":false"#);
        if returns_reasoning(&config.model.name) {
            options.push_str(INCLUDE_REASONING);
        }
        if let Some(effort) = dialect.effort {
            options.push_str(&format!(r#","reasoning":{{"effort":"{effort}"}}"#));
        }
        if let Some(temperature) = temperature(&config.model, dialect.effort) {
            options.push_str(&format!(r#","temperature":{}"#, json!(temperature)));
        }
        // With minimal effort, parallel calls aren't supported.
        if !tools.is_empty() && dialect.effort != Some("minimal") {
            options.push_str(r#","parallel_tool_calls":true"#);
        }
        if config.model.is_flex() {
            options.push_str(FLEX_TIER);
        }
        if dialect.has_openai_rules {
            options.push_str(&cache_key(config));
        }
        Self {
            dialect,
            has_tools: !tools.is_empty(),
            model: json!(config.model.name).to_string(),
            options,
            body: EncodedBody::new(prefix + r#","input":["#),
            attachments: AttachmentEncoder::new(&config.model),
            max_output_tokens: AtomicU32::new(0),
        }
    }
}

impl RequestEncoder for OpenaiEncoder {
    type Decoder = OpenaiDecoder;

    fn push(&mut self, message: &Message) {
        let items = match message {
            Message::User(message) => encode_user(message, &mut self.attachments),
            Message::Assistant(reply) => output_item::encode_items(reply, self.dialect.has_openai_rules),
        };
        items.into_iter().for_each(|json| self.body.push(json));
    }

    fn clear(&mut self) {
        self.body.clear();
        self.attachments.clear();
    }

    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes> {
        let max_tokens = request.max_tokens.max(MIN_OUTPUT_TOKENS);
        self.max_output_tokens.store(max_tokens, Ordering::Relaxed);
        let choice = if self.has_tools && !request.tools_allowed { r#","tool_choice":"none""# } else { "" };
        let head = format!(r#"{{"model":{},"max_output_tokens":{max_tokens}{}{choice}"#, self.model, self.options);
        self.body.chunks(head)
    }

    fn prompt_bytes(&self) -> usize {
        self.attachments.prompt_bytes(self.body.size())
    }

    fn new_decoder(&self) -> OpenaiDecoder {
        let limit = self.max_output_tokens.load(Ordering::Relaxed);
        OpenaiDecoder::new((!self.dialect.has_openai_rules).then_some(limit))
    }

    fn refused_option(&self, message: &str) -> Option<&'static str> {
        const PHRASES: [&str; 5] = [
            "encrypted content is not supported",
            "reasoning.encrypted_content",
            "'include'",
            "`include`",
            "\"include\"",
        ];
        let message = message.to_ascii_lowercase();
        let is_refused =
            self.options.contains(INCLUDE_REASONING) && PHRASES.iter().any(|phrase| message.contains(phrase));
        is_refused.then_some(INCLUDE_REASONING)
    }

    fn drop_option(&mut self, option: &'static str) -> bool {
        let is_sent = option == INCLUDE_REASONING && self.options.contains(INCLUDE_REASONING);
        if is_sent {
            self.options = self.options.replace(INCLUDE_REASONING, "");
        }
        is_sent
    }
}

/// An image or a PDF (<https://developers.openai.com/api/docs/guides/images-vision>, `/guides/pdf-files`). The output of a
/// call can be a list of the same parts (<https://developers.openai.com/api/reference/responses/overview>).
fn attachment_part(attachment: &Attachment, base64: &str) -> Value {
    let url = data_url(attachment, base64);
    match attachment.media_type {
        MediaType::Pdf => json!({ "type": "input_file", "filename": file_name(attachment), "file_data": url }),
        _ => json!({ "type": "input_image", "detail": "auto", "image_url": url }),
    }
}

fn encode_user(message: &UserMessage, attachments: &mut AttachmentEncoder) -> Vec<String> {
    let text_part = |text: &str| json!({ "type": "input_text", "text": text });
    let mut items = Vec::with_capacity(message.results.len() + 1);
    for ToolResult { call_id, text, is_error, attachments: files } in &message.results {
        let mut text = mark_failure(or_placeholder(text), *is_error).into_owned();
        let parts = attachments.encode(files, &mut text, attachment_part);
        let output = match parts.is_empty() {
            true => json!(text),
            false => [text_part(&text)].into_iter().chain(parts).collect(),
        };
        items.push(json!({ "type": "function_call_output", "call_id": call_id, "output": output }).to_string());
    }
    let mut text = text_to_send(message).unwrap_or_default().to_owned();
    let mut content = attachments.encode(&message.attachments, &mut text, attachment_part);
    content.extend((!text.is_empty()).then(|| text_part(&text)));
    if !content.is_empty() {
        items.push(json!({ "type": "message", "role": "user", "content": content }).to_string());
    }
    items
}
