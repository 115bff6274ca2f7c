//! Redacts secrets in a model's reply before it is recorded, shown or sent back.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall};
use crate::redaction::Redactor;

/// Redacts a reply. A reply that contains a secret also loses its signed blocks, because the signed text has changed, and
/// the blocks of unknown kinds that contain one.
pub(super) fn redact_reply(redactor: &Redactor, mut reply: Reply) -> Reply {
    if redactor.is_empty() {
        return reply;
    }
    // A server can put anything into these fields.
    for text in reply.model.iter_mut().chain(&mut reply.request_id) {
        redact_in_place(redactor, text);
    }
    if let StopReason::Other(reason) = &mut reply.stop {
        redact_in_place(redactor, reason);
    }
    if reply.blocks.iter().any(|block| block_contains_secret(redactor, block)) {
        reply.blocks = reply.blocks.into_iter().filter_map(|block| redact_block(redactor, block)).collect();
    }
    reply
}

fn redact_in_place(redactor: &Redactor, text: &mut String) {
    if let Cow::Owned(masked) = redactor.redact(text) {
        *text = masked;
    }
}

/// Whether JSON contains a secret, as written or as parsed: any letter can be escaped.
fn json_contains_secret(redactor: &Redactor, json: &str) -> bool {
    let parsed = || serde_json::from_str::<Value>(json);
    redactor.contains_secret(json)
        || json.contains('\\') && parsed().is_ok_and(|value| redactor.redact_json(value.clone()) != value)
}

fn block_contains_secret(redactor: &Redactor, block: &Block) -> bool {
    let content = serde_json::to_string(&block.content);
    content.is_ok_and(|content| json_contains_secret(redactor, &content))
        || block.raw.as_ref().is_some_and(|raw| json_contains_secret(redactor, raw.get()))
}

fn redact_block(redactor: &Redactor, block: Block) -> Option<Block> {
    match block.content {
        BlockContent::Thinking(_) => None,
        BlockContent::Other(_) if block_contains_secret(redactor, &block) => None,
        BlockContent::Text(text) => Some(BlockContent::Text(redactor.redact(&text).into_owned()).into()),
        BlockContent::Call(call) => Some(BlockContent::Call(redact_call(redactor, call)).into()),
        BlockContent::Other(_) => Some(block),
    }
}

fn redact_call(redactor: &Redactor, mut call: ToolCall) -> ToolCall {
    if redactor.contains_secret(&call.id) {
        // Providers accept only letters, digits, `_` and `-`.
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        call.id = redactor.redact(&call.id).chars().map(plain).collect();
    }
    redact_in_place(redactor, &mut call.tool);
    call.input_error.iter_mut().for_each(|why| redact_in_place(redactor, why));
    if !json_contains_secret(redactor, call.input.get()) {
        return call;
    }
    let value = serde_json::from_str(call.input.get()).map(|value| redactor.redact_json(value));
    match value.and_then(|value| to_raw_value(&value)) {
        Ok(input) if !redactor.contains_secret(input.get()) => call.input = Arc::from(input),
        // If the secret was a number or spanned quotes, the redacted text isn't JSON.
        _ => {
            call.input_error = Some("the input contained a secret, which was removed".to_owned());
            call.input = to_raw_value(&serde_json::json!({})).map_or(call.input, Arc::from);
        }
    }
    call
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
        Reply { blocks, stop: StopReason::ToolUse, usage: Usage::default(), model: None, request_id: None }
    }

    fn thought() -> Block {
        Block { content: BlockContent::Thinking("hm".into()), raw: Some(raw(r#"{"type":"thinking","signature":"s"}"#)) }
    }

    fn call(input: &str) -> Block {
        BlockContent::Call(ToolCall { id: "1".into(), tool: "bash".into(), input: raw(input), input_error: None })
            .into()
    }

    #[test]
    fn a_reply_with_a_secret_loses_it_and_its_signed_blocks() {
        let mask = Redactor::new(&[("TOKEN".into(), "hunter2-hunter2".into())]).0;
        let other = Block { content: BlockContent::Other("x".into()), raw: Some(raw(r#"{"a":"hunter2-hunter2"}"#)) };
        let said = of(vec![thought(), call(r#"{"command":"echo hunter2-hunter2"}"#), other]);
        let said = redact_reply(&mask, said);
        assert_eq!(said.blocks.len(), 1);
        assert_eq!(said.tool_calls().next().unwrap().input.get(), r#"{"command":"echo [masked:TOKEN]"}"#);
    }

    #[test]
    fn a_reply_without_a_secret_stays_byte_for_byte() {
        let mask = Redactor::new(&[("TOKEN".into(), "hunter2-hunter2".into())]).0;
        let said = redact_reply(&mask, of(vec![thought(), call("{ }")]));
        assert!(said.blocks[0].raw.is_some());
        assert_eq!(said.tool_calls().next().unwrap().input.get(), "{ }");
    }

    #[test]
    fn a_secret_in_escapes_or_in_a_name_is_found() {
        let mask = Redactor::new(&[("TOKEN".into(), "hunter2-hunter2".into()), ("PIN".into(), "1234567890".into())]).0;
        for (input, expected) in [
            (r#"{"command":"\u0068unter2\u002dhunter2 \n"}"#, r#"{"command":"[masked:TOKEN] \n"}"#),
            (r#"{"hunter2-hunter2":[{"a":"\u0068unter2-hunter2"}]}"#, r#"{"[masked:TOKEN]":[{"a":"[masked:TOKEN]"}]}"#),
            (r#"{"a":1234567890}"#, "{}"),
        ] {
            let said = redact_reply(&mask, of(vec![call(input)]));
            let call = said.tool_calls().next().unwrap();
            assert_eq!(call.input.get(), expected);
            assert_eq!(call.input_error.is_some(), expected == "{}");
        }
    }

    #[test]
    fn fields_that_a_server_adds_are_redacted_too() {
        let mask = Redactor::new(&[("TOKEN".into(), "hunter2-hunter2".into())]).0;
        let mut said = of(vec![
            BlockContent::Call(ToolCall {
                id: "a.hunter2-hunter2".into(),
                tool: "x".into(),
                input: raw("{}"),
                input_error: None,
            })
            .into(),
        ]);
        (said.model, said.request_id) = (Some("m hunter2-hunter2".into()), Some("hunter2-hunter2".into()));
        said.stop = StopReason::Other("hunter2-hunter2".into());
        let said = redact_reply(&mask, said);
        assert!(!format!("{said:?}").contains("hunter2"), "{said:?}");
        assert_eq!(said.tool_calls().next().unwrap().id, "a__masked_TOKEN_");
    }
}
