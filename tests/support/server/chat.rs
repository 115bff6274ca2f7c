//! Chat Completions, as in the types of OpenAI's client. Reasoning is in `reasoning_details`, as OpenRouter has it,
//! because signatures fit there.

use serde_json::{Value, json};

use super::answer::{Answer, Block};
use super::api::{append, call_id, check_fields, data, function_call_item, split_in_half, tool_output_item};
use super::request::Request;

const FIELDS: [&str; 12] = [
    "service_tier",
    "max_tokens",
    "messages",
    "model",
    "parallel_tool_calls",
    "reasoning_effort",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
];

pub(super) fn check(body: &Value) -> Vec<String> {
    let mut wrong = check_fields(body, &FIELDS, "max_tokens");
    if body["stream"] == true && body["stream_options"]["include_usage"] != true {
        wrong.push(String::from("it doesn't ask for the usage of a stream"));
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] != "function" || !tool["function"]["parameters"].is_object() {
            wrong.push(format!("a tool is {tool}"));
        }
    }
    for (place, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let known: &[&str] = match message["role"].as_str() {
            Some("system") if place == 0 => &["role", "content"],
            Some("user") => &["role", "content"],
            Some("tool") => &["role", "content", "tool_call_id"],
            Some("assistant") => &["role", "content", "tool_calls", "reasoning_details"],
            role => {
                wrong.push(format!("message {place} is of role {role:?}"));
                continue;
            }
        };
        let own = message.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        wrong.extend(own.filter(|name| !known.contains(name)).map(|name| format!("message {place} has a {name}")));
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_list = message["role"] == "user" && message["content"].as_array().is_some_and(|parts| !parts.is_empty());
        if !message["content"].is_string() && !is_list && (calls.is_empty() || !message["content"].is_null()) {
            wrong.push(format!("the content of message {place} is {}", message["content"]));
        }
        for call in calls {
            if call["type"] != "function" || !call["function"]["arguments"].is_string() {
                wrong.push(format!("message {place} makes the call {call}"));
            }
        }
    }
    wrong
}

/// A part of a user's message: a text, an image or a document.
fn user_part(part: &Value) -> Value {
    match part["type"].as_str() {
        Some("image_url") => json!({"type": "image", "source": part["image_url"]}),
        Some("file") => json!({"type": "document", "source": part["file"]}),
        _ => part.clone(),
    }
}

pub(super) fn translate(body: &Value) -> Value {
    let mut system = Vec::new();
    let mut messages = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = &message["content"];
        let text = || json!({"type": "text", "text": content});
        match message["role"].as_str().unwrap_or_default() {
            "system" => system.push(text()),
            "tool" => append(&mut messages, "user", tool_output_item(&message["tool_call_id"], content)),
            "assistant" => {
                for thought in message["reasoning_details"].as_array().into_iter().flatten() {
                    let thought =
                        json!({"type": "thinking", "thinking": thought["text"], "signature": thought["signature"]});
                    append(&mut messages, "assistant", thought);
                }
                if content.is_string() {
                    append(&mut messages, "assistant", text());
                }
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    let call = function_call_item(&call["id"], &function["name"], &function["arguments"]);
                    append(&mut messages, "assistant", call);
                }
            }
            _ => match content.as_array() {
                Some(parts) => parts.iter().for_each(|part| append(&mut messages, "user", user_part(part))),
                None => append(&mut messages, "user", text()),
            },
        }
    }
    let tool = |tool: &Value| {
        let function = &tool["function"];
        json!({"name": function["name"], "description": function["description"], "input_schema": function["parameters"]})
    };
    let mut translated = json!({
        "model": body["model"], "max_tokens": body["max_tokens"], "stream": body["stream"], "messages": messages,
    });
    if !system.is_empty() {
        translated["system"] = json!(system);
    }
    if let Some(tools) = body["tools"].as_array() {
        translated["tools"] = tools.iter().map(tool).collect();
    }
    if let Some(choice) = body.get("tool_choice") {
        translated["tool_choice"] = json!({"type": choice});
    }
    translated
}

