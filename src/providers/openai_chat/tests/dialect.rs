//! The Chat Completions dialect for the conformance suite.

use serde_json::{Value, json};

use crate::providers::ProviderSpec;
use crate::providers::assembler::{EventDecoder, ReplyAssembler};
use crate::providers::conformance_tests::{
    ParsedRequest, ReplyEnding, ReplyPart, ReplySpec, RequestTurn, TEST_KEY, WireDialect, read,
};
use crate::providers::openai::tests::{answered, error};
use crate::providers::openai_chat::reply::OpenaiChatDecoder;

pub(crate) struct OpenaiChatDialect;

pub(super) fn stop(ending: ReplyEnding) -> &'static str {
    match ending {
        ReplyEnding::EndTurn => "stop",
        ReplyEnding::ToolUse => "tool_calls",
        ReplyEnding::MaxTokens => "length",
        ReplyEnding::Refusal => "content_filter",
    }
}

/// A chunk of a stream with this delta in its only choice.
pub(super) fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1-2025-04-14",
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }], "usage": null })
}

/// The events that stream these chunks.
pub(super) fn sent(chunks: &[Value]) -> Vec<String> {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn usage() -> Value {
    json!({ "prompt_tokens": 22, "completion_tokens": 42, "total_tokens": 64,
        "prompt_tokens_details": { "cached_tokens": 7, "cache_write_tokens": 5, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 30 } })
}

/// An assembler that has received nothing yet.
pub(crate) fn growth() -> ReplyAssembler<impl EventDecoder> {
    ReplyAssembler::new(0, OpenaiChatDecoder::default())
}

impl WireDialect for OpenaiChatDialect {
    fn spec(&self) -> &'static ProviderSpec {
        &crate::providers::openai_chat::SPEC
    }

    fn variables(&self, url: &str) -> Vec<(&'static str, String)> {
        vec![("OPENAI_API_KEY", TEST_KEY.to_owned()), ("OPENAI_BASE_URL", format!("{url}/v1"))]
    }

    fn request_line(&self) -> &'static str {
        "POST /v1/chat/completions HTTP/1.1"
    }

    fn model(&self) -> [&'static str; 2] {
        ["gpt-4.1", "gpt-4.1-2025-04-14"]
    }

    fn events(&self, ReplySpec(parts, ending): &ReplySpec) -> Vec<String> {
        let mut chunks = vec![chunk(&json!({ "role": "assistant", "content": null, "refusal": null }), None)];
        let mut index = 0;
        for part in parts {
            match part {
                ReplyPart::Text(pieces) => {
                    chunks.extend(pieces.iter().map(|piece| chunk(&json!({ "content": piece }), None)));
                }
                ReplyPart::Thought(text) => {
                    for piece in text.split_inclusive(' ') {
                        chunks.push(chunk(&json!({ "reasoning_content": piece, "content": null }), None));
                    }
                }
                ReplyPart::Call(id, tool, pieces) => {
                    let start = json!({ "index": index, "id": id, "type": "function",
                        "function": { "name": tool, "arguments": "" } });
                    chunks.push(chunk(&json!({ "tool_calls": [start] }), None));
                    for piece in pieces {
                        let more = json!({ "index": index, "function": { "arguments": piece } });
                        chunks.push(chunk(&json!({ "tool_calls": [more] }), None));
                    }
                    index += 1;
                }
            }
        }
        chunks.push(chunk(&json!({}), Some(stop(*ending))));
        let mut last = chunk(&json!({}), None);
        (last["choices"], last["usage"]) = (json!([]), usage());
        chunks.push(last);
        let mut events = sent(&chunks);
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn events_until_complete(&self, events: &[String]) -> usize {
        events.len() - 2
    }

    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)> {
        read(ReplyAssembler::new(0, OpenaiChatDecoder::default()), chunks)
    }

    fn unknown_event(&self) -> &'static str {
        "data: ping\n\nevent: hello\ndata: {\"object\":\"novelty\",\"choices\":null}\n\n"
    }

    fn whole(&self, ReplySpec(parts, ending): &ReplySpec) -> Value {
        let text = parts.iter().find_map(|part| match part {
            ReplyPart::Text(pieces) => Some(pieces.concat()),
            _ => None,
        });
        let thought = parts.iter().find_map(|part| match part {
            ReplyPart::Thought(text) => Some(*text),
            _ => None,
        });
        let call = |part: &ReplyPart| match part {
            ReplyPart::Call(id, tool, pieces) => {
                let function = json!({ "name": tool, "arguments": pieces.concat() });
                Some(json!({ "id": id, "type": "function", "function": function }))
            }
            _ => None,
        };
        let calls: Vec<Value> = parts.iter().filter_map(call).collect();
        let message = json!({ "role": "assistant", "content": text, "refusal": null, "reasoning_content": thought,
            "tool_calls": if calls.is_empty() { Value::Null } else { json!(calls) } });
        json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.model()[1],
            "choices": [{ "index": 0, "message": message, "finish_reason": stop(*ending) }], "usage": usage() })
    }

    fn error(&self, status: u16, message: &str) -> Value {
        error(status, message)
    }

    fn context_full_errors(&self) -> Vec<(u16, Value)> {
        let openai = json!({ "error": { "message": "This model's maximum context length is 8192 tokens.",
            "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded" } });
        let llama = json!({ "error": { "code": 400, "message": "request (9 tokens) exceeds the available context size",
            "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8 } });
        let vllm = json!({ "object": "error", "message": "This model's maximum context length is 8192 tokens.",
            "type": "BadRequestError", "param": null, "code": 400 });
        vec![(400, openai), (400, llama), (400, vllm)]
    }

    fn parse_request(&self, body: &Value) -> ParsedRequest {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut system = String::new();
        let mut turns = Vec::new();
        for message in list(&body["messages"]) {
            let content = text(&message["content"]);
            match message["role"].as_str().unwrap() {
                "system" => system = content,
                "user" => turns.push(RequestTurn::User(content)),
                "tool" => turns.push(answered(text(&message["tool_call_id"]), content)),
                "assistant" => {
                    if let Some(thought) = message["reasoning_content"].as_str() {
                        turns.push(RequestTurn::Thought(thought.to_owned()));
                    }
                    if !message["content"].is_null() {
                        turns.push(RequestTurn::Text(content));
                    }
                    for call in list(&message["tool_calls"]) {
                        let function = &call["function"];
                        let input = serde_json::from_str(&text(&function["arguments"])).unwrap();
                        turns.push(RequestTurn::Call(text(&call["id"]), text(&function["name"]), input));
                    }
                }
                role => panic!("{role}"),
            }
        }
        ParsedRequest {
            model: text(&body["model"]),
            system,
            tools: list(&body["tools"]).iter().map(|tool| text(&tool["function"]["name"])).collect(),
            may_call: body["tool_choice"] != "none",
            max_tokens: body["max_tokens"].as_u64().unwrap(),
            streams: body["stream"] == true,
            turns,
        }
    }

    fn conversation_json(&self, body: &str) -> String {
        body[body.find(r#""tools":"#).unwrap()..].strip_suffix("]}").unwrap().to_owned()
    }
}
