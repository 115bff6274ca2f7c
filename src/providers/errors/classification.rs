//! What a failed request means: the error to report, a hint, and whether a retry can help.
//!
//! The same statuses are retried as in the official clients of all APIs: 408, 409, 429 and 5xx, unless `x-should-retry`
//! says otherwise. 425 is retried, too, because it asks for a retry. A response that isn't from the API at all is
//! retried if the server has replied before.

use std::time::Duration;

use crate::providers::api::{ProviderError, ProviderErrorKind};
use crate::providers::errors::api_error::{ApiError, ErrorClass, ErrorDialect};
use crate::providers::errors::{excerpt, limit_hints, litellm};
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::http::HttpResponse;
use crate::providers::transport::rate_governor::Throttle;
use crate::providers::transport::retry::{FailedAttempt, RetryDecision, parse_retry_after};

/// What a failed request is classified with.
#[derive(Clone, Copy)]
pub(crate) struct ErrorClassifier<'a> {
    /// The API's additions to the tables.
    pub(crate) dialect: &'static ErrorDialect,
    /// The model's name.
    pub(crate) model: &'a str,
    /// Where the request was sent.
    pub(crate) endpoint: &'a Endpoint,
}

impl ErrorClassifier<'_> {
    /// How a transient failure is retried. Without room for flex processing, servers answer 429 (OpenAI: `resource
    /// unavailable`) or 503, charge nothing, and accept the request later; fewer requests at once don't help.
    fn retry_decision(self, status: u16, error: &ApiError) -> RetryDecision {
        let texts = [&error.message, &error.kind, &error.code];
        let is_unavailable = texts.into_iter().flatten().any(|text| text.to_ascii_lowercase().contains("unavailable"));
        match status {
            503 | 429 if self.endpoint.is_flex && (status == 503 || is_unavailable) => {
                RetryDecision::Throttled(Throttle { retry_after: error.retry_after, is_for_rate: false })
            }
            _ => transient_retry(status, error.retry_after),
        }
    }

    fn hint_for(self, status: u16, class: Option<ErrorClass>, error: &ApiError) -> Option<String> {
        let endpoint = self.endpoint;
        let (url, labels) = (&endpoint.display_url, &endpoint.labels);
        let message = error.message.as_deref().unwrap_or_default();
        let status = if status == 400 && litellm::is_unknown_model(error) { 404 } else { status };
        Some(match (class, status) {
            (Some(ErrorClass::ContextFull), _) => return None,
            _ if error.kind.as_deref() == Some("budget_exceeded") => {
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
                "the server behind the gateway refused the gateway's own key: check the gateway's configuration"
                    .to_owned()
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
            (_, 404 | 405) => format!(
                "is `{}` the model's name, and {url} the right address ({})?{}",
                display_model(self.model),
                labels.base_url_source,
                self.address_hint()
            ),
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

    fn classify(self, status: u16, parsed: &ApiError, how: &str) -> FailedAttempt {
        let status = litellm::effective_status(status, parsed);
        // 413 may come from the API, a proxy or an account's limit per minute; a shorter request helps in all cases.
        let class = self.dialect.classify(status, parsed).or((status == 413).then_some(ErrorClass::ContextFull));
        let is_transient = matches!(status, 408 | 409 | 425 | 429 | 500..) && class.is_none();
        let kind = match class {
            Some(ErrorClass::ContextFull) => ProviderErrorKind::ContextFull,
            Some(ErrorClass::DailyQuotaExhausted) => ProviderErrorKind::Failed,
            None if is_transient => ProviderErrorKind::Failed,
            _ => ProviderErrorKind::Rejected,
        };
        let mut error = ProviderError::new(kind, self.describe(how, parsed));
        error.context_window = parsed
            .message
            .as_deref()
            .filter(|_| kind == ProviderErrorKind::ContextFull)
            .and_then(limit_hints::context_window);
        error.hint = self.hint_for(status, class, parsed);
        FailedAttempt {
            error,
            retry: if is_transient { self.retry_decision(status, parsed) } else { RetryDecision::Never },
            server_message: parsed.message.clone(),
            is_key_refused: (status == 401 || class == Some(ErrorClass::InvalidKey) || is_expired_key(status, parsed))
                && !litellm::is_upstream_auth_error(parsed),
        }
    }

    fn describe(self, how: &str, parsed: &ApiError) -> String {
        let endpoint = self.endpoint;
        let kind = parsed.kind.as_ref().or(parsed.code.as_ref());
        let kind = kind.map(|kind| format!(" ({})", endpoint.quote(kind))).unwrap_or_default();
        let message =
            parsed.message.as_ref().map(|message| format!(": {}", endpoint.quote(message))).unwrap_or_default();
        let request = parsed.request_id.as_ref().map(|id| format!(" [{}]", endpoint.quote(id))).unwrap_or_default();
        format!("{} answered {how}{kind}{message}{request}", endpoint.display_url)
    }

    /// Classifies an error event in a stream, or an error object in place of a reply; `how` says which.
    pub(crate) fn error_event(self, json: &str, how: &str) -> FailedAttempt {
        let parsed =
            ApiError::parse(json).unwrap_or_else(|| ApiError { message: Some(json.to_owned()), ..ApiError::default() });
        self.classify(self.dialect.status(&parsed), &parsed, how)
    }

    /// Classifies a response with a status other than 200.
    pub(crate) async fn error_response(self, mut response: HttpResponse<'_>) -> FailedAttempt {
        let endpoint = self.endpoint;
        let status = response.status();
        if status.is_redirection() {
            let (to, new) = match response.header("location") {
                Some(location) => endpoint.redirect_target(location),
                None => ("an address that it doesn't name".to_owned(), None),
            };
            let base = &endpoint.labels.base_url_source;
            let hint = match new {
                Some(new) if new == endpoint.base_url() => format!(
                    "that is the same address: is {base} right, and is the proxy in front of the server configured correctly?"
                ),
                Some(new) => {
                    format!(
                        "legwork doesn't follow redirects with a key: put {new} into {base}, if you trust that address"
                    )
                }
                None => self.check_address_hint(),
            };
            return FailedAttempt::unrecognized(format!("{} redirects to {to}", endpoint.display_url), hint);
        }
        let bytes = response.body(64 << 10).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&bytes);
        // Some servers send the error as an event of a stream.
        let read = ApiError::parse(&body)
            .or_else(|| ApiError::parse(body.lines().find_map(|line| line.strip_prefix("data:"))?));
        let is_of_api = read.is_some();
        let mut parsed = read.unwrap_or_else(|| ApiError {
            message: match response.content_encoding() {
                Some(encoding) => Some(format!("its body is compressed ({encoding}), which wasn't requested")),
                None => {
                    (!body.trim().is_empty()).then(|| excerpt::excerpt_of(&bytes, &response.media_type(), endpoint))
                }
            },
            ..ApiError::default()
        });
        parsed.request_id = parsed.request_id.or_else(|| request_id(&response).map(str::to_owned));
        // 529 isn't a registered status, so it has no standard name.
        let how = if status.as_u16() == 529 { "529 Overloaded".to_owned() } else { status.to_string() };
        let mut failure = self.classify(status.as_u16(), &parsed, &how);
        if !is_of_api {
            failure.error.hint.get_or_insert_with(|| self.check_address_hint());
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
                RetryDecision::Backoff | RetryDecision::After(_) => transient_retry(status.as_u16(), Some(pause)),
            };
        }
        failure
    }

    /// Classifies a response with status 200 that isn't a reply: a login page, another service, a proxy's notice.
    pub(crate) fn not_a_reply(self, media_type: &str, why: &str, body: &[u8]) -> FailedAttempt {
        let text = String::from_utf8_lossy(body);
        let known = self.other_api(&text).or_else(|| self.error_in_body(&text, "200 with an error"));
        if let Some(failure) = known {
            return failure;
        }
        let endpoint = self.endpoint;
        let what = if text.trim().is_empty() {
            "an empty body instead of a reply".to_owned()
        } else {
            let media_type = if media_type.is_empty() { "a body without a content type" } else { media_type };
            let excerpt = endpoint.quote(&excerpt::excerpt_of(body, media_type, endpoint));
            format!("{} instead of a reply ({}): {excerpt}", endpoint.quote(media_type), endpoint.quote(why))
        };
        let what = format!("{} answered with {what}", endpoint.display_url);
        FailedAttempt::unrecognized(what, self.check_address_hint())
    }

    /// Classifies an error of any form in a JSON body that should have been a reply.
    pub(crate) fn error_in_body(self, json: &str, how: &str) -> Option<FailedAttempt> {
        let value: serde_json::Value = serde_json::from_str(json).ok()?;
        let parsed = ApiError::parse_unexpected(&value)?;
        if value.get("error").is_some_and(|error| error.is_object() || error.is_string()) {
            return Some(self.error_event(json, how));
        }
        // Without a status, assume that a retry gets the same response.
        let mut failure = self.classify(parsed.status.unwrap_or(400), &parsed, how);
        failure.error.hint.get_or_insert_with(|| self.check_address_hint());
        if parsed.status.is_none() && failure.retry == RetryDecision::Never {
            failure.retry = RetryDecision::IfServerProven;
        }
        Some(failure)
    }

    /// The failure for a compressed response with status 200, which no request accepts.
    pub(crate) fn unexpected_encoding(self, encoding: &str) -> FailedAttempt {
        let url = &self.endpoint.display_url;
        let what = format!("{url} sent a compressed response ({encoding}), which wasn't requested");
        FailedAttempt::unrecognized(what, "turn off compression in the server or the proxy in front of it")
    }

    fn check_address_hint(self) -> String {
        let labels = &self.endpoint.labels;
        format!(
            "is {} the address of {}? is a login page intercepting the request?",
            labels.base_url_source, labels.names.api
        )
    }
}

/// A model's name for use within a sentence.
pub(crate) fn display_model(model: &str) -> &str {
    if model.len() <= 200 { model } else { "MODEL" }
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

/// Whether a server says that a key has expired. Some clouds do so with 403.
fn is_expired_key(status: u16, error: &ApiError) -> bool {
    let texts = [&error.message, &error.kind, &error.code];
    status == 403 && texts.into_iter().flatten().any(|text| text.to_ascii_lowercase().contains("expired"))
}

/// How a transient failure is retried.
fn transient_retry(status: u16, pause: Option<Duration>) -> RetryDecision {
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

/// The server's id of a request.
pub(crate) fn request_id<'a>(response: &'a HttpResponse<'_>) -> Option<&'a str> {
    response.header("request-id").or_else(|| response.header("x-request-id"))
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
