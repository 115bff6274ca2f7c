//! Tool calls in replies: their input, their names and their ids.

use std::collections::HashSet;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::message::{BlockContent, Reply, ToolCall};

/// The maximum size in bytes of a call's input: several times the longest reply of any model.
pub(crate) const MAX_INPUT_BYTES: usize = 4 << 20;
/// The maximum nesting depth of a call's input. The APIs limit it, too, when the call is sent back.
const MAX_INPUT_DEPTH: usize = 100;
/// The maximum length of a call id that is sent back. Some gateways store a model's signature in it.
const MAX_CALL_ID_BYTES: usize = 16 << 10;

/// Parses the input of a call. For an invalid input, returns `{}`, because the APIs accept only objects, and the
/// problem.
pub(crate) fn parse_input(text: Option<&str>) -> (Box<RawValue>, Option<String>) {
    let text = text.unwrap_or_default().trim();
    // Some models and servers encode the object as a JSON string.
    let inner = if text.starts_with('"') { serde_json::from_str::<String>(text).ok() } else { None };
    let (json, error) = match inner.as_deref().map_or(text, str::trim) {
        "" | "null" => ("{}", None),
        text if text.len() > MAX_INPUT_BYTES => {
            ("{}", Some(format!("the input is longer than {MAX_INPUT_BYTES} bytes")))
        }
        text => match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) if !text.starts_with('{') => ("{}", Some("the input isn't a JSON object".to_owned())),
            Ok(_) if is_too_deep(text) => {
                ("{}", Some(format!("the input is nested deeper than {MAX_INPUT_DEPTH} levels")))
            }
            Ok(_) => (text, None),
            Err(error) => ("{}", Some(format!("the input isn't valid JSON: {error}"))),
        },
    };
    match RawValue::from_string(json.to_owned()) {
        Ok(input) => (input, error),
        Err(error) => (RawValue::NULL.to_owned(), Some(format!("the input isn't valid JSON: {error}"))),
    }
}

/// Builds a call with this input.
pub(crate) fn to_tool_call(id: String, tool: String, input: Option<&str>) -> ToolCall {
    let (input, input_error) = parse_input(input);
    ToolCall { id, tool, input: Arc::from(input), input_error }
}

/// Whether valid JSON is nested deeper than the limit.
fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_INPUT_DEPTH {
            return true;
        }
    }
    false
}

/// A tool's name in the form that the APIs accept, at most `max_chars` long. Models sometimes invent other names.
pub(crate) fn tool_name(name: &str, max_chars: usize) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = name.chars().take(max_chars).map(|c| if is_valid(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Whether an id can be sent back unchanged. Some servers require that for their own ids, whatever their form.
pub(crate) fn is_valid_call_id(id: &str) -> bool {
    !id.trim().is_empty() && id.len() <= MAX_CALL_ID_BYTES && !id.contains(char::is_control)
}

/// Gives a call a new id if it has none, or one that is in use: some servers send none, repeat ids, or count from zero
/// in every reply.
pub(crate) fn assign_call_ids(reply: &mut Reply, taken: &HashSet<String>) {
    let mut assigned: HashSet<String> = HashSet::new();
    let mut number = taken.len();
    for block in &mut reply.blocks {
        let BlockContent::Call(call) = &mut block.content else { continue };
        let mut is_valid = is_valid_call_id(&call.id);
        while !is_valid || taken.contains(&call.id) || assigned.contains(&call.id) {
            number += 1;
            // Nine letters and digits: the only form that Mistral's API accepts.
            call.id = format!("call{number:05}");
            is_valid = true;
        }
        assigned.insert(call.id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::parse_input;

    #[test]
    fn an_input_that_is_doubly_encoded_json_is_parsed() {
        for (written, input, is_broken) in [
            (r#""{\"n\":\"a\\nb\"}""#, r#"{"n":"a\nb"}"#, false),
            (r#""{\"n\":""#, "{}", true),
            (r#""{""#, "{}", true),
            (r#""text""#, "{}", true),
            (r#"{"n":1}"#, r#"{"n":1}"#, false),
        ] {
            let (read, broken) = parse_input(Some(written));
            assert_eq!((read.get(), broken.is_some()), (input, is_broken), "{written}");
        }
    }
}
