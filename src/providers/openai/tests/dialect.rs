//! The Responses API's dialect for the conformance suite.

use serde_json::{Value, json};

use crate::providers::ProviderSpec;
use crate::providers::assembler::{EventDecoder, ReplyAssembler};
use crate::providers::conformance_tests::{
    ParsedRequest, ReplyEnding, ReplyPart, ReplySpec, RequestTurn, TEST_KEY, WireDialect, read,
};
use crate::providers::openai::reply::OpenaiDecoder;

pub(crate) struct OpenaiDialect;

/// The bytes of these events in a stream, with sequence numbers.
pub(super) fn sent(events: &[Value]) -> Vec<String> {
    let event = |(number, event): (usize, &Value)| {
        let mut event = event.clone();
        event["sequence_number"] = json!(number);
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    };
    events.iter().enumerate().map(event).collect()
}

pub(super) fn usage() -> Value {
    json!({ "input_tokens": 22, "input_tokens_details": { "cached_tokens": 7, "cache_write_tokens": 5 },
        "output_tokens": 42, "output_tokens_details": { "reasoning_tokens": 30 }, "total_tokens": 64 })
}

/// A response with these items.
pub(super) fn response(items: &[Value], status: &str, reason: Option<&str>) -> Value {
    json!({ "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5.1-2025-11-13", "status": status,
        "error": null, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "incomplete_details": reason.map(|reason| json!({ "reason": reason })), "output": items,
        "usage": if status == "in_progress" { Value::Null } else { usage() } })
}

fn ended(items: &[Value], ending: ReplyEnding) -> Value {
    match ending {
        ReplyEnding::EndTurn | ReplyEnding::ToolUse => response(items, "completed", None),
        ReplyEnding::MaxTokens => response(items, "incomplete", Some("max_output_tokens")),
        ReplyEnding::Refusal => response(items, "incomplete", Some("content_filter")),
    }
}

/// The complete item for a part.
fn item(index: usize, part: &ReplyPart) -> Value {
    match part {
        ReplyPart::Text(pieces) => json!({ "id": format!("msg_{index}"), "type": "message", "status": "completed",
            "role": "assistant", "phase": "commentary",
            "content": [{ "type": "output_text", "annotations": [], "logprobs": [], "text": pieces.concat() }] }),
        ReplyPart::Thought(text) => json!({ "id": format!("rs_{index}"), "type": "reasoning",
            "encrypted_content": "gAAAA==", "summary": [{ "type": "summary_text", "text": text }] }),
        ReplyPart::Call(id, tool, pieces) => json!({ "id": format!("fc_{index}"), "type": "function_call",
            "status": "completed", "arguments": pieces.concat(), "call_id": id, "name": tool }),
    }
}

fn grow(index: usize, part: &ReplyPart, events: &mut Vec<Value>) {
    let done = item(index, part);
    let mut begun = done.clone();
    match part {
        ReplyPart::Text(_) => begun["content"] = json!([]),
        ReplyPart::Thought(_) => begun["summary"] = json!([]),
        ReplyPart::Call(..) => begun["arguments"] = json!(""),
    }
    let mut push = |kind: &str, more: Value| {
        let mut event = json!({ "type": kind, "output_index": index });
        if !kind.starts_with("response.output_item.") {
            event["item_id"] = done["id"].clone();
        }
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        events.push(event);
    };
    push("response.output_item.added", json!({ "item": begun }));
    match part {
        ReplyPart::Text(pieces) => {
            let empty = json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": "" });
            push("response.content_part.added", json!({ "content_index": 0, "part": empty }));
            for piece in pieces {
                let delta = json!({ "content_index": 0, "delta": piece, "logprobs": [], "obfuscation": "x" });
                push("response.output_text.delta", delta);
            }
            let done = json!({ "content_index": 0, "logprobs": [], "text": pieces.concat() });
            push("response.output_text.done", done);
        }
        ReplyPart::Thought(text) => {
            push("response.reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": text }));
        }
        ReplyPart::Call(_, _, pieces) => {
            for piece in pieces {
                push("response.function_call_arguments.delta", json!({ "delta": piece }));
            }
            push("response.function_call_arguments.done", json!({ "arguments": pieces.concat() }));
        }
    }
    push("response.output_item.done", json!({ "item": done }));
}

/// The body of an error in both of OpenAI's APIs.
pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        429 => "rate_limit_error",
        _ => "server_error",
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": null } })
}

