//! Encodes a conversation for the API, each message once.
//!
//! The prompt cache needs no markers: it recognizes an identical prefix. Tool results are a separate message: the API
//! mistakes a message with both results and text for the model's.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::encode_reply::{EncodedCall, encode_reply};
use super::reply::GeminiDecoder;
use super::thinking::thinking_config;
use crate::attachment::Attachment;
use crate::job::Thinking;
use crate::message::{Message, ToolResult, UserMessage};
use crate::models::Capabilities;
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::attachments::AttachmentEncoder;
use crate::providers::json::{EncodedBody, is_blank, or_placeholder, text_to_send};
use crate::providers::transport::http_conversation::RequestEncoder;

/// The vendor of the models, as in the table of models.
pub(super) const VENDOR: &str = "google";

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct GeminiEncoder {
    capabilities: Capabilities,
    thinking: Option<Thinking>,
    /// The constant part of `generationConfig`.
    options: Map<String, Value>,
    has_tools: bool,
    /// The member that asks for another service tier (<https://ai.google.dev/gemini-api/docs/flex-inference>), with a leading
    /// comma.
    tier: &'static str,
    /// `systemInstruction`, `tools` and the messages.
    body: EncodedBody,
    attachments: AttachmentEncoder,
    /// The calls without results yet.
    pending_calls: Vec<EncodedCall>,
}

impl GeminiEncoder {
    /// A conversation without messages.
    pub(super) fn new(config: &ConversationConfig) -> Self {
        let mut fixed = String::new();
        if !is_blank(&config.system) {
            fixed.push_str(&format!(r#","systemInstruction":{}"#, json!({ "parts": [{ "text": config.system }] })));
        }
        // `parametersJsonSchema` accepts any JSON Schema; `parameters` only a subset.
        let tools = config.tools.iter().map(|tool| {
            json!({ "name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema })
        });
        let tools: Vec<_> = tools.collect();
        if !tools.is_empty() {
            fixed.push_str(&format!(r#","tools":{}"#, json!([{ "functionDeclarations": tools }])));
        }
        let mut options = Map::new();
        if let Some(temperature) = config.model.temperature {
            options.insert("temperature".to_owned(), json!(temperature));
        }
        if !config.model.stop.is_empty() {
            options.insert("stopSequences".to_owned(), json!(config.model.stop));
        }
        Self {
            capabilities: Capabilities::of(VENDOR, &config.model.name),
            thinking: config.model.thinking,
            options,
            has_tools: !tools.is_empty(),
            tier: if config.model.is_flex() { r#","serviceTier":"flex""# } else { "" },
            body: EncodedBody::new(fixed + r#","contents":["#),
            attachments: AttachmentEncoder::new(&config.model),
            pending_calls: Vec::new(),
        }
    }

    fn push_parts(&mut self, role: &str, parts: &[String]) {
        self.body.push(format!(r#"{{"role":"{role}","parts":[{}]}}"#, parts.join(",")));
    }

    fn push_user(&mut self, message: &UserMessage) {
        let calls = std::mem::take(&mut self.pending_calls);
        let mut results = Vec::with_capacity(message.results.len());
        // What older models don't take in a result follows all results.
        let mut after = Vec::new();
        for ToolResult { call_id, text, is_error, attachments } in &message.results {
            let call = calls.iter().find(|call| call.call_id == *call_id);
            let mut response = Map::new();
            if let Some(id) = call.and_then(|call| call.id.as_deref()) {
                response.insert("id".to_owned(), json!(id));
            }
            let outcome = if *is_error { "error" } else { "output" };
            response.insert("name".to_owned(), json!(call.map_or("unknown", |call| &call.name)));
            let mut text = or_placeholder(text).to_owned();
            let parts = self.attachments.encode(attachments, &mut text, inline_data);
            response.insert("response".to_owned(), json!({ outcome: text }));
            if self.capabilities.takes_media_in_results {
                if !parts.is_empty() {
                    response.insert("parts".to_owned(), json!(parts));
                }
            } else if !parts.is_empty() {
                let tool = call.map_or("unknown", |call| &call.name);
                after.push(json!({ "text": format!("From the result of `{tool}`:") }));
                after.extend(parts);
            }
            results.push(json!({ "functionResponse": response }).to_string());
        }
        if !results.is_empty() {
            self.push_parts("user", &results);
        }
        let mut text = text_to_send(message).unwrap_or_default().to_owned();
        after.extend(self.attachments.encode(&message.attachments, &mut text, inline_data));
        after.extend((!text.is_empty()).then(|| json!({ "text": text })));
        if !after.is_empty() {
            self.push_parts("user", &after.iter().map(Value::to_string).collect::<Vec<_>>());
        }
    }
}

impl RequestEncoder for GeminiEncoder {
    type Decoder = GeminiDecoder;

    fn push(&mut self, message: &Message) {
        match message {
            Message::User(message) => self.push_user(message),
            Message::Assistant(reply) => {
                let (parts, calls) = encode_reply(reply, self.capabilities.signs_calls);
                self.push_parts("model", &parts);
                self.pending_calls.extend(calls);
            }
        }
    }

    fn clear(&mut self) {
        self.body.clear();
        self.attachments.clear();
        self.pending_calls.clear();
    }

    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes> {
        let mut generation = Map::from_iter([("maxOutputTokens".to_owned(), json!(request.max_tokens))]);
        generation.extend(self.options.clone());
        if let Some(thinking) = thinking_config(&self.capabilities.thinking, self.thinking, request.max_tokens) {
            generation.insert("thinkingConfig".to_owned(), thinking);
        }
        let none = r#","toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#;
        let choice = if self.has_tools && !request.tools_allowed { none } else { "" };
        let head = format!(r#"{{"generationConfig":{}{choice}{}"#, Value::Object(generation), self.tier);
        self.body.chunks(head)
    }

    fn prompt_bytes(&self) -> usize {
        self.attachments.prompt_bytes(self.body.size())
    }

    /// Empty replies are a known bug: <https://github.com/google-gemini/gemini-cli/issues/28351>.
    fn may_reply_empty(&self) -> bool {
        true
    }

    fn new_decoder(&self) -> GeminiDecoder {
        GeminiDecoder::default()
    }
}

/// An image or a PDF (<https://ai.google.dev/api/caching#Part>). From Gemini 3 on, the parts of a result can be the same
/// (<https://ai.google.dev/gemini-api/docs/function-calling>).
fn inline_data(attachment: &Attachment, base64: &str) -> Value {
    json!({ "inlineData": { "mimeType": attachment.media_type.mime(), "data": base64 } })
}
