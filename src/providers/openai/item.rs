//! The items of a reply: what is understood of them, and how they go back.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::request::NOTHING;
use super::tool_name;
use crate::message::{Block, Reply, ToolCall, View};
use crate::providers::input::read_input;
use crate::providers::lossy::Lossy;

/// The fields of a JSON object, each value as it was written.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// A field that is a text.
pub(super) fn text(fields: &Fields, name: &str) -> Option<String> {
    serde_json::from_str::<Lossy>(fields.get(name)?.get()).ok().map(|text| text.0)
}

/// What the parts of a list say in a field of that name.
fn parts(fields: &Fields, list: &str, name: &str) -> Vec<String> {
    let list = fields.get(list).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
    list.unwrap_or_default().iter().filter_map(|part| text(part, name)).collect()
}

/// What a message refuses; empty where it doesn't.
pub(super) fn refusal(fields: &Fields) -> String {
    parts(fields, "content", "refusal").concat()
}

/// A message's text, which some write without parts.
pub(super) fn said(fields: &Fields) -> String {
    text(fields, "content").unwrap_or_else(|| parts(fields, "content", "text").concat() + &refusal(fields))
}

/// Whether a call has an input in the form that the API takes back: a text.
pub(super) fn has_input(fields: &Fields) -> bool {
    text(fields, "arguments").is_some_and(|input| !input.trim().is_empty())
}

/// A whole item as a block.
///
/// # Errors
/// It can't be written as JSON again, which no item leads to.
pub(super) fn block(fields: &Fields) -> Result<Block, serde_json::Error> {
    let kind = text(fields, "type").unwrap_or_default();
    let view = match kind.as_str() {
        "message" => View::Text(said(fields)),
        "function_call" => {
            let id = text(fields, "call_id").or_else(|| text(fields, "id")).unwrap_or_default();
            let arguments = fields.get("arguments").map(|value| value.get().to_owned());
            let input = text(fields, "arguments").or(arguments);
            let call = call(id, text(fields, "name").unwrap_or_default(), input.as_deref());
            // What came is no input, or written as none; it goes back in the right form.
            let is_object = input.is_some_and(|input| input.trim_start().starts_with('{'));
            if call.broken.is_some() || !has_input(fields) || !is_object {
                return Ok(View::Call(call).into());
            }
            View::Call(call)
        }
        "reasoning" => {
            let summary = parts(fields, "summary", "text");
            let whole = if summary.is_empty() { parts(fields, "content", "text") } else { summary };
            View::Thinking(whole.join("\n\n"))
        }
        _ => View::Other(kind),
    };
    Ok(Block { view, raw: Some(Arc::from(to_raw_value(fields)?)) })
}

/// A call with this input.
pub(super) fn call(id: String, tool: String, input: Option<&str>) -> ToolCall {
    let (input, broken) = read_input(input.filter(|input| !input.trim().is_empty()));
    ToolCall { id, tool, input: Arc::from(input), broken }
}

#[derive(Serialize)]
struct Call<'a> {
    r#type: &'static str,
    call_id: &'a str,
    name: String,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'static str,
    role: &'static str,
    content: &'a str,
}

/// A reply's items as they go back: as they came, where that is possible.
///
/// # Errors
/// One can't be written as JSON, which no reply leads to.
pub(super) fn write(reply: &Reply, has_openai_rules: bool) -> Result<Vec<String>, serde_json::Error> {
    let mut items = Vec::with_capacity(reply.blocks.len());
    // Reasoning that nothing has followed yet.
    let mut thoughts = Vec::new();
    for Block { view, raw } in &reply.blocks {
        let fields =
            || -> Fields { raw.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default() };
        let item = match (view, raw) {
            (View::Thinking(_), Some(raw)) => {
                if !has_openai_rules || text(&fields(), "encrypted_content").is_some() {
                    thoughts.push(raw.get().to_owned());
                }
                continue;
            }
            (View::Call(call), Some(raw))
                if tool_name(&call.tool) == call.tool && text(&fields(), "call_id").as_ref() == Some(&call.id) =>
            {
                raw.get().to_owned()
            }
            (View::Call(call), _) => serde_json::to_string(&Call {
                r#type: "function_call",
                call_id: &call.id,
                name: tool_name(&call.tool),
                arguments: call.input.get(),
            })?,
            (_, Some(raw)) => raw.get().to_owned(),
            (View::Text(text), None) if !text.trim().is_empty() => message(text)?,
            (View::Text(_) | View::Thinking(_) | View::Other(_), None) => continue,
        };
        items.append(&mut thoughts);
        items.push(item);
    }
    if items.is_empty() {
        items.push(message(NOTHING)?);
    }
    Ok(items)
}

fn message(text: &str) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Message { r#type: "message", role: "assistant", content: text })
}
