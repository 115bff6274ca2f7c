//! The parts of a reply, as they come.
//!
//! A stream cuts texts anywhere, so neighbours become one; but a part with a signature stays what it is, for the API takes
//! the signature back only in its place: in a call, in a text, or in a text that is empty and comes last. The block of a
//! text that was put together from several parts keeps them as a list.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::message::{Block, BlockContent, ToolCall};
use crate::providers::lossy_string::LossyString;
use crate::providers::tool_input::parse_input;

/// The fields of a JSON object, each value as it was written.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// The field of a signature.
pub(super) const SIGNATURE_FIELD: &str = "thoughtSignature";
/// The field of a call.
pub(super) const CALL_FIELD: &str = "functionCall";

/// A field that is a text.
pub(super) fn text_field(fields: &Fields, name: &str) -> Option<String> {
    serde_json::from_str::<LossyString>(fields.get(name)?.get()).ok().map(|text| text.0)
}

/// Parts that are being received.
#[derive(Debug, Default)]
pub(super) struct PartAssembler {
    pending: Vec<PendingPart>,
}

#[derive(Debug)]
enum PendingPart {
    Text(TextRun),
    Complete(Fields),
}

/// Texts in a row.
#[derive(Debug)]
struct TextRun {
    is_thought: bool,
    pieces: Vec<TextPiece>,
}

#[derive(Debug)]
enum TextPiece {
    /// Nothing but text; grows.
    Plain(String),
    /// A part with more than that, and its text.
    Signed(String, Fields),
}

impl TextRun {
    fn grow(&mut self, piece: TextPiece) {
        match (self.pieces.last_mut(), piece) {
            (Some(TextPiece::Plain(begun)), TextPiece::Plain(more)) => begun.push_str(&more),
            (_, piece) => self.pieces.push(piece),
        }
    }

    fn finish(self) -> Result<Block, serde_json::Error> {
        let mut whole = String::new();
        let mut parts = Vec::with_capacity(self.pieces.len());
        let mut is_plain = !self.is_thought;
        for piece in self.pieces {
            let (said, part) = match piece {
                TextPiece::Plain(said) if self.is_thought => {
                    let part = to_raw_value(&json!({ "text": said, "thought": true }))?;
                    (said, part)
                }
                TextPiece::Plain(said) => {
                    let part = to_raw_value(&json!({ "text": said }))?;
                    (said, part)
                }
                TextPiece::Signed(said, fields) => {
                    is_plain = false;
                    (said, to_raw_value(&fields)?)
                }
            };
            whole.push_str(&said);
            parts.push(part);
        }
        let view =
            if self.is_thought || whole.is_empty() { BlockContent::Thinking(whole) } else { BlockContent::Text(whole) };
        let raw = match &*parts {
            _ if is_plain => return Ok(view.into()),
            [part] => part.clone(),
            parts => to_raw_value(parts)?,
        };
        Ok(Block { content: view, raw: Some(Arc::from(raw)) })
    }
}

impl PartAssembler {
    /// Takes a part; `say` is told its text. Returns how many bytes it says.
    pub(super) fn grow(&mut self, mut fields: Fields, say: &dyn Fn(&str)) -> usize {
        // Some servers write down every field that a part could have.
        fields.retain(|_, value| value.get() != "null");
        let is_kind = |name: &str| !["text", "thought", SIGNATURE_FIELD].contains(&name);
        if fields.keys().any(|name| is_kind(name)) && !fields.contains_key("text") {
            let size = fields.values().map(|value| value.get().len()).sum();
            self.pending.push(PendingPart::Complete(fields));
            return size;
        }
        let said = text_field(&fields, "text").unwrap_or_default();
        let is_thought = fields.get("thought").is_some_and(|thought| thought.get() == "true");
        if !is_thought {
            say(&said);
        }
        let size = said.len();
        let piece = if fields.keys().any(|name| !["text", "thought"].contains(&name.as_str())) {
            // A part without any data is none.
            fields.entry("text".to_owned()).or_insert_with(empty_text);
            TextPiece::Signed(said, fields)
        } else if said.is_empty() {
            return 0;
        } else {
            TextPiece::Plain(said)
        };
        match self.pending.last_mut() {
            Some(PendingPart::Text(run)) if run.is_thought == is_thought => run.grow(piece),
            _ => self.pending.push(PendingPart::Text(TextRun { is_thought, pieces: vec![piece] })),
        }
        size
    }

    /// The blocks that they have become.
    ///
    /// # Errors
    /// One can't be written as JSON again, which no part leads to.
    pub(super) fn finish(self) -> Result<Vec<Block>, serde_json::Error> {
        let finish = |growing| match growing {
            PendingPart::Text(run) => run.finish(),
            PendingPart::Complete(fields) if fields.contains_key(CALL_FIELD) => call(fields),
            PendingPart::Complete(fields) => {
                let kind = fields.keys().find(|name| !["thought", SIGNATURE_FIELD].contains(&name.as_str()));
                let view = BlockContent::Other(kind.cloned().unwrap_or_default());
                Ok(Block { content: view, raw: Some(Arc::from(to_raw_value(&fields)?)) })
            }
        };
        self.pending.into_iter().map(finish).collect()
    }
}

fn empty_text() -> Box<RawValue> {
    to_raw_value("").unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A call. Its part is kept as it came, even where it says no more than the view: whether it has an id of its own counts.
fn call(mut part: Fields) -> Result<Block, serde_json::Error> {
    let mut inner: Fields =
        part.get(CALL_FIELD).and_then(|call| serde_json::from_str(call.get()).ok()).unwrap_or_default();
    // An object; some servers send JSON in a text.
    let in_text = text_field(&inner, "args");
    let written = in_text.as_deref().or_else(|| inner.get("args").map(|args| args.get()));
    let (input, broken) = parse_input(written.filter(|input| !input.trim().is_empty()));
    let [id, tool] = ["id", "name"].map(|name| text_field(&inner, name).unwrap_or_default());
    if in_text.is_some() || broken.is_some() {
        inner.insert("args".to_owned(), input.clone());
        part.insert(CALL_FIELD.to_owned(), to_raw_value(&inner)?);
    }
    let call = ToolCall { id, tool, input: Arc::from(input), input_error: broken };
    Ok(Block { content: BlockContent::Call(call), raw: Some(Arc::from(to_raw_value(&part)?)) })
}

/// Whether a block's JSON is this API's own, and not another's whose reply stands in the conversation.
pub(super) fn is_gemini_part(view: &BlockContent, raw: &RawValue) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(raw.get()) else { return false };
    let parts = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
    let fits = |part: &Value| match view {
        BlockContent::Call(_) => part.get(CALL_FIELD).is_some_and(Value::is_object),
        BlockContent::Text(_) | BlockContent::Thinking(_) => part.get("text").is_some(),
        BlockContent::Other(kind) => part.get(kind).is_some(),
    };
    // Everybody else's have a `type`, or a field of their own.
    !parts.is_empty() && parts.iter().all(|part| part.get("type").is_none() && fits(part))
}
