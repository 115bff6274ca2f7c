//! What a failed request means: the error to report, a hint, and whether a retry can help.
//!
//! The same statuses are retried as in the official clients of all APIs: 408, 409, 429 and 5xx, unless `x-should-retry`
//! says otherwise. 425 is retried, too, because it asks for a retry. A response that isn't from the API at all is
//! retried if the server has replied before.

use std::time::Duration;

use reqwest::StatusCode;

use crate::providers::api::{ProviderError, ProviderErrorKind};
use crate::providers::errors::api_detection::{address_hint, detect_other_api, display_model};
use crate::providers::errors::api_error::{ApiError, ErrorClass, ErrorDialect};
use crate::providers::errors::{excerpt, limit_hints, litellm};
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::http::HttpResponse;
use crate::providers::transport::rate_governor::Throttle;
use crate::providers::transport::retry::{FailedAttempt, RetryDecision, parse_retry_after};

fn hint_for(
    status: u16,
    class: Option<ErrorClass>,
    error: &ApiError,
    model: &str,
    endpoint: &Endpoint,
) -> Option<String> {
    let (url, labels) = (endpoint.display_url(), endpoint.labels());
    let message = error.message.as_deref().unwrap_or_default();
    let status = if status == 400 && litellm::is_unknown_model(error) { 404 } else { status };
    Some(match (class, status) {
        (Some(ErrorClass::ContextFull), _) => return None,
        _ if litellm::is_budget_exceeded(error) => {
            format!("the key from {} has reached its budget at the gateway: have it raised", labels.key_source)
        }
        (Some(ErrorClass::BillingExhausted), _) | (_, 402) => "see the account's billing page".to_owned(),
        (Some(ErrorClass::RequestTooLarge), _) => {
            "this request exceeds the account's rate limit by itself: use another model or account".to_owned()
        }
        (Some(ErrorClass::DailyQuotaExhausted), _) => {
            "the account's daily quota is used up: try again tomorrow, or have it raised".to_owned()
        }
        (_, 401 | 403) if litellm::is_upstream_auth_error(error) => {
            "the server behind the gateway refused the gateway's own key: check the gateway's configuration".to_owned()
        }
        (_, 401 | 403) | (Some(ErrorClass::InvalidKey), _) if !endpoint.has_key() && endpoint.has_credentials() => {
            format!("the user and password in {} were sent, and no key: are they right?", labels.base_url_source)
        }
        (_, 401) | (Some(ErrorClass::InvalidKey), _) if !endpoint.has_key() => {
            format!("no key was sent: {}", labels.missing_key_hint)
        }
        (_, 401) | (Some(ErrorClass::InvalidKey), _) => {
            format!("the key came from {}; is it complete, still valid, and meant for {url}?", labels.key_source)
        }
        (_, 403) if !endpoint.has_key() => format!("{url} requires a key: {}", labels.missing_key_hint),
        (_, 403) => format!("the key from {} has no access to this model or endpoint", labels.key_source),
        (_, 404) => format!(
            "is `{}` the model's name, and {url} the right address ({})?{}",
            display_model(model),
            labels.base_url_source,
            address_hint(endpoint)
        ),
        (_, 405) => format!("is {url} the right address ({})?{}", labels.base_url_source, address_hint(endpoint)),
        (_, 400) if endpoint.is_plaintext() && message.to_ascii_lowercase().contains("https") => {
            format!("write https:// instead of http:// into {}", labels.base_url_source)
        }
        (_, 407) => "a proxy requires a user and a password: check the proxy variables".to_owned(),
        (_, 511) => "the network requires a login: open any page in a browser there".to_owned(),
        (_, 400 | 422) => {
            let option = refused_option(message)?;
            format!("leave `{option}` out of the model's mapping, or name another model")
        }
        (_, 429) => {
            "this is the account's rate limit; try again later, or run fewer agents at the same time".to_owned()
        }
        (_, 500..) => "the API is having problems; try again later".to_owned(),
        _ => return None,
    })
}

/// The option that a server refuses, under its name in the job file.
fn refused_option(message: &str) -> Option<&'static str> {
    let names = [
        ("temperature", "temperature"),
        ("reasoning_effort", "thinking"),
        ("reasoning.effort", "thinking"),
        ("thinking_budget", "thinking"),
        ("stop", "stop"),
    ];
    // Only a name in quotes is certainly a parameter rather than a word of the sentence.
    let is_named = |name: &str| ['\'', '`', '"'].iter().any(|quote| message.contains(&format!("{quote}{name}{quote}")));
    names.into_iter().find_map(|(name, option)| is_named(name).then_some(option))
}

