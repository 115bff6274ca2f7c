//! Assembles the parts of a reply.
//!
//! A stream splits texts anywhere, so consecutive ones are merged. A part with a signature is kept separate, as the API
//! accepts the signature back only in the same part: a call, a text, or an empty text at the end. A block of several
//! parts keeps them as a list.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::message::{Block, BlockContent, ToolCall};
use crate::providers::json::{Fields, string_field};
use crate::providers::tool_calls::parse_input;

/// The field with the signature of a thought.
pub(super) const SIGNATURE_FIELD: &str = "thoughtSignature";
/// The field with a call.
pub(super) const CALL_FIELD: &str = "functionCall";

/// The parts of a reply that is being received.
#[derive(Debug, Default)]
pub(super) struct PartAssembler {
    pending: Vec<PendingPart>,
}

#[derive(Debug)]
enum PendingPart {
    Text(TextRun),
    Complete(Fields),
}

/// Consecutive texts.
#[derive(Debug)]
struct TextRun {
    is_thought: bool,
    pieces: Vec<TextPiece>,
}

#[derive(Debug)]
enum TextPiece {
    /// Only text; it grows.
    Plain(String),
    /// A part with further fields, and its text.
    Signed(String, Fields),
}

impl TextRun {
    fn grow(&mut self, piece: TextPiece) {
        match (self.pieces.last_mut(), piece) {
            (Some(TextPiece::Plain(start)), TextPiece::Plain(more)) => start.push_str(&more),
            (_, piece) => self.pieces.push(piece),
        }
    }

    fn finish(self) -> Result<Block, serde_json::Error> {
        let mut whole = String::new();
        let mut parts = Vec::with_capacity(self.pieces.len());
        let mut is_plain = !self.is_thought;
        for piece in self.pieces {
            let (text, part) = match piece {
                TextPiece::Plain(text) if self.is_thought => {
                    let part = to_raw_value(&json!({ "text": text, "thought": true }))?;
                    (text, part)
                }
                TextPiece::Plain(text) => {
                    let part = to_raw_value(&json!({ "text": text }))?;
                    (text, part)
                }
                TextPiece::Signed(text, fields) => {
                    is_plain = false;
                    (text, to_raw_value(&fields)?)
                }
            };
            whole.push_str(&text);
            parts.push(part);
        }
        let content =
            if self.is_thought || whole.is_empty() { BlockContent::Thinking(whole) } else { BlockContent::Text(whole) };
        let raw = match &*parts {
            _ if is_plain => return Ok(content.into()),
            [part] => part.clone(),
            parts => to_raw_value(parts)?,
        };
        Ok(Block { content, raw: Some(Arc::from(raw)) })
    }
}

impl PartAssembler {
    /// Takes a part and reports its text. Returns its size in bytes.
    pub(super) fn grow(&mut self, mut fields: Fields, on_text: &dyn Fn(&str)) -> usize {
        // Some servers send all fields that a part can have.
        fields.retain(|_, value| value.get() != "null");
        let is_kind = |name: &str| !["text", "thought", SIGNATURE_FIELD].contains(&name);
        if fields.keys().any(|name| is_kind(name)) && !fields.contains_key("text") {
            let size = fields.values().map(|value| value.get().len()).sum();
            self.pending.push(PendingPart::Complete(fields));
            return size;
        }
        let text = string_field(&fields, "text").unwrap_or_default();
        let is_thought = fields.get("thought").is_some_and(|thought| thought.get() == "true");
        if !is_thought {
            on_text(&text);
        }
        let size = text.len();
        let piece = if fields.keys().any(|name| !["text", "thought"].contains(&name.as_str())) {
            // The API refuses a part without data.
            fields.entry("text".to_owned()).or_insert_with(empty_text);
            TextPiece::Signed(text, fields)
        } else if text.is_empty() {
            return 0;
        } else {
            TextPiece::Plain(text)
        };
        match self.pending.last_mut() {
            Some(PendingPart::Text(run)) if run.is_thought == is_thought => run.grow(piece),
            _ => self.pending.push(PendingPart::Text(TextRun { is_thought, pieces: vec![piece] })),
        }
        size
    }

    /// The finished blocks.
    ///
    /// # Errors
    /// A block can't be serialized. No part causes this.
    pub(super) fn finish(self) -> Result<Vec<Block>, serde_json::Error> {
        let finish = |growing| match growing {
            PendingPart::Text(run) => run.finish(),
            PendingPart::Complete(fields) if fields.contains_key(CALL_FIELD) => call(fields),
            PendingPart::Complete(fields) => {
                let kind = fields.keys().find(|name| !["thought", SIGNATURE_FIELD].contains(&name.as_str()));
                let content = BlockContent::Other(kind.cloned().unwrap_or_default());
                Ok(Block { content, raw: Some(Arc::from(to_raw_value(&fields)?)) })
            }
        };
        self.pending.into_iter().map(finish).collect()
    }
}

fn empty_text() -> Box<RawValue> {
    to_raw_value("").unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Builds the block for a call. It always keeps the part, because it matters whether the call has an id.
fn call(mut part: Fields) -> Result<Block, serde_json::Error> {
    let mut inner: Fields =
        part.get(CALL_FIELD).and_then(|call| serde_json::from_str(call.get()).ok()).unwrap_or_default();
    // Normally an object; some servers send JSON in a string.
    let in_text = string_field(&inner, "args");
    let args = in_text.as_deref().or_else(|| inner.get("args").map(|args| args.get()));
    let (input, input_error) = parse_input(args);
    let [id, tool] = ["id", "name"].map(|name| string_field(&inner, name).unwrap_or_default());
    if in_text.is_some() || input_error.is_some() {
        inner.insert("args".to_owned(), input.clone());
        part.insert(CALL_FIELD.to_owned(), to_raw_value(&inner)?);
    }
    let call = ToolCall { id, tool, input: Arc::from(input), input_error };
    Ok(Block { content: BlockContent::Call(call), raw: Some(Arc::from(to_raw_value(&part)?)) })
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
