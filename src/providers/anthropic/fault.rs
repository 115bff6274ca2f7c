//! How the Messages API speaks of errors: <https://platform.claude.com/docs/en/api/errors>. Gateways before it, and other
//! servers that have it, speak as those of OpenAI's APIs do.

use serde_json::Value;

use crate::providers::fault::{Manners, Meaning, Said};
use crate::providers::openai::fault as openai;

/// Its ways.
pub(super) static MANNERS: Manners = Manners { read, status, meaning };

fn read(json: &str) -> Option<Said> {
    let value: Value = serde_json::from_str(json).ok()?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let Some((error, kind)) = value.get("error").and_then(|error| Some((error, text(error.get("type"))?))) else {
        return (openai::MANNERS.read)(json);
    };
    Some(Said {
        kind: Some(kind),
        message: text(error.get("message")),
        code: text(error.pointer("/details/error_code")).or_else(|| text(error.get("code"))),
        status: None,
        request_id: text(value.get("request_id")),
        pause: None,
    })
}

fn status(said: &Said) -> u16 {
    match said.kind.as_deref() {
        _ if said.code.as_deref() == Some("invalid_api_key") => 401,
        Some("invalid_request_error") => 400,
        Some("authentication_error") => 401,
        Some("billing_error") => 402,
        Some("permission_error") => 403,
        Some("not_found_error") => 404,
        Some("request_too_large") => 413,
        Some("rate_limit_error") => 429,
        Some("overloaded_error") => 529,
        _ => (openai::MANNERS.status)(said),
    }
}

fn meaning(status: u16, said: &Said) -> Option<Meaning> {
    if said.code.as_deref() == Some("enforced_spend_limit_reached") {
        return Some(Meaning::Unpaid);
    }
    // llama.cpp's word, which it has for each of its APIs.
    let is_full = said.kind.as_deref() == Some("exceed_context_size_error");
    (is_full || status == 400 && said.message.as_deref().is_some_and(says_too_long)).then_some(Meaning::Full)
}

/// Whether the API says that the prompt doesn't fit. It has no type of its own for that, only words.
fn says_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["prompt is too long", "exceed context limit", "exceeds the context window", "maximum context length"]
        .iter()
        .any(|words| message.contains(words))
}
