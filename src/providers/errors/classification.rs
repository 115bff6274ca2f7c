//! What an answer that holds no reply means, and what to do about it.
//!
//! Which statuses are worth another try is what the official clients of all the APIs do: 408, 409, 429 and 5xx, unless
//! `x-should-retry` says otherwise; and 425, which asks for one. What isn't the API's answer at all is worth another try
//! where the server has answered well before.

use std::time::Duration;

use reqwest::StatusCode;

use crate::providers::errors::api_detection::{address_hint, detect_other_api};
use crate::providers::errors::{error_body, limit_hints, litellm};
use crate::providers::transport::http::{Endpoint, HttpResponse};
use crate::providers::transport::rate_governor::Throttle;
use crate::providers::transport::retry::{FailedAttempt, RetryDecision, parse_retry_after};
use crate::providers::{ProviderError, ProviderErrorKind};

/// What a server says of an error.
#[derive(Debug, Default)]
pub(crate) struct ApiError {
    /// Its type, such as `rate_limit_error`.
    pub(crate) kind: Option<String>,
    /// A text for people.
    pub(crate) message: Option<String>,
    /// A code for programs.
    pub(crate) code: Option<String>,
    /// The HTTP status that it names itself.
    pub(crate) status: Option<u16>,
    /// The request that it is about.
    pub(crate) request_id: Option<String>,
    /// The pause that it asks for.
    pub(crate) retry_after: Option<Duration>,
}

/// What an error means, where its status alone doesn't say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The conversation doesn't fit the model's window.
    ContextFull,
    /// The account has no money left, or may spend no more; no later try mends that.
    BillingExhausted,
    /// This one request is more than the account may ever send at once.
    RequestTooLarge,
    /// The account may ask no more today.
    DailyQuotaExhausted,
    /// The key is none, whatever the status.
    InvalidKey,
}

/// How one API speaks of errors.
pub(crate) struct ErrorDialect {
    /// What an error's JSON says; `None` where it is none.
    pub(crate) parse: fn(&str) -> Option<ApiError>,
    /// The HTTP status that stands for an error within a stream.
    pub(crate) status: fn(&ApiError) -> u16,
    /// What it means beyond that status.
    pub(crate) classify: fn(u16, &ApiError) -> Option<ErrorClass>,
}

/// A model's name within a sentence.
pub(crate) fn display_model(model: &str) -> &str {
    if model.len() <= 200 { model } else { "MODEL" }
}

