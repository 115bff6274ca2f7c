//! A model's reasoning. The API has no field for it, so each server has its own.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};

use crate::message::{Block, BlockContent};
use crate::providers::json::{Fields, string_field, string_value};

/// The field with the text (DeepSeek, llama.cpp, SGLang and others).
const CONTENT: &str = "reasoning_content";
/// The field with the text (vLLM, OpenRouter, Groq, Ollama and others).
const TEXT: &str = "reasoning";
/// The field with the parts, including signed and encrypted ones (OpenRouter).
const DETAILS: &str = "reasoning_details";
/// The field with Claude's own blocks, in addition to the text in another field (LiteLLM). Signed blocks must be sent
/// back.
const BLOCKS: &str = "thinking_blocks";
/// The text field of a Claude block.
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
    /// Takes the reasoning in a delta; returns its size in bytes.
    pub(super) fn push_delta(&mut self, delta: &Fields) -> usize {
        let mut size = 0;
        // If both fields are present, they are equal.
        for field in [CONTENT, TEXT] {
            if let Some(piece) = string_field(delta, field) {
                self.field.get_or_insert(field);
                self.text.push_str(&piece);
                size = piece.len();
                break;
            }
        }
        let details = delta.get(DETAILS).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
        for detail in details.unwrap_or_default() {
            self.push_detail(detail);
        }
        let blocks = delta.get(BLOCKS).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
        for block in blocks.unwrap_or_default() {
            let text = string_field(&block, THOUGHT).filter(|_| size == 0).unwrap_or_default();
            self.text.push_str(&text);
            size += text.len();
            self.push_block(block);
        }
        size
    }

    /// Takes reasoning from within the content. It isn't sent back.
    pub(super) fn push_inline(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Extends the last part, or adds one.
    fn push_detail(&mut self, detail: Fields) {
        let same = |last: &&mut Fields| {
            ["type", "index"]
                .iter()
                .all(|name| last.get(*name).map(|value| value.get()) == detail.get(*name).map(|value| value.get()))
                && detail.contains_key("index")
        };
        let Some(last) = self.details.last_mut().filter(same) else { return self.details.push(detail) };
        for (name, value) in detail {
            let start = string_field(last, &name);
            let grows = matches!(name.as_str(), "text" | "summary" | "data");
            match (start, string_value(&value)) {
                (Some(start), Some(piece)) if grows => {
                    if let Ok(whole) = to_raw_value(&(start + &piece)) {
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

    /// Extends the last block until it is signed, or adds one.
    fn push_block(&mut self, block: Fields) {
        let is_thinking = |block: &Fields| string_field(block, "type").is_some_and(|kind| kind == THOUGHT);
        let grows = |last: &&mut Fields| is_thinking(last) && !is_signed_or_encrypted(last) && is_thinking(&block);
        let Some(last) = self.blocks.last_mut().filter(grows) else { return self.blocks.push(block) };
        let start = string_field(last, THOUGHT).unwrap_or_default();
        for (name, value) in block {
            let whole = match string_value(&value) {
                Some(piece) if name == THOUGHT => to_raw_value(&(start.clone() + &piece)).unwrap_or(value),
                _ => value,
            };
            last.insert(name, whole);
        }
    }

    /// The block, with the fields to send back: the parts, if any, and Claude's signed or encrypted blocks. If the
    /// server sent an empty text together with calls, it is kept, as the server requires it back.
    ///
    /// # Errors
    /// It can't be serialized. No text causes this.
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

/// The members to send back in the message, each with a leading comma.
pub(super) fn encode_members(raw: &RawValue) -> String {
    let fields: Fields = serde_json::from_str(raw.get()).unwrap_or_default();
    let known = fields.iter().filter(|(name, _)| [CONTENT, TEXT, DETAILS, BLOCKS].contains(&name.as_str()));
    known.map(|(name, value)| format!(r#","{name}":{value}"#)).collect()
}

/// An encoded message without its reasoning. `None` if it has none.
pub(super) fn without_reasoning(json: &[u8]) -> Option<Vec<u8>> {
    let mut fields: Fields = serde_json::from_slice(json).ok()?;
    let before = fields.len();
    fields.retain(|name, _| ![CONTENT, TEXT, DETAILS, BLOCKS].contains(&name.as_str()));
    if fields.len() < before { serde_json::to_vec(&fields).ok() } else { None }
}

/// Whether one of Claude's blocks is signed or encrypted, and so complete; others aren't accepted back.
fn is_signed_or_encrypted(block: &Fields) -> bool {
    ["signature", "data"].iter().any(|name| string_field(block, name).is_some_and(|it| !it.is_empty()))
}
