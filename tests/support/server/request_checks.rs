//! The Messages API's rules for one request that a client can break.
//!
//! Sources: the API reference of `POST /v1/messages`, its pages on handling tool calls, prompt caching and extended
//! thinking, and the migration guide to version 2026-10-21.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::api::{Api, vertex_model};
use super::request::Request;

/// The versions that exist.
const VERSIONS: [&str; 2] = ["2023-06-01", "2026-10-21"];

/// The fields of the body that the API defines. An unknown one is an error there.
const FIELDS: [&str; 15] = [
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "thinking",
    "tools",
];

/// Errors in a request's first line and headers.
pub(super) fn check_head(request: &Request, key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_vertex = vertex_model(request.path()).is_some();
    let is_known = is_vertex || ["/v1/messages", "/v1/chat/completions", "/v1/responses"].contains(&request.path());
    if request.method() != "POST" || !(is_known || request.api() == Api::Gemini) {
        wrong.push(format!("{} {} instead of POST /v1/messages", request.method(), request.path()));
    }
    match (request.api(), request.header("anthropic-version")) {
        (Api::Messages, None) if is_vertex => {}
        (Api::Messages, Some(version)) if !is_vertex && VERSIONS.contains(&version) => {}
        (Api::Chat | Api::Responses | Api::Gemini, None) => {}
        (_, other) => wrong.push(format!("anthropic-version is {other:?}")),
    }
    match request.header("content-type") {
        Some(kind) if kind.split(';').next() == Some("application/json") => {}
        other => wrong.push(format!("content-type is {other:?}")),
    }
    let name = if request.api() == Api::Gemini { "x-goog-api-key" } else { "x-api-key" };
    let keys = [request.header(name), request.header("authorization").map(bearer)];
    if keys.iter().flatten().next().is_none() {
        wrong.push(String::from("no key in a header of its own or in Authorization"));
    }
    if keys.iter().flatten().any(|given| *given != key) {
        wrong.push(String::from("a key that isn't the test's"));
    }
    if request.header("host").is_none() {
        wrong.push(String::from("no host header"));
    }
    wrong
}

fn bearer(value: &str) -> &str {
    value.strip_prefix("Bearer ").unwrap_or("")
}

/// Errors in a request's body on its own.
pub(super) fn check_body(body: &Value) -> Vec<String> {
    let Some(fields) = body.as_object() else { return vec![String::from("the body is no JSON object")] };
    let mut wrong = Vec::new();
    for field in fields.keys() {
        match field.as_str() {
            "temperature" if takes_temperature(body) => {}
            "temperature" | "top_p" | "top_k" => wrong.push(format!("{field} is refused by this model")),
            "tool_choice" => {}
            known if FIELDS.contains(&known) => {}
            unknown => wrong.push(format!("unknown field {unknown:?}")),
        }
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        wrong.push(format!("model is {}", body["model"]));
    }
    if body["max_tokens"].as_u64().is_none_or(|tokens| tokens < 1) {
        wrong.push(format!("max_tokens is {}", body["max_tokens"]));
    }
    if !matches!(body["stream"], Value::Null | Value::Bool(_)) {
        wrong.push(format!("stream is {}", body["stream"]));
    }
    system(fields, &mut wrong);
    tools(fields, &mut wrong);
    thinking(body, &mut wrong);
    match body["messages"].as_array().map(Vec::as_slice) {
        None | Some([]) => wrong.push(String::from("no messages")),
        Some(list) => messages(list, &mut wrong),
    }
    check_cache_markers(body, &mut wrong);
    wrong
}

/// Version 2023-06-01 allows 0 to 1 for Claude up to 4.6, unless thinking is on.
fn takes_temperature(body: &Value) -> bool {
    let model = body["model"].as_str().unwrap_or_default();
    let is_old = ["-3-", "-4-5", "-4-6"].iter().any(|version| model.contains(version));
    let is_good = body["temperature"].as_f64().is_some_and(|temperature| (0.0..=1.0).contains(&temperature));
    is_old && is_good && matches!(body["thinking"]["type"].as_str(), None | Some("disabled"))
}

