//! Answers of another API than the one that was asked: which one it is, and how to ask that.

use serde_json::Value;

use super::fault::quoted;
use super::http::Endpoint;
use super::retry::Failure;
use super::{Fault, FaultKind, find};

/// What an API's answers are known by.
struct Api {
    /// The provider of ours that speaks it.
    provider: &'static str,
    /// A word that its name has in ours.
    word: &'static str,
    /// Its name.
    name: &'static str,
    is: fn(&Value) -> bool,
}

const APIS: [Api; 5] = [
    Api { provider: "openai-chat", word: "chat completions", name: "the Chat Completions API", is: is_chat },
    Api { provider: "openai", word: "responses", name: "the Responses API", is: is_responses },
    Api { provider: "anthropic", word: "messages", name: "the Messages API", is: is_messages },
    Api { provider: "gemini", word: "gemini", name: "the Gemini API", is: is_gemini },
    Api { provider: "", word: "ollama", name: "Ollama's own API", is: is_ollama },
];

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_chat(value: &Value) -> bool {
    value.get("choices").is_some_and(Value::is_array) || text(value, "object").starts_with("chat.completion")
}

fn is_responses(value: &Value) -> bool {
    text(value, "object") == "response" || text(value, "type").starts_with("response.")
}

fn is_messages(value: &Value) -> bool {
    match text(value, "type") {
        "message" => value.get("content").is_some_and(Value::is_array),
        "message_start" => value.get("message").is_some_and(Value::is_object),
        _ => false,
    }
}

fn is_gemini(value: &Value) -> bool {
    ["candidates", "promptFeedback", "usageMetadata"].iter().any(|key| value.get(key).is_some())
}

fn is_ollama(value: &Value) -> bool {
    value.get("done").is_some_and(Value::is_boolean)
        && (value.get("message").is_some_and(Value::is_object) || value.get("response").is_some())
}

/// What a server said, where it is an answer of another API: a whole body, or the first event of a stream.
pub(super) fn other_api(said: &str, model: &str, endpoint: &Endpoint) -> Option<Failure> {
    // Of several values the first one is on a line of its own, and in a list that is streamed, too.
    let first = said.trim_start().lines().next().unwrap_or_default();
    let value: Value = serde_json::from_str(said).or_else(|_| serde_json::from_str(first)).ok()?;
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
    let api = APIS.iter().find(|api| (api.is)(value))?;
    let names = endpoint.names();
    if names.api.to_ascii_lowercase().contains(api.word) {
        return None;
    }
    let what = format!("{} answered as {} does, not as {}", endpoint.shown(), api.name, names.api);
    Some(Failure::odd(Fault::new(FaultKind::Rejected, what).hint(hint(api, model, endpoint))))
}

fn hint(api: &Api, model: &str, endpoint: &Endpoint) -> String {
    let names = endpoint.names();
    let Some(entry) = find(if api.provider.is_empty() { "openai-chat" } else { api.provider }) else {
        return format!("legwork doesn't speak it; is {} right?", names.base);
    };
    let below = if api.provider.is_empty() { ", and let the address end with /v1" } else { "" };
    match (&names.server, entry.home) {
        (Some((server, file)), _) => format!("write `api = \"{}\"` for `{server}` in {file}{below}", entry.name),
        (None, Some(home)) if home.variable != names.base => {
            format!(
                "put the address into {} and name the model `{}/{}`{below}",
                home.variable,
                entry.name,
                quoted(model)
            )
        }
        (None, _) => format!("name the model `{}/{}`{below}", entry.name, quoted(model)),
    }
}

/// What to try where nothing is to be found at an address.
pub(super) fn beside(endpoint: &Endpoint) -> &'static str {
    let has_chat = endpoint.names().api.to_ascii_lowercase().contains("chat completions");
    match (has_chat, &endpoint.names().server) {
        _ if endpoint.is_at_root() => " Most servers have it below /v1: let the address end with that",
        (true, _) => "",
        (false, Some(_)) => " Many servers speak only Chat Completions: `api = \"openai-chat\"`",
        (false, None) => " Many servers speak only Chat Completions: `openai-chat/MODEL`",
    }
}
