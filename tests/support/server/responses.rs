//! The Responses API, as in the types of OpenAI's client, used without storage.

use serde_json::{Value, json};

use super::answer::{Answer, Block};
use super::api::{append, call_id, check_fields, event, function_call_item, split_in_half, tool_output_item};
use super::request::Request;

const FIELDS: [&str; 14] = [
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "service_tier",
    "reasoning",
    "store",
    "stream",
    "temperature",
    "tool_choice",
    "tools",
];

pub(super) fn check(body: &Value) -> Vec<String> {
    let mut wrong = check_fields(body, &FIELDS, "max_output_tokens");
    if body["store"] != false {
        wrong.push(format!("store is {}", body["store"]));
    }
    if body["include"] != json!(["reasoning.encrypted_content"]) {
        wrong.push(format!("include is {}", body["include"]));
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] != "function" || tool["strict"] != false || !tool["parameters"].is_object() {
            wrong.push(format!("a tool is {tool}"));
        }
    }
    let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (place, item) in items.iter().enumerate() {
        let good = match (item["type"].as_str(), item["role"].as_str()) {
            (Some("message"), Some("user")) => parts_are_valid(&item["content"]),
            (Some("message"), Some("assistant")) => {
                item["content"].is_string()
                    || (item["id"].is_string() && item["status"].is_string() && item["content"].is_array())
            }
            (Some("reasoning"), _) => {
                let follows = items.get(place + 1);
                item["id"].is_string()
                    && item["encrypted_content"].is_string()
                    && item["summary"].is_array()
                    && follows.is_some_and(|next| next["type"] != "function_call_output" && next["role"] != "user")
            }
            (Some("function_call"), _) => ["call_id", "name", "arguments"].iter().all(|field| item[*field].is_string()),
            (Some("function_call_output"), _) => {
                item["call_id"].is_string() && (item["output"].is_string() || parts_are_valid(&item["output"]))
            }
            (kind, _) => kind.is_some(),
        };
        if !good {
            wrong.push(format!("item {place} is {item}"));
        }
    }
    wrong
}

/// Whether content is a list of texts, images and documents.
fn parts_are_valid(content: &Value) -> bool {
    let is_valid = |part: &Value| match part["type"].as_str() {
        Some("input_text") => part["text"].is_string(),
        Some("input_image") => part["image_url"].as_str().is_some_and(|url| url.starts_with("data:image/")),
        Some("input_file") => part["filename"].is_string() && part["file_data"].is_string(),
        _ => false,
    };
    content.as_array().is_some_and(|parts| !parts.is_empty() && parts.iter().all(is_valid))
}

/// The text of content: itself, or that of its parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    }
}