/// The result of a call in both of OpenAI's APIs. A failure is marked by its first words.
pub(crate) fn answered(call_id: String, text: String) -> RequestTurn {
    match text.strip_prefix("Error: ") {
        Some(words) => RequestTurn::ToolResult(call_id, words.to_owned(), true),
        None => RequestTurn::ToolResult(call_id, text, false),
    }
}

/// An assembler that has received nothing yet, for a server other than OpenAI's and a request with this token limit.
pub(crate) fn growth(most: u32) -> ReplyAssembler<impl EventDecoder> {
    ReplyAssembler::new(0, OpenaiDecoder::new(Some(most)))
}

impl WireDialect for OpenaiDialect {
    fn spec(&self) -> &'static ProviderSpec {
        &crate::providers::openai::SPEC
    }

    fn variables(&self, url: &str) -> Vec<(&'static str, String)> {
        vec![("OPENAI_API_KEY", TEST_KEY.to_owned()), ("OPENAI_BASE_URL", format!("{url}/v1/"))]
    }

    fn request_line(&self) -> &'static str {
        "POST /v1/responses HTTP/1.1"
    }

    fn model(&self) -> [&'static str; 2] {
        ["gpt-5.1", "gpt-5.1-2025-11-13"]
    }

    fn events(&self, ReplySpec(parts, ending): &ReplySpec) -> Vec<String> {
        let begun = response(&[], "in_progress", None);
        let mut events = vec![
            json!({ "type": "response.created", "response": begun }),
            json!({ "type": "response.in_progress", "response": begun }),
        ];
        for (index, part) in parts.iter().enumerate() {
            grow(index, part, &mut events);
        }
        let items: Vec<Value> = parts.iter().enumerate().map(|(index, part)| item(index, part)).collect();
        let ended = ended(&items, *ending);
        events.push(json!({ "type": format!("response.{}", ended["status"].as_str().unwrap()), "response": ended }));
        sent(&events)
    }

    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)> {
        read(ReplyAssembler::new(0, OpenaiDecoder::default()), chunks)
    }

    fn unknown_event(&self) -> &'static str {
        "event: response.novelty\ndata: {\"type\":\"response.novelty\",\"output_index\":0}\n\nevent: ping\ndata: {}\n\n\
         data: [DONE]\n\nevent: keepalive\ndata: {\"type\":\"keepalive\",\"output_index\":\"x\"}\n\n"
    }

    fn whole(&self, ReplySpec(parts, ending): &ReplySpec) -> Value {
        let items: Vec<Value> = parts.iter().enumerate().map(|(index, part)| item(index, part)).collect();
        ended(&items, *ending)
    }

    fn error(&self, status: u16, message: &str) -> Value {
        error(status, message)
    }

    fn error_event(&self, status: u16, message: &str) -> String {
        let code = if status == 400 { "invalid_prompt" } else { "server_error" };
        sent(&[json!({ "type": "error", "code": code, "message": message, "param": null })]).concat()
    }

    fn context_full_errors(&self) -> Vec<(u16, Value)> {
        let error = json!({ "error": { "message": "Your input exceeds the context window of this model.",
            "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded" } });
        vec![(400, error)]
    }

    fn parse_request(&self, body: &Value) -> ParsedRequest {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let turn = |item: &Value| match (item["type"].as_str().unwrap(), item["role"].as_str()) {
            ("message", Some("user")) => RequestTurn::User(text(&item["content"][0]["text"])),
            ("message", _) if item["content"].is_string() => RequestTurn::Text(text(&item["content"])),
            ("message", _) => RequestTurn::Text(text(&item["content"][0]["text"])),
            ("reasoning", _) => RequestTurn::Thought(text(&item["summary"][0]["text"])),
            ("function_call", _) => {
                let input = serde_json::from_str(&text(&item["arguments"])).unwrap();
                RequestTurn::Call(text(&item["call_id"]), text(&item["name"]), input)
            }
            ("function_call_output", _) => answered(text(&item["call_id"]), text(&item["output"])),
            (kind, _) => panic!("{kind}"),
        };
        ParsedRequest {
            model: text(&body["model"]),
            system: text(&body["instructions"]),
            tools: list(&body["tools"]).iter().map(|tool| text(&tool["name"])).collect(),
            may_call: body["tool_choice"] != "none",
            max_tokens: body["max_output_tokens"].as_u64().unwrap(),
            streams: body["stream"] == true,
            turns: list(&body["input"]).iter().map(turn).collect(),
        }
    }

    fn conversation_json(&self, body: &str) -> String {
        body[body.find(r#""instructions":"#).unwrap()..].strip_suffix("]}").unwrap().to_owned()
    }
}