fn hint_for(
    status: u16,
    meaning: Option<ErrorClass>,
    said: &ApiError,
    model: &str,
    endpoint: &Endpoint,
) -> Option<String> {
    let (shown, names) = (endpoint.display_url(), endpoint.labels());
    let words = said.message.as_deref().unwrap_or_default();
    let status = if status == 400 && litellm::is_unknown_model(said) { 404 } else { status };
    Some(match (meaning, status) {
        (Some(ErrorClass::ContextFull), _) => return None,
        _ if litellm::is_budget_exceeded(said) => {
            format!("the gateway lets the key from {} spend no more: have its budget raised", names.key_source)
        }
        (Some(ErrorClass::BillingExhausted), _) | (_, 402) => "see the account's billing page".to_owned(),
        (Some(ErrorClass::RequestTooLarge), _) => {
            "the account's limit is lower than this one request: use another model or account".to_owned()
        }
        (Some(ErrorClass::DailyQuotaExhausted), _) => {
            "the account's limit for a day is used up: try again tomorrow, or have it raised".to_owned()
        }
        (_, 401 | 403) if litellm::is_upstream_auth_error(said) => {
            "it is the gateway that was turned away by what stands behind it: see its configuration for the key that it has"
                .to_owned()
        }
        (_, 401 | 403) | (Some(ErrorClass::InvalidKey), _) if !endpoint.has_key() && endpoint.has_credentials() => {
            format!("the user and password in {} were sent, and no key: are they right?", names.base_url_source)
        }
        (_, 401) | (Some(ErrorClass::InvalidKey), _) if !endpoint.has_key() => format!("no key was sent: {}", names.missing_key_hint),
        (_, 401) | (Some(ErrorClass::InvalidKey), _) => {
            format!("the key came from {}; is it whole, still valid, and meant for {shown}?", names.key_source)
        }
        (_, 403) if !endpoint.has_key() => format!("{shown} lets nobody in without a key: {}", names.missing_key_hint),
        (_, 403) => format!("the key from {} may not use this model or endpoint", names.key_source),
        (_, 404) => format!(
            "is `{}` the model's name, and {shown} the right address ({})?{}",
            display_model(model),
            names.base_url_source,
            address_hint(endpoint)
        ),
        (_, 405) => format!("is {shown} the right address ({})?{}", names.base_url_source, address_hint(endpoint)),
        (_, 400) if endpoint.is_plaintext() && words.to_ascii_lowercase().contains("https") => {
            format!("write https:// instead of http:// into {}", names.base_url_source)
        }
        (_, 407) => "what stands in between wants a user and a password: check the proxy variables".to_owned(),
        (_, 511) => "the network wants a login first: open any page in a browser there".to_owned(),
        (_, 400 | 422) => {
            let option = refused_option(words)?;
            format!("leave `{option}` out of the model's mapping, or name another model")
        }
        (_, 429) => "the account's rate limit; try again later, or run fewer agents side by side".to_owned(),
        (_, 500..) => "the API has trouble; try again later".to_owned(),
        _ => return None,
    })
}

/// The option of a job that a server refuses, in the words that it has for it.
fn refused_option(said: &str) -> Option<&'static str> {
    let names = [
        ("temperature", "temperature"),
        ("reasoning_effort", "thinking"),
        ("reasoning.effort", "thinking"),
        ("thinking_budget", "thinking"),
        ("stop", "stop"),
    ];
    // Between quotes it is a parameter's name, and no word of the sentence.
    let is_named = |name: &str| ['\'', '`', '"'].iter().any(|quote| said.contains(&format!("{quote}{name}{quote}")));
    names.into_iter().find_map(|(name, option)| is_named(name).then_some(option))
}

fn classify(
    manners: &ErrorDialect,
    status: u16,
    said: &ApiError,
    what: String,
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let status = litellm::effective_status(status, said);
    // Whoever calls it too large takes a shorter one: an API's own bound, a proxy's, an account's for a minute.
    let meaning = (manners.classify)(status, said).or((status == 413).then_some(ErrorClass::ContextFull));
    let passing = matches!(status, 408 | 409 | 425 | 429 | 500..) && meaning.is_none();
    let kind = match meaning {
        Some(ErrorClass::ContextFull) => ProviderErrorKind::ContextFull,
        Some(ErrorClass::DailyQuotaExhausted) => ProviderErrorKind::Failed,
        None if passing => ProviderErrorKind::Failed,
        _ => ProviderErrorKind::Rejected,
    };
    let mut fault = ProviderError::new(kind, what);
    fault.context_window = said
        .message
        .as_deref()
        .filter(|_| kind == ProviderErrorKind::ContextFull)
        .and_then(limit_hints::context_window);
    fault.hint = hint_for(status, meaning, said, model, endpoint);
    FailedAttempt {
        error: fault,
        retry: if passing { retry_decision(status, said.retry_after) } else { RetryDecision::Never },
    }
}

/// When a request is worth another try that may be answered later.
fn retry_decision(status: u16, pause: Option<Duration>) -> RetryDecision {
    match (status, pause) {
        (429, _) => RetryDecision::Throttled(Throttle { retry_after: pause, is_for_rate: true }),
        // A server that is down says 503, too, and rarely for how long.
        (529, _) | (503, Some(_)) => RetryDecision::Throttled(Throttle { retry_after: pause, is_for_rate: false }),
        (_, Some(pause)) => RetryDecision::After(pause),
        (_, None) => RetryDecision::Backoff,
    }
}

