//! A conversation in the API's own form, each item written once.
//!
//! The prompt cache needs no marks: what it finds again is a beginning that stays the same, byte for byte.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::reply::OpenaiAssembler;
use super::{assign_call_ids, cache_key, mark_failure, model_limits, output_item, reasoning_effort};
use crate::message::{Message, Reply, ToolResult, UserMessage};
use crate::providers::transport::http_conversation;
use crate::providers::transport::json_body::{is_blank, join_body};
use crate::providers::{ConversationConfig, ReplyRequest};

/// What stands for a text that is empty.
pub(super) const EMPTY_TEXT: &str = "(nothing)";
/// The least that the API takes as `max_output_tokens`: its error to a smaller number names it
/// (<https://github.com/vectorize-io/hindsight/issues/58>).
const MIN_OUTPUT_TOKENS: u32 = 16;

/// Asks for reasoning that can go back. Azure takes it only for some deployments.
const INCLUDE_REASONING: &str = r#","include":["reasoning.encrypted_content"]"#;

/// What depends on where the conversation goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestDialect {
    /// The effort to ask for.
    pub(super) effort: Option<&'static str>,
    /// Whether OpenAI itself answers; see [`super::endpoint::has_openai_rules`].
    pub(super) has_openai_rules: bool,
}

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct OpenaiEncoder {
    dialect: RequestDialect,
    has_tools: bool,
    /// The beginning of every request: `model`.
    model: String,
    /// What stays the same and is no prompt, with a comma before each member.
    options: String,
    /// `instructions` and `tools`, with a comma before each, and the start of the items.
    prefix: Bytes,
    items: Vec<Bytes>,
    size: usize,
    /// How many tokens the last request allowed.
    max_output_tokens: AtomicU32,
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a serde_json::Value,
    /// With `true` the API takes only schemas whose every property is required.
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
    /// A tool can't be written as JSON.
    pub(super) fn new(setup: &ConversationConfig, way: RequestDialect) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        if !is_blank(&setup.system) {
            fixed.push_str(&format!(r#","instructions":{}"#, json!(setup.system)));
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
        let tools: Vec<String> = setup.tools.iter().map(tool).collect::<Result<_, _>>()?;
        if !tools.is_empty() {
            fixed.push_str(&format!(r#","tools":[{}]"#, tools.join(",")));
        }
        let mut options = String::from(r#","stream":true,"store":false"#);
        if reasoning_effort::returns_reasoning(&setup.model.name) {
            options.push_str(INCLUDE_REASONING);
        }
        if let Some(effort) = way.effort {
            options.push_str(&format!(r#","reasoning":{{"effort":"{effort}"}}"#));
        }
        if let Some(temperature) = model_limits::temperature(&setup.model, way.effort) {
            options.push_str(&format!(r#","temperature":{}"#, json!(temperature)));
        }
        // Models that think only a little take no parallel calls.
        if !tools.is_empty() && way.effort != Some("minimal") {
            options.push_str(r#","parallel_tool_calls":true"#);
        }
        if way.has_openai_rules {
            options.push_str(&cache_key(setup));
        }
        Ok(Self {
            dialect: way,
            has_tools: !tools.is_empty(),
            model: json!(setup.model.name).to_string(),
            options,
            size: fixed.len(),
            prefix: Bytes::from(fixed + r#","input":["#),
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
            let output = mark_failure(if is_blank(text) { EMPTY_TEXT } else { text }, *is_error);
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

impl http_conversation::RequestEncoder for OpenaiEncoder {
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

    fn body_chunks(&self, ask: &ReplyRequest) -> Vec<Bytes> {
        let most = ask.max_tokens.max(MIN_OUTPUT_TOKENS);
        self.max_output_tokens.store(most, Ordering::Relaxed);
        let choice = if self.has_tools && !ask.tools_allowed { r#","tool_choice":"none""# } else { "" };
        let head = format!(r#"{{"model":{},"max_output_tokens":{most}{}{choice}"#, self.model, self.options);
        join_body([Bytes::from(head), self.prefix.clone()], self.items.iter())
    }

    fn prompt_bytes(&self) -> usize {
        self.size
    }

    fn new_assembler(&self) -> OpenaiAssembler {
        let growth = OpenaiAssembler::new(self.size);
        if self.dialect.has_openai_rules {
            growth
        } else {
            growth.with_token_limit(self.max_output_tokens.load(Ordering::Relaxed))
        }
    }

    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        assign_call_ids(reply, taken);
        Ok(())
    }

    fn refused_option(&self, refusal: &str) -> Option<&'static str> {
        const WORDS: [&str; 5] = [
            "encrypted content is not supported",
            "reasoning.encrypted_content",
            "'include'",
            "`include`",
            "\"include\"",
        ];
        let refusal = refusal.to_ascii_lowercase();
        let is_refused = self.options.contains(INCLUDE_REASONING) && WORDS.iter().any(|words| refusal.contains(words));
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
