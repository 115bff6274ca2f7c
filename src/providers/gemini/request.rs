//! A conversation in the API's own form, each message written once.
//!
//! The prompt cache needs no marks: what it finds again is a beginning that stays the same. The answers to calls stand in a
//! message of their own, for with a text beside them the API takes the whole for the model's.

use std::collections::HashSet;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::capabilities::Capabilities;
use super::encode_reply::{self, EMPTY_TEXT, EncodedCall};
use super::reply::GeminiAssembler;
use crate::job::Thinking;
use crate::message::{Message, Reply, ToolResult, UserMessage};
use crate::providers::openai::assign_call_ids;
use crate::providers::transport::http_conversation;
use crate::providers::transport::json_body::{is_blank, join_body};
use crate::providers::{ConversationConfig, ReplyRequest};

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct GeminiEncoder {
    capabilities: Capabilities,
    thinking: Option<Thinking>,
    /// What of `generationConfig` stays the same.
    options: Map<String, Value>,
    has_tools: bool,
    /// `systemInstruction` and `tools`, with a comma before each, and the start of the messages.
    prefix: Bytes,
    contents: Vec<Bytes>,
    size: usize,
    /// The calls that wait for their answers.
    pending_calls: Vec<EncodedCall>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    /// JSON Schema as it is; `parameters` would take only a part of it.
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
    /// A tool can't be written as JSON.
    pub(super) fn new(setup: &ConversationConfig) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        if !is_blank(&setup.system) {
            fixed.push_str(&format!(r#","systemInstruction":{}"#, json!({ "parts": [{ "text": setup.system }] })));
        }
        let declaration = |tool: &crate::tools::ToolSpec| {
            serde_json::to_string(&Declaration {
                name: &tool.name,
                description: &tool.description,
                parameters_json_schema: &tool.input_schema,
            })
        };
        let tools: Vec<String> = setup.tools.iter().map(declaration).collect::<Result<_, _>>()?;
        if !tools.is_empty() {
            fixed.push_str(&format!(r#","tools":[{{"functionDeclarations":[{}]}}]"#, tools.join(",")));
        }
        let mut options = Map::new();
        if let Some(temperature) = setup.model.temperature {
            options.insert("temperature".to_owned(), json!(temperature));
        }
        if !setup.model.stop.is_empty() {
            options.insert("stopSequences".to_owned(), json!(setup.model.stop));
        }
        Ok(Self {
            capabilities: Capabilities::of_model(&setup.model.name),
            thinking: setup.model.thinking,
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
            let text = if is_blank(text) { EMPTY_TEXT } else { text };
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

impl http_conversation::RequestEncoder for GeminiEncoder {
    type Assembler = GeminiAssembler;

    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        match message {
            Message::User(message) => self.add_user(message),
            Message::Assistant(reply) => {
                let written = encode_reply::encode_reply(reply, self.capabilities.signs_calls)?;
                self.add("model", &written.parts);
                self.pending_calls.extend(written.calls);
                Ok(())
            }
        }
    }

    fn clear(&mut self) {
        self.size -= self.contents.drain(..).map(|json| json.len() + 1).sum::<usize>();
        self.pending_calls.clear();
    }

    fn body_chunks(&self, ask: &ReplyRequest) -> Vec<Bytes> {
        let mut config = Map::from_iter([("maxOutputTokens".to_owned(), json!(ask.max_tokens))]);
        config.extend(self.options.clone());
        if let Some(thinking) = self.capabilities.thinking_config(self.thinking, ask.max_tokens) {
            config.insert("thinkingConfig".to_owned(), thinking);
        }
        let none = r#","toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#;
        let choice = if self.has_tools && !ask.tools_allowed { none } else { "" };
        let head = format!(r#"{{"generationConfig":{}{choice}"#, Value::Object(config));
        join_body([Bytes::from(head), self.prefix.clone()], self.contents.iter())
    }

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    /// An empty `STOP` is a known fault of it: <https://github.com/google-gemini/gemini-cli/issues/28351>.
    fn may_reply_empty(&self) -> bool {
        true
    }

    fn new_assembler(&self) -> GeminiAssembler {
        GeminiAssembler::new(self.size)
    }

    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        assign_call_ids(reply, taken);
        Ok(())
    }
}
