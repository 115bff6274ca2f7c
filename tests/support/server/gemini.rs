//! The Gemini API, as in the types of Google's client. The path has the model and whether a stream is requested.

use serde_json::{Value, json};

use super::answer::{Answer, Block};
use super::api::{append, data};
use super::request::Request;

const FOLDER: &str = "/v1beta/models/";
const METHOD: &str = ":streamGenerateContent?alt=sse";
const FIELDS: [&str; 6] = ["contents", "generationConfig", "serviceTier", "systemInstruction", "toolConfig", "tools"];
const OPTIONS: [&str; 4] = ["maxOutputTokens", "stopSequences", "temperature", "thinkingConfig"];
const PARTS: [&str; 6] = ["text", "functionCall", "functionResponse", "inlineData", "thought", "thoughtSignature"];
/// The signature of every first call.
const SIGNATURE: &str = "c2lnbmVk";

/// The model in a path.
pub(super) fn model(path: &str) -> Option<&str> {
    path.strip_prefix(FOLDER)?.strip_suffix(METHOD).filter(|model| !model.is_empty())
}

fn parts(content: &Value) -> &[Value] {
    content["parts"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn check(body: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known = |value: &Value, known: &[&str]| {
        let fields = value.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        wrong.extend(fields.filter(|name| !known.contains(name)).map(|name| format!("unknown field {name:?}")));
    };
    known(body, &FIELDS);
    known(&body["generationConfig"], &OPTIONS);
    let contents = body["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
    contents.iter().for_each(|content| known(content, &["role", "parts"]));
    contents.iter().flat_map(parts).for_each(|part| known(part, &PARTS));
    if body["generationConfig"]["maxOutputTokens"].as_u64().is_none_or(|tokens| tokens < 1) {
        wrong.push(format!("generationConfig is {}", body["generationConfig"]));
    }
    for tool in body["tools"][0]["functionDeclarations"].as_array().into_iter().flatten() {
        if !tool["parametersJsonSchema"].is_object() || tool.get("parameters").is_some() {
            wrong.push(format!("a tool is {tool}"));
        }
    }
    if let Some(choice) = body.get("toolConfig")
        && *choice != json!({"functionCallingConfig": {"mode": "NONE"}})
    {
        wrong.push(format!("toolConfig is {choice}"));
    }
    let of = |content: &Value, kind: &str| -> Vec<Value> {
        parts(content).iter().filter_map(|part| part.get(kind)).cloned().collect()
    };
    for (place, content) in contents.iter().enumerate() {
        if !["user", "model"].iter().any(|role| content["role"] == *role) || parts(content).is_empty() {
            wrong.push(format!("message {place} is {content}"));
        }
        let calls = place.checked_sub(1).map(|before| of(&contents[before], "functionCall")).unwrap_or_default();
        let answers = of(content, "functionResponse");
        let fits = |(call, answer): (&Value, &Value)| {
            let outcome = answer["response"].as_object().map(|response| response.keys().cloned().collect::<Vec<_>>());
            call["name"] == answer["name"]
                && call.get("id") == answer.get("id")
                && outcome.is_some_and(|keys| keys == ["output"] || keys == ["error"])
        };
        if calls.len() != answers.len() || !calls.iter().zip(&answers).all(fits) {
            wrong.push(format!("message {place} doesn't answer the calls before it: {content}"));
        }
        if !answers.is_empty() && answers.len() != parts(content).len() {
            wrong.push(format!("message {place} has something besides its answers"));
        }
        let first_call = parts(content).iter().find(|part| part.get("functionCall").is_some());
        if first_call.is_some_and(|part| part["thoughtSignature"].as_str().is_none_or(str::is_empty)) {
            wrong.push(format!("Function call is missing a thought_signature in message {place}"));
        }
    }
    if contents.last().is_some_and(|last| last["role"] != "user") {
        wrong.push(String::from("the last message is the model's"));
    }
    wrong
}

pub(super) fn translate(path: &str, body: &Value) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    for content in body["contents"].as_array().into_iter().flatten() {
        let role = if content["role"] == "model" { "assistant" } else { "user" };
        for part in parts(content) {
            let (call, answer) = (&part["functionCall"], &part["functionResponse"]);
            if call.is_object() {
                let call = json!({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]});
                append(&mut messages, role, call);
            } else if answer.is_object() {
                let mut result = json!({"type": "tool_result", "tool_use_id": answer["id"]});
                let outcome = &answer["response"];
                result["content"] = outcome.get("output").unwrap_or(&outcome["error"]).clone();
                if outcome.get("error").is_some() {
                    result["is_error"] = json!(true);
                }
                append(&mut messages, role, result);
            } else if part["thought"] == true {
                let thought =
                    json!({"type": "thinking", "thinking": part["text"], "signature": part["thoughtSignature"]});
                append(&mut messages, role, thought);
            } else if part["inlineData"].is_object() {
                append(&mut messages, role, json!({"type": "image", "source": part["inlineData"]}));
            } else {
                append(&mut messages, role, json!({"type": "text", "text": part["text"]}));
            }
        }
    }
    let mut translated = json!({
        "model": model(path).unwrap_or_default(), "stream": path.ends_with(METHOD), "messages": messages,
        "max_tokens": body["generationConfig"]["maxOutputTokens"],
    });
    if let Some(system) = body.get("systemInstruction") {
        translated["system"] = json!([{"type": "text", "text": system["parts"][0]["text"]}]);
    }
    let tool = |tool: &Value| json!({"name": tool["name"], "description": tool["description"], "input_schema": tool["parametersJsonSchema"]});
    if let Some(tools) = body["tools"][0]["functionDeclarations"].as_array() {
        translated["tools"] = tools.iter().map(tool).collect();
    }
    if body.get("toolConfig").is_some() {
        translated["tool_choice"] = json!({"type": "none"});
    }
    translated
}

/// Adjacent texts are joined.
pub(super) fn expected_echo(answer: &Answer) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for block in answer.expected_content() {
        match blocks.last_mut().filter(|last| last["type"] == "text" && block["type"] == "text") {
            Some(last) => {
                let whole = [&*last, &block].map(|block| block["text"].as_str().unwrap_or_default()).concat();
                last["text"] = json!(whole);
            }
            None => blocks.push(block),
        }
    }
    blocks
}

