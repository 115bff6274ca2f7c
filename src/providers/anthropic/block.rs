//! Assembles one content block of a reply from its events.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::message::{Block, BlockContent, ToolCall};
use crate::providers::assembler::{PartialReply, StreamError};
use crate::providers::json::{
    FieldLookup, FieldRefs, Fields, GrowingObject, field, parse_fields, str_field, str_value, string_field, to_raw,
};
use crate::providers::tool_calls::{MAX_INPUT_BYTES, parse_input};

/// A block that is being received.
#[derive(Debug, Default)]
pub(super) struct PendingBlock {
    /// The index of its events.
    pub(super) index: u64,
    /// Whether no more events follow.
    pub(super) has_ended: bool,
    object: GrowingObject,
    citations: Vec<Box<RawValue>>,
    /// The deltas of `input`, up to the size limit and one delta beyond it.
    input: Option<String>,
    /// Whether there was a delta.
    has_deltas: bool,
}

/// The kinds of deltas, and the field of each. Other kinds may have any fields.
const DELTAS: [(&str, &str); 5] = [
    ("text_delta", "text"),
    ("thinking_delta", "thinking"),
    ("input_json_delta", "partial_json"),
    ("signature_delta", "signature"),
    ("citations_delta", "citation"),
];

/// The minimum length in bytes for a repeated text at the start of a block to be dropped. For Bedrock's thoughts,
/// LiteLLM starts a block with the first delta and then sends it again. A shorter text may be repeated on purpose.
const MIN_REPEAT_BYTES: usize = 6;

impl PendingBlock {
    /// A block at its start, or a whole block of a response that isn't streamed.
    pub(super) fn new(index: u64, fields: Fields) -> Self {
        Self { index, object: GrowingObject::new(fields), ..Self::default() }
    }

    /// Takes one delta. As in all known deltas, strings in an unknown delta are appended to the block's field of the same
    /// name, and other values replace it.
    ///
    /// # Errors
    /// The field of a known delta isn't a string, so a part of the block would be missing.
    pub(super) fn push_delta(&mut self, reply: &mut PartialReply, delta: &FieldRefs<'_>) -> Result<(), StreamError> {
        let kind = str_field(delta, "type").unwrap_or_default();
        let is_first = !std::mem::replace(&mut self.has_deltas, true);
        match DELTAS.iter().find(|(known, _)| *known == kind) {
            Some((_, name)) => match delta.raw_field(name) {
                Some(value) => self.push_known(reply, name, value, is_first),
                None => Ok(()),
            },
            None => {
                delta.to_fields().into_iter().for_each(|(name, value)| self.push_unknown(reply, name, value));
                Ok(())
            }
        }
    }

    /// Takes one delta of a known kind that has nothing but its content.
    ///
    /// # Errors
    /// As above.
    pub(super) fn push_plain(&mut self, reply: &mut PartialReply, delta: &PlainDelta<'_>) -> Result<(), StreamError> {
        let is_first = !std::mem::replace(&mut self.has_deltas, true);
        self.push_known(reply, delta.field, delta.value, is_first)
    }

    fn push_known(
        &mut self,
        reply: &mut PartialReply,
        name: &str,
        value: &RawValue,
        is_first: bool,
    ) -> Result<(), StreamError> {
        reply.add_output(content_bytes(name, value));
        match (name, str_value(value)) {
            ("partial_json", Some(piece)) => self.push_input(&piece),
            // A signature arrives once. The official clients replace it, too.
            ("signature", Some(_)) => self.object.insert(name.to_owned(), value.to_owned()),
            ("citation", _) => self.citations.push(value.to_owned()),
            (_, Some(piece)) => {
                let is_repeat = || self.object.text(name).is_some_and(|start| start == piece);
                if !(is_first && piece.len() >= MIN_REPEAT_BYTES && is_repeat()) {
                    self.object.append(name, &piece);
                }
            }
            (_, None) if value.get() == "null" => {}
            (_, None) => return Err(StreamError::malformed(format!("`{name}` of a delta isn't a string"))),
        }
        Ok(())
    }

    fn push_unknown(&mut self, reply: &mut PartialReply, name: String, value: Box<RawValue>) {
        if name == "type" {
            return;
        }
        reply.add_output(content_bytes(&name, &value));
        match (name.as_str(), str_value(&value)) {
            ("partial_json", Some(piece)) => self.push_input(&piece),
            ("citation", _) => self.citations.push(value),
            (_, Some(piece)) if name != "signature" => self.object.append(&name, &piece),
            _ => self.object.insert(name, value),
        }
    }

