//! Encodes a reply for the next request. Parts are unchanged if possible.

use serde_json::json;
use serde_json::value::RawValue;

use super::parts::{CALL_FIELD, SIGNATURE_FIELD, is_gemini_part};
use crate::message::{Block, BlockContent, Reply, ToolCall};
use crate::providers::json::{EMPTY_TEXT, Fields, field, is_blank, non_empty_field, parse_fields, to_raw};
use crate::providers::tool_calls::tool_name;

/// The maximum length of a tool's name.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Gemini 3 and later accept this in place of a signature, for calls that another model made or that lost their
/// signature (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// An encoded call.
#[derive(Debug)]
pub(super) struct EncodedCall {
    /// The id of the call in the conversation.
    pub(super) call_id: String,
    pub(super) name: String,
    /// The id that its result needs, if any.
    pub(super) id: Option<String>,
}

/// Encodes the parts of a reply, and its calls. With `signs`, all calls get signatures and ids. Other models and older
/// servers accept only ids that they sent themselves.
pub(super) fn encode_reply(reply: &Reply, signs: bool) -> (Vec<String>, Vec<EncodedCall>) {
    let (mut parts, mut calls) = (Vec::with_capacity(reply.blocks.len()), Vec::new());
    for Block { content, raw } in &reply.blocks {
        let raw = raw.as_deref().filter(|raw| is_gemini_part(content, raw));
        match (content, raw) {
            (BlockContent::Call(call), raw) => {
                // Only the first of several parallel calls is signed.
                let must_sign = signs && calls.is_empty();
                let (part, encoded) = encode_call(call, raw, must_sign, signs);
                parts.push(part);
                calls.push(encoded);
            }
            (_, Some(raw)) => parts.push(without_brackets(raw.get()).to_owned()),
            (BlockContent::Text(text), None) if !is_blank(text) => parts.push(json!({ "text": text }).to_string()),
            // Another provider's thinking, which can't be sent back.
            (BlockContent::Text(_) | BlockContent::Thinking(_) | BlockContent::Other(_), None) => {}
        }
    }
    if parts.is_empty() {
        parts.push(json!({ "text": EMPTY_TEXT }).to_string());
    }
    (parts, calls)
}

/// The parts of a block, without the brackets of the list.
fn without_brackets(raw: &str) -> &str {
    raw.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(raw)
}

fn encode_call(call: &ToolCall, raw: Option<&RawValue>, must_sign: bool, has_ids: bool) -> (String, EncodedCall) {
    let name = function_name(&call.tool);
    let mut part = raw.map(parse_fields).unwrap_or_default();
    let mut inner: Fields = field(&part, CALL_FIELD).unwrap_or_default();
    let mut is_changed = inner.is_empty() || name != call.tool;
    if inner.is_empty() {
        if has_ids {
            inner.insert("id".to_owned(), to_raw(&call.id));
        }
        inner.insert("args".to_owned(), call.input.as_ref().to_owned());
    }
    if is_changed {
        inner.insert("name".to_owned(), to_raw(&name));
        part.insert(CALL_FIELD.to_owned(), to_raw(&inner));
    }
    if must_sign && !part.contains_key(SIGNATURE_FIELD) {
        part.insert(SIGNATURE_FIELD.to_owned(), to_raw(&SKIP_SIGNATURE));
        is_changed = true;
    }
    let json = match raw {
        Some(raw) if !is_changed => raw.get().to_owned(),
        _ => to_raw(&part).get().to_owned(),
    };
    (json, EncodedCall { call_id: call.id.clone(), name, id: non_empty_field(&inner, "id") })
}

/// A tool's name in the form that the API accepts: it begins with a letter or `_`.
pub(super) fn function_name(name: &str) -> String {
    let valid = tool_name(name, MAX_TOOL_NAME_CHARS);
    if valid.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        valid
    } else {
        tool_name(&format!("_{valid}"), MAX_TOOL_NAME_CHARS)
    }
}
