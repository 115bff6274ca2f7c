//! Encodes a conversation for the API, each message once.
//!
//! The prompt cache needs no markers: it recognizes an identical prefix. Tool results are a separate message: the API
//! mistakes a message with both results and text for the model's.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::encode_reply::{self, EncodedCall};
use super::reply::GeminiAssembler;
use super::thinking::thinking_config;
use crate::job::Thinking;
use crate::message::{Message, ToolResult, UserMessage};
use crate::models::Capabilities;
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::json::{EMPTY_TEXT, is_blank, join_body, or_placeholder};
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
    /// `systemInstruction` and `tools`, with a comma before each, and the start of the messages.
    prefix: Bytes,
    contents: Vec<Bytes>,
    size: usize,
    /// The calls without results yet.
    pending_calls: Vec<EncodedCall>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    /// Accepts any JSON Schema; `parameters` only a subset.
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionResponsePart<'a> {
    function_response: FunctionResponse<'a>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: FunctionOutcome<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum FunctionOutcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

impl GeminiEncoder {
    /// A conversation without messages.
    ///
    /// # Errors
    /// A tool can't be serialized.
    pub(super) fn new(config: &ConversationConfig) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        if !is_blank(&config.system) {
            fixed.push_str(&format!(r#","systemInstruction":{}"#, json!({ "parts": [{ "text": config.system }] })));
        }
        let declaration = |tool: &crate::tools::ToolSpec| {
            serde_json::to_string(&Declaration {
                name: &tool.name,
                description: &tool.description,
                parameters_json_schema: &tool.input_schema,
            })
        };
        let tools: Vec<String> = config.tools.iter().map(declaration).collect::<Result<_, _>>()?;
        if !tools.is_empty() {
            fixed.push_str(&format!(r#","tools":[{{"functionDeclarations":[{}]}}]"#, tools.join(",")));
        }
        let mut options = Map::new();
        if let Some(temperature) = config.model.temperature {
            options.insert("temperature".to_owned(), json!(temperature));
        }
        if !config.model.stop.is_empty() {
            options.insert("stopSequences".to_owned(), json!(config.model.stop));
        }
        Ok(Self {
            capabilities: Capabilities::of(VENDOR, &config.model.name),
            thinking: config.model.thinking,
            options,
            has_tools: !tools.is_empty(),
            size: fixed.len(),
            prefix: Bytes::from(fixed + r#","contents":["#),
            contents: Vec::new(),
            pending_calls: Vec::new(),
        })
    }

    fn add(&mut self, role: &str, parts: &[String]) {
        let json = format!(r#"{{"role":"{role}","parts":[{}]}}"#, parts.join(","));
        self.size += json.len() + 1;
        self.contents.push(Bytes::from(json));
    }

    fn add_user(&mut self, message: &UserMessage) -> Result<(), serde_json::Error> {
        let calls = std::mem::take(&mut self.pending_calls);
        let answer = |ToolResult { call_id, text, is_error }: &ToolResult| {
            let call = calls.iter().find(|call| call.call_id == *call_id);
            let text = or_placeholder(text);
            let response = FunctionResponse {
                id: call.and_then(|call| call.id.as_deref()),
                name: call.map_or("unknown", |call| &call.name),
                response: if *is_error { FunctionOutcome::Error(text) } else { FunctionOutcome::Output(text) },
            };
            serde_json::to_string(&FunctionResponsePart { function_response: response })
        };
        let answers: Vec<String> = message.results.iter().map(answer).collect::<Result<_, _>>()?;
        if !answers.is_empty() {
            self.add("user", &answers);
        }
        let text = message.text.as_deref().filter(|text| !is_blank(text));
        if let Some(text) = text.or(answers.is_empty().then_some(EMPTY_TEXT)) {
            self.add("user", &[json!({ "text": text }).to_string()]);
        }
        Ok(())
    }
}

impl RequestEncoder for GeminiEncoder {
    type Assembler = GeminiAssembler;

    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        match message {
            Message::User(message) => self.add_user(message),
            Message::Assistant(reply) => {
                let encoded = encode_reply::encode_reply(reply, self.capabilities.signs_calls)?;
                self.add("model", &encoded.parts);
                self.pending_calls.extend(encoded.calls);
                Ok(())
            }
        }
    }

    fn clear(&mut self) {
        self.size -= self.contents.drain(..).map(|json| json.len() + 1).sum::<usize>();
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
        let head = format!(r#"{{"generationConfig":{}{choice}"#, Value::Object(generation));
        join_body([Bytes::from(head), self.prefix.clone()], self.contents.iter())
    }

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    /// Empty replies are a known bug: <https://github.com/google-gemini/gemini-cli/issues/28351>.
    fn may_reply_empty(&self) -> bool {
        true
    }

    fn new_assembler(&self) -> GeminiAssembler {
        GeminiAssembler::new(self.size)
    }
}
