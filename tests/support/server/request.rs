//! A request, for the code that answers it and for tests that inspect it.

use std::sync::OnceLock;

use serde_json::Value;

use super::api::Api;
use super::gemini;
use super::http::Head;

/// One request to the server.
pub(crate) struct Request {
    /// Its number over all connections, from 0.
    pub(crate) number: usize,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    head: Head,
    bytes: Vec<u8>,
    raw_json: OnceLock<Value>,
    parsed: OnceLock<Value>,
}

/// An answer to a tool call in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolResultBlock {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Request {
    pub(super) fn new(number: usize, connection: usize, head: Head, bytes: Vec<u8>) -> Self {
        Self { number, connection, head, bytes, raw_json: OnceLock::new(), parsed: OnceLock::new() }
    }

    pub(super) fn into_body(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn method(&self) -> &str {
        &self.head.method
    }

    pub(crate) fn path(&self) -> &str {
        &self.head.path
    }

    /// The first header of a name, which is given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as it arrived.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The API of the request.
    pub(crate) fn api(&self) -> Api {
        Api::at(self.path())
    }

    /// The body as JSON, parsed at the first use; null if it isn't JSON.
    pub(crate) fn raw_body(&self) -> &Value {
        self.raw_json.get_or_init(|| serde_json::from_slice(&self.bytes).unwrap_or(Value::Null))
    }

    /// The body in the Messages API's form, whichever API it is for.
    pub(crate) fn body(&self) -> &Value {
        self.parsed.get_or_init(|| self.api().translate(self.path(), self.raw_body()))
    }

    pub(crate) fn model(&self) -> &str {
        self.body()["model"].as_str().unwrap_or_default()
    }

    pub(crate) fn max_tokens(&self) -> u64 {
        self.body()["max_tokens"].as_u64().unwrap_or_default()
    }

    pub(crate) fn streams(&self) -> bool {
        self.body()["stream"].as_bool().unwrap_or_default()
    }

    /// Whether a stream was requested; assumed if the body hasn't been parsed.
    pub(super) fn wants_stream(&self) -> bool {
        self.parsed.get().is_none_or(|body| body["stream"] == true)
    }

    /// The model; from the first bytes of the body if it hasn't been parsed.
    pub(super) fn model_unparsed(&self) -> &str {
        const FIELD: &[u8] = b"\"model\":\"";
        if let Some(model) = gemini::model(self.path()) {
            return model;
        }
        if self.parsed.get().is_some() {
            return self.model();
        }
        let head = &self.bytes[..self.bytes.len().min(256)];
        let name = head.windows(FIELD.len()).position(|window| window == FIELD).map(|at| &head[at + FIELD.len()..]);
        let name = name.and_then(|rest| rest.split(|byte| *byte == b'"').next());
        name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("unknown")
    }

    /// The system prompt, its blocks joined.
    pub(crate) fn system(&self) -> String {
        texts(&self.body()["system"])
    }

    /// The names of the tools, in order.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let tools = self.body()["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// Whether the model can call tools: some are listed and `tool_choice` isn't `none`.
    pub(crate) fn can_call_tools(&self) -> bool {
        !self.tools().is_empty() && self.body()["tool_choice"]["type"] != "none"
    }

    pub(crate) fn messages(&self) -> &[Value] {
        self.body()["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The number of replies in the conversation.
    pub(crate) fn turn(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// The text of the first message: an agent's prompt.
    pub(crate) fn prompt(&self) -> String {
        self.messages().first().map(|message| texts(&message["content"])).unwrap_or_default()
    }

    /// The text of the last message, without results.
    pub(crate) fn last_text(&self) -> String {
        self.messages().last().map(|message| texts(&message["content"])).unwrap_or_default()
    }

    /// The answers to calls in the last message.
    pub(crate) fn results(&self) -> Vec<ToolResultBlock> {
        let blocks = self.messages().last().and_then(|message| message["content"].as_array());
        let blocks = blocks.map(Vec::as_slice).unwrap_or_default();
        let results = blocks.iter().filter(|block| block["type"] == "tool_result");
        results
            .map(|block| ToolResultBlock {
                id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
                text: texts(&block["content"]),
                is_error: block["is_error"].as_bool().unwrap_or_default(),
            })
            .collect()
    }

    /// The id of the last answered call, found from the body's end without parsing it. It needs a body
    /// without spaces between its tokens.
    pub(crate) fn last_answered(&self) -> Option<&str> {
        const FIELD: &[u8] = b"\"tool_use_id\":\"";
        let at = self.bytes.windows(FIELD.len()).rposition(|window| window == FIELD)?;
        let id = self.bytes.get(at + FIELD.len()..)?;
        let id = id.get(..id.iter().position(|byte| *byte == b'"')?)?;
        std::str::from_utf8(id).ok()
    }
}

/// The text of content: a string itself, or the text blocks of a list, joined.
fn texts(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}