fn classify(
    dialect: &ErrorDialect,
    status: u16,
    parsed: &ApiError,
    what: String,
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let status = litellm::effective_status(status, parsed);
    // 413 may come from the API, a proxy or an account's limit per minute; a shorter request helps in all cases.
    let class = dialect.classify(status, parsed).or((status == 413).then_some(ErrorClass::ContextFull));
    let is_transient = matches!(status, 408 | 409 | 425 | 429 | 500..) && class.is_none();
    let kind = match class {
        Some(ErrorClass::ContextFull) => ProviderErrorKind::ContextFull,
        Some(ErrorClass::DailyQuotaExhausted) => ProviderErrorKind::Failed,
        None if is_transient => ProviderErrorKind::Failed,
        _ => ProviderErrorKind::Rejected,
    };
    let mut error = ProviderError::new(kind, what);
    error.context_window = parsed
        .message
        .as_deref()
        .filter(|_| kind == ProviderErrorKind::ContextFull)
        .and_then(limit_hints::context_window);
    error.hint = hint_for(status, class, parsed, model, endpoint);
    FailedAttempt {
        error,
        retry: if is_transient { retry_decision(status, parsed.retry_after) } else { RetryDecision::Never },
        server_message: parsed.message.clone(),
    }
}

/// How a transient failure is retried.
fn retry_decision(status: u16, pause: Option<Duration>) -> RetryDecision {
    match (status, pause) {
        (429, _) => RetryDecision::Throttled(Throttle { retry_after: pause, is_for_rate: true }),
        // A server that is down also returns 503, but rarely with a pause.
        (529, _) | (503, Some(_)) => RetryDecision::Throttled(Throttle { retry_after: pause, is_for_rate: false }),
        (_, Some(pause)) => RetryDecision::After(pause),
        (_, None) => RetryDecision::Backoff,
    }
}

/// Whether a status means the same from any sender. A response with another status but without an API error object may
/// come from an intermediary, such as a login page or a firewall.
fn is_unambiguous_status(status: u16) -> bool {
    matches!(status, 400 | 401 | 402 | 407 | 413 | 422 | 511)
}

fn describe(status: &str, parsed: &ApiError, endpoint: &Endpoint) -> String {
    let kind = parsed.kind.as_ref().or(parsed.code.as_ref());
    let kind = kind.map(|kind| format!(" ({})", endpoint.quote(kind))).unwrap_or_default();
    let message = parsed.message.as_ref().map(|message| format!(": {}", endpoint.quote(message))).unwrap_or_default();
    let request = parsed.request_id.as_ref().map(|id| format!(" [{}]", endpoint.quote(id))).unwrap_or_default();
    format!("{} answered {status}{kind}{message}{request}", endpoint.display_url())
}

/// Classifies an error event in a stream, or an error object in place of a reply; `how` says which.
pub(crate) fn classify_event(
    dialect: &ErrorDialect,
    json: &str,
    how: &str,
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let parsed =
        ApiError::parse(json).unwrap_or_else(|| ApiError { message: Some(json.to_owned()), ..ApiError::default() });
    let what = describe(how, &parsed, endpoint);
    classify(dialect, dialect.status(&parsed), &parsed, what, model, endpoint)
}

/// The server's id of a request.
pub(crate) fn request_id<'a>(response: &'a HttpResponse<'_>) -> Option<&'a str> {
    response.header("request-id").or_else(|| response.header("x-request-id"))
}

