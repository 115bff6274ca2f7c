//! A conversation in the API's own form, each message written once.
//!
//! The prompt cache needs no marks: what it finds again is a beginning that stays the same. The answers to calls stand in a
//! message of their own, for with a text beside them the API takes the whole for the model's.

use std::collections::HashSet;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::ability::Ability;
use super::history::{self, Called, NOTHING};
use super::reply::Growth;
use crate::job::Thinking;
use crate::message::{Message, Reply, ToolResult, UserMessage};
use crate::providers::openai::name_calls;
use crate::providers::written::{is_blank, whole};
use crate::providers::{Ask, Setup, dialogue};

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct Body {
    ability: Ability,
    thinking: Option<Thinking>,
    /// What of `generationConfig` stays the same.
    options: Map<String, Value>,
    has_tools: bool,
    /// `systemInstruction` and `tools`, with a comma before each, and the start of the messages.
    fixed: Bytes,
    contents: Vec<Bytes>,
    size: usize,
    /// The calls that wait for their answers.
    calls: Vec<Called>,
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
struct Answered<'a> {
    function_response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

impl Body {
    /// A conversation without messages.
    ///
    /// # Errors
    /// A tool can't be written as JSON.
    pub(super) fn new(setup: &Setup) -> Result<Self, serde_json::Error> {
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
            ability: Ability::of(&setup.model.name),
            thinking: setup.model.thinking,
            options,
            has_tools: !tools.is_empty(),
            size: fixed.len(),
            fixed: Bytes::from(fixed + r#","contents":["#),
            contents: Vec::new(),
            calls: Vec::new(),
        })
    }

    fn add(&mut self, role: &str, parts: &[String]) {
        let json = format!(r#"{{"role":"{role}","parts":[{}]}}"#, parts.join(","));
        self.size += json.len() + 1;
        self.contents.push(Bytes::from(json));
    }

    fn add_user(&mut self, message: &UserMessage) -> Result<(), serde_json::Error> {
        let calls = std::mem::take(&mut self.calls);
        let answer = |ToolResult { call_id, text, is_error }: &ToolResult| {
            let call = calls.iter().find(|call| call.call_id == *call_id);
            let text = if is_blank(text) { NOTHING } else { text };
            let response = Response {
                id: call.and_then(|call| call.id.as_deref()),
                name: call.map_or("unknown", |call| &call.name),
                response: if *is_error { Outcome::Error(text) } else { Outcome::Output(text) },
            };
            serde_json::to_string(&Answered { function_response: response })
        };
        let answers: Vec<String> = message.results.iter().map(answer).collect::<Result<_, _>>()?;
        if !answers.is_empty() {
            self.add("user", &answers);
        }
        let text = message.text.as_deref().filter(|text| !is_blank(text));
        if let Some(text) = text.or(answers.is_empty().then_some(NOTHING)) {
            self.add("user", &[json!({ "text": text }).to_string()]);
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
                let written = history::write(reply, self.ability.signs)?;
                self.add("model", &written.parts);
                self.calls.extend(written.calls);
                Ok(())
            }
        }
    }

    fn clear(&mut self) {
        self.size -= self.contents.drain(..).map(|json| json.len() + 1).sum::<usize>();
        self.calls.clear();
    }

    fn pieces(&self, ask: &Ask) -> Vec<Bytes> {
        let mut config = Map::from_iter([("maxOutputTokens".to_owned(), json!(ask.max_tokens))]);
        config.extend(self.options.clone());
        if let Some(thinking) = self.ability.config(self.thinking, ask.max_tokens) {
            config.insert("thinkingConfig".to_owned(), thinking);
        }
        let none = r#","toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#;
        let choice = if self.has_tools && !ask.tools_allowed { none } else { "" };
        let head = format!(r#"{{"generationConfig":{}{choice}"#, Value::Object(config));
        whole([Bytes::from(head), self.fixed.clone()], self.contents.iter())
    }

    fn size(&self) -> usize {
        self.size
    }

    /// An empty `STOP` is a known fault of it: <https://github.com/google-gemini/gemini-cli/issues/28351>.
    fn falls_silent(&self) -> bool {
        true
    }

    fn growth(&self) -> Growth {
        Growth::new(self.size)
    }

    fn name_calls(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error> {
        name_calls(reply, taken);
        Ok(())
    }
}
