//! Assembles one content block of a reply from its events.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::message::{Block, BlockContent, ToolCall};
use crate::providers::json::{Fields, LossyString, string_field};
use crate::providers::tool_calls::{MAX_INPUT_BYTES, parse_input};

/// A block that is being received.
#[derive(Debug, Default)]
pub(super) struct BlockAssembler {
    /// The fields of `content_block_start`.
    fields: Fields,
    /// The current values of fields that grow by deltas.
    texts: IndexMap<String, String>,
    citations: Vec<Box<RawValue>>,
    /// The deltas of `input`, up to the size limit and one delta beyond it.
    input: Option<String>,
    /// Whether there was a delta.
    has_deltas: bool,
}

/// The minimum length in bytes for a repeated text at the start of a block to be dropped. For Bedrock's thoughts,
/// LiteLLM starts a block with the first delta and then sends it again. A shorter text may be repeated on purpose.
const MIN_REPEAT_BYTES: usize = 6;

impl BlockAssembler {
    /// A block at its start, or a whole block of a response that isn't streamed.
    pub(super) fn new(fields: Fields) -> Self {
        Self { fields, ..Self::default() }
    }

    /// Takes one delta and returns its text. As in all known deltas, strings in an unknown delta are appended to the
    /// block's field of the same name, and other values replace it.
    ///
    /// # Errors
    /// The delta isn't valid.
    pub(super) fn push_delta(&mut self, delta: &RawValue) -> Result<Option<String>, serde_json::Error> {
        let Kind { kind } = serde_json::from_str(delta.get())?;
        let known: &[&str] =
            &["text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta"];
        if !known.contains(&&*kind) {
            let mut fields: Fields = serde_json::from_str(delta.get())?;
            fields.shift_remove("type");
            self.merge(fields);
            return Ok(None);
        }
        let delta: Delta<'_> = serde_json::from_str(delta.get())?;
        let piece = delta.text.as_ref().or(delta.thinking.as_ref());
        let is_first = !std::mem::replace(&mut self.has_deltas, true);
        if let Some(LossyString(piece)) = piece.filter(|piece| is_first && piece.0.len() >= MIN_REPEAT_BYTES) {
            let field = if delta.text.is_some() { "text" } else { "thinking" };
            if self.text(field).as_ref() == Some(piece) {
                return Ok(None);
            }
        }
        if let Some(LossyString(piece)) = delta.text {
            self.append("text", &piece);
            return Ok(Some(piece));
        }
        if let Some(LossyString(piece)) = delta.thinking {
            self.append("thinking", &piece);
        }
        if let Some(LossyString(piece)) = delta.partial_json {
            let input = self.input.get_or_insert_default();
            if input.len() <= MAX_INPUT_BYTES {
                input.push_str(&piece);
            }
        }
        if let Some(LossyString(whole)) = delta.signature {
            // A signature arrives once. The official clients replace it, too.
            self.texts.insert("signature".to_owned(), whole);
        }
        self.citations.extend(delta.citation.map(ToOwned::to_owned));
        Ok(None)
    }

    /// The approximate size and the text of the block at its start.
    pub(super) fn initial_text(&self) -> (usize, Option<String>) {
        let own = ["type", "id", "name", "signature"];
        let sizes = self.fields.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        let size = sizes.map(|(_, value)| value.get().len().saturating_sub(2)).sum();
        let is_text = self.text("type").is_some_and(|kind| kind == "text");
        (size, self.text("text").filter(|_| is_text))
    }

    fn append(&mut self, field: &str, piece: &str) {
        if let Some(text) = self.texts.get_mut(field) {
            text.push_str(piece);
        } else {
            let start = self.text(field).unwrap_or_default();
            self.texts.insert(field.to_owned(), start + piece);
        }
    }

    fn merge(&mut self, delta: Fields) {
        for (name, value) in delta {
            match serde_json::from_str::<String>(value.get()) {
                Ok(piece) => self.append(&name, &piece),
                Err(_) => {
                    self.fields.insert(name, value);
                }
            }
        }
    }

    fn text(&self, field: &str) -> Option<String> {
        string_field(&self.fields, field)
    }

    /// The finished block.
    ///
    /// # Errors
    /// It can't be serialized. No input causes this.
    pub(super) fn finish(mut self) -> Result<Block, serde_json::Error> {
        let kind = self.text("type").unwrap_or_default();
        for (field, text) in std::mem::take(&mut self.texts) {
            self.fields.insert(field, to_raw_value(&text)?);
        }
        if !self.citations.is_empty() {
            let mut all = match self.fields.get("citations") {
                Some(before) => serde_json::from_str::<Option<Vec<Box<RawValue>>>>(before.get())?.unwrap_or_default(),
                None => Vec::new(),
            };
            all.append(&mut self.citations);
            self.fields.insert("citations".to_owned(), to_raw_value(&all)?);
        }
        let mut input_error = None;
        if kind == "tool_use" || self.input.is_some() {
            let streamed = self.input.take().filter(|input| !input.trim().is_empty());
            // Normally an object; some servers send JSON in a string.
            let given = self.text("input").or_else(|| self.fields.get("input").map(|input| input.get().to_owned()));
            let (input, error) = parse_input(streamed.or(given).as_deref());
            self.fields.insert("input".to_owned(), input);
            input_error = error;
        }
        let (content, own): (_, &[&str]) = match kind.as_str() {
            "text" => (BlockContent::Text(self.text("text").unwrap_or_default()), &["type", "text"]),
            "tool_use" => {
                let call = ToolCall {
                    id: self.text("id").unwrap_or_default(),
                    tool: self.text("name").unwrap_or_default(),
                    input: Arc::from(self.fields.get("input").cloned().unwrap_or_else(|| parse_input(None).0)),
                    input_error,
                };
                (BlockContent::Call(call), &["type", "id", "name", "input"])
            }
            "thinking" => (BlockContent::Thinking(self.text("thinking").unwrap_or_default()), &[]),
            "redacted_thinking" => (BlockContent::Thinking(String::new()), &[]),
            _ => (BlockContent::Other(kind), &[]),
        };
        let more = |name: &str, value: &RawValue| !own.contains(&name) && !matches!(value.get(), "null" | "[]");
        let raw = if own.is_empty() || self.fields.iter().any(|(name, value)| more(name, value)) {
            Some(Arc::from(to_raw_value(&self.fields)?))
        } else {
            None
        };
        Ok(Block { content, raw })
    }
}

/// Changes the id of a call.
///
/// # Errors
/// Its raw form isn't an object, which can't happen.
pub(super) fn set_call_id(block: &mut Block, id: String) -> Result<(), serde_json::Error> {
    if let Some(raw) = &block.raw {
        let mut fields: Fields = serde_json::from_str(raw.get())?;
        fields.insert("id".to_owned(), to_raw_value(&id)?);
        block.raw = Some(Arc::from(to_raw_value(&fields)?));
    }
    if let BlockContent::Call(call) = &mut block.content {
        call.id = id;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: std::borrow::Cow<'a, str>,
}

/// The fields of all known deltas; each has one.
#[derive(Deserialize)]
struct Delta<'a> {
    text: Option<LossyString>,
    thinking: Option<LossyString>,
    partial_json: Option<LossyString>,
    signature: Option<LossyString>,
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
}
