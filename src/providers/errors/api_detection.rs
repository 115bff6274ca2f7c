//! Answers of another API than the one that was asked: which one it is, and how to ask that.

use serde_json::Value;

use crate::providers::errors::classification::display_model;
use crate::providers::transport::http::Endpoint;
use crate::providers::transport::retry::FailedAttempt;
use crate::providers::{ProviderError, ProviderErrorKind, find};

/// What an API's answers are known by.
struct KnownApi {
    /// The provider of ours that speaks it.
    provider: &'static str,
    /// A word that its name has in ours.
    word: &'static str,
    /// Its name.
    name: &'static str,
    matches: fn(&Value) -> bool,
}

const KNOWN_APIS: [KnownApi; 5] = [
    KnownApi { provider: "openai-chat", word: "chat completions", name: "the Chat Completions API", matches: is_chat },
    KnownApi { provider: "openai", word: "responses", name: "the Responses API", matches: is_responses },
    KnownApi { provider: "anthropic", word: "messages", name: "the Messages API", matches: is_messages },
    KnownApi { provider: "gemini", word: "gemini", name: "the Gemini API", matches: is_gemini },
    KnownApi { provider: "", word: "ollama", name: "Ollama's own API", matches: is_ollama },
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
pub(crate) fn detect_other_api(said: &str, model: &str, endpoint: &Endpoint) -> Option<FailedAttempt> {
    // Of several values the first one is on a line of its own, and in a list that is streamed, too.
    let first = said.trim_start().lines().next().unwrap_or_default();
    let value: Value = serde_json::from_str(said).or_else(|_| serde_json::from_str(first)).ok()?;
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
    let api = KNOWN_APIS.iter().find(|api| (api.matches)(value))?;
    let names = endpoint.labels();
    if names.api.to_ascii_lowercase().contains(api.word) {
        return None;
    }
    let what = format!("{} answered as {} does, not as {}", endpoint.display_url(), api.name, names.api);
    Some(FailedAttempt::unrecognized(
        ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint(api, model, endpoint)),
    ))
}

fn hint(api: &KnownApi, model: &str, endpoint: &Endpoint) -> String {
    let names = endpoint.labels();
    let Some(entry) = find(if api.provider.is_empty() { "openai-chat" } else { api.provider }) else {
        return format!("legwork doesn't speak it; is {} right?", names.base_url_source);
    };
    let below = if api.provider.is_empty() { ", and let the address end with /v1" } else { "" };
    match (&names.server, entry.default_endpoint) {
        (Some((server, file)), _) => format!("write `api = \"{}\"` for `{server}` in {file}{below}", entry.name),
        (None, Some(home)) if home.base_url_env != names.base_url_source => {
            format!(
                "put the address into {} and name the model `{}/{}`{below}",
                home.base_url_env,
                entry.name,
                display_model(model)
            )
        }
        (None, _) => format!("name the model `{}/{}`{below}", entry.name, display_model(model)),
    }
}

/// What to try where nothing is to be found at an address.
pub(crate) fn address_hint(endpoint: &Endpoint) -> &'static str {
    let has_chat = endpoint.labels().api.to_ascii_lowercase().contains("chat completions");
    match (has_chat, &endpoint.labels().server) {
        _ if endpoint.is_at_root() => " Most servers have it below /v1: let the address end with that",
        (true, _) => "",
        (false, Some(_)) => " Many servers speak only Chat Completions: `api = \"openai-chat\"`",
        (false, None) => " Many servers speak only Chat Completions: `openai-chat/MODEL`",
    }
}
