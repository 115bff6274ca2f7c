//! Errors of LiteLLM's proxy, which wraps the error of the server behind it.
//!
//! It names its exception class in the message (`litellm.BadRequestError: OpenAIException - ...`), the innermost last,
//! and its own reasons in `type` (<https://docs.litellm.ai/docs/exception_mapping>). Where it translates to Gemini's
//! API, every error has status 500.

use crate::providers::errors::api_error::ApiError;

/// LiteLLM's exception classes and their statuses.
const EXCEPTION_STATUSES: [(&str, u16); 15] = [
    ("BadRequestError", 400),
    ("InvalidRequestError", 400),
    ("UnsupportedParamsError", 400),
    ("ContentPolicyViolationError", 400),
    ("ContextWindowExceededError", 400),
    ("AuthenticationError", 401),
    ("PaymentRequiredError", 402),
    ("PermissionDeniedError", 403),
    ("NotFoundError", 404),
    ("Timeout", 408),
    ("UnprocessableEntityError", 422),
    ("RateLimitError", 429),
    ("InternalServerError", 500),
    ("BadGatewayError", 502),
    ("ServiceUnavailableError", 503),
];
/// The prefix of an exception class in a message.
const EXCEPTION_PREFIX: &str = "litellm.";

/// The status of an error before LiteLLM wrapped it.
pub(crate) fn effective_status(status: u16, error: &ApiError) -> u16 {
    match error.kind.as_deref() {
        // Without a database, LiteLLM has a single key, and reports any other key with this error.
        Some("no_db_connection" | "expired_key") => 401,
        Some(kind) if kind.ends_with("_model_access_denied") => 403,
        _ if status == 500 => innermost_status(error).unwrap_or(status),
        _ => status,
    }
}

fn message(error: &ApiError) -> &str {
    error.message.as_deref().unwrap_or_default()
}

fn innermost_status(error: &ApiError) -> Option<u16> {
    let named = |after: &str| EXCEPTION_STATUSES.into_iter().find(|(class, _)| after.starts_with(class));
    message(error).split(EXCEPTION_PREFIX).skip(1).filter_map(named).last().map(|(_, status)| status)
}

/// Whether the server behind the gateway refused the gateway's own key.
pub(crate) fn is_upstream_auth_error(error: &ApiError) -> bool {
    matches!(innermost_status(error), Some(401 | 403))
}

/// Whether the error means that the model is unknown, which the status doesn't show.
pub(crate) fn is_unknown_model(error: &ApiError) -> bool {
    const WORDS: [&str; 7] = [
        "no healthy deployments for this model",
        "invalid model name",
        "is not a valid model",
        "model not found",
        "unknown model",
        "no such model",
        "model does not exist",
    ];
    let words = message(error).to_ascii_lowercase();
    let is_code = [&error.code, &error.kind].into_iter().flatten().any(|word| word == "model_not_found");
    is_code || WORDS.iter().any(|some| words.contains(some))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_error(kind: &str, message: &str) -> ApiError {
        ApiError { kind: Some(kind.to_owned()), message: Some(message.to_owned()), ..ApiError::default() }
    }

    #[test]
    fn an_error_from_behind_the_gateway_keeps_its_status() {
        let wrapped = |class: &str| {
            format!(
                "litellm.APIConnectionError: APIConnectionError: OpenAIException - Error calling litellm.acompletion for \
                 generate_content: litellm.{class}: OpenAIException - no\n\nLiteLLM: model group 'm' failed with the error \
                 above. No fallback was attempted."
            )
        };
        for (class, expected) in [
            ("BadRequestError", 400),
            ("AuthenticationError", 401),
            ("NotFoundError", 404),
            ("RateLimitError", 429),
            ("InternalServerError", 500),
            ("SomethingNew", 500),
        ] {
            let error = api_error("internal_server_error", &wrapped(class));
            assert_eq!(effective_status(500, &error), expected, "{class}");
            assert_eq!((effective_status(503, &error), effective_status(400, &error)), (503, 400), "{class}");
            assert_eq!(is_upstream_auth_error(&error), expected == 401, "{class}");
        }
        assert_eq!(effective_status(500, &api_error("x", "plain trouble")), 500);
        for (kind, expected) in [
            ("no_db_connection", 401),
            ("expired_key", 401),
            ("team_model_access_denied", 403),
            ("invalid_request_error", 400),
        ] {
            assert_eq!(effective_status(400, &api_error(kind, "No connected db.")), expected, "{kind}");
        }
    }

    #[test]
    fn an_unknown_model_is_recognized() {
        for message in [
            "litellm.BadRequestError: You passed in model=m. There are no healthy deployments for this model LiteLLM: model \
             group 'm' failed with the error above. No fallback was attempted.",
            "/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view available models for your key.",
            "m is not a valid model ID",
        ] {
            assert!(is_unknown_model(&api_error("invalid_request_error", message)), "{message}");
        }
        assert!(is_unknown_model(&api_error("model_not_found", "no")));
        assert!(!is_unknown_model(&api_error("invalid_request_error", "messages: the model has the last word")));
    }
}
