//! A model's reasoning. The API has no field for it, so each server has its own.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::message::{Block, BlockContent};
use crate::providers::json::{
    FieldLookup, Fields, GrowingObject, field, parse_fields, str_field, string_field, string_value, to_raw,
};

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
pub(super) struct PendingReasoning {
    /// The field that the text comes in.
    field: Option<&'static str>,
    text: String,
    details: Vec<GrowingObject>,
    blocks: Vec<GrowingObject>,
}

impl PendingReasoning {
    /// Takes the reasoning in a delta; returns its size in bytes.
    pub(super) fn push_delta(&mut self, delta: &impl FieldLookup) -> usize {
        // If both fields are present, they are equal.
        let text = [CONTENT, TEXT].into_iter().find_map(|field| Some((field, str_field(delta, field)?)));
        let mut size = 0;
        if let Some((field, piece)) = text {
            self.field.get_or_insert(field);
            self.text.push_str(&piece);
            size = piece.len();
        }
        for detail in field::<Vec<Fields>>(delta, DETAILS).unwrap_or_default() {
            let continues = |last: &GrowingObject| {
                detail.contains_key("index") && ["type", "index"].iter().all(|name| last.has_same(name, &detail))
            };
            let continues = self.details.last().is_some_and(continues);
            push_or_grow(&mut self.details, detail, continues, &["text", "summary", "data"]);
        }
        for block in field::<Vec<Fields>>(delta, BLOCKS).unwrap_or_default() {
            let text = string_field(&block, THOUGHT).filter(|_| size == 0).unwrap_or_default();
            self.text.push_str(&text);
            size += text.len();
            let is_thinking = string_field(&block, "type").is_some_and(|kind| kind == THOUGHT);
            let continues = |last: &GrowingObject| last.has_same("type", &block) && !is_signed_or_encrypted(last);
            let continues = is_thinking && self.blocks.last().is_some_and(continues);
            push_or_grow(&mut self.blocks, block, continues, &[THOUGHT]);
        }
        size
    }

    /// Takes reasoning from within the content. It isn't sent back.
    pub(super) fn push_inline(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// The block, with the fields to send back: the parts, if any, and Claude's signed or encrypted blocks. If the
    /// server sent an empty text together with calls, it is kept, as the server requires it back.
    pub(super) fn finish(mut self, has_calls: bool) -> Option<Block> {
        self.blocks.retain(is_signed_or_encrypted);
        let is_nothing = self.text.is_empty() && self.details.is_empty() && self.blocks.is_empty();
        if is_nothing && !(has_calls && self.field == Some(CONTENT)) {
            return None;
        }
        let objects = |objects: Vec<GrowingObject>| {
            to_raw(&objects.into_iter().map(GrowingObject::into_fields).collect::<Vec<_>>())
        };
        let mut fields = Fields::new();
        if !self.details.is_empty() {
            fields.insert(DETAILS.to_owned(), objects(self.details));
        } else if let Some(field) = self.field {
            fields.insert(field.to_owned(), to_raw(&self.text));
        }
        if !self.blocks.is_empty() {
            fields.insert(BLOCKS.to_owned(), objects(self.blocks));
        }
        let raw = (!fields.is_empty()).then(|| Arc::from(to_raw(&fields)));
        Some(Block { content: BlockContent::Thinking(self.text), raw })
    }
}

/// Adds an object, or extends the last one if it continues that. Then strings in `growing` are appended, and any other
/// value replaces the earlier one, unless it is null.
fn push_or_grow(objects: &mut Vec<GrowingObject>, new: Fields, continues: bool, growing: &[&str]) {
    let Some(last) = objects.last_mut().filter(|_| continues) else { return objects.push(GrowingObject::new(new)) };
    for (name, value) in new {
        match string_value(&value) {
            Some(piece) if growing.contains(&name.as_str()) => last.append(&name, &piece),
            _ if value.get() == "null" => {}
            _ => last.insert(name, value),
        }
    }
}

/// The members to send back in the message, each with a leading comma.
pub(super) fn encode_members(raw: &RawValue) -> String {
    let fields = parse_fields(raw);
    let known = fields.iter().filter(|(name, _)| [CONTENT, TEXT, DETAILS, BLOCKS].contains(&name.as_str()));
    known.map(|(name, value)| format!(r#","{name}":{value}"#)).collect()
}

/// An encoded message without its reasoning. `None` if it has none.
pub(super) fn without_reasoning(json: &[u8]) -> Option<String> {
    let mut fields: Fields = serde_json::from_slice(json).ok()?;
    let before = fields.len();
    fields.retain(|name, _| ![CONTENT, TEXT, DETAILS, BLOCKS].contains(&name.as_str()));
    (fields.len() < before).then(|| to_raw(&fields).get().to_owned())
}

/// Whether one of Claude's blocks is signed or encrypted, and so complete; others aren't accepted back.
fn is_signed_or_encrypted(block: &GrowingObject) -> bool {
    ["signature", "data"].iter().any(|name| block.text(name).is_some_and(|it| !it.is_empty()))
}
