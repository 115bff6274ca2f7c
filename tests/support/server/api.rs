//! The APIs of the server. Internally it uses the form of the Messages API: requests of other APIs are translated
//! into it, and answers out of it.

use serde_json::{Value, json};

use super::answer::{Answer, Block};
use super::request::Request;
use super::{chat, gemini, responses};

/// An API, recognized by the path of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    Chat,
    Responses,
    Gemini,
}

impl Api {
    pub(super) fn at(path: &str) -> Self {
        // Clouds and gateways have other beginnings.
        match path.split('?').next().unwrap_or_default() {
            bare if bare.ends_with("/chat/completions") => Self::Chat,
            bare if bare.ends_with("/responses") => Self::Responses,
            bare if bare.ends_with(":streamGenerateContent") => Self::Gemini,
            _ => Self::Messages,
        }
    }

    /// A request's body in the Messages API's form.
    pub(super) fn translate(self, path: &str, body: &Value) -> Value {
        match self {
            Self::Messages => with_model_of_path(path, body),
            Self::Chat => chat::translate(body),
            Self::Responses => responses::translate(body),
            Self::Gemini => gemini::translate(path, body),
        }
    }

    /// The errors of a body as it arrived.
    pub(super) fn check(self, body: &Value) -> Vec<String> {
        match self {
            Self::Messages => Vec::new(),
            Self::Chat => chat::check(body),
            Self::Responses => responses::check(body),
            Self::Gemini => gemini::check(body),
        }
    }

    /// The blocks of an answer as the client must send them back, in the Messages API's form.
    pub(super) fn expected_echo(self, answer: &Answer) -> Vec<Value> {
        match self {
            Self::Messages | Self::Responses => answer.expected_content(),
            Self::Chat => chat::expected_echo(answer),
            Self::Gemini => gemini::expected_echo(answer),
        }
    }

    /// An error's body.
    pub(super) fn error(self, kind: &str, message: &str, request: &Request) -> Value {
        match self {
            Self::Messages => {
                let id = format!("req_{:06}", request.number);
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": id})
            }
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
            }
            Self::Gemini => gemini::error(kind, message),
        }
    }

    /// An error within a stream, after this many events.
    pub(super) fn error_event(self, kind: &str, message: &str, number: usize) -> Vec<u8> {
        let inner = json!({"type": kind, "message": message});
        match self {
            Self::Messages => event("error", &json!({"type": "error", "error": inner})),
            Self::Responses => {
                let code = kind.strip_suffix("_error").map_or(kind, |_| "server_error");
                event(
                    "error",
                    &json!({"type": "error", "sequence_number": number, "code": code, "message": message, "param": null}),
                )
            }
            Self::Chat => data(&json!({"error": inner})),
            Self::Gemini => data(&gemini::error(kind, message)),
        }
    }

    /// A ping.
    pub(super) fn ping(self) -> &'static [u8] {
        match self {
            Self::Messages => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
            Self::Chat | Self::Responses | Self::Gemini => b": still here\n\n",
        }
    }
}

/// A named event of a stream.
pub(super) fn event(name: &str, data: &Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// An event without a name.
pub(super) fn data(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// A text in two parts, either of which can be empty.
pub(super) fn split_in_half(text: &str) -> [&str; 2] {
    let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [head, tail]
}

/// Appends a message's blocks to the last message if that has the same role.
pub(super) fn append(messages: &mut Vec<Value>, role: &str, block: Value) {
    match messages.last_mut().filter(|last| last["role"] == role) {
        Some(last) => last["content"].as_array_mut().expect("a list of blocks").push(block),
        None => messages.push(json!({"role": role, "content": [block]})),
    }
}

/// An answer to a call. These APIs mark a failed one only by the words that it starts with.
pub(super) fn tool_output_item(id: &Value, text: &Value) -> Value {
    let text = text.as_str().unwrap_or_default();
    match text.strip_prefix("Error: ") {
        Some(why) => json!({"type": "tool_result", "tool_use_id": id, "content": why, "is_error": true}),
        None => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
    }
}

/// A call that is sent back: its input is JSON in a string.
pub(super) fn function_call_item(id: &Value, name: &Value, arguments: &Value) -> Value {
    let input: Value = serde_json::from_str(arguments.as_str().unwrap_or_default()).unwrap_or(Value::Null);
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// Checks that both of OpenAI's APIs have in common: known fields, and required ones.
pub(super) fn check_fields(body: &Value, known: &[&str], limit: &str) -> Vec<String> {
    let Some(fields) = body.as_object() else { return vec![String::from("the body is no JSON object")] };
    let mut wrong: Vec<String> = fields
        .keys()
        .filter(|field| !known.contains(&field.as_str()))
        .map(|field| format!("unknown field {field:?}"))
        .collect();
    if body[limit].as_u64().is_none_or(|tokens| tokens < 1) {
        wrong.push(format!("{limit} is {}", body[limit]));
    }
    if let Some(choice) = fields.get("tool_choice")
        && !["none", "auto", "required"].iter().any(|word| choice == word)
    {
        wrong.push(format!("tool_choice is {choice}"));
    }
    wrong
}

/// A call's id, if it has one.
pub(super) fn call_id(block: &Block) -> &str {
    match block {
        Block::Call { id: Some(id), .. } => id,
        _ => "",
    }
}

/// A request's body for Claude on Vertex AI has the model in the path, and the version of the API in the body.
fn with_model_of_path(path: &str, body: &Value) -> Value {
    let mut body = body.clone();
    let model = vertex_model(path).filter(|_| body.get("model").is_none());
    if let (Some(model), Some(fields)) = (model, body.as_object_mut())
        && fields.get("anthropic_version").is_some_and(|version| version == "vertex-2023-10-16")
    {
        fields.shift_remove("anthropic_version");
        fields.insert("model".to_owned(), model.into());
    }
    body
}

/// The model in the path of a streamed request to Claude on Vertex AI.
pub(super) fn vertex_model(path: &str) -> Option<&str> {
    let (_, model) = path.rsplit_once("/publishers/anthropic/models/")?;
    model.strip_suffix(":streamRawPredict")
}