pub(super) fn translate(body: &Value) -> Value {
    let mut messages = Vec::new();
    for item in body["input"].as_array().into_iter().flatten() {
        let text = || text_of(&item["content"]);
        let (role, block) = match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call_output"), _) => {
                ("user", tool_output_item(&item["call_id"], &json!(text_of(&item["output"]))))
            }
            (Some("function_call"), _) => {
                ("assistant", function_call_item(&item["call_id"], &item["name"], &item["arguments"]))
            }
            (Some("reasoning"), _) => {
                let thought = item["summary"][0]["text"].as_str().unwrap_or_default();
                let thought = json!({"type": "thinking", "thinking": thought, "signature": item["encrypted_content"]});
                ("assistant", thought)
            }
            (Some("message"), Some("user")) => ("user", json!({"type": "text", "text": text()})),
            (Some("message"), _) if text().trim().is_empty() => continue,
            (Some("message"), _) => ("assistant", json!({"type": "text", "text": text()})),
            _ => ("assistant", item.clone()),
        };
        append(&mut messages, role, block);
    }
    let tool = |tool: &Value| json!({"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]});
    let mut translated = json!({
        "model": body["model"], "max_tokens": body["max_output_tokens"], "stream": body["stream"], "messages": messages,
    });
    if let Some(instructions) = body.get("instructions") {
        translated["system"] = json!([{"type": "text", "text": instructions}]);
    }
    if let Some(tools) = body["tools"].as_array() {
        translated["tools"] = tools.iter().map(tool).collect();
    }
    if let Some(choice) = body.get("tool_choice") {
        translated["tool_choice"] = json!({"type": choice});
    }
    translated
}

/// A response with these items; `status` is how it ended, if it did.
fn response(answer: &Answer, request: &Request, items: &[Value], ended: bool) -> Value {
    let reason = match answer.stop_reason() {
        "end_turn" | "stop_sequence" | "tool_use" => None,
        "max_tokens" => Some("max_output_tokens"),
        "refusal" => Some("content_filter"),
        other => Some(other),
    };
    let (status, details) = match reason {
        _ if !ended => ("in_progress", Value::Null),
        None => ("completed", Value::Null),
        Some(reason) => ("incomplete", json!({"reason": reason})),
    };
    let [input, output, read, written] = answer.usage;
    let prompt = input + read + written;
    let usage = json!({
        "input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens_details": {"reasoning_tokens": 0},
    });
    json!({
        "id": format!("resp_{:06}", request.number), "object": "response", "created_at": 1_700_000_000, "status": status,
        "error": null, "incomplete_details": details, "instructions": null, "metadata": {},
        "model": request.model_unparsed(), "output": items, "parallel_tool_calls": true,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "usage": if ended { usage } else { Value::Null },
    })
}

/// The final form of an item.
fn item(block: &Block, place: usize, request: &Request) -> Value {
    let id = |kind: &str| format!("{kind}_{}_{place}", request.number);
    match block {
        Block::Text(pieces) => {
            let part = json!({"type": "output_text", "annotations": [], "logprobs": [], "text": pieces.concat()});
            json!({"id": id("msg"), "type": "message", "status": "completed", "role": "assistant", "content": [part]})
        }
        Block::Thinking { text, signature } => json!({
            "id": id("rs"), "type": "reasoning", "encrypted_content": signature,
            "summary": [{"type": "summary_text", "text": text}],
        }),
        Block::Call { tool, input, .. } => json!({
            "id": id("fc"), "type": "function_call", "status": "completed", "call_id": call_id(block), "name": tool,
            "arguments": input,
        }),
        Block::Other(item) => item.clone(),
    }
}

fn items(answer: &Answer, request: &Request) -> Vec<Value> {
    answer.blocks.iter().enumerate().map(|(place, block)| item(block, place, request)).collect()
}

pub(super) fn json_body(answer: &Answer, request: &Request) -> Value {
    response(answer, request, &items(answer, request), true)
}

pub(super) fn events(answer: &Answer, request: &Request) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut push = |kind: &str, more: Value| {
        let mut data = json!({"type": kind, "sequence_number": events.len()});
        data.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        events.push(event(kind, &data));
    };
    let begun = response(answer, request, &[], false);
    push("response.created", json!({"response": begun}));
    push("response.in_progress", json!({"response": begun}));
    for (place, block) in answer.blocks.iter().enumerate() {
        let done = item(block, place, request);
        let mut begun = done.clone();
        let (field, empty) = match block {
            Block::Text(_) => ("content", json!([])),
            Block::Thinking { .. } => ("summary", json!([])),
            Block::Call { .. } => ("arguments", json!("")),
            Block::Other(_) => ("", Value::Null),
        };
        if !field.is_empty() {
            begun[field] = empty;
        }
        if begun.get("status").is_some() {
            begun["status"] = json!("in_progress");
        }
        push("response.output_item.added", json!({"output_index": place, "item": begun}));
        let of_item = |more: Value| {
            let mut data = json!({"output_index": place, "item_id": done["id"]});
            data.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            data
        };
        match block {
            Block::Text(pieces) => {
                let part = |text: &str| {
                    let part = json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text});
                    json!({"content_index": 0, "part": part})
                };
                push("response.content_part.added", of_item(part("")));
                for piece in pieces {
                    let delta = json!({"content_index": 0, "logprobs": [], "delta": piece});
                    push("response.output_text.delta", of_item(delta));
                }
                let whole = json!({"content_index": 0, "logprobs": [], "text": pieces.concat()});
                push("response.output_text.done", of_item(whole));
                push("response.content_part.done", of_item(part(&pieces.concat())));
            }
            Block::Thinking { text, .. } => {
                let part = |text: &str| json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}});
                push("response.reasoning_summary_part.added", of_item(part("")));
                for piece in split_in_half(text) {
                    let delta = json!({"summary_index": 0, "delta": piece});
                    push("response.reasoning_summary_text.delta", of_item(delta));
                }
                push("response.reasoning_summary_text.done", of_item(json!({"summary_index": 0, "text": text})));
                push("response.reasoning_summary_part.done", of_item(part(text)));
            }
            Block::Call { input, .. } => {
                for piece in split_in_half(input) {
                    push("response.function_call_arguments.delta", of_item(json!({"delta": piece})));
                }
                push("response.function_call_arguments.done", of_item(json!({"arguments": input})));
            }
            Block::Other(_) => {}
        }
        push("response.output_item.done", json!({"output_index": place, "item": done}));
    }
    let ended = response(answer, request, &items(answer, request), true);
    let kind = format!("response.{}", ended["status"].as_str().unwrap_or_default());
    push(&kind, json!({"response": ended}));
    events
}