fn system(fields: &Map<String, Value>, wrong: &mut Vec<String>) {
    match fields.get("system") {
        None => {}
        Some(Value::String(text)) if !is_blank(text) => {}
        Some(Value::Array(blocks)) if !blocks.is_empty() => {
            for block in blocks {
                if block["type"] != "text" || block["text"].as_str().is_none_or(is_blank) {
                    wrong.push(format!("a block of system is {block}"));
                }
            }
        }
        Some(other) => wrong.push(format!("system is {other}; none is left out")),
    }
}

fn tools(fields: &Map<String, Value>, wrong: &mut Vec<String>) {
    let empty = Vec::new();
    let tools = match fields.get("tools") {
        None => &empty,
        Some(Value::Array(tools)) if !tools.is_empty() => tools,
        Some(other) => return wrong.push(format!("tools is {other}; none is left out")),
    };
    let mut names = HashSet::new();
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        if !is_name(&tool["name"], 64) || !names.insert(name) {
            wrong.push(format!("a tool's name is missing, ill-formed or not unique: {}", tool["name"]));
        }
        if tool["description"].as_str().is_none_or(is_blank) {
            wrong.push(format!("tool {name} has no description"));
        }
        if tool["input_schema"]["type"] != "object" {
            wrong.push(format!("the input_schema of tool {name} is no object's"));
        }
    }
    let Some(choice) = fields.get("tool_choice") else { return };
    match choice["type"].as_str() {
        _ if tools.is_empty() => wrong.push(String::from("tool_choice without tools")),
        Some("auto" | "any" | "none") => {}
        Some("tool") if choice["name"].as_str().is_some_and(|name| names.contains(name)) => {}
        _ => wrong.push(format!("tool_choice is {choice}")),
    }
}

fn thinking(body: &Value, wrong: &mut Vec<String>) {
    let thinking = &body["thinking"];
    match thinking["type"].as_str() {
        None if thinking.is_null() => return,
        Some("disabled" | "between_tools") => return,
        Some("adaptive") => {}
        Some("enabled") => {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
            if budget < 1024 || budget >= body["max_tokens"].as_u64().unwrap_or_default() {
                wrong.push(format!("budget_tokens is {budget}: less than 1024, or not less than max_tokens"));
            }
        }
        _ => wrong.push(format!("thinking is {thinking}")),
    }
    if matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool")) {
        wrong.push(String::from("tool_choice forces a tool while thinking is on"));
    }
}

fn messages(list: &[Value], wrong: &mut Vec<String>) {
    let mut calls: Vec<&str> = Vec::new();
    let mut all_calls = HashSet::new();
    for (place, message) in list.iter().enumerate() {
        let expected = if place % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            wrong.push(format!("message {place} is of role {} instead of {expected:?}", message["role"]));
        }
        let blocks = match &message["content"] {
            Value::String(text) if !is_blank(text) => &[],
            Value::Array(blocks) if !blocks.is_empty() => blocks.as_slice(),
            other => {
                wrong.push(format!("the content of message {place} is {other}"));
                &[]
            }
        };
        for block in blocks {
            if let Some(why) = block_error(block, expected) {
                wrong.push(format!("message {place}: {why}"));
            }
        }
        if expected == "assistant" && blocks.last().is_some_and(is_thinking) {
            wrong.push(format!("message {place} ends with a thought"));
        }
        let answered: Vec<&str> = field_of_blocks(blocks, "tool_result", "tool_use_id").collect();
        if answered != calls {
            wrong.push(format!("message {place} answers the calls {answered:?} instead of {calls:?}, in this order"));
        }
        let first_other = blocks.iter().position(|block| block["type"] != "tool_result");
        if first_other.is_some_and(|at| blocks[at..].iter().any(|block| block["type"] == "tool_result")) {
            wrong.push(format!("message {place} has something in front of a tool_result"));
        }
        calls = field_of_blocks(blocks, "tool_use", "id").collect();
        wrong.extend(
            calls.iter().filter(|id| !all_calls.insert(**id)).map(|id| format!("two calls have the id {id:?}")),
        );
    }
    if !calls.is_empty() {
        wrong.push(format!("nothing answers the calls {calls:?}"));
    }
}

