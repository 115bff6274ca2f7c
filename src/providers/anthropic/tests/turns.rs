//! Turns without thinking. A thinking model's turn must begin with a thought, and redacted replies have lost theirs.

use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall, ToolResult, Usage};
use crate::providers::anthropic::request::AnthropicEncoder;
use crate::providers::transport::http_conversation::RequestEncoder as _;

fn said(thinks: bool, id: &str) -> Message {
    let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
    let thought = Block {
        content: BlockContent::Thinking("Hm.".to_owned()),
        raw: Some(raw(r#"{"type":"thinking","thinking":"Hm.","signature":"s"}"#).into()),
    };
    let call = ToolCall { id: id.to_owned(), tool: "glob".to_owned(), input: raw("{}").into(), input_error: None };
    let mut blocks = vec![thought, BlockContent::Call(call).into()];
    if !thinks {
        blocks.remove(0);
    }
    Message::Assistant(Reply {
        blocks,
        stop: StopReason::ToolUse,
        usage: Usage::default(),
        model: None,
        request_id: None,
    })
}

fn answered(id: &str) -> Message {
    let result =
        ToolResult { call_id: id.to_owned(), text: "found".to_owned(), is_error: false, ..ToolResult::default() };
    Message::User(UserMessage::results(vec![result]))
}

/// Whether each request of the conversation enables thinking. There is one request after each user message.
fn thinks(model: &str, messages: &[Message]) -> Vec<bool> {
    let mut setup = setup(Some(Thinking::Low));
    setup.model.name = model.to_owned();
    let mut body = AnthropicEncoder::new(&setup, false);
    let mut thinks = Vec::new();
    for message in messages {
        body.push(message);
        if matches!(message, Message::User(_)) {
            let request: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
            thinks.push(request["thinking"]["type"].is_string());
        }
    }
    thinks
}

#[test]
fn a_turn_that_begins_without_thinking_continues_without_it() {
    let prompt = || Message::User(UserMessage::text("Hello"));
    let masked = [prompt(), said(false, "a"), answered("a"), said(false, "b"), answered("b")];
    assert_eq!(thinks("claude-sonnet-4-5", &masked), [true, false, false]);
    // Newer models accept such turns. For other vendors' models, this is unknown.
    assert_eq!(thinks("claude-opus-4-8", &masked), [true; 3]);
    assert_eq!(thinks("somebody/model-7", &masked), [true; 3]);
    let later = [prompt(), said(true, "a"), answered("a"), said(false, "b"), answered("b")];
    assert_eq!(thinks("claude-sonnet-4-5", &later), [true; 3]);
    // The next prompt begins another turn; text after results doesn't.
    let remark = UserMessage::text("Go on.");
    let again = [prompt(), said(false, "a"), answered("a"), Message::User(remark)];
    assert_eq!(thinks("claude-sonnet-4-5", &again), [true, false, false]);
    let next = [prompt(), said(false, "a"), answered("a"), Message::Assistant(text_of("Done.")), prompt()];
    assert_eq!(thinks("claude-sonnet-4-5", &next), [true, false, true]);
}

fn text_of(text: &str) -> Reply {
    let blocks = vec![BlockContent::Text(text.to_owned()).into()];
    Reply { blocks, stop: StopReason::EndTurn, usage: Usage::default(), model: None, request_id: None }
}

#[test]
fn a_rebuilt_conversation_thinks_again() {
    let mut body = AnthropicEncoder::new(&setup(Some(Thinking::Low)), false);
    let asks = |body: &AnthropicEncoder| {
        let request: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
        request["thinking"]["type"] == json!("enabled")
    };
    let messages = [Message::User(UserMessage::text("Hello")), said(false, "a"), answered("a")];
    messages.iter().for_each(|message| body.push(message));
    assert!(!asks(&body));
    body.clear();
    body.push(&messages[0]);
    assert!(asks(&body));
}
