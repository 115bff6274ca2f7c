//! The items of a reply: what is understood of them, and how they go back.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::request::EMPTY_TEXT;
use super::tool_name;
use crate::message::{Block, BlockContent, Reply, ToolCall};
use crate::providers::lossy_string::LossyString;
use crate::providers::tool_input::parse_input;

/// The fields of a JSON object, each value as it was written.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// A field that is a text.
pub(super) fn text_field(fields: &Fields, name: &str) -> Option<String> {
    serde_json::from_str::<LossyString>(fields.get(name)?.get()).ok().map(|text| text.0)
}

/// What the parts of a list say in a field of that name.
fn parts(fields: &Fields, list: &str, name: &str) -> Vec<String> {
    let list = fields.get(list).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
    list.unwrap_or_default().iter().filter_map(|part| text_field(part, name)).collect()
}

/// What a message refuses; empty where it doesn't.
pub(super) fn refusal(fields: &Fields) -> String {
    parts(fields, "content", "refusal").concat()
}

/// A message's text, which some write without parts.
pub(super) fn message_text(fields: &Fields) -> String {
    text_field(fields, "content").unwrap_or_else(|| parts(fields, "content", "text").concat() + &refusal(fields))
}

/// Whether a call has an input in the form that the API takes back: a text.
pub(super) fn has_input(fields: &Fields) -> bool {
    text_field(fields, "arguments").is_some_and(|input| !input.trim().is_empty())
}

/// A whole item as a block.
///
/// # Errors
/// It can't be written as JSON again, which no item leads to.
pub(super) fn to_block(fields: &Fields) -> Result<Block, serde_json::Error> {
    let kind = text_field(fields, "type").unwrap_or_default();
    let view = match kind.as_str() {
        "message" => BlockContent::Text(message_text(fields)),
        "function_call" => {
            let id = text_field(fields, "call_id").or_else(|| text_field(fields, "id")).unwrap_or_default();
            let arguments = fields.get("arguments").map(|value| value.get().to_owned());
            let input = text_field(fields, "arguments").or(arguments);
            let call = to_tool_call(id, text_field(fields, "name").unwrap_or_default(), input.as_deref());
            // What came is no input, or written as none; it goes back in the right form.
            let is_object = input.is_some_and(|input| input.trim_start().starts_with('{'));
            if call.input_error.is_some() || !has_input(fields) || !is_object {
                return Ok(BlockContent::Call(call).into());
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
    Ok(Block { content: view, raw: Some(Arc::from(to_raw_value(fields)?)) })
}

/// A call with this input.
pub(super) fn to_tool_call(id: String, tool: String, input: Option<&str>) -> ToolCall {
    let (input, broken) = parse_input(input.filter(|input| !input.trim().is_empty()));
    ToolCall { id, tool, input: Arc::from(input), input_error: broken }
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    r#type: &'static str,
    call_id: &'a str,
    name: String,
    arguments: &'a str,
}

#[derive(Serialize)]
struct MessageItem<'a> {
    r#type: &'static str,
    role: &'static str,
    content: &'a str,
}

/// A reply's items as they go back: as they came, where that is possible.
///
/// # Errors
/// One can't be written as JSON, which no reply leads to.
pub(super) fn encode_items(reply: &Reply, has_openai_rules: bool) -> Result<Vec<String>, serde_json::Error> {
    let mut items = Vec::with_capacity(reply.blocks.len());
    // Reasoning that nothing has followed yet.
    let mut thoughts = Vec::new();
    for Block { content: view, raw } in &reply.blocks {
        let fields =
            || -> Fields { raw.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default() };
        let item = match (view, raw) {
            (BlockContent::Thinking(_), Some(raw)) => {
                if !has_openai_rules || text_field(&fields(), "encrypted_content").is_some() {
                    thoughts.push(raw.get().to_owned());
                }
                continue;
            }
            (BlockContent::Call(call), Some(raw))
                if tool_name(&call.tool) == call.tool
                    && text_field(&fields(), "call_id").as_ref() == Some(&call.id) =>
            {
                raw.get().to_owned()
            }
            (BlockContent::Call(call), _) => serde_json::to_string(&FunctionCall {
                r#type: "function_call",
                call_id: &call.id,
                name: tool_name(&call.tool),
                arguments: call.input.get(),
            })?,
            (_, Some(raw)) => raw.get().to_owned(),
            (BlockContent::Text(text), None) if !text.trim().is_empty() => encode_message(text)?,
            (BlockContent::Text(_) | BlockContent::Thinking(_) | BlockContent::Other(_), None) => continue,
        };
        items.append(&mut thoughts);
        items.push(item);
    }
    if items.is_empty() {
        items.push(encode_message(EMPTY_TEXT)?);
    }
    Ok(items)
}

fn encode_message(text: &str) -> Result<String, serde_json::Error> {
    serde_json::to_string(&MessageItem { r#type: "message", role: "assistant", content: text })
}