/// Classifies a response with a status other than 200.
pub(crate) async fn classify_response(
    dialect: &ErrorDialect,
    mut response: HttpResponse<'_>,
    model: &str,
    endpoint: &Endpoint,
) -> FailedAttempt {
    let status = response.status();
    if status.is_redirection() {
        let (to, new) = match response.header("location") {
            Some(location) => endpoint.redirect_target(location),
            None => ("an address that it doesn't name".to_owned(), None),
        };
        let what = format!("{} redirects to {to}", endpoint.display_url());
        let base = &endpoint.labels().base_url_source;
        return FailedAttempt::unrecognized(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(
            match new {
                Some(new) if new == endpoint.base_url() => {
                    format!(
                        "that is the same address: is {base} right, and is the proxy in front of the server configured correctly?"
                    )
                }
                Some(new) => {
                    format!("legwork doesn't follow redirects with a key: put {new} into {base}, if you trust that address")
                }
                None => check_address_hint(endpoint),
            },
        ));
    }
    let bytes = response.body(64 << 10).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&bytes);
    // Some servers send the error as an event of a stream.
    let read =
        ApiError::parse(&body).or_else(|| ApiError::parse(body.lines().find_map(|line| line.strip_prefix("data:"))?));
    let is_of_api = read.is_some();
    let mut parsed = read.unwrap_or_else(|| ApiError {
        message: match response.content_encoding() {
            Some(encoding) => Some(format!("its body is compressed ({encoding}), which wasn't requested")),
            None => (!body.trim().is_empty()).then(|| excerpt::excerpt_of(&bytes, &response.media_type(), endpoint)),
        },
        ..ApiError::default()
    });
    parsed.request_id = parsed.request_id.or_else(|| request_id(&response).map(str::to_owned));
    let what = describe(&status_text(status), &parsed, endpoint);
    let mut failure = classify(dialect, status.as_u16(), &parsed, what, model, endpoint);
    if !is_of_api {
        failure.error.hint.get_or_insert_with(|| check_address_hint(endpoint));
        if failure.error.kind == ProviderErrorKind::Rejected && !is_unambiguous_status(status.as_u16()) {
            failure.retry = RetryDecision::IfServerProven;
        }
    }
    match response.header("x-should-retry") {
        Some("false") => failure.retry = RetryDecision::Never,
        Some("true") if matches!(failure.retry, RetryDecision::Never | RetryDecision::IfServerProven) => {
            failure.retry = RetryDecision::Backoff;
            failure.error.kind = ProviderErrorKind::Failed;
        }
        _ => {}
    }
    if let Some(pause) = parse_retry_after(response.headers()) {
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

/// Classifies a response with status 200 that isn't a reply: a login page, another service, a proxy's notice.
pub(crate) fn not_a_reply(
    dialect: &ErrorDialect,
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
    if let Some(failure) = error_in_body(dialect, &text, "200 with an error", model, endpoint) {
        return failure;
    }
    let shown = endpoint.display_url();
    let what = if text.trim().is_empty() {
        format!("{shown} answered with an empty body instead of a reply")
    } else {
        let media_type = if media_type.is_empty() { "a body without a content type" } else { media_type };
        let excerpt = endpoint.quote(&excerpt::excerpt_of(body, media_type, endpoint));
        format!(
            "{shown} answered with {} instead of a reply ({}): {excerpt}",
            endpoint.quote(media_type),
            endpoint.quote(why)
        )
    };
    FailedAttempt::unrecognized(
        ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(check_address_hint(endpoint)),
    )
}

/// Classifies an error of any form in a JSON body that should have been a reply.
pub(crate) fn error_in_body(
    dialect: &ErrorDialect,
    json: &str,
    how: &str,
    model: &str,
    endpoint: &Endpoint,
) -> Option<FailedAttempt> {
    let parsed = ApiError::parse_unexpected(json)?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    if value.get("error").is_some_and(|error| error.is_object() || error.is_string()) {
        return Some(classify_event(dialect, json, how, model, endpoint));
    }
    let what = describe(how, &parsed, endpoint);
    // Without a status, assume that a retry gets the same response.
    let mut failure = classify(dialect, parsed.status.unwrap_or(400), &parsed, what, model, endpoint);
    failure.error.hint.get_or_insert_with(|| check_address_hint(endpoint));
    if parsed.status.is_none() && failure.retry == RetryDecision::Never {
        failure.retry = RetryDecision::IfServerProven;
    }
    Some(failure)
}

/// The failure for a compressed response with status 200, which no request accepts.
pub(crate) fn unexpected_encoding(encoding: &str, endpoint: &Endpoint) -> FailedAttempt {
    let what = format!("{} sent a compressed response ({encoding}), which wasn't requested", endpoint.display_url());
    let hint = "turn off compression in the server or the proxy in front of it";
    FailedAttempt::unrecognized(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint))
}

fn check_address_hint(endpoint: &Endpoint) -> String {
    let labels = endpoint.labels();
    format!(
        "is {} the address of {}? is a login page intercepting the request?",
        labels.base_url_source, labels.names.api
    )
}

fn status_text(status: StatusCode) -> String {
    match status.as_u16() {
        // Not a registered status, so it has no standard name.
        529 => "529 Overloaded".to_owned(),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::refused_option;

    #[test]
    fn an_option_is_recognized_by_its_quoted_name() {
        for (parsed, option) in [
            ("Unsupported value: 'temperature' does not support 0.5 with this model.", Some("temperature")),
            ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", Some("thinking")),
            ("[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"stop\"]}]", Some("stop")),
            ("the temperature in the server room made it stop", None),
        ] {
            assert_eq!(refused_option(parsed), option, "{parsed}");
        }
    }
}