/// A message has reasoning only next to calls, then one text, then the calls.
pub(super) fn expected_echo(answer: &Answer) -> Vec<Value> {
    let of =
        |kind: &str| answer.expected_content().into_iter().filter(|block| block["type"] == kind).collect::<Vec<_>>();
    let calls = of("tool_use");
    let text: String = of("text").iter().filter_map(|block| block["text"].as_str()).collect();
    let mut blocks = if calls.is_empty() { Vec::new() } else { of("thinking") };
    if !text.trim().is_empty() {
        blocks.push(json!({"type": "text", "text": text}));
    }
    blocks.extend(calls);
    blocks
}

fn finish_reason(answer: &Answer) -> &str {
    match answer.stop_reason() {
        "end_turn" | "stop_sequence" => "stop",
        "tool_use" => "tool_calls",
        "max_tokens" => "length",
        "refusal" => "content_filter",
        other => other,
    }
}

fn usage(answer: &Answer) -> Value {
    let [input, output, read, written] = answer.usage;
    let prompt = input + read + written;
    json!({
        "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    })
}

fn completion(kind: &str, request: &Request, choices: &Value, usage: &Value) -> Value {
    json!({
        "id": format!("chatcmpl-{:06}", request.number), "object": kind, "created": 1_700_000_000,
        "model": request.model_unparsed(), "service_tier": "default", "choices": choices, "usage": usage,
    })
}

pub(super) fn json_body(answer: &Answer, request: &Request) -> Value {
    let content = expected_echo(answer);
    let text = content.iter().find_map(|block| block["text"].as_str());
    let call = |block: &Block| match block {
        Block::Call { tool, input, .. } => {
            Some(json!({"id": call_id(block), "type": "function", "function": {"name": tool, "arguments": input}}))
        }
        _ => None,
    };
    let calls: Vec<Value> = answer.blocks.iter().filter_map(call).collect();
    let mut message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": []});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let thought = |block: &Value| json!({"type": "reasoning.text", "text": block["thinking"], "signature": block["signature"], "index": 0});
    let thoughts: Vec<Value> = content.iter().filter(|block| block["type"] == "thinking").map(thought).collect();
    if !thoughts.is_empty() {
        (message["reasoning"], message["reasoning_details"]) = (thoughts[0]["text"].clone(), json!(thoughts));
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer)});
    completion("chat.completion", request, &json!([choice]), &usage(answer))
}

pub(super) fn events(answer: &Answer, request: &Request) -> Vec<Vec<u8>> {
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        data(&completion("chat.completion.chunk", request, &json!([choice]), &Value::Null))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": "", "refusal": null}), None)];
    let mut calls = 0;
    for (index, block) in answer.blocks.iter().enumerate() {
        match block {
            Block::Text(pieces) => events.extend(pieces.iter().map(|piece| chunk(json!({"content": piece}), None))),
            Block::Thinking { text, signature } => {
                let mut push = |more: Value| {
                    let mut detail = json!({"type": "reasoning.text", "index": index, "format": "test"});
                    detail.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
                    events.push(chunk(json!({"reasoning": more["text"], "reasoning_details": [detail]}), None));
                };
                split_in_half(text).iter().for_each(|piece| push(json!({"text": piece})));
                push(json!({"text": null, "signature": signature}));
            }
            Block::Call { tool, input, .. } => {
                let function = json!({"name": tool, "arguments": ""});
                let begun = json!({"index": calls, "id": call_id(block), "type": "function", "function": function});
                events.push(chunk(json!({"tool_calls": [begun]}), None));
                for piece in split_in_half(input) {
                    let more = json!({"index": calls, "function": {"arguments": piece}});
                    events.push(chunk(json!({"tool_calls": [more]}), None));
                }
                calls += 1;
            }
            // Nothing else has a place in a message.
            Block::Other(_) => {}
        }
    }
    events.push(chunk(json!({}), Some(finish_reason(answer))));
    events.push(data(&completion("chat.completion.chunk", request, &json!([]), &usage(answer))));
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}