pub(super) fn error(kind: &str, message: &str) -> Value {
    let (code, status) = match kind {
        "invalid_request_error" => (400, "INVALID_ARGUMENT"),
        "authentication_error" => (401, "UNAUTHENTICATED"),
        "permission_error" => (403, "PERMISSION_DENIED"),
        "not_found_error" => (404, "NOT_FOUND"),
        "rate_limit_error" => (429, "RESOURCE_EXHAUSTED"),
        "overloaded_error" => (503, "UNAVAILABLE"),
        _ => (500, "INTERNAL"),
    };
    json!({"error": {"code": code, "message": message, "status": status}})
}

/// A response with these parts. The last one of a stream has the finish reason and the usage.
fn response(answer: &Answer, request: &Request, parts: &[Value], ended: bool) -> Value {
    let reason = match answer.stop_reason() {
        "end_turn" | "tool_use" | "stop_sequence" => "STOP",
        "max_tokens" => "MAX_TOKENS",
        "refusal" => "SAFETY",
        other => other,
    };
    let [input, output, read, written] = answer.usage;
    let prompt = input + read + written;
    let mut usage = json!({"promptTokenCount": prompt, "totalTokenCount": prompt});
    if read > 0 {
        usage["cachedContentTokenCount"] = json!(read);
    }
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if ended {
        candidate["finishReason"] = json!(reason);
        usage["candidatesTokenCount"] = json!(output);
        usage["totalTokenCount"] = json!(prompt + output);
    }
    json!({
        "candidates": [candidate], "usageMetadata": usage, "modelVersion": request.model_unparsed(),
        "responseId": format!("r{:06}", request.number),
    })
}

/// The parts of an answer, with its texts in pieces.
fn parts_of_answer(answer: &Answer) -> Vec<Value> {
    let mut pieces = Vec::new();
    let mut is_signed = false;
    for block in &answer.blocks {
        match block {
            Block::Text(texts) => pieces.extend(texts.iter().map(|text| json!({"text": text}))),
            Block::Thinking { text, signature } => {
                pieces.push(json!({"text": text, "thought": true, "thoughtSignature": signature}));
            }
            Block::Call { id, tool, input } => {
                let args: Value = serde_json::from_str(input).unwrap_or_else(|_| json!(input));
                let mut part = json!({"functionCall": {"name": tool, "args": args, "id": id}});
                if !is_signed {
                    part["thoughtSignature"] = json!(SIGNATURE);
                    is_signed = true;
                }
                pieces.push(part);
            }
            Block::Other(part) => pieces.push(part.clone()),
        }
    }
    pieces
}

pub(super) fn json_body(answer: &Answer, request: &Request) -> Value {
    response(answer, request, &parts_of_answer(answer), true)
}

pub(super) fn events(answer: &Answer, request: &Request) -> Vec<Vec<u8>> {
    let empty = json!({"text": ""});
    let mut events = vec![data(&response(answer, request, std::slice::from_ref(&empty), false))];
    events.extend(
        parts_of_answer(answer)
            .iter()
            .map(|piece| data(&response(answer, request, std::slice::from_ref(piece), false))),
    );
    events.push(data(&response(answer, request, &[empty], true)));
    events
}
