//! Secrets out of what a model says, before it is kept, shown or sent back.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::mask::Mask;
use crate::message::{Block, Reply, Stop, ToolCall, View};

/// The reply without secrets. One that held any loses its signed blocks, since what they sign is no longer there, and
/// blocks of unknown kinds that held one.
pub(super) fn reply(mask: &Mask, mut reply: Reply) -> Reply {
    if mask.is_empty() {
        return reply;
    }
    // A server can put anything into these, too.
    for text in reply.model.iter_mut().chain(&mut reply.request_id) {
        hide(mask, text);
    }
    if let Stop::Other(reason) = &mut reply.stop {
        hide(mask, reason);
    }
    if reply.blocks.iter().any(|block| holds_any(mask, block)) {
        reply.blocks = reply.blocks.into_iter().filter_map(|block| masked(mask, block)).collect();
    }
    reply
}

fn hide(mask: &Mask, text: &mut String) {
    if let Cow::Owned(masked) = mask.text(text) {
        *text = masked;
    }
}

fn holds(mask: &Mask, text: &str) -> bool {
    matches!(mask.text(text), Cow::Owned(_))
}

/// Whether JSON holds a secret, as it is written or as it is read: any letter can be written as an escape.
fn holds_json(mask: &Mask, json: &str) -> bool {
    let escaped = || json.contains('\\') && serde_json::from_str(json).is_ok_and(|value| holds_value(mask, &value));
    holds(mask, json) || escaped()
}

fn holds_value(mask: &Mask, value: &Value) -> bool {
    match value {
        Value::String(text) => holds(mask, text),
        Value::Array(items) => items.iter().any(|item| holds_value(mask, item)),
        Value::Object(fields) => fields.iter().any(|(name, value)| holds(mask, name) || holds_value(mask, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn holds_any(mask: &Mask, block: &Block) -> bool {
    let in_view = match &block.view {
        View::Text(text) | View::Thinking(text) | View::Other(text) => holds(mask, text),
        View::Call(call) => {
            [&call.id, &call.tool].into_iter().chain(&call.broken).any(|text| holds(mask, text))
                || holds_json(mask, call.input.get())
        }
    };
    in_view || block.raw.as_ref().is_some_and(|raw| holds_json(mask, raw.get()))
}

fn masked(mask: &Mask, block: Block) -> Option<Block> {
    match block.view {
        View::Thinking(_) => None,
        View::Other(_) if holds_any(mask, &block) => None,
        View::Text(text) => Some(View::Text(mask.text(&text).into_owned()).into()),
        View::Call(call) => Some(View::Call(masked_call(mask, call)).into()),
        View::Other(_) => Some(block),
    }
}

fn masked_call(mask: &Mask, mut call: ToolCall) -> ToolCall {
    if holds(mask, &call.id) {
        // Providers take back letters, digits, `_` and `-` only.
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        call.id = mask.text(&call.id).chars().map(plain).collect();
    }
    hide(mask, &mut call.tool);
    call.broken.iter_mut().for_each(|why| hide(mask, why));
    if !holds_json(mask, call.input.get()) {
        return call;
    }
    let value = serde_json::from_str(call.input.get()).map(|value| masked_value(mask, value));
    match value.and_then(|value| to_raw_value(&value)) {
        Ok(input) if !holds(mask, input.get()) => call.input = Arc::from(input),
        // A number, or a secret that reached over quotes: what is left is no JSON.
        _ => {
            call.broken = Some("the input held a secret, which was taken out".to_owned());
            call.input = to_raw_value(&serde_json::json!({})).map_or(call.input, Arc::from);
        }
    }
    call
}

fn masked_value(mask: &Mask, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(mask.text(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(|item| masked_value(mask, item)).collect(),
        Value::Object(fields) => {
            let masked = |(name, value): (String, Value)| (mask.text(&name).into_owned(), masked_value(mask, value));
            Value::Object(fields.into_iter().map(masked).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::message::Usage;

    fn raw(json: &str) -> Arc<RawValue> {
        Arc::from(RawValue::from_string(json.to_owned()).unwrap())
    }

    fn of(blocks: Vec<Block>) -> Reply {
        Reply { blocks, stop: Stop::ToolUse, usage: Usage::default(), model: None, request_id: None }
    }

    fn thought() -> Block {
        Block { view: View::Thinking("hm".into()), raw: Some(raw(r#"{"type":"thinking","signature":"s"}"#)) }
    }

    fn call(input: &str) -> Block {
        View::Call(ToolCall { id: "1".into(), tool: "bash".into(), input: raw(input), broken: None }).into()
    }

    #[test]
    fn a_reply_with_a_secret_loses_it_and_its_signed_blocks() {
        let mask = Mask::new(&[("TOKEN".into(), "hunter2-hunter2".into())]).0;
        let other = Block { view: View::Other("x".into()), raw: Some(raw(r#"{"a":"hunter2-hunter2"}"#)) };
        let said = of(vec![thought(), call(r#"{"command":"echo hunter2-hunter2"}"#), other]);
        let said = reply(&mask, said);
        assert_eq!(said.blocks.len(), 1);
        assert_eq!(said.calls().next().unwrap().input.get(), r#"{"command":"echo [masked:TOKEN]"}"#);
    }

    #[test]
    fn a_reply_without_a_secret_stays_byte_for_byte() {
        let mask = Mask::new(&[("TOKEN".into(), "hunter2-hunter2".into())]).0;
        let said = reply(&mask, of(vec![thought(), call("{ }")]));
        assert!(said.blocks[0].raw.is_some());
        assert_eq!(said.calls().next().unwrap().input.get(), "{ }");
    }

    #[test]
    fn a_secret_in_escapes_or_in_a_name_is_found() {
        let mask = Mask::new(&[("TOKEN".into(), "hunter2-hunter2".into()), ("PIN".into(), "1234567890".into())]).0;
        for (input, expected) in [
            (r#"{"command":"\u0068unter2\u002dhunter2 \n"}"#, r#"{"command":"[masked:TOKEN] \n"}"#),
            (r#"{"hunter2-hunter2":[{"a":"\u0068unter2-hunter2"}]}"#, r#"{"[masked:TOKEN]":[{"a":"[masked:TOKEN]"}]}"#),
            (r#"{"a":1234567890}"#, "{}"),
        ] {
            let said = reply(&mask, of(vec![call(input)]));
            let call = said.calls().next().unwrap();
            assert_eq!(call.input.get(), expected);
            assert_eq!(call.broken.is_some(), expected == "{}");
        }
    }

    #[test]
    fn what_a_server_adds_is_masked_too() {
        let mask = Mask::new(&[("TOKEN".into(), "hunter2-hunter2".into())]).0;
        let mut said = of(vec![
            View::Call(ToolCall { id: "a.hunter2-hunter2".into(), tool: "x".into(), input: raw("{}"), broken: None })
                .into(),
        ]);
        (said.model, said.request_id) = (Some("m hunter2-hunter2".into()), Some("hunter2-hunter2".into()));
        said.stop = Stop::Other("hunter2-hunter2".into());
        let said = reply(&mask, said);
        assert!(!format!("{said:?}").contains("hunter2"), "{said:?}");
        assert_eq!(said.calls().next().unwrap().id, "a__masked_TOKEN_");
    }
}
