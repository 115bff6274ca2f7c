//! A reply as it goes back: each part as it came, where that is possible.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::parts::{CALL_FIELD, Fields, SIGNATURE_FIELD, is_gemini_part, text_field};
use crate::message::{Block, BlockContent, Reply, ToolCall};
use crate::providers::openai::tool_name;

/// What stands for a text that is empty.
pub(super) const EMPTY_TEXT: &str = "(nothing)";
/// What Gemini 3 and later take in the place of a signature for a call that isn't theirs, or that lost its own
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>, on calls from elsewhere).
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// A reply's parts.
pub(super) struct EncodedReply {
    pub(super) parts: Vec<String>,
    pub(super) calls: Vec<EncodedCall>,
}

/// A call as it went back.
#[derive(Debug)]
pub(super) struct EncodedCall {
    /// The id by which its answer is known here.
    pub(super) call_id: String,
    pub(super) name: String,
    /// The id that its answer has to carry, where it has one.
    pub(super) id: Option<String>,
}

/// Writes a reply's parts. With `signs` calls have signatures and ids of their own; other models, and older servers, take
/// no id but what they gave.
///
/// # Errors
/// One can't be written as JSON, which no reply leads to.
pub(super) fn encode_reply(reply: &Reply, signs: bool) -> Result<EncodedReply, serde_json::Error> {
    let mut written = EncodedReply { parts: Vec::with_capacity(reply.blocks.len()), calls: Vec::new() };
    for Block { content: view, raw } in &reply.blocks {
        let raw = raw.as_deref().filter(|raw| is_gemini_part(view, raw));
        match (view, raw) {
            (BlockContent::Call(call), raw) => {
                // Of calls side by side only the first is signed.
                let must_sign = signs && written.calls.is_empty();
                let (part, called) = encode_call(call, raw, must_sign, signs)?;
                written.parts.push(part);
                written.calls.push(called);
            }
            (_, Some(raw)) => written.parts.push(without_brackets(raw.get()).to_owned()),
            (BlockContent::Text(text), None) if !text.trim().is_empty() => {
                written.parts.push(json!({ "text": text }).to_string());
            }
            // Another provider's thoughts, which this one has no form for.
            (BlockContent::Text(_) | BlockContent::Thinking(_) | BlockContent::Other(_), None) => {}
        }
    }
    if written.parts.is_empty() {
        written.parts.push(json!({ "text": EMPTY_TEXT }).to_string());
    }
    Ok(written)
}

/// Several parts of one block, without the brackets.
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
    let mut is_new = false;
    let id = match inner {
        Some(mut inner) => {
            if name != call.tool {
                inner.insert("name".to_owned(), to_raw_value(&name)?);
                part.insert(CALL_FIELD.to_owned(), to_raw_value(&inner)?);
                is_new = true;
            }
            text_field(&inner, "id").filter(|id| !id.is_empty())
        }
        None => {
            let id = has_ids.then_some(call.id.as_str());
            part.insert(CALL_FIELD.to_owned(), to_raw_value(&FunctionCall { id, name: &name, args: &call.input })?);
            is_new = true;
            id.map(str::to_owned)
        }
    };
    if must_sign && !part.contains_key(SIGNATURE_FIELD) {
        part.insert(SIGNATURE_FIELD.to_owned(), to_raw_value(SKIP_SIGNATURE)?);
        is_new = true;
    }
    let json = match raw {
        Some(raw) if !is_new => raw.get().to_owned(),
        _ => serde_json::to_string(&part)?,
    };
    Ok((json, EncodedCall { call_id: call.id.clone(), name: name.into_owned(), id }))
}

/// A tool's name as the API takes it back: it begins with a letter or `_`, as that of every tool here does.
pub(super) fn function_name(written: &str) -> Cow<'_, str> {
    let name = tool_name(written);
    match name.as_bytes().first() {
        Some(first) if first.is_ascii_alphabetic() || *first == b'_' => {
            if name == written {
                Cow::Borrowed(written)
            } else {
                Cow::Owned(name)
            }
        }
        _ => Cow::Owned(tool_name(&format!("_{name}"))),
    }
}
