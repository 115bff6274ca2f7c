//! The parts of a reply, as they come.
//!
//! A stream cuts texts anywhere, so neighbours become one; but a part with a signature stays what it is, for the API takes
//! the signature back only in its place: in a call, in a text, or in a text that is empty and comes last. The block of a
//! text that was put together from several parts keeps them as a list.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::message::{Block, ToolCall, View};
use crate::providers::input::read_input;
use crate::providers::lossy::Lossy;

/// The fields of a JSON object, each value as it was written.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// The field of a signature.
pub(super) const SIGNATURE: &str = "thoughtSignature";
/// The field of a call.
pub(super) const CALL: &str = "functionCall";

/// A field that is a text.
pub(super) fn text(fields: &Fields, name: &str) -> Option<String> {
    serde_json::from_str::<Lossy>(fields.get(name)?.get()).ok().map(|text| text.0)
}

/// Parts that are being received.
#[derive(Debug, Default)]
pub(super) struct Parts {
    growing: Vec<Growing>,
}

#[derive(Debug)]
enum Growing {
    Run(Run),
    Whole(Fields),
}

/// Texts in a row.
#[derive(Debug)]
struct Run {
    is_thought: bool,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    /// Nothing but text; grows.
    Plain(String),
    /// A part with more than that, and its text.
    Signed(String, Fields),
}

impl Run {
    fn grow(&mut self, piece: Piece) {
        match (self.pieces.last_mut(), piece) {
            (Some(Piece::Plain(begun)), Piece::Plain(more)) => begun.push_str(&more),
            (_, piece) => self.pieces.push(piece),
        }
    }

    fn finish(self) -> Result<Block, serde_json::Error> {
        let mut whole = String::new();
        let mut parts = Vec::with_capacity(self.pieces.len());
        let mut is_plain = !self.is_thought;
        for piece in self.pieces {
            let (said, part) = match piece {
                Piece::Plain(said) if self.is_thought => {
                    let part = to_raw_value(&json!({ "text": said, "thought": true }))?;
                    (said, part)
                }
                Piece::Plain(said) => {
                    let part = to_raw_value(&json!({ "text": said }))?;
                    (said, part)
                }
                Piece::Signed(said, fields) => {
                    is_plain = false;
                    (said, to_raw_value(&fields)?)
                }
            };
            whole.push_str(&said);
            parts.push(part);
        }
        let view = if self.is_thought || whole.is_empty() { View::Thinking(whole) } else { View::Text(whole) };
        let raw = match &*parts {
            _ if is_plain => return Ok(view.into()),
            [part] => part.clone(),
            parts => to_raw_value(parts)?,
        };
        Ok(Block { view, raw: Some(Arc::from(raw)) })
    }
}

impl Parts {
    /// Takes a part; `say` is told its text. Returns how many bytes it says.
    pub(super) fn grow(&mut self, mut fields: Fields, say: &dyn Fn(&str)) -> usize {
        // Some servers write down every field that a part could have.
        fields.retain(|_, value| value.get() != "null");
        let is_kind = |name: &str| !["text", "thought", SIGNATURE].contains(&name);
        if fields.keys().any(|name| is_kind(name)) && !fields.contains_key("text") {
            let size = fields.values().map(|value| value.get().len()).sum();
            self.growing.push(Growing::Whole(fields));
            return size;
        }
        let said = text(&fields, "text").unwrap_or_default();
        let is_thought = fields.get("thought").is_some_and(|thought| thought.get() == "true");
        if !is_thought {
            say(&said);
        }
        let size = said.len();
        let piece = if fields.keys().any(|name| !["text", "thought"].contains(&name.as_str())) {
            // A part without any data is none.
            fields.entry("text".to_owned()).or_insert_with(empty_text);
            Piece::Signed(said, fields)
        } else if said.is_empty() {
            return 0;
        } else {
            Piece::Plain(said)
        };
        match self.growing.last_mut() {
            Some(Growing::Run(run)) if run.is_thought == is_thought => run.grow(piece),
            _ => self.growing.push(Growing::Run(Run { is_thought, pieces: vec![piece] })),
        }
        size
    }

    /// The blocks that they have become.
    ///
    /// # Errors
    /// One can't be written as JSON again, which no part leads to.
    pub(super) fn finish(self) -> Result<Vec<Block>, serde_json::Error> {
        let finish = |growing| match growing {
            Growing::Run(run) => run.finish(),
            Growing::Whole(fields) if fields.contains_key(CALL) => call(fields),
            Growing::Whole(fields) => {
                let kind = fields.keys().find(|name| !["thought", SIGNATURE].contains(&name.as_str()));
                let view = View::Other(kind.cloned().unwrap_or_default());
                Ok(Block { view, raw: Some(Arc::from(to_raw_value(&fields)?)) })
            }
        };
        self.growing.into_iter().map(finish).collect()
    }
}

fn empty_text() -> Box<RawValue> {
    to_raw_value("").unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A call. Its part is kept as it came, even where it says no more than the view: whether it has an id of its own counts.
fn call(mut part: Fields) -> Result<Block, serde_json::Error> {
    let mut inner: Fields = part.get(CALL).and_then(|call| serde_json::from_str(call.get()).ok()).unwrap_or_default();
    // An object; some servers send JSON in a text.
    let in_text = text(&inner, "args");
    let written = in_text.as_deref().or_else(|| inner.get("args").map(|args| args.get()));
    let (input, broken) = read_input(written.filter(|input| !input.trim().is_empty()));
    let [id, tool] = ["id", "name"].map(|name| text(&inner, name).unwrap_or_default());
    if in_text.is_some() || broken.is_some() {
        inner.insert("args".to_owned(), input.clone());
        part.insert(CALL.to_owned(), to_raw_value(&inner)?);
    }
    let call = ToolCall { id, tool, input: Arc::from(input), broken };
    Ok(Block { view: View::Call(call), raw: Some(Arc::from(to_raw_value(&part)?)) })
}

/// Whether a block's JSON is this API's own, and not another's whose reply stands in the conversation.
pub(super) fn is_own(view: &View, raw: &RawValue) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(raw.get()) else { return false };
    let parts = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
    let fits = |part: &Value| match view {
        View::Call(_) => part.get(CALL).is_some_and(Value::is_object),
        View::Text(_) | View::Thinking(_) => part.get("text").is_some(),
        View::Other(kind) => part.get(kind).is_some(),
    };
    // Everybody else's have a `type`, or a field of their own.
    !parts.is_empty() && parts.iter().all(|part| part.get("type").is_none() && fits(part))
}