    fn push_input(&mut self, piece: &str) {
        let input = self.input.get_or_insert_default();
        if input.len() <= MAX_INPUT_BYTES {
            input.push_str(piece);
        }
    }

    /// The finished block.
    pub(super) fn finish(self) -> Block {
        let mut fields = self.object.into_fields();
        let text = |fields: &Fields, name| string_field(fields, name).unwrap_or_default();
        let kind = text(&fields, "type");
        if !self.citations.is_empty() {
            let mut all: Vec<Box<RawValue>> = field(&fields, "citations").unwrap_or_default();
            all.extend(self.citations);
            fields.insert("citations".to_owned(), to_raw(&all));
        }
        let mut input_error = None;
        if kind == "tool_use" || self.input.is_some() {
            let streamed = self.input.filter(|input| !input.trim().is_empty());
            let (input, error) = parse_input(streamed.as_deref().or(fields.get("input").map(|input| input.get())));
            fields.insert("input".to_owned(), input);
            input_error = error;
        }
        let (content, known_fields): (_, &[&str]) = match kind.as_str() {
            "text" => (BlockContent::Text(text(&fields, "text")), &["type", "text"]),
            "tool_use" => {
                let [id, tool] = ["id", "name"].map(|name| text(&fields, name));
                let input = Arc::from(fields["input"].clone());
                (BlockContent::Call(ToolCall { id, tool, input, input_error }), &["type", "id", "name", "input"])
            }
            "thinking" => (BlockContent::Thinking(text(&fields, "thinking")), &[]),
            "redacted_thinking" => (BlockContent::Thinking(String::new()), &[]),
            _ => (BlockContent::Other(kind), &[]),
        };
        let more =
            |name: &str, value: &RawValue| !known_fields.contains(&name) && !matches!(value.get(), "null" | "[]");
        let has_more = known_fields.is_empty() || fields.iter().any(|(name, value)| more(name, value));
        Block { content, raw: has_more.then(|| Arc::from(to_raw(&fields))) }
    }
}

/// The event of most deltas of a text or an input, read in one pass.
pub(super) struct PlainDelta<'a> {
    /// The index of its block.
    pub(super) index: u64,
    field: &'static str,
    value: &'a RawValue,
}

impl<'a> PlainDelta<'a> {
    /// Reads an event; `None` if it has anything else than the API's own fields for a piece of a text or an input.
    pub(super) fn parse(data: &'a str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Event<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            index: u64,
            #[serde(borrow)]
            delta: Piece<'a>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Piece<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(borrow)]
            text: Option<&'a RawValue>,
            #[serde(borrow)]
            thinking: Option<&'a RawValue>,
            #[serde(borrow)]
            partial_json: Option<&'a RawValue>,
        }
        let event: Event<'a> = serde_json::from_str(data).ok()?;
        let (field, value) = match (event.delta.kind, event.delta) {
            ("text_delta", Piece { text: Some(text), thinking: None, partial_json: None, .. }) => ("text", text),
            ("thinking_delta", Piece { text: None, thinking: Some(text), partial_json: None, .. }) => {
                ("thinking", text)
            }
            ("input_json_delta", Piece { text: None, thinking: None, partial_json: Some(text), .. }) => {
                ("partial_json", text)
            }
            _ => return None,
        };
        (event.kind == "content_block_delta").then_some(Self { index: event.index, field, value })
    }
}

/// The approximate size in bytes of the content in a field of a block or a delta.
pub(super) fn content_bytes(name: &str, value: &RawValue) -> usize {
    let is_content = !["type", "id", "name", "signature"].contains(&name);
    if is_content { value.get().len().saturating_sub(2) } else { 0 }
}

/// Changes the id of a call.
pub(super) fn set_call_id(block: &mut Block, id: String) {
    if let Some(raw) = &block.raw {
        let mut fields = parse_fields(raw);
        fields.insert("id".to_owned(), to_raw(&id));
        block.raw = Some(Arc::from(to_raw(&fields)));
    }
    if let BlockContent::Call(call) = &mut block.content {
        call.id = id;
    }
}
