//! Encodes a reply for the next request. Parts are unchanged if possible.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::parts::{CALL_FIELD, SIGNATURE_FIELD, is_gemini_part};
use crate::message::{Block, BlockContent, Reply, ToolCall};
use crate::providers::json::{EMPTY_TEXT, Fields, string_field};
use crate::providers::tool_calls::tool_name;

/// The maximum length of a tool's name.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Gemini 3 and later accept this in place of a signature, for calls that another model made or that lost their
/// signature (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// An encoded reply.
pub(super) struct EncodedReply {
    pub(super) parts: Vec<String>,
    pub(super) calls: Vec<EncodedCall>,
}

/// An encoded call.
#[derive(Debug)]
pub(super) struct EncodedCall {
    /// The id of the call in the conversation.
    pub(super) call_id: String,
    pub(super) name: String,
    /// The id that its result needs, if any.
    pub(super) id: Option<String>,
}

/// Encodes a reply. With `signs`, all calls get signatures and ids. Other models and older servers accept only ids that
/// they sent themselves.
///
/// # Errors
/// A part can't be serialized. No reply causes this.
pub(super) fn encode_reply(reply: &Reply, signs: bool) -> Result<EncodedReply, serde_json::Error> {
    let mut encoded = EncodedReply { parts: Vec::with_capacity(reply.blocks.len()), calls: Vec::new() };
    for Block { content, raw } in &reply.blocks {
        let raw = raw.as_deref().filter(|raw| is_gemini_part(content, raw));
        match (content, raw) {
            (BlockContent::Call(call), raw) => {
                // Only the first of several parallel calls is signed.
                let must_sign = signs && encoded.calls.is_empty();
                let (part, called) = encode_call(call, raw, must_sign, signs)?;
                encoded.parts.push(part);
                encoded.calls.push(called);
            }
            (_, Some(raw)) => encoded.parts.push(without_brackets(raw.get()).to_owned()),
            (BlockContent::Text(text), None) if !text.trim().is_empty() => {
                encoded.parts.push(json!({ "text": text }).to_string());
            }
            // Another provider's thinking, which can't be sent back.
            (BlockContent::Text(_) | BlockContent::Thinking(_) | BlockContent::Other(_), None) => {}
        }
    }
    if encoded.parts.is_empty() {
        encoded.parts.push(json!({ "text": EMPTY_TEXT }).to_string());
    }
    Ok(encoded)
}

/// The parts of a block, without the brackets of the list.
fn without_brackets(raw: &str) -> &str {
    raw.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(raw)
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: &'a RawValue,
}

fn encode_call(
    call: &ToolCall,
    raw: Option<&RawValue>,
    must_sign: bool,
    has_ids: bool,
) -> Result<(String, EncodedCall), serde_json::Error> {
    let name = function_name(&call.tool);
    let mut part: Fields = raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let inner: Option<Fields> = part.get(CALL_FIELD).and_then(|call| serde_json::from_str(call.get()).ok());
    let mut is_changed = false;
    let id = match inner {
        Some(mut inner) => {
            if name != call.tool {
                inner.insert("name".to_owned(), to_raw_value(&name)?);
                part.insert(CALL_FIELD.to_owned(), to_raw_value(&inner)?);
                is_changed = true;
            }
            string_field(&inner, "id").filter(|id| !id.is_empty())
        }
        None => {
            let id = has_ids.then_some(call.id.as_str());
            part.insert(CALL_FIELD.to_owned(), to_raw_value(&FunctionCall { id, name: &name, args: &call.input })?);
            is_changed = true;
            id.map(str::to_owned)
        }
    };
    if must_sign && !part.contains_key(SIGNATURE_FIELD) {
        part.insert(SIGNATURE_FIELD.to_owned(), to_raw_value(SKIP_SIGNATURE)?);
        is_changed = true;
    }
    let json = match raw {
        Some(raw) if !is_changed => raw.get().to_owned(),
        _ => serde_json::to_string(&part)?,
    };
    Ok((json, EncodedCall { call_id: call.id.clone(), name: name.into_owned(), id }))
}

/// A tool's name in the form that the API accepts: it begins with a letter or `_`.
pub(super) fn function_name(name: &str) -> Cow<'_, str> {
    let valid = tool_name(name, MAX_TOOL_NAME_CHARS);
    match valid.as_bytes().first() {
        Some(first) if first.is_ascii_alphabetic() || *first == b'_' => {
            if valid == name {
                Cow::Borrowed(name)
            } else {
                Cow::Owned(valid)
            }
        }
        _ => Cow::Owned(tool_name(&format!("_{valid}"), MAX_TOOL_NAME_CHARS)),
    }
}
