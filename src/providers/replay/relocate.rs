//! Replaces the workspace's path in replies that were recorded in another folder.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::{BlockContent, Reply};

/// Replaces a path in a text, except within other paths: `/a/b` in `/a/b/c`, but not in `/a/bc` or `/x/a/b`.
pub fn relocate_path(text: &str, from: &str, to: &str) -> String {
    let is_name_char = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '~' | '+' | '@');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    if from.len() < 2 {
        return text.to_owned();
    }
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        // A period at the end of a sentence isn't a part of the name.
        let mut next = after.chars();
        let continues = match next.next() {
            Some('.') => next.next().is_some_and(is_name_char),
            letter => letter.is_some_and(is_name_char),
        };
        let last = before.chars().next_back().or_else(|| out.chars().next_back());
        let is_part = continues || last.is_some_and(|letter| is_name_char(letter) || letter == '/');
        out.push_str(before);
        out.push_str(if is_part { from } else { to });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Replaces a path in the inputs of a reply's calls.
pub(super) fn relocate_reply(mut reply: Reply, from: &str, to: &str) -> Reply {
    for block in &mut reply.blocks {
        let BlockContent::Call(call) = &mut block.content else { continue };
        if !call.input.get().contains(from) {
            continue;
        }
        let Ok(mut input) = serde_json::from_str::<Value>(call.input.get()) else { continue };
        relocate_value(&mut input, from, to);
        if let Ok(raw) = RawValue::from_string(input.to_string()) {
            call.input = Arc::from(raw);
        }
        // The raw form still contains the old path.
        block.raw = None;
    }
    reply
}

/// Replaces a path in all strings of a value.
pub fn relocate_value(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => *text = relocate_path(text, from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| relocate_value(item, from, to)),
        Value::Object(entries) => entries.values_mut().for_each(|entry| relocate_value(entry, from, to)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_are_replaced() {
        let moved = |text: &str| relocate_path(text, "/a/b", "/x");
        assert_eq!(moved("/a/b"), "/x");
        assert_eq!(moved("cd /a/b && ls '/a/b/c' /a/bc /a/b.d /y/a/b"), "cd /x && ls '/x/c' /a/bc /a/b.d /y/a/b");
        assert_eq!(moved("It is /a/b. And (/a/b): \"/a/b\",\n/a/b/a/b"), "It is /x. And (/x): \"/x\",\n/x/a/b");
        assert_eq!(relocate_path("/ and /a", "/", "/x"), "/ and /a", "the whole file system is no workspace to move");
    }
}
