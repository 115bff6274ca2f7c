//! Secrets out of what a model says, before it is kept, shown or sent back.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::mask::Mask;
use crate::message::{Block, Reply, ToolCall, View};

/// The reply without secrets. One that held any loses its signed blocks, since what they sign is no longer there, and
/// blocks of unknown kinds that held one.
pub(super) fn reply(mask: &Mask, mut reply: Reply) -> Reply {
    if mask.is_empty() || !reply.blocks.iter().any(|block| holds_any(mask, block)) {
        return reply;
    }
    reply.blocks = reply.blocks.into_iter().filter_map(|block| masked(mask, block)).collect();
    reply
}

fn holds(mask: &Mask, text: &str) -> bool {
    matches!(mask.text(text), std::borrow::Cow::Owned(_))
}

fn holds_any(mask: &Mask, block: &Block) -> bool {
    let in_view = match &block.view {
        View::Text(text) | View::Thinking(text) => holds(mask, text),
        View::Call(call) => {
            [&call.id, &call.tool].into_iter().chain(&call.broken).any(|text| holds(mask, text))
                || holds(mask, call.input.get())
        }
        View::Other(_) => false,
    };
    in_view || block.raw.as_ref().is_some_and(|raw| holds(mask, raw.get()))
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
    call.tool = mask.text(&call.tool).into_owned();
    call.broken = call.broken.map(|why| mask.text(&why).into_owned());
    if !holds(mask, call.input.get()) {
        return call;
    }
    let input = mask.text(call.input.get()).into_owned();
    match RawValue::from_string(input) {
        Ok(input) => call.input = Arc::from(input),
        // A secret that reached over quotes: what is left is no JSON.
        Err(_) => {
            call.broken = Some("the input held a secret, which was taken out".to_owned());
            call.input = serde_json::value::to_raw_value(&serde_json::json!({})).map_or(call.input, Arc::from);
        }
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Stop, Usage};

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
}