/// Whether a status means what it says whoever sent it. Any other one that a server's own answer doesn't come with is
/// something in between, such as a login page or a firewall.
fn is_unambiguous_status(status: u16) -> bool {
    matches!(status, 400 | 401 | 402 | 407 | 413 | 422 | 511)
}

fn describe(status: &str, said: &ApiError, endpoint: &Endpoint) -> String {
    let kind = said.kind.as_ref().or(said.code.as_ref());
    let kind = kind.map(|kind| format!(" ({})", endpoint.quote(kind))).unwrap_or_default();
    let message = said.message.as_ref().map(|message| format!(": {}", endpoint.quote(message))).unwrap_or_default();
    let request = said.request_id.as_ref().map(|id| format!(" [{}]", endpoint.quote(id))).unwrap_or_default();
    format!("{} answered {status}{kind}{message}{request}", endpoint.display_url())
}

/// An error within a stream, or in the place of a reply: `how` says where.
pub(crate) fn classify_event(
    manners: &ErrorDialect,
    json: &str,
    how: &str,
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let said =
        (manners.parse)(json).unwrap_or_else(|| ApiError { message: Some(json.to_owned()), ..ApiError::default() });
    let what = describe(how, &said, endpoint);
    classify(manners, (manners.status)(&said), &said, what, model, endpoint)
}

/// The server's name of a request.
pub(crate) fn request_id<'a>(answer: &'a HttpResponse<'_>) -> Option<&'a str> {
    answer.header("request-id").or_else(|| answer.header("x-request-id"))
}

/// An answer with another status than 200.
pub(crate) async fn classify_response(
    manners: &ErrorDialect,
    mut answer: HttpResponse<'_>,
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let status = answer.status();
    if status.is_redirection() {
        let (to, new) = match answer.header("location") {
            Some(location) => endpoint.redirect_target(location),
            None => ("an unnamed place".to_owned(), None),
        };
        let what = format!("{} redirects to {to}", endpoint.display_url());
        let base = &endpoint.labels().base_url_source;
        return FailedAttempt::unrecognized(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(
            match new {
                Some(new) if new == endpoint.base_url() => {
                    format!(
                        "that is where it was asked: is {base} right, and is what stands before the server set up well?"
                    )
                }
                Some(new) => {
                    format!("a key isn't carried along by redirects: put {new} into {base}, if you trust that")
                }
                None => check_address_hint(endpoint),
            },
        ));
    }
    let bytes = answer.body(64 << 10).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&bytes);
    // Some say it as the event that it would have been.
    let read =
        (manners.parse)(&body).or_else(|| (manners.parse)(body.lines().find_map(|line| line.strip_prefix("data:"))?));
    let is_of_api = read.is_some();
    let mut said = read.unwrap_or_else(|| ApiError {
        message: match answer.content_encoding() {
            Some(packing) => Some(format!("its text is packed ({packing}), which wasn't asked for")),
            None => (!body.trim().is_empty()).then(|| error_body::excerpt(&bytes, &answer.media_type(), endpoint)),
        },
        ..ApiError::default()
    });
    said.request_id = said.request_id.or_else(|| request_id(&answer).map(str::to_owned));
    let what = describe(&status_text(status), &said, endpoint);
    let mut failure = classify(manners, status.as_u16(), &said, what, model, endpoint);
    if !is_of_api {
        failure.error.hint.get_or_insert_with(|| check_address_hint(endpoint));
        if failure.error.kind == ProviderErrorKind::Rejected && !is_unambiguous_status(status.as_u16()) {
            failure.retry = RetryDecision::IfServerProven;
        }
    }
    match answer.header("x-should-retry") {
        Some("false") => failure.retry = RetryDecision::Never,
        Some("true") if matches!(failure.retry, RetryDecision::Never | RetryDecision::IfServerProven) => {
            failure.retry = RetryDecision::Backoff;
            failure.error.kind = ProviderErrorKind::Failed;
        }
        _ => {}
    }
    if let Some(pause) = parse_retry_after(answer.headers()) {
        failure.retry = match failure.retry {
            last @ (RetryDecision::Never | RetryDecision::IfServerProven) => last,
            RetryDecision::Throttled(throttle) => {
                RetryDecision::Throttled(Throttle { retry_after: Some(pause), ..throttle })
            }
            RetryDecision::Backoff | RetryDecision::After(_) => retry_decision(status.as_u16(), Some(pause)),
        };
    }
    failure
}