fn field_of_blocks<'a>(blocks: &'a [Value], kind: &str, field: &str) -> impl Iterator<Item = &'a str> {
    blocks.iter().filter(move |block| block["type"] == kind).map(move |block| block[field].as_str().unwrap_or_default())
}

/// Errors in a block of a message with this role.
fn block_error(block: &Value, role: &str) -> Option<String> {
    let has_text = |field: &str| block[field].as_str().is_some_and(|text| !is_blank(text));
    let cited = block["citations"].as_array().is_some_and(|list| !list.is_empty());
    let good = match (block["type"].as_str(), role) {
        (Some("text"), "user") => has_text("text") && !cited,
        (Some("text"), _) => has_text("text"),
        (Some("tool_result"), "user") => has_text("tool_use_id") && is_valid_tool_result(block),
        (Some("image" | "document" | "search_result"), "user") => true,
        (Some("tool_use"), "assistant") => {
            block["input"].is_object() && is_name(&block["id"], 128) && is_name(&block["name"], 128)
        }
        (Some("thinking"), "assistant") => block["thinking"].is_string() && has_text("signature"),
        (Some("redacted_thinking"), "assistant") => has_text("data"),
        (Some("tool_result" | "document" | "image"), "assistant") => false,
        (Some(_), "assistant") => true,
        _ => false,
    };
    (!good).then(|| format!("a block of a message of role {role} can't be {block}"))
}

fn is_valid_tool_result(block: &Value) -> bool {
    let content = &block["content"];
    let is_error = match &block["is_error"] {
        Value::Null => false,
        Value::Bool(is_error) => *is_error,
        _ => return false,
    };
    match content {
        // The API rejects an error without text.
        Value::Null => !is_error,
        Value::String(text) => !(is_error && text.is_empty()),
        Value::Array(blocks) => {
            let blank = |block: &Value| block["type"] == "text" && block["text"].as_str().is_none_or(is_blank);
            !(blocks.iter().any(blank) || (is_error && blocks.is_empty()))
        }
        _ => false,
    }
}

/// Cache marks: at most four, of a known kind, never on reasoning, and those for an hour first.
fn check_cache_markers(body: &Value, wrong: &mut Vec<String>) {
    let (mut count, mut is_short) = (0, false);
    for_each_cache_marker(body, &mut |holder, mark| {
        count += 1;
        if mark["type"] != "ephemeral" {
            wrong.push(format!("cache_control is {mark}"));
        }
        match mark["ttl"].as_str() {
            Some("1h") if is_short => wrong.push(String::from("a ttl='1h' cache_control block after a ttl='5m' one")),
            Some("1h") => {}
            Some("5m") => is_short = true,
            None if mark["ttl"].is_null() => is_short = true,
            _ => wrong.push(format!("the ttl of cache_control is {}", mark["ttl"])),
        }
        if is_thinking(holder) {
            wrong.push(String::from("cache_control on a thinking block"));
        }
    });
    if count > 4 {
        wrong.push(format!("{count} cache_control marks; 4 are allowed"));
    }
}

/// Visits the places where the API looks for cache marks. A tool's schema or a call's input can have a field of that
/// name.
fn for_each_cache_marker(body: &Value, found: &mut dyn FnMut(&Value, &Value)) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut holders = vec![body.clone()];
    holders.extend(list(&body["tools"]));
    holders.extend(list(&body["system"]));
    for message in list(&body["messages"]) {
        for block in list(&message["content"]) {
            holders.extend(list(&block["content"]));
            holders.push(block);
        }
    }
    for holder in &holders {
        if let Some(mark) = holder.get("cache_control").filter(|mark| !mark.is_null()) {
            found(holder, mark);
        }
    }
}

pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

fn is_name(name: &Value, longest: usize) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    name.as_str().is_some_and(|name| (1..=longest).contains(&name.len()) && name.bytes().all(letter))
}
