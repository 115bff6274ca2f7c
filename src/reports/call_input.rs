//! The input of a tool call, in the parts that people read. The transcript and the report show the same ones.

use serde_json::Value;

use crate::conversation::{Call, Text};
use crate::tools::submit_result::SubmitResult;

/// The most fields that are shown. Only planted journals have more.
const MAX_FIELDS: usize = 40;
/// The longest value, in bytes, that is shown within a line.
const MAX_INLINE_BYTES: usize = 100;
/// The names of the fields of `edit_file` with the replaced text and the new one.
const OLD_TEXT: [&str; 3] = ["old_text", "old_string", "old_str"];
const NEW_TEXT: [&str; 3] = ["new_text", "new_string", "new_str"];

/// A part of the input of a call.
pub(super) enum InputPart {
    /// Fields with short values: names and values.
    Fields(Vec<(String, String)>),
    /// A field with a long value.
    Field(String, String),
    /// The items of a todo list, and whether each is done.
    Items(Vec<(bool, String)>),
    /// A replacement: the old text, and the new one.
    Edit(String, String),
    /// All of the input as JSON.
    Json(Text),
}

/// The input of a call without its main argument.
pub(super) fn input_parts(call: &Call) -> Vec<InputPart> {
    let value = match call.input.omitted_chars {
        0 => serde_json::from_str(&call.input.shown).unwrap_or_default(),
        _ => Value::Null,
    };
    let Some(fields) = value.as_object() else { return vec![InputPart::Json(call.input.clone())] };
    if call.tool == SubmitResult::NAME {
        return vec![InputPart::Json(Text::whole(format!("{value:#}")))];
    }
    if let Some(items) = fields.get("items").and_then(Value::as_array).filter(|_| call.tool == "todo") {
        return vec![InputPart::Items(items.iter().map(todo_item).collect())];
    }
    let text = |names: [&str; 3]| names.iter().find_map(|name| fields.get(*name)?.as_str()).map(str::to_owned);
    let edit = text(OLD_TEXT).zip(text(NEW_TEXT)).filter(|_| call.tool == "edit_file");
    let mut parts = Vec::new();
    for (name, value) in fields.iter().take(MAX_FIELDS) {
        let is_argument = !call.subject.is_empty() && value.as_str() == Some(call.subject.as_str());
        let is_edit = edit.is_some() && (OLD_TEXT.contains(&name.as_str()) || NEW_TEXT.contains(&name.as_str()));
        if is_argument || is_edit {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match parts.last_mut() {
            _ if needs_block(&value) => parts.push(InputPart::Field(name.clone(), value)),
            Some(InputPart::Fields(short)) => short.push((name.clone(), value)),
            _ => parts.push(InputPart::Fields(vec![(name.clone(), value)])),
        }
    }
    parts.extend(edit.map(|(old, new)| InputPart::Edit(old, new)));
    parts
}

/// Whether a text is shown as a block rather than within a line.
pub(super) fn needs_block(text: &str) -> bool {
    text.contains(['\n', '\r', '`']) || text.len() > MAX_INLINE_BYTES
}

fn todo_item(item: &Value) -> (bool, String) {
    let field = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    let active = if field("status") == "in_progress" { " (in progress)" } else { "" };
    (field("status") == "done", format!("{}{active}", field("text")))
}
