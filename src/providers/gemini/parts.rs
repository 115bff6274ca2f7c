//! Assembles the parts of a reply.
//!
//! A stream splits texts anywhere, so consecutive ones are merged. A part with a signature is kept separate, as the API
//! accepts the signature back only in the same part: a call, a text, or an empty text at the end. A block of several
//! parts keeps them as a list.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::{Block, BlockContent, ToolCall};
use crate::providers::assembler::PartialReply;
use crate::providers::json::{Fields, field, string_field, to_raw};
use crate::providers::tool_calls::parse_input;

/// The field with the signature of a thought.
pub(super) const SIGNATURE_FIELD: &str = "thoughtSignature";
/// The field with a call.
pub(super) const CALL_FIELD: &str = "functionCall";

/// A part of a reply that is being received.
#[derive(Debug)]
pub(super) struct PendingPart {
    /// The part as it was sent.
    pub(super) fields: Fields,
    /// The text so far; `None` if it is of another kind.
    text: Option<String>,
    is_thought: bool,
    /// Whether it has only text, which grows.
    is_plain: bool,
}

impl PendingPart {
    /// Takes a part. Returns whether it has any content.
    pub(super) fn push(parts: &mut Vec<Self>, reply: &mut PartialReply, mut fields: Fields) -> bool {
        // Some servers send all fields that a part can have.
        fields.retain(|_, value| value.get() != "null");
        let is_thought = fields.get("thought").is_some_and(|thought| thought.get() == "true");
        let is_plain = fields.keys().all(|name| ["text", "thought"].contains(&name.as_str()));
        if !fields.contains_key("text")
            && fields.keys().any(|name| !["thought", SIGNATURE_FIELD].contains(&name.as_str()))
        {
            reply.add_output(fields.values().map(|value| value.get().len()).sum());
            parts.push(Self { fields, text: None, is_thought, is_plain });
            return true;
        }
        let text = string_field(&fields, "text").unwrap_or_default();
        let has_text = !text.is_empty();
        reply.add_output(text.len());
        let grows = |last: &&mut Self| is_plain && last.is_plain && last.is_thought == is_thought;
        match parts.last_mut().filter(grows) {
            Some(last) => last.text.get_or_insert_default().push_str(&text),
            None if is_plain && !has_text => {}
            None => parts.push(Self { fields, text: Some(text), is_thought, is_plain }),
        }
        has_text
    }

    /// The part to send back.
    fn to_json(&self) -> Box<RawValue> {
        let mut fields = self.fields.clone();
        // The API refuses a part without data.
        if self.is_plain || !fields.contains_key("text") {
            fields.insert("text".to_owned(), to_raw(&self.text));
        }
        to_raw(&fields)
    }
}

/// The finished blocks.
pub(super) fn finish_parts(parts: &[PendingPart]) -> Vec<Block> {
    let is_one_text = |one: &PendingPart, next: &PendingPart| {
        one.text.is_some() && next.text.is_some() && one.is_thought == next.is_thought
    };
    let block = |run: &[PendingPart]| match run {
        [PendingPart { text: None, fields, .. }] if fields.contains_key(CALL_FIELD) => call(fields.clone()),
        [PendingPart { text: None, fields, .. }] => {
            let kind = fields.keys().find(|name| !["thought", SIGNATURE_FIELD].contains(&name.as_str()));
            let content = BlockContent::Other(kind.cloned().unwrap_or_default());
            Block { content, raw: Some(Arc::from(to_raw(fields))) }
        }
        texts => text_block(texts),
    };
    parts.chunk_by(is_one_text).map(block).collect()
}

fn text_block(parts: &[PendingPart]) -> Block {
    let text: String = parts.iter().filter_map(|part| part.text.as_deref()).collect();
    let is_thought = parts.iter().any(|part| part.is_thought);
    let raw = match parts {
        _ if !is_thought && parts.iter().all(|part| part.is_plain) => None,
        [part] => Some(part.to_json()),
        parts => Some(to_raw(&parts.iter().map(PendingPart::to_json).collect::<Vec<_>>())),
    };
    let content = if is_thought || text.is_empty() { BlockContent::Thinking(text) } else { BlockContent::Text(text) };
    Block { content, raw: raw.map(Arc::from) }
}

/// Builds the block for a call. It always keeps the part, because it matters whether the call has an id.
fn call(mut part: Fields) -> Block {
    let mut inner: Fields = field(&part, CALL_FIELD).unwrap_or_default();
    let given = inner.get("args").map(|args| args.get());
    let (input, input_error) = parse_input(given);
    let [id, tool] = ["id", "name"].map(|name| string_field(&inner, name).unwrap_or_default());
    // Some servers send JSON in a string.
    if input_error.is_some() || given.is_some_and(|given| given.starts_with('"')) {
        inner.insert("args".to_owned(), input.clone());
        part.insert(CALL_FIELD.to_owned(), to_raw(&inner));
    }
    let call = ToolCall { id, tool, input: Arc::from(input), input_error };
    Block { content: BlockContent::Call(call), raw: Some(Arc::from(to_raw(&part))) }
}

/// Whether a block's JSON is from this API, rather than from another one that replied earlier in the conversation.
pub(super) fn is_gemini_part(content: &BlockContent, raw: &RawValue) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(raw.get()) else { return false };
    let parts = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
    let fits = |part: &Value| match content {
        BlockContent::Call(_) => part.get(CALL_FIELD).is_some_and(Value::is_object),
        BlockContent::Text(_) | BlockContent::Thinking(_) => part.get("text").is_some(),
        BlockContent::Other(kind) => part.get(kind).is_some(),
    };
    // Parts of other APIs have a `type`, or different fields.
    !parts.is_empty() && parts.iter().all(|part| part.get("type").is_none() && fits(part))
}