/// A status 200 without a reply: a login page, another service, a proxy's notice.
pub(crate) fn not_a_reply(
    manners: &ErrorDialect,
    media_type: &str,
    why: &str,
    body: &[u8],
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let text = String::from_utf8_lossy(body);
    if let Some(failure) = detect_other_api(&text, model, endpoint) {
        return failure;
    }
    if let Some(failure) = error_in_body(manners, &text, "200 with an error", model, endpoint) {
        return failure;
    }
    let shown = endpoint.display_url();
    let what = if text.trim().is_empty() {
        format!("{shown} answered with nothing, not with a reply")
    } else {
        let media_type = if media_type.is_empty() { "something without a type" } else { media_type };
        let excerpt = endpoint.quote(&error_body::excerpt(body, media_type, endpoint));
        format!(
            "{shown} answered with {}, not with a reply ({}): {excerpt}",
            endpoint.quote(media_type),
            endpoint.quote(why)
        )
    };
    FailedAttempt::unrecognized(
        ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(check_address_hint(endpoint)),
    )
}

/// What JSON means that stands in the place of a reply and says that something went wrong, in whatever form.
pub(crate) fn error_in_body(
    manners: &ErrorDialect,
    json: &str,
    how: &str,
    model: &str,
    endpoint: &Endpoint,
) -> Option<FailedAttempt> {
    let said = error_body::parse_any_error(json)?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    if value.get("error").is_some_and(|error| error.is_object() || error.is_string()) {
        return Some(classify_event(manners, json, how, model, endpoint));
    }
    let what = describe(how, &said, endpoint);
    // Without a code that says otherwise, the next answer would be the same.
    let mut failure = classify(manners, said.status.unwrap_or(400), &said, what, model, endpoint);
    failure.error.hint.get_or_insert_with(|| check_address_hint(endpoint));
    if said.status.is_none() && failure.retry == RetryDecision::Never {
        failure.retry = RetryDecision::IfServerProven;
    }
    Some(failure)
}

/// An answer with status 200 that is packed, which no request allows.
pub(crate) fn unexpected_encoding(packing: &str, endpoint: &Endpoint) -> FailedAttempt {
    let what = format!("{} answered in a packed form ({packing}), which wasn't asked for", endpoint.display_url());
    let hint = "let the server, or the proxy before it, leave its answers unpacked";
    FailedAttempt::unrecognized(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint))
}

fn check_address_hint(endpoint: &Endpoint) -> String {
    let names = endpoint.labels();
    format!("is {} the address of {}, and does no login page stand before it?", names.base_url_source, names.api)
}

fn status_text(status: StatusCode) -> String {
    match status.as_u16() {
        // No registered name: some APIs' own for "overloaded".
        529 => "529 Overloaded".to_owned(),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::refused_option;

    #[test]
    fn an_option_is_known_by_its_name_between_quotes() {
        for (said, option) in [
            ("Unsupported value: 'temperature' does not support 0.5 with this model.", Some("temperature")),
            ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", Some("thinking")),
            ("[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"stop\"]}]", Some("stop")),
            ("the temperature in the server room made it stop", None),
        ] {
            assert_eq!(refused_option(said), option, "{said}");
        }
    }
}
