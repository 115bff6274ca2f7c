//! The Messages API's dialect for the conformance suite.

use serde_json::{Value, json};

use super::{events, reply};
use crate::providers::ProviderSpec;
use crate::providers::anthropic::reply::AnthropicDecoder;
use crate::providers::assembler::{EventDecoder, ReplyAssembler};
use crate::providers::conformance_tests::{
    ParsedRequest, ReplyEnding, ReplyPart, ReplySpec, RequestTurn, TEST_KEY, WireDialect, read,
};

pub(crate) struct AnthropicDialect;

fn stop(ending: ReplyEnding) -> &'static str {
    match ending {
        ReplyEnding::EndTurn => "end_turn",
        ReplyEnding::ToolUse => "tool_use",
        ReplyEnding::MaxTokens => "max_tokens",
        ReplyEnding::Refusal => "refusal",
    }
}

/// An assembler that has received nothing yet.
pub(crate) fn new_assembler() -> ReplyAssembler<impl EventDecoder> {
    ReplyAssembler::new(0, AnthropicDecoder::default())
}

impl WireDialect for AnthropicDialect {
    fn spec(&self) -> &'static ProviderSpec {
        &crate::providers::anthropic::SPEC
    }

    fn variables(&self, url: &str) -> Vec<(&'static str, String)> {
        vec![("ANTHROPIC_API_KEY", TEST_KEY.to_owned()), ("ANTHROPIC_BASE_URL", url.to_owned())]
    }

    fn request_line(&self) -> &'static str {
        "POST /v1/messages HTTP/1.1"
    }

    fn model(&self) -> [&'static str; 2] {
        ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929"]
    }

    fn events(&self, ReplySpec(parts, ending): &ReplySpec) -> Vec<String> {
        let block = |part: &ReplyPart| match part {
            ReplyPart::Text(pieces) => (
                json!({ "type": "text", "text": "" }),
                pieces.iter().map(|piece| json!({ "type": "text_delta", "text": piece })).collect(),
            ),
            ReplyPart::Thought(text) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                vec![
                    json!({ "type": "thinking_delta", "thinking": text }),
                    json!({ "type": "signature_delta", "signature": "sig" }),
                ],
            ),
            ReplyPart::Call(id, tool, pieces) => (
                json!({ "type": "tool_use", "id": id, "name": tool, "input": {} }),
                pieces.iter().map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect(),
            ),
        };
        let blocks: Vec<_> = parts.iter().map(block).collect();
        reply(&blocks, stop(*ending)).split_inclusive("\n\n").map(str::to_owned).collect()
    }

    fn events_until_complete(&self, events: &[String]) -> usize {
        // All except `message_stop`.
        events.len() - 1
    }

    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)> {
        read(ReplyAssembler::new(0, AnthropicDecoder::default()), chunks)
    }

    fn unknown_event(&self) -> &'static str {
        "event: new_thing\ndata: {\"type\":\"new_thing\",\"index\":\"x\"}\n\nevent: hello\ndata: not json\n\n"
    }

    fn whole(&self, ReplySpec(parts, ending): &ReplySpec) -> Value {
        let block = |part: &ReplyPart| match part {
            ReplyPart::Text(pieces) => json!({ "type": "text", "text": pieces.concat() }),
            ReplyPart::Thought(text) => json!({ "type": "thinking", "thinking": text, "signature": "sig" }),
            ReplyPart::Call(id, tool, pieces) => {
                let input: Value = serde_json::from_str(&pieces.concat()).unwrap();
                json!({ "type": "tool_use", "id": id, "name": tool, "input": input })
            }
        };
        let content: Vec<Value> = parts.iter().map(block).collect();
        json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": self.model()[1], "content": content,
            "stop_reason": stop(*ending), "usage": { "input_tokens": 10, "output_tokens": 42,
            "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7 } })
    }

    fn error(&self, status: u16, message: &str) -> Value {
        let kind = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            _ => "api_error",
        };
        json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_body" })
    }

    fn error_event(&self, status: u16, message: &str) -> String {
        events(&[self.error(status, message)])
    }

    fn context_full_errors(&self) -> Vec<(u16, Value)> {
        vec![(400, self.error(400, "prompt is too long: 209000 tokens > 200000 maximum"))]
    }

    fn parse_request(&self, body: &Value) -> ParsedRequest {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let turn = |role: &str, block: &Value| match (block["type"].as_str().unwrap(), role) {
            ("text", "user") => RequestTurn::User(text(&block["text"])),
            ("text", _) => RequestTurn::Text(text(&block["text"])),
            ("thinking", _) => RequestTurn::Thought(text(&block["thinking"])),
            ("tool_use", _) => RequestTurn::Call(text(&block["id"]), text(&block["name"]), block["input"].clone()),
            ("tool_result", _) => {
                RequestTurn::ToolResult(text(&block["tool_use_id"]), text(&block["content"]), block["is_error"] == true)
            }
            (kind, _) => panic!("{kind}"),
        };
        let messages = list(&body["messages"]);
        let turns = messages.iter().flat_map(|message| {
            let role = text(&message["role"]);
            list(&message["content"]).iter().map(|block| turn(&role, block)).collect::<Vec<_>>()
        });
        ParsedRequest {
            model: text(&body["model"]),
            system: text(&body["system"][0]["text"]),
            tools: list(&body["tools"]).iter().map(|tool| text(&tool["name"])).collect(),
            may_call: body["tool_choice"]["type"] != "none",
            max_tokens: body["max_tokens"].as_u64().unwrap(),
            streams: body["stream"] == true,
            turns: turns.collect(),
        }
    }

    fn conversation_json(&self, body: &str) -> String {
        let body = body.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
        body[body.find(r#""tools":"#).unwrap()..].strip_suffix("]}").unwrap().to_owned()
    }
}
