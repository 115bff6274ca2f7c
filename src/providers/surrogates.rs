//! Halves of characters in replies.
//!
//! JSON writes a character such as an emoji as two escapes, a surrogate pair, and also allows one of them alone. Servers
//! split such a pair over two pieces of a stream, and models write one half. Rust's strings and most APIs accept no
//! half, so each is kept as a private character until the reply is complete; then pairs are joined, and other halves
//! are replaced.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::message::{Block, BlockContent, Reply};
use crate::text::surrogates::replace_unpaired;

/// The first private character for a half: the last 2,048 code points of Unicode, which no font or model uses.
const FIRST: u32 = 0x10_F800;
/// The first surrogate.
const FIRST_SURROGATE: u32 = 0xD800;
/// How many first halves there are, and how many second ones.
const HALVES: u32 = 0x400;
/// The first byte of the private characters in UTF-8.
const LEAD: u8 = 0xF4;

/// Decodes a string of JSON, in which serde writes a lone surrogate as if it were a character.
pub(crate) fn decode_wtf8(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    let next = |rest: &[u8]| rest.windows(3).position(|three| three[0] == 0xED && three[1] >= 0xA0);
    while std::str::from_utf8(rest).is_err()
        && let Some(at) = next(rest)
    {
        text.push_str(&String::from_utf8_lossy(&rest[..at]));
        let surrogate = 0xD000 | u32::from(rest[at + 1] & 0x3F) << 6 | u32::from(rest[at + 2] & 0x3F);
        text.push(private(surrogate));
        rest = &rest[at + 3..];
    }
    text.push_str(&String::from_utf8_lossy(rest));
    text
}

/// The private character for a surrogate.
fn private(surrogate: u32) -> char {
    surrogate.checked_sub(FIRST_SURROGATE).and_then(|half| char::from_u32(FIRST + half)).unwrap_or('\u{fffd}')
}

/// Joins the halves in the blocks of a complete reply, and replaces those that are alone.
pub(crate) fn join_halves(blocks: &mut [Block]) {
    for Block { content, raw } in blocks {
        match content {
            BlockContent::Text(text) | BlockContent::Thinking(text) | BlockContent::Other(text) => join_in(text),
            BlockContent::Call(call) => {
                let texts = [&mut call.id, &mut call.tool].into_iter().chain(&mut call.input_error);
                texts.for_each(join_in);
                join_in_json(&mut call.input);
            }
        }
        raw.iter_mut().for_each(join_in_json);
    }
}

/// A reply from a record of a version that kept halves as escapes, without them; `None` if it has none.
pub(crate) fn without_halves(reply: &Reply) -> Option<Reply> {
    let has_half = |json: &Arc<RawValue>| matches!(replace_unpaired(json.get()), Cow::Owned(_));
    let has_halves = |block: &Block| {
        block.raw.as_ref().is_some_and(has_half)
            || matches!(&block.content, BlockContent::Call(call) if has_half(&call.input))
    };
    reply.blocks.iter().any(has_halves).then(|| {
        let mut reply = reply.clone();
        join_halves(&mut reply.blocks);
        reply
    })
}

fn join_in(text: &mut String) {
    if let Some(joined) = joined(text) {
        *text = joined;
    }
}

/// The text without private characters; `None` if it has none.
fn joined(text: &str) -> Option<String> {
    let half = |letter: char| u32::from(letter).checked_sub(FIRST);
    memchr::memchr(LEAD, text.as_bytes())?;
    text.chars().find_map(half)?;
    let mut joined = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(first) = half(letter) else {
            joined.push(letter);
            continue;
        };
        let second = letters.peek().and_then(|next| half(*next)?.checked_sub(HALVES)).filter(|_| first < HALVES);
        let whole = second.and_then(|second| char::from_u32(0x1_0000 + first * HALVES + second));
        if whole.is_some() {
            letters.next();
        }
        joined.push(whole.unwrap_or('\u{fffd}'));
    }
    Some(joined)
}

fn join_in_json(json: &mut Arc<RawValue>) {
    let with_whole_letters = joined(json.get());
    let text = with_whole_letters.as_deref().unwrap_or(json.get());
    let fixed = match replace_unpaired(text) {
        Cow::Owned(fixed) => Some(fixed),
        Cow::Borrowed(_) => with_whole_letters,
    };
    if let Some(fixed) = fixed.and_then(|json| RawValue::from_string(json).ok()) {
        *json = Arc::from(fixed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_in_pieces_are_joined_and_others_replaced() {
        let piece =
            |json: &str| crate::providers::json::str_value(serde_json::from_str(json).unwrap()).unwrap().into_owned();
        for (pieces, expected) in [
            (&[r#""a \ud83d""#, r#""\ude00 b""#][..], "a 😀 b"),
            (&[r#""a \ud83d""#, r#""""#, r#""\uDE00""#], "a 😀"),
            (&[r#""a \ud83d""#, r#"" b\n""#], "a \u{fffd} b\n"),
            (&[r#""\ude00\ud83d""#, r#""\ud83d\ude00""#], "\u{fffd}\u{fffd}😀"),
            (&[r#""ä\u00e4 \ud83d\ude00""#], "ää 😀"),
        ] {
            let mut text: String = pieces.iter().map(|json| piece(json)).collect();
            join_in(&mut text);
            assert_eq!(text, expected, "{pieces:?}");
        }
    }
}
