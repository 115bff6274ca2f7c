//! Lenient parsing of servers' JSON, and helpers for request bodies.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::surrogates::decode_wtf8;
use crate::message::UserMessage;

/// The fields of a JSON object, with each value as raw JSON.
pub(crate) type Fields = IndexMap<String, Box<RawValue>>;

/// The fields of a JSON object as slices of its text, because most events of a stream are read once and dropped. If several
/// fields have the same name, the last one counts, as in [`Fields`].
#[derive(Debug, Default)]
pub(crate) struct FieldRefs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl FieldRefs<'_> {
    /// The fields as values of their own.
    pub(crate) fn to_fields(&self) -> Fields {
        self.0.iter().map(|(name, value)| (name.clone().into_owned(), (*value).to_owned())).collect()
    }
}

impl<'de> Deserialize<'de> for FieldRefs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = FieldRefs<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<FieldRefs<'de>, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some((FieldName(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(FieldRefs(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// The name of a field, borrowed unless it has escapes.
struct FieldName<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = FieldName<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<FieldName<'de>, E> {
                Ok(FieldName(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<FieldName<'de>, E> {
                Ok(FieldName(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// An object whose fields are found by name.
pub(crate) trait FieldLookup {
    /// The value of a field as raw JSON.
    fn raw_field(&self, name: &str) -> Option<&RawValue>;
}

impl FieldLookup for Fields {
    fn raw_field(&self, name: &str) -> Option<&RawValue> {
        self.get(name).map(|value| &**value)
    }
}

impl FieldLookup for FieldRefs<'_> {
    fn raw_field(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// The placeholder for an empty text, which most APIs refuse.
pub(crate) const EMPTY_TEXT: &str = "(nothing)";

/// A string that may contain unpaired surrogates, which JSON allows and Rust doesn't.
struct LossyString(String);

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
                Ok(LossyString(decode_wtf8(bytes)))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

/// The value, if it is a string; a slice of the JSON unless it has escapes. Half of a surrogate pair is a private character,
/// see [`super::surrogates`].
pub(crate) fn str_value(value: &RawValue) -> Option<Cow<'_, str>> {
    let json = value.get();
    let inner = json.strip_prefix('"')?;
    match inner.strip_suffix('"').filter(|inner| memchr::memchr(b'\\', inner.as_bytes()).is_none()) {
        Some(text) => Some(Cow::Borrowed(text)),
        None => serde_json::from_str::<LossyString>(json).ok().map(|text| Cow::Owned(text.0)),
    }
}

/// The value, if it is a string.
pub(crate) fn string_value(value: &RawValue) -> Option<String> {
    str_value(value).map(Cow::into_owned)
}

/// The value of a field, if it is a string; a slice of the JSON unless it has escapes.
pub(crate) fn str_field<'f>(fields: &'f impl FieldLookup, name: &str) -> Option<Cow<'f, str>> {
    str_value(fields.raw_field(name)?)
}

/// The value of a field, if it is a string.
pub(crate) fn string_field(fields: &impl FieldLookup, name: &str) -> Option<String> {
    str_field(fields, name).map(Cow::into_owned)
}

/// The value of a field, if it is a string that isn't empty.
pub(crate) fn non_empty_field(fields: &impl FieldLookup, name: &str) -> Option<String> {
    string_field(fields, name).filter(|text| !text.is_empty())
}

/// The value of a field, if it has this type.
pub(crate) fn field<T: DeserializeOwned>(fields: &impl FieldLookup, name: &str) -> Option<T> {
    serde_json::from_str(fields.raw_field(name)?.get()).ok()
}

/// The fields of an object in raw JSON; none for anything else.
pub(crate) fn parse_fields(json: &RawValue) -> Fields {
    serde_json::from_str(json.get()).unwrap_or_default()
}

/// Encodes strings, and lists and objects of them or of raw JSON, for which it can't fail.
pub(crate) fn to_raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A token count, which some servers write as a float; 0 for anything else. `path` has a slash before each name.
pub(crate) fn token_count(counts: &Value, path: &str) -> u64 {
    const MAX: f64 = 1e15;
    let count = path.split('/').skip(1).try_fold(counts, |object, name| object.get(name));
    let from_float = |count: &Value| count.as_f64().filter(|number| (0.0..=MAX).contains(number));
    count.and_then(|count| count.as_u64().or_else(|| from_float(count).map(|number| number as u64))).unwrap_or_default()
}

/// A JSON object that is being received, and whose strings grow.
#[derive(Debug, Default)]
pub(crate) struct GrowingObject {
    fields: Fields,
    /// The current values of the strings that have grown.
    texts: IndexMap<String, String>,
    /// The position of the string that grew last, which mostly grows next, too.
    last_grown: usize,
}

impl GrowingObject {
    /// An object at its start.
    pub(crate) fn new(fields: Fields) -> Self {
        Self { fields, ..Self::default() }
    }

    /// The value of a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.texts.get(name).cloned().or_else(|| string_field(&self.fields, name))
    }

    /// Whether both have the same value there, or none.
    pub(crate) fn has_same(&self, name: &str, other: &Fields) -> bool {
        self.fields.get(name).map(|value| value.get()) == other.get(name).map(|value| value.get())
    }

    /// Appends to a string.
    pub(crate) fn append(&mut self, name: &str, piece: &str) {
        if let Some((_, text)) = self.texts.get_index_mut(self.last_grown).filter(|(known, _)| *known == name) {
            return text.push_str(piece);
        }
        let start = || string_field(&self.fields, name).unwrap_or_default();
        let entry = self.texts.entry(name.to_owned());
        self.last_grown = entry.index();
        entry.or_insert_with(start).push_str(piece);
    }

    /// Replaces a value.
    pub(crate) fn insert(&mut self, name: String, value: Box<RawValue>) {
        self.texts.shift_remove(&name);
        self.fields.insert(name, value);
    }

    /// The object so far.
    pub(crate) fn into_fields(mut self) -> Fields {
        for (name, text) in self.texts {
            self.fields.insert(name, to_raw(&text));
        }
        self.fields
    }
}

/// Whether a text is empty or white space, which most APIs refuse.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The text to send: `text`, or a placeholder if it is blank.
pub(crate) fn or_placeholder(text: &str) -> &str {
    if is_blank(text) { EMPTY_TEXT } else { text }
}

/// The text to send with the results of a message, or a placeholder if it has neither.
pub(crate) fn text_to_send(message: &UserMessage) -> Option<&str> {
    let text = message.text.as_deref().filter(|text| !is_blank(text));
    text.or(message.results.is_empty().then_some(EMPTY_TEXT))
}

/// The parts of a request that are encoded once: the members that never change, and the list of messages.
#[derive(Debug)]
pub(crate) struct EncodedBody {
    /// Members with a comma before each, and the start of the list.
    prefix: Bytes,
    messages: Vec<Bytes>,
    /// The older messages, many in one piece and with commas between them, so that a turn doesn't pass on each of them.
    blocks: Vec<Bytes>,
    /// How many messages are in blocks, of which they are slices.
    in_blocks: usize,
    /// The length of the other messages in bytes.
    loose_bytes: usize,
    size: usize,
}

/// The messages at the end that are never in blocks, because they can still change and get marks.
const LOOSE_MESSAGES: usize = 8;
/// The length of the other loose messages in bytes from which they become a block.
const BLOCK_BYTES: usize = 16 << 10;

impl EncodedBody {
    /// A body without messages. `prefix` ends with the opening bracket of the list, and elements that always precede the
    /// messages.
    pub(crate) fn new(prefix: String) -> Self {
        Self {
            size: prefix.len(),
            prefix: Bytes::from(prefix),
            messages: Vec::new(),
            blocks: Vec::new(),
            in_blocks: 0,
            loose_bytes: 0,
        }
    }

    /// Replaces the prefix, which must end as the one before.
    pub(crate) fn replace_prefix(&mut self, prefix: String) {
        self.size = self.size - self.prefix.len() + prefix.len();
        self.prefix = Bytes::from(prefix);
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, json: String) {
        self.size += json.len() + 1;
        self.loose_bytes += json.len();
        self.messages.push(Bytes::from(json));
        if self.loose_bytes >= BLOCK_BYTES {
            self.add_block();
        }
    }

    /// Joins the older ones of the loose messages, if they are long enough for a block.
    fn add_block(&mut self) {
        let end = self.messages.len().saturating_sub(LOOSE_MESSAGES);
        let Some(old) = self.messages.get_mut(self.in_blocks..end) else { return };
        let length: usize = old.iter().map(|message| message.len() + 1).sum();
        if length < BLOCK_BYTES {
            return;
        }
        let mut joined = BytesMut::with_capacity(length);
        for message in old.iter() {
            if !joined.is_empty() {
                joined.put_u8(b',');
            }
            joined.put_slice(message);
        }
        let block = joined.freeze();
        let mut at = 0;
        for message in old {
            let next = at + message.len();
            // The memory is that of the block from now on.
            *message = block.slice(at..next);
            at = next + 1;
        }
        self.blocks.push(block);
        self.in_blocks = end;
        self.loose_bytes = self.messages[end..].iter().map(Bytes::len).sum();
    }

    /// Passes on each message by itself, as some have changed.
    fn drop_blocks(&mut self) {
        self.blocks.clear();
        self.in_blocks = 0;
        self.loose_bytes = self.messages.iter().map(Bytes::len).sum();
    }

    /// Appends to the last message, before its last `closing` bytes, if it starts with `start`. Returns whether it does.
    pub(crate) fn extend_last(&mut self, start: &str, more: &str, closing: usize) -> bool {
        let Some(last) = self.messages.last_mut().filter(|last| last.starts_with(start.as_bytes())) else {
            return false;
        };
        let (head, end) = last.split_at(last.len().saturating_sub(closing));
        *last = Bytes::from([head, more.as_bytes(), end].concat());
        self.size += more.len();
        self.loose_bytes += more.len();
        true
    }

    /// Replaces messages by shorter ones. Returns whether there were any.
    pub(crate) fn shorten(&mut self, shorter: impl Fn(&[u8]) -> Option<String>) -> bool {
        let before = self.size;
        for message in &mut self.messages {
            if let Some(json) = shorter(message) {
                self.size -= message.len().saturating_sub(json.len());
                *message = Bytes::from(json);
            }
        }
        self.drop_blocks();
        self.size < before
    }

    /// Drops all messages.
    pub(crate) fn clear(&mut self) {
        self.size = self.prefix.len();
        self.messages.clear();
        self.drop_blocks();
    }

    /// The whole body: `head`, which starts the object, the prefix, the messages, and both closing brackets.
    pub(crate) fn chunks(&self, head: String) -> Vec<Bytes> {
        let mut chunks = vec![Bytes::from(head), self.prefix.clone()];
        for message in self.blocks.iter().chain(&self.messages[self.in_blocks..]) {
            if chunks.len() > 2 || !self.prefix.ends_with(b"[") {
                chunks.push(Bytes::from_static(b","));
            }
            chunks.push(message.clone());
        }
        chunks.push(Bytes::from_static(b"]}"));
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_and_without_copies() {
        for json in [
            r#"{"a":"x","b":[1,{"a":2}],"a":"y","c":null}"#,
            r#" { "\u0061" : "z\n\ud800" , "b":"" } "#,
            r#"{"a":7}"#,
            "{}",
        ] {
            let refs: FieldRefs<'_> = serde_json::from_str(json).unwrap();
            let fields: Fields = serde_json::from_str(json).unwrap();
            for name in ["a", "b", "c", "d"] {
                let raw = |value: Option<&RawValue>| value.map(|value| value.get().to_owned());
                assert_eq!(raw(refs.raw_field(name)), raw(fields.raw_field(name)), "{name} of {json}");
                assert_eq!(str_field(&refs, name), str_field(&fields, name));
            }
            assert_eq!(to_raw(&refs.to_fields()).get(), to_raw(&fields).get());
        }
        let text = |json: &str| str_value(serde_json::from_str(json).unwrap()).map(Cow::into_owned);
        assert_eq!(text(r#""a \"b\" \ud83d\ude00 \ud800""#).as_deref(), Some("a \"b\" 😀 \u{10f800}"));
        assert_eq!(text(r#""\\""#).as_deref(), Some("\\"));
        assert_eq!((text("7"), text(r#"["a"]"#), text(r#""""#)), (None, None, Some(String::new())));
        assert!(serde_json::from_str::<FieldRefs<'_>>("[]").is_err());
        assert!(serde_json::from_str::<FieldRefs<'_>>(r#"{"a":1"#).is_err());
    }

    #[test]
    fn a_body_is_the_same_in_blocks() {
        for length in [10, 3_000, 40_000] {
            let mut body = EncodedBody::new("[".to_owned());
            let mut messages: Vec<String> = Vec::new();
            let whole = |body: &EncodedBody| String::from_utf8(body.chunks(String::new()).concat()).unwrap();
            let check = |body: &EncodedBody, messages: &[String]| {
                assert_eq!(whole(body), format!("[{}]}}", messages.join(",")));
                assert_eq!(body.size(), 1 + messages.iter().map(|message| message.len() + 1).sum::<usize>());
            };
            for number in 0..60 {
                let message = format!("{{{number}{}}}", "x".repeat(length));
                messages.push(message.clone());
                body.push(message);
                if number % 7 == 0 {
                    assert!(body.extend_last("{", ",more", 1));
                    let last = messages.last_mut().unwrap();
                    last.insert_str(last.len() - 1, ",more");
                }
                check(&body, &messages);
            }
            // The number of pieces doesn't grow with the number of messages.
            let most = 2 * (LOOSE_MESSAGES + (60 * length) / BLOCK_BYTES + BLOCK_BYTES / length) + 5;
            assert!(body.chunks(String::new()).len() <= most || length == 10, "{}", body.chunks(String::new()).len());
            assert_eq!(body.blocks.is_empty(), length == 10);
            assert!(body.shorten(|message| message.starts_with(b"{3x").then(|| "{}".to_owned())));
            messages[3] = "{}".to_owned();
            check(&body, &messages);
            messages.push("{last}".to_owned());
            body.push("{last}".to_owned());
            check(&body, &messages);
            body.clear();
            check(&body, &[]);
        }
    }
}
