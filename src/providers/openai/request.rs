//! Encodes a conversation for the API, each item once.
//!
//! The prompt cache needs no markers: it recognizes an identical prefix.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::output_item;
use super::reply::OpenaiAssembler;
use crate::message::{Message, ToolResult, UserMessage};
use crate::providers::api::{ConversationConfig, ReplyRequest};
use crate::providers::json::{EMPTY_TEXT, is_blank, join_body, or_placeholder};
use crate::providers::openai_platform::{cache_key, mark_failure, returns_reasoning, temperature};
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
    /// `instructions` and `tools`, with a comma before each, and the start of the items.
    prefix: Bytes,
    items: Vec<Bytes>,
    size: usize,
    /// The token limit of the last request.
    max_output_tokens: AtomicU32,
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a serde_json::Value,
    /// With `true`, the API accepts only schemas whose properties are all required.
    strict: bool,
}

#[derive(Serialize)]
struct InputMessage<'a> {
    r#type: &'static str,
    role: &'static str,
    content: [InputText<'a>; 1],
}

#[derive(Serialize)]
struct InputText<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct FunctionCallOutput<'a> {
    r#type: &'static str,
    call_id: &'a str,
    output: &'a str,
}

impl OpenaiEncoder {
    /// A conversation without messages.
    ///
    /// # Errors
    /// A tool can't be serialized.
    pub(super) fn new(config: &ConversationConfig, dialect: RequestDialect) -> Result<Self, serde_json::Error> {
        let mut prefix = String::new();
        if !is_blank(&config.system) {
            prefix.push_str(&format!(r#","instructions":{}"#, json!(config.system)));
        }
        let tool = |tool: &crate::tools::ToolSpec| {
            serde_json::to_string(&FunctionTool {
                r#type: "function",
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.input_schema,
                strict: false,
            })
        };
        let tools: Vec<String> = config.tools.iter().map(tool).collect::<Result<_, _>>()?;
        if !tools.is_empty() {
            prefix.push_str(&format!(r#","tools":[{}]"#, tools.join(",")));
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
        if dialect.has_openai_rules {
            options.push_str(&cache_key(config));
        }
        Ok(Self {
            dialect,
            has_tools: !tools.is_empty(),
            model: json!(config.model.name).to_string(),
            options,
            size: prefix.len(),
            prefix: Bytes::from(prefix + r#","input":["#),
            items: Vec::new(),
            max_output_tokens: AtomicU32::new(0),
        })
    }

    fn push_item(&mut self, json: String) {
        self.size += json.len() + 1;
        self.items.push(Bytes::from(json));
    }

    fn push_user_message(&mut self, message: &UserMessage) -> Result<(), serde_json::Error> {
        for ToolResult { call_id, text, is_error } in &message.results {
            let output = mark_failure(or_placeholder(text), *is_error);
            self.push_item(serde_json::to_string(&FunctionCallOutput {
                r#type: "function_call_output",
                call_id,
                output: &output,
            })?);
        }
        let text = message.text.as_deref().filter(|text| !is_blank(text));
        if let Some(text) = text.or(message.results.is_empty().then_some(EMPTY_TEXT)) {
            let content = [InputText { r#type: "input_text", text }];
            self.push_item(serde_json::to_string(&InputMessage { r#type: "message", role: "user", content })?);
        }
        Ok(())
    }
}

impl RequestEncoder for OpenaiEncoder {
    type Assembler = OpenaiAssembler;

    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        match message {
            Message::User(message) => self.push_user_message(message),
            Message::Assistant(reply) => {
                for json in output_item::encode_items(reply, self.dialect.has_openai_rules)? {
                    self.push_item(json);
                }
                Ok(())
            }
        }
    }

    fn clear(&mut self) {
        self.size -= self.items.drain(..).map(|json| json.len() + 1).sum::<usize>();
    }

    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes> {
        let max_tokens = request.max_tokens.max(MIN_OUTPUT_TOKENS);
        self.max_output_tokens.store(max_tokens, Ordering::Relaxed);
        let choice = if self.has_tools && !request.tools_allowed { r#","tool_choice":"none""# } else { "" };
        let head = format!(r#"{{"model":{},"max_output_tokens":{max_tokens}{}{choice}"#, self.model, self.options);
        join_body([Bytes::from(head), self.prefix.clone()], self.items.iter())
    }

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    fn new_assembler(&self) -> OpenaiAssembler {
        let assembler = OpenaiAssembler::new(self.size);
        if self.dialect.has_openai_rules {
            assembler
        } else {
            assembler.with_token_limit(self.max_output_tokens.load(Ordering::Relaxed))
        }
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
