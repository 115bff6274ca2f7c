//! What an answer that holds no reply means, and what to do about it.
//!
//! Statuses and error types are those of <https://platform.claude.com/docs/en/api/errors>; which of them are worth
//! another try is what the official clients do: 408, 409, 429 and 5xx, unless `x-should-retry` says otherwise.

use reqwest::StatusCode;
use serde_json::Value;

use super::KEY;
use crate::providers::http::{Answer, Endpoint};
use crate::providers::retry::{Again, Failure, asked_pause};
use crate::providers::{Fault, FaultKind};

/// What the API says of an error.
#[derive(Debug, Default)]
struct Said {
    kind: Option<String>,
    message: Option<String>,
    /// A code for programs, below `details`.
    code: Option<String>,
    request_id: Option<String>,
}

fn read(json: &str) -> Option<Said> {
    let value: Value = serde_json::from_str(json).ok()?;
    let error = value.get("error")?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    Some(Said {
        kind: text(error.get("type")),
        message: text(error.get("message")).or_else(|| text(Some(error))),
        code: text(error.pointer("/details/error_code")),
        request_id: text(value.get("request_id")),
    })
}

/// Whether the API says that the prompt doesn't fit. It has no type of its own for that, only words.
fn says_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["prompt is too long", "exceed context limit", "exceeds the context window", "maximum context length"]
        .iter()
        .any(|words| message.contains(words))
}

fn hint(status: u16, model: &str, endpoint: &Endpoint) -> Option<String> {
    let shown = endpoint.shown();
    Some(match status {
        401 => format!("the key came from {KEY}; is it whole, still valid, and meant for {shown}?"),
        402 => "see the account's billing page".to_owned(),
        403 => format!("the key from {KEY} may not use this model or endpoint"),
        404 => format!("is `{model}` the model's name, and {shown} the right address (ANTHROPIC_BASE_URL)?"),
        413 => "the conversation is larger than the API takes in one request".to_owned(),
        429 => "the account's rate limit; try again later, or run fewer agents side by side".to_owned(),
        500.. => "the API has trouble; try again later".to_owned(),
        _ => return None,
    })
}

fn status_of(kind: &str) -> u16 {
    match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "overloaded_error" => 529,
        _ => 500,
    }
}

fn failure(status: u16, said: &Said, what: String, model: &str, endpoint: &Endpoint) -> Failure {
    let passing =
        matches!(status, 408 | 409 | 429 | 500..) && said.code.as_deref() != Some("enforced_spend_limit_reached");
    let kind = if passing {
        FaultKind::Failed
    } else if status == 400 && said.message.as_deref().is_some_and(says_too_long) {
        FaultKind::ContextFull
    } else {
        FaultKind::Rejected
    };
    let mut fault = Fault::new(kind, what);
    fault.hint = hint(status, model, endpoint);
    Failure { fault, again: if passing { Again::Soon } else { Again::Never } }
}

fn sentence(status: &str, said: &Said, endpoint: &Endpoint) -> String {
    let kind = said.kind.as_ref().map(|kind| format!(" ({})", endpoint.quote(kind))).unwrap_or_default();
    let message = said.message.as_ref().map(|message| format!(": {}", endpoint.quote(message))).unwrap_or_default();
    let request = said.request_id.as_ref().map(|id| format!(" [{}]", endpoint.quote(id))).unwrap_or_default();
    format!("{} answered {status}{kind}{message}{request}", endpoint.shown())
}

/// An `error` event within a stream.
pub(super) fn by_event(json: &str, model: &str, endpoint: &Endpoint) -> Failure {
    let said = read(json).unwrap_or_else(|| Said { message: Some(json.to_owned()), ..Said::default() });
    let status = said.kind.as_deref().map_or(500, status_of);
    failure(status, &said, sentence("with an error in the stream", &said, endpoint), model, endpoint)
}

/// An answer with another status than 200.
pub(super) async fn by_status(mut answer: Answer<'_>, model: &str, endpoint: &Endpoint) -> Failure {
    let status = answer.status();
    if status.is_redirection() {
        let to = answer.header("location").unwrap_or("an unnamed place");
        let to = to.split('?').next().unwrap_or_default();
        let to = to.rsplit_once('@').map_or(to, |(_, host)| host);
        let what = format!("{} redirects to {}", endpoint.shown(), endpoint.quote(to));
        return Failure::last(
            Fault::new(FaultKind::Rejected, what)
                .hint("a key isn't carried along by redirects: put the final address into ANTHROPIC_BASE_URL"),
        );
    }
    let body = answer.body(64 << 10).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body);
    let mut said = read(&body).unwrap_or_else(|| Said {
        message: (!body.trim().is_empty()).then(|| excerpt(&endpoint.masked(&body), &answer.media_type())),
        ..Said::default()
    });
    said.request_id = said.request_id.or_else(|| answer.header("request-id").map(str::to_owned));
    let what = sentence(&words(status), &said, endpoint);
    let mut failure = failure(status.as_u16(), &said, what, model, endpoint);
    match answer.header("x-should-retry") {
        Some("false") => failure.again = Again::Never,
        Some("true") if failure.again == Again::Never => {
            failure.again = Again::Soon;
            failure.fault.kind = FaultKind::Failed;
        }
        _ => {}
    }
    if failure.again == Again::Soon
        && let Some(pause) = asked_pause(answer.headers())
    {
        failure.again = Again::After(pause);
    }
    failure
}

/// A status 200 without a reply: a login page, another service, a proxy's notice.
pub(super) fn foreign(media_type: &str, why: &str, body: &[u8], endpoint: &Endpoint) -> Failure {
    let media_type = if media_type.is_empty() { "something without a type" } else { media_type };
    let body = excerpt(&endpoint.masked(&String::from_utf8_lossy(body)), media_type);
    let what = format!(
        "{} answered with {}, not with a reply ({}): {}",
        endpoint.shown(),
        endpoint.quote(media_type),
        endpoint.quote(why),
        endpoint.quote(&body)
    );
    Failure::last(
        Fault::new(FaultKind::Rejected, what)
            .hint("is ANTHROPIC_BASE_URL the address of the Messages API, and does no login page stand before it?"),
    )
}

/// The start of a foreign text; of a page its title, where it has one.
fn excerpt(body: &str, media_type: &str) -> String {
    let lower = body.to_ascii_lowercase();
    if media_type.contains("html")
        && let Some((start, end)) = lower.find("<title>").zip(lower.find("</title>"))
        && let Some(title) = body.get(start + "<title>".len()..end)
        && !title.trim().is_empty()
    {
        return format!("a page titled \"{}\"", title.trim());
    }
    body.chars().take(200).collect()
}

fn words(status: StatusCode) -> String {
    match status.as_u16() {
        // No registered name: it is the API's own for "overloaded".
        529 => "529 Overloaded".to_owned(),
        _ => status.to_string(),
    }
}
