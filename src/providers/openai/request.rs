//! A conversation in the API's own form, each item written once.
//!
//! The prompt cache needs no marks: what it finds again is a beginning that stays the same, byte for byte.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::reply::Growth;
use super::{cache_key, effort, failed, item, name_calls, taken};
use crate::message::{Message, Reply, ToolResult, UserMessage};
use crate::providers::written::{is_blank, whole};
use crate::providers::{Ask, Setup, dialogue};

/// What stands for a text that is empty.
pub(super) const NOTHING: &str = "(nothing)";
/// The least that the API takes as `max_output_tokens`: its error to a smaller number names it
/// (<https://github.com/vectorize-io/hindsight/issues/58>).
const LEAST_TOKENS: u32 = 16;

/// Asks for reasoning that can go back. Azure takes it only for some deployments.
const INCLUDE: &str = r#","include":["reasoning.encrypted_content"]"#;

/// What depends on where the conversation goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The effort to ask for.
    pub(super) effort: Option<&'static str>,
    /// Whether OpenAI itself answers; see [`super::endpoint::has_openai_rules`].
    pub(super) has_openai_rules: bool,
}

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct Body {
    way: Way,
    has_tools: bool,
    /// The beginning of every request: `model`.
    model: String,
    /// What stays the same and is no prompt, with a comma before each member.
    options: String,
    /// `instructions` and `tools`, with a comma before each, and the start of the items.
    fixed: Bytes,
    items: Vec<Bytes>,
    size: usize,
    /// How many tokens the last request allowed.
    most: AtomicU32,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a serde_json::Value,
    /// With `true` the API takes only schemas whose every property is required.
    strict: bool,
}

#[derive(Serialize)]
struct Text<'a> {
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
struct Answered<'a> {
    r#type: &'static str,
    call_id: &'a str,
    output: &'a str,
}

impl Body {
    /// A conversation without messages.
    ///
    /// # Errors
    /// A tool can't be written as JSON.
    pub(super) fn new(setup: &Setup, way: Way) -> Result<Self, serde_json::Error> {
        let mut fixed = String::new();
        if !is_blank(&setup.system) {
            fixed.push_str(&format!(r#","instructions":{}"#, json!(setup.system)));
        }
        let tool = |tool: &crate::tools::ToolSpec| {
            serde_json::to_string(&Tool {
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
        if effort::thinks(&setup.model.name) {
            options.push_str(INCLUDE);
        }
        if let Some(effort) = way.effort {
            options.push_str(&format!(r#","reasoning":{{"effort":"{effort}"}}"#));
        }
        if let Some(temperature) = taken::temperature(&setup.model, way.effort) {
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
            way,
            has_tools: !tools.is_empty(),
            model: json!(setup.model.name).to_string(),
            options,
            size: fixed.len(),
            fixed: Bytes::from(fixed + r#","input":["#),
            items: Vec::new(),
            most: AtomicU32::new(0),
        })
    }

    fn add(&mut self, json: String) {
        self.size += json.len() + 1;
        self.items.push(Bytes::from(json));
    }

    fn add_user(&mut self, message: &UserMessage) -> Result<(), serde_json::Error> {
        for ToolResult { call_id, text, is_error } in &message.results {
            let output = failed(if is_blank(text) { NOTHING } else { text }, *is_error);
            self.add(serde_json::to_string(&Answered { r#type: "function_call_output", call_id, output: &output })?);
        }
        let text = message.text.as_deref().filter(|text| !is_blank(text));
        if let Some(text) = text.or(message.results.is_empty().then_some(NOTHING)) {
            let content = [InputText { r#type: "input_text", text }];
            self.add(serde_json::to_string(&Text { r#type: "message", role: "user", content })?);
        }
        Ok(())
    }
}

impl dialogue::Body for Body {
    type Growth = Growth;

    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error> {
        match message {
            Message::User(message) => self.add_user(message),
            Message::Assistant(reply) => {
                for json in item::write(reply, self.way.has_openai_rules)? {
                    self.add(json);
                }
                Ok(())
            }
        }
    }

    fn clear(&mut self) {
        self.size -= self.items.drain(..).map(|json| json.len() + 1).sum::<usize>();
    }

    fn pieces(&self, ask: &Ask) -> Vec<Bytes> {
        let most = ask.max_tokens.max(LEAST_TOKENS);
        self.most.store(most, Ordering::Relaxed);
        let choice = if self.has_tools && !ask.tools_allowed { r#","tool_choice":"none""# } else { "" };
        let head = format!(r#"{{"model":{},"max_output_tokens":{most}{}{choice}"#, self.model, self.options);
        whole([Bytes::from(head), self.fixed.clone()], self.items.iter())
    }

    fn size(&self) -> usize {
        self.size
    }

    fn growth(&self) -> Growth {
        let growth = Growth::new(self.size);
        if self.way.has_openai_rules { growth } else { growth.cut_at(self.most.load(Ordering::Relaxed)) }
    }

    fn name_calls(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        name_calls(reply, taken);
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
        let is_refused = self.options.contains(INCLUDE) && WORDS.iter().any(|words| refusal.contains(words));
        is_refused.then_some(INCLUDE)
    }

    fn drop_option(&mut self, option: &'static str) -> bool {
        let is_sent = option == INCLUDE && self.options.contains(INCLUDE);
        if is_sent {
            self.options = self.options.replace(INCLUDE, "");
        }
        is_sent
    }
}
