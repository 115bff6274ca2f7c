//! A model's reasoning, which the API itself doesn't know: each server has its own field for it.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::{RawValue, to_raw_value};

use crate::message::{Block, BlockContent};
use crate::providers::lossy_string::LossyString;

/// The fields of a JSON object, each value as it was written.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// Its whole text (DeepSeek, llama.cpp, SGLang and others).
const CONTENT: &str = "reasoning_content";
/// Its whole text (vLLM, OpenRouter, Groq, Ollama and others).
const TEXT: &str = "reasoning";
/// Its parts, signed and encrypted ones among them (OpenRouter).
const DETAILS: &str = "reasoning_details";
/// Claude's own blocks, beside the text in one of the others (LiteLLM): what Claude has signed it insists on.
const BLOCKS: &str = "thinking_blocks";
/// The text of one of these.
const THOUGHT: &str = "thinking";

/// Reasoning that is being received.
#[derive(Debug, Default)]
pub(super) struct ReasoningAssembler {
    /// The field that the text comes in.
    field: Option<&'static str>,
    text: String,
    details: Vec<Fields>,
    blocks: Vec<Fields>,
}

impl ReasoningAssembler {
    /// Takes what a delta says of it; returns how many bytes that is.
    pub(super) fn push_delta(&mut self, delta: &Fields) -> usize {
        let mut heard = 0;
        // Where both are there, they say the same.
        for field in [CONTENT, TEXT] {
            if let Some(piece) = delta.get(field).and_then(|value| string_value(value)) {
                self.field.get_or_insert(field);
                self.text.push_str(&piece);
                heard = piece.len();
                break;
            }
        }
        let details = delta.get(DETAILS).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
        for detail in details.unwrap_or_default() {
            self.push_detail(detail);
        }
        let blocks = delta.get(BLOCKS).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
        for block in blocks.unwrap_or_default() {
            let said =
                block.get(THOUGHT).and_then(|said| string_value(said)).filter(|_| heard == 0).unwrap_or_default();
            self.text.push_str(&said);
            heard += said.len();
            self.push_block(block);
        }
        heard
    }

    /// Takes a piece that came among the content; it has no field to be sent back in.
    pub(super) fn push_inline(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// A part that goes on, or a further one.
    fn push_detail(&mut self, detail: Fields) {
        let same = |last: &&mut Fields| {
            ["type", "index"]
                .iter()
                .all(|name| last.get(*name).map(|value| value.get()) == detail.get(*name).map(|value| value.get()))
                && detail.contains_key("index")
        };
        let Some(last) = self.details.last_mut().filter(same) else { return self.details.push(detail) };
        for (name, value) in detail {
            let begun = last.get(&name).and_then(|begun| string_value(begun));
            let grows = matches!(name.as_str(), "text" | "summary" | "data");
            match (begun, string_value(&value)) {
                (Some(begun), Some(piece)) if grows => {
                    if let Ok(whole) = to_raw_value(&(begun + &piece)) {
                        last.insert(name, whole);
                    }
                }
                _ if value.get() == "null" => {}
                _ => {
                    last.insert(name, value);
                }
            }
        }
    }

    /// A block that goes on until it is signed, or a further one.
    fn push_block(&mut self, block: Fields) {
        let is_thinking =
            |block: &Fields| block.get("type").and_then(|kind| string_value(kind)).is_some_and(|it| it == THOUGHT);
        let grows = |last: &&mut Fields| is_thinking(last) && !is_signed_or_encrypted(last) && is_thinking(&block);
        let Some(last) = self.blocks.last_mut().filter(grows) else { return self.blocks.push(block) };
        let begun = last.get(THOUGHT).and_then(|begun| string_value(begun)).unwrap_or_default();
        for (name, value) in block {
            let whole = match string_value(&value) {
                Some(piece) if name == THOUGHT => to_raw_value(&(begun.clone() + &piece)).unwrap_or(value),
                _ => value,
            };
            last.insert(name, whole);
        }
    }

    /// The block, with what of it is sent back: its parts, where there are any, and Claude's blocks, as far as they are signed
    /// or encrypted. An empty text counts where the server sent one with calls, for then it wants that back.
    ///
    /// # Errors
    /// It can't be written as JSON, which no text leads to.
    pub(super) fn finish(mut self, has_calls: bool) -> Result<Option<Block>, serde_json::Error> {
        self.blocks.retain(is_signed_or_encrypted);
        let is_nothing = self.text.is_empty() && self.details.is_empty() && self.blocks.is_empty();
        if is_nothing && !(has_calls && self.field == Some(CONTENT)) {
            return Ok(None);
        }
        let mut fields = Fields::new();
        if !self.details.is_empty() {
            fields.insert(DETAILS.to_owned(), to_raw_value(&self.details)?);
        } else if let Some(field) = self.field {
            fields.insert(field.to_owned(), to_raw_value(&self.text)?);
        }
        if !self.blocks.is_empty() {
            fields.insert(BLOCKS.to_owned(), to_raw_value(&self.blocks)?);
        }
        let raw = if fields.is_empty() { None } else { Some(Arc::from(to_raw_value(&fields)?)) };
        Ok(Some(Block { content: BlockContent::Thinking(self.text), raw }))
    }
}

/// The members of the message that it is sent back with, each with a comma before it.
pub(super) fn encode_members(raw: &RawValue) -> String {
    let fields: Fields = serde_json::from_str(raw.get()).unwrap_or_default();
    let known = fields.iter().filter(|(name, _)| [CONTENT, TEXT, DETAILS, BLOCKS].contains(&name.as_str()));
    known.map(|(name, value)| format!(r#","{name}":{value}"#)).collect()
}

/// A message as it was written, without the reasoning that it is sent back with; `None` where it has none.
pub(super) fn without_reasoning(json: &[u8]) -> Option<Vec<u8>> {
    let mut fields: Fields = serde_json::from_slice(json).ok()?;
    let before = fields.len();
    fields.retain(|name, _| ![CONTENT, TEXT, DETAILS, BLOCKS].contains(&name.as_str()));
    if fields.len() < before { serde_json::to_vec(&fields).ok() } else { None }
}

/// Whether one of Claude's blocks is signed or encrypted, and so at its end; others it doesn't take back.
fn is_signed_or_encrypted(block: &Fields) -> bool {
    ["signature", "data"]
        .iter()
        .any(|name| block.get(*name).and_then(|seal| string_value(seal)).is_some_and(|it| !it.is_empty()))
}

/// A value that is a text.
pub(super) fn string_value(value: &RawValue) -> Option<String> {
    serde_json::from_str::<LossyString>(value.get()).ok().map(|text| text.0)
}
