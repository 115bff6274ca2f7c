//! A model's reasoning, which the API itself doesn't know: each server has its own field for it.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::{RawValue, to_raw_value};

use crate::message::{Block, View};
use crate::providers::lossy::Lossy;

/// The fields of a JSON object, each value as it was written.
pub(super) type Fields = IndexMap<String, Box<RawValue>>;

/// Its whole text (DeepSeek, llama.cpp, SGLang and others).
const CONTENT: &str = "reasoning_content";
/// Its whole text (vLLM, OpenRouter, Groq, Ollama and others).
const TEXT: &str = "reasoning";
/// Its parts, signed and encrypted ones among them (OpenRouter).
const DETAILS: &str = "reasoning_details";

/// Reasoning that is being received.
#[derive(Debug, Default)]
pub(super) struct Thoughts {
    /// The field that the text comes in.
    field: Option<&'static str>,
    text: String,
    details: Vec<Fields>,
}

impl Thoughts {
    /// Takes what a delta says of it; returns how many bytes that is.
    pub(super) fn grow(&mut self, delta: &Fields) -> usize {
        let mut heard = 0;
        // Where both are there, they say the same.
        for field in [CONTENT, TEXT] {
            if let Some(piece) = delta.get(field).and_then(|value| text(value)) {
                self.field.get_or_insert(field);
                self.text.push_str(&piece);
                heard = piece.len();
                break;
            }
        }
        let details = delta.get(DETAILS).and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
        for detail in details.unwrap_or_default() {
            self.add(detail);
        }
        heard
    }

    /// Takes a piece that came among the content; it has no field to be sent back in.
    pub(super) fn say(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// A part that goes on, or a further one.
    fn add(&mut self, detail: Fields) {
        let same = |last: &&mut Fields| {
            ["type", "index"]
                .iter()
                .all(|name| last.get(*name).map(|value| value.get()) == detail.get(*name).map(|value| value.get()))
                && detail.contains_key("index")
        };
        let Some(last) = self.details.last_mut().filter(same) else { return self.details.push(detail) };
        for (name, value) in detail {
            let begun = last.get(&name).and_then(|begun| text(begun));
            let grows = matches!(name.as_str(), "text" | "summary" | "data");
            match (begun, text(&value)) {
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

    /// The block, with what of it is sent back: its parts, where there are any. An empty text counts where the server
    /// sent one with calls, for then it wants that back.
    ///
    /// # Errors
    /// It can't be written as JSON, which no text leads to.
    pub(super) fn finish(self, has_calls: bool) -> Result<Option<Block>, serde_json::Error> {
        if self.text.is_empty() && self.details.is_empty() && !(has_calls && self.field == Some(CONTENT)) {
            return Ok(None);
        }
        let mut fields = Fields::new();
        if !self.details.is_empty() {
            fields.insert(DETAILS.to_owned(), to_raw_value(&self.details)?);
        } else if let Some(field) = self.field {
            fields.insert(field.to_owned(), to_raw_value(&self.text)?);
        }
        let raw = if fields.is_empty() { None } else { Some(Arc::from(to_raw_value(&fields)?)) };
        Ok(Some(Block { view: View::Thinking(self.text), raw }))
    }
}

/// The members of the message that it is sent back with, each with a comma before it.
pub(super) fn write(raw: &RawValue) -> String {
    let fields: Fields = serde_json::from_str(raw.get()).unwrap_or_default();
    let known = fields.iter().filter(|(name, _)| [CONTENT, TEXT, DETAILS].contains(&name.as_str()));
    known.map(|(name, value)| format!(r#","{name}":{value}"#)).collect()
}

/// A value that is a text.
pub(super) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str::<Lossy>(value.get()).ok().map(|text| text.0)
}
