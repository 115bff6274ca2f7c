//! Attributes, and the JSON of contents, as the conventions' schemas define it.

use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use serde_json::{Value, json};

use crate::conversation::{Call, ReplyBlock, Text, Turn};
use crate::message::StopReason;
use crate::tools::ToolSpec;

/// What a request adds to the conversation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Input<'a> {
    /// The prompt, or a note of legwork's own.
    Text(&'a Text),
    /// The results of the calls of the turn before.
    Results(&'a Turn),
    /// The summary that replaced older turns.
    Summary(&'a Text),
}

fn attribute(key: &str, value: AttributeValue) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub(super) fn text_attribute(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, AttributeValue::StringValue(value.into()))
}

pub(super) fn number_attribute(key: &str, value: u64) -> KeyValue {
    attribute(key, AttributeValue::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

pub(super) fn code_attribute(key: &str, value: i32) -> KeyValue {
    attribute(key, AttributeValue::IntValue(value.into()))
}

pub(super) fn double_attribute(key: &str, value: f64) -> KeyValue {
    attribute(key, AttributeValue::DoubleValue(value))
}

pub(super) fn flag_attribute(key: &str, value: bool) -> KeyValue {
    attribute(key, AttributeValue::BoolValue(value))
}

pub(super) fn list_attribute(key: &str, values: impl IntoIterator<Item = String>) -> KeyValue {
    let values = values.into_iter().map(|value| AnyValue { value: Some(AttributeValue::StringValue(value)) }).collect();
    attribute(key, AttributeValue::ArrayValue(ArrayValue { values }))
}

/// An attribute with what is known about a step: a number, a text or a list of texts.
pub(super) fn fact_attribute(key: &str, value: &Value) -> KeyValue {
    match value {
        Value::String(text) => text_attribute(key, text),
        Value::Array(items) => list_attribute(key, items.iter().filter_map(Value::as_str).map(str::to_owned)),
        number => number_attribute(key, number.as_u64().unwrap_or_default()),
    }
}

/// An attribute with JSON. Spans of most languages can't have structured attributes, so backends expect it as text.
pub(super) fn json_attribute(key: &str, value: &Value) -> KeyValue {
    text_attribute(key, value.to_string())
}

/// A text, with how much of it is missing.
pub(super) fn whole(text: &Text) -> String {
    match text.omitted_chars {
        0 => text.shown.clone(),
        omitted => format!("{} [{omitted} more characters]", text.shown),
    }
}

pub(super) fn text_parts(text: &str) -> Value {
    json!([{ "type": "text", "content": text }])
}

/// `gen_ai.input.messages`
pub(super) fn input_messages(input: &[Input<'_>]) -> Value {
    let message = |input: &Input<'_>| match input {
        Input::Text(text) => json!({ "role": "user", "parts": text_parts(&whole(text)) }),
        Input::Summary(text) => {
            json!({ "role": "user", "parts": [{ "type": "compaction", "content": whole(text) }] })
        }
        Input::Results(turn) => {
            let part = |call: &Call| {
                let response = call.result.as_ref().map(whole);
                json!({ "type": "tool_call_response", "id": call.id, "response": response })
            };
            json!({ "role": "tool", "parts": turn.calls.iter().map(part).collect::<Vec<_>>() })
        }
    };
    input.iter().map(message).collect()
}

/// `gen_ai.output.messages`: the one choice of a reply.
pub(super) fn output_messages(turn: &Turn) -> Value {
    let part = |block: &ReplyBlock| match block {
        ReplyBlock::Text(text) => json!({ "type": "text", "content": whole(text) }),
        ReplyBlock::Thinking(text) => json!({ "type": "reasoning", "content": whole(text) }),
        ReplyBlock::Call(at) => match turn.calls.get(*at) {
            Some(call) => {
                json!({ "type": "tool_call", "id": call.id, "name": call.tool, "arguments": arguments(call) })
            }
            None => json!({ "type": "tool_call", "name": "" }),
        },
        ReplyBlock::Refusal(text) => json!({ "type": "refusal", "content": whole(text) }),
        ReplyBlock::Other(kind) => json!({ "type": kind }),
    };
    let parts: Vec<Value> = turn.blocks.iter().map(part).collect();
    json!([{ "role": "assistant", "parts": parts, "finish_reason": finish_reason(turn) }])
}

/// The input of a call: JSON, or a text if it isn't.
pub(super) fn arguments(call: &Call) -> Value {
    let is_whole = call.input.omitted_chars == 0;
    let parsed = serde_json::from_str(&call.input.shown).ok().filter(|_| is_whole);
    parsed.unwrap_or_else(|| Value::String(whole(&call.input)))
}

/// `gen_ai.tool.definitions`
pub(super) fn tool_definitions(tools: &[ToolSpec]) -> Value {
    let definition = |tool: &ToolSpec| json!({ "type": "function", "name": tool.name, "description": tool.description, "parameters": tool.input_schema });
    tools.iter().map(definition).collect()
}

/// Why a reply ended, in the conventions' words where they have one.
pub(super) fn finish_reason(turn: &Turn) -> String {
    match &turn.stop {
        Some(StopReason::EndTurn) => "stop".to_owned(),
        Some(StopReason::ToolUse) => "tool_call".to_owned(),
        Some(StopReason::MaxTokens | StopReason::ContextFull) => "length".to_owned(),
        Some(StopReason::Refusal) => "content_filter".to_owned(),
        Some(StopReason::Pause) => "pause".to_owned(),
        Some(StopReason::Other(reason)) => reason.clone(),
        None => "error".to_owned(),
    }
}
