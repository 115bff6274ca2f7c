//! The items of a reply: conversion to blocks, and back for the next request.

use std::sync::Arc;

use serde_json::json;

use crate::message::{Block, BlockContent, Reply};
use crate::providers::json::{EMPTY_TEXT, Fields, field, is_blank, parse_fields, string_field as text_field, to_raw};
use crate::providers::openai_platform::MAX_TOOL_NAME_CHARS;
use crate::providers::tool_calls::{to_tool_call, tool_name};

/// The strings in the field `name` of the elements of a list.
fn parts(fields: &Fields, list: &str, name: &str) -> Vec<String> {
    let list: Vec<Fields> = field(fields, list).unwrap_or_default();
    list.iter().filter_map(|part| text_field(part, name)).collect()
}

/// The refusal in a message; empty for none.
pub(super) fn refusal(fields: &Fields) -> String {
    parts(fields, "content", "refusal").concat()
}

/// A message's text, which some servers send without parts.
pub(super) fn message_text(fields: &Fields) -> String {
    text_field(fields, "content").unwrap_or_else(|| parts(fields, "content", "text").concat() + &refusal(fields))
}

/// Whether a call's input is a string, the form that the API accepts back.
pub(super) fn has_input(fields: &Fields) -> bool {
    text_field(fields, "arguments").is_some_and(|input| !input.trim().is_empty())
}

/// Converts a whole item to a block.
pub(super) fn to_block(fields: &Fields) -> Block {
    let kind = text_field(fields, "type").unwrap_or_default();
    let content = match kind.as_str() {
        "message" => BlockContent::Text(message_text(fields)),
        "function_call" => {
            let id = text_field(fields, "call_id").or_else(|| text_field(fields, "id")).unwrap_or_default();
            let arguments = fields.get("arguments").map(|value| value.get().to_owned());
            let input = text_field(fields, "arguments").or(arguments);
            let call = to_tool_call(id, text_field(fields, "name").unwrap_or_default(), input.as_deref());
            // Change an invalid input, or one in another form, to the form that the API accepts.
            let is_object = input.is_some_and(|input| input.trim_start().starts_with('{'));
            if call.input_error.is_some() || !has_input(fields) || !is_object {
                return BlockContent::Call(call).into();
            }
            BlockContent::Call(call)
        }
        "reasoning" => {
            let summary = parts(fields, "summary", "text");
            let whole = if summary.is_empty() { parts(fields, "content", "text") } else { summary };
            BlockContent::Thinking(whole.join("\n\n"))
        }
        _ => BlockContent::Other(kind),
    };
    Block { content, raw: Some(Arc::from(to_raw(fields))) }
}

/// Encodes a reply's items for the next request, unchanged if possible.
pub(super) fn encode_items(reply: &Reply, has_openai_rules: bool) -> Vec<String> {
    let mut items = Vec::with_capacity(reply.blocks.len());
    // Reasoning that isn't followed by another item yet.
    let mut reasoning = Vec::new();
    for Block { content, raw } in &reply.blocks {
        let raw_field = |name| text_field(&parse_fields(raw.as_ref()?), name);
        let item = match (content, raw) {
            (BlockContent::Thinking(_), Some(raw)) => {
                if !has_openai_rules || raw_field("encrypted_content").is_some() {
                    reasoning.push(raw.get().to_owned());
                }
                continue;
            }
            (BlockContent::Call(call), Some(raw))
                if tool_name(&call.tool, MAX_TOOL_NAME_CHARS) == call.tool
                    && raw_field("call_id").as_ref() == Some(&call.id) =>
            {
                raw.get().to_owned()
            }
            (BlockContent::Call(call), _) => {
                let name = tool_name(&call.tool, MAX_TOOL_NAME_CHARS);
                json!({ "type": "function_call", "call_id": call.id, "name": name, "arguments": call.input.get() })
                    .to_string()
            }
            (_, Some(raw)) => raw.get().to_owned(),
            (BlockContent::Text(text), None) if !is_blank(text) => encode_message(text),
            (BlockContent::Text(_) | BlockContent::Thinking(_) | BlockContent::Other(_), None) => continue,
        };
        items.append(&mut reasoning);
        items.push(item);
    }
    if items.is_empty() {
        items.push(encode_message(EMPTY_TEXT));
    }
    items
}

fn encode_message(text: &str) -> String {
    json!({ "type": "message", "role": "assistant", "content": text }).to_string()
}
