//! Lenient parsing of servers' JSON, and helpers for request bodies.

use bytes::Bytes;
use indexmap::IndexMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The fields of a JSON object, with each value as raw JSON.
pub(crate) type Fields = IndexMap<String, Box<RawValue>>;

/// The placeholder for an empty text, which most APIs refuse.
pub(crate) const EMPTY_TEXT: &str = "(nothing)";

/// A string that may contain unpaired surrogates, which JSON allows and Rust doesn't. They are replaced.
#[derive(Debug, Default)]
pub(crate) struct LossyString(pub(crate) String);

impl<'de> Deserialize<'de> for LossyString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = LossyString;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<LossyString, E> {
                Ok(LossyString(text.to_owned()))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<LossyString, E> {
                Ok(LossyString(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

/// The value, if it is a string.
pub(crate) fn string_value(value: &RawValue) -> Option<String> {
    serde_json::from_str::<LossyString>(value.get()).ok().map(|text| text.0)
}

/// The value of a field, if it is a string.
pub(crate) fn string_field(fields: &Fields, name: &str) -> Option<String> {
    string_value(fields.get(name)?)
}

/// The string, unless it is empty.
pub(crate) fn non_empty(text: Option<LossyString>) -> Option<String> {
    text.map(|LossyString(text)| text).filter(|text| !text.is_empty())
}

/// Reads a token count, which some servers write as a float; `None` for anything else.
///
/// # Errors
/// The input isn't JSON.
pub(crate) fn deserialize_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    const MAX: f64 = 1e15;
    let value = Value::deserialize(deserializer)?;
    let from_float = || value.as_f64().filter(|number| (0.0..=MAX).contains(number)).map(|number| number as u64);
    Ok(value.as_u64().or_else(from_float))
}

/// Whether a text is empty or white space, which most APIs refuse.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The text to send: `text`, or a placeholder if it is blank.
pub(crate) fn or_placeholder(text: &str) -> &str {
    if is_blank(text) { EMPTY_TEXT } else { text }
}

/// A whole request body: the members before the list of messages, the messages, and both closing brackets.
pub(crate) fn join_body<'a>(head: [Bytes; 2], messages: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let mut chunks = Vec::from(head);
    for (at, json) in messages.enumerate() {
        if at > 0 {
            chunks.push(Bytes::from_static(b","));
        }
        chunks.push(json.clone());
    }
    chunks.push(Bytes::from_static(b"]}"));
    chunks
}
