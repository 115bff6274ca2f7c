//! How OpenAI's APIs, and the many servers that imitate them, speak of errors.
//!
//! OpenAI's own are `{"error": {"message", "type", "param", "code"}}`
//! (<https://developers.openai.com/api/docs/guides/error-codes>). The others' shapes are what the servers send:
//! `{"error": "..."}` (Ollama), `{"object": "error", "message", "type", "code"}` (vLLM), `{"detail": ...}` (FastAPI),
//! `[{"error": ...}]` (Gemini's), `{"errors": [...]}` (Cloudflare), and `metadata.raw` with what stood behind (OpenRouter).

use std::time::Duration;

use serde_json::Value;

use crate::providers::errors::classification::{ApiError, ErrorClass, ErrorDialect};
use crate::providers::transport::rate_headers::{duration_from_secs, parse_duration};

/// Their ways.
pub(in crate::providers) static ERROR_DIALECT: ErrorDialect = ErrorDialect { parse, status, classify };

fn parse(json: &str) -> Option<ApiError> {
    let value: Value = serde_json::from_str(json).ok()?;
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
    let within = value.get("error").or_else(|| value.pointer("/response/error")).or_else(|| value.pointer("/errors/0"));
    let error = within.filter(|error| error.is_object() || error.is_string()).unwrap_or(value);
    let message = message(error);
    let said = ApiError {
        kind: non_numeric_text(error.get("type"))
            .filter(|kind| kind != "error")
            .or_else(|| non_numeric_text(error.get("status"))),
        code: non_numeric_text(error.get("code")),
        status: status_code(error.get("code")).or_else(|| status_code(error.get("status"))),
        request_id: non_numeric_text(value.get("request_id")),
        retry_after: message.as_deref().and_then(parse_retry_after),
        message,
    };
    (said.message.is_some() || said.kind.is_some() || said.code.is_some()).then_some(said)
}

fn message(error: &Value) -> Option<String> {
    let detail = error.get("detail").or_else(|| error.get("details"));
    let message = [Some(error), error.get("message"), detail, error.pointer("/detail/0/msg")]
        .into_iter()
        .find_map(|text| text?.as_str().map(str::to_owned))
        .or_else(|| error.pointer("/message/detail").map(Value::to_string))
        .or_else(|| error.get("message").filter(|message| message.is_object()).map(Value::to_string));
    match (message, error.pointer("/metadata/raw").and_then(Value::as_str)) {
        (Some(message), Some(raw)) => Some(format!("{message}: {raw}")),
        (message, raw) => message.or_else(|| raw.map(str::to_owned)),
    }
}

/// The pause that a message asks for: `Please try again in 1m2.5s`, or `250ms`, which OpenAI says where it has no header
/// for it, as in a stream; `Try again in 5 seconds`, as LiteLLM does while all that it has for a model is left alone.
fn parse_retry_after(message: &str) -> Option<Duration> {
    let (_, after) = message.split_once("ry again in ")?;
    let mut words = after.split(|c: char| c.is_whitespace());
    let word = words.next()?.trim_end_matches('.');
    if let Ok(number) = word.parse::<f64>() {
        let is_seconds = words.next()?.trim_end_matches(['.', ',']).trim_end_matches('s') == "second";
        return if is_seconds { duration_from_secs(number) } else { None };
    }
    parse_duration(word)
}

/// A text that isn't a number.
fn non_numeric_text(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    // Python's word for nothing is no word.
    (!text.is_empty() && text != "None" && text.parse::<f64>().is_err()).then(|| text.to_owned())
}

/// An HTTP status of an error.
fn status_code(value: Option<&Value>) -> Option<u16> {
    let value = value?;
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

fn status(said: &ApiError) -> u16 {
    if let Some(status) = said.status {
        return status;
    }
    let has = |words: &[&str]| {
        [&said.code, &said.kind].into_iter().flatten().any(|own| words.contains(&own.to_ascii_lowercase().as_str()))
    };
    match () {
        () if has(&["rate_limit_exceeded", "rate_limit_error", "insufficient_quota", "tokens", "requests"]) => 429,
        () if has(&["overloaded_error", "unavailable_error", "unavailable", "service_unavailable"]) => 503,
        () if has(&["invalid_api_key", "authentication_error", "unauthorized"]) => 401,
        () if has(&["permission_error", "permission_denied", "bio_policy", "misalignment_policy_violation"]) => 403,
        () if has(&["model_not_found", "not_found_error", "not_found"]) => 404,
        () if has(&[
            "invalid_request_error",
            "invalid_prompt",
            "invalid_argument",
            "badrequesterror",
            "bad_request",
            "context_length_exceeded",
            "exceed_context_size_error",
            "content_filter",
            "data_residency_mismatch",
        ]) =>
        {
            400
        }
        () => 500,
    }
}

fn classify(status: u16, said: &ApiError) -> Option<ErrorClass> {
    let is = |words: &[&str]| [&said.code, &said.kind].into_iter().flatten().any(|own| words.contains(&own.as_str()));
    let message = said.message.as_deref().unwrap_or_default().to_ascii_lowercase();
    if is(&["context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"]) {
        return Some(ErrorClass::ContextFull);
    }
    if matches!(status, 400 | 413 | 422 | 500) && is_context_full_message(&message) {
        return Some(ErrorClass::ContextFull);
    }
    match status {
        _ if is(&["insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "budget_exceeded"]) => {
            Some(ErrorClass::BillingExhausted)
        }
        400 | 403 | 429 if is_billing_message(&message) => Some(ErrorClass::BillingExhausted),
        429 if message.starts_with("request too large") => Some(ErrorClass::RequestTooLarge),
        _ => None,
    }
}

/// Whether a message, in small letters, says that the money is gone: Anthropic's own words, and OpenAI's as gateways pass them
/// on without the code. Google says the first half of OpenAI's of a rate limit, too.
fn is_billing_message(message: &str) -> bool {
    message.contains("insufficient_quota")
        || message.contains("credit balance is too low")
        || message.contains("exceeded your current quota") && message.contains("platform.openai.com")
}

/// Whether a message, in small letters, says that the prompt doesn't fit: few servers have a code for it. One that is only
/// about the length of the reply ("max_tokens: 9 > 8, which is the maximum allowed number of output tokens") doesn't.
pub(in crate::providers) fn is_context_full_message(message: &str) -> bool {
    const WHOLE: [&str; 30] = [
        "maximum context length",
        // vLLM's.
        "maximum model length",
        "prompt is too long",
        // Ollama's.
        "prompt too long",
        "input is too long",
        "context_length_exceeded",
        "context length exceeded",
        // LiteLLM's; Anthropic's code, as LiteLLM passes it on.
        "contextwindowexceedederror",
        "request_too_large",
        "maximum prompt length",
        "reduce the length of the messages",
        "reduce the length of the input",
        // LM Studio's, of several versions.
        "greater than the context length",
        "with context length of only",
        "truncate prompt with n_keep",
        "reached context length of",
        // Text Generation Inference's, as its users have it, too.
        "`inputs` tokens + `max_new_tokens` must be",
        "`inputs` must have less than",
        // Moonshot's, DashScope's, Cohere's, Vertex AI's.
        "exceeded model token limit",
        "range of input length should be",
        "tokens in the prompt cannot exceed",
        "the input token count is",
        // The ds4 server's.
        "the configured context size is",
        // vLLM's from 0.16 on.
        "resulting in a maximum input length of",
        // Amazon Nova's, and Titan's.
        "input tokens exceeded",
        "too many input tokens",
        // Cohere's, of several versions.
        "too many tokens: size limit exceeded by",
        "total number of tokens (prompt and prediction) cannot exceed",
        "minimal context could not be added to prompt",
        // watsonx's.
        "cannot exceed the total tokens limit",
    ];
    const WINDOW: [&str; 9] = [
        "context size",
        "context window",
        "context length",
        "context limit",
        "input length",
        "prompt length",
        "input token count",
        "prompt token count",
        "prompt exceeds max length",
    ];
    let exceeds = message.contains("exceed") || message.contains("longer than") || message.contains("larger than");
    // Snowflake's, with the window between the words.
    let snowflakes = message.split_once("max tokens of ").is_some_and(|(_, after)| after.contains("exceeded"));
    WHOLE.iter().any(|words| message.contains(words))
        || (exceeds && WINDOW.iter().any(|words| message.contains(words)))
        || snowflakes
        || is_text_too_long_message(message)
}

/// Whether a message, in small letters, says that one text is longer than any text of a conversation may be. The fields with
/// short limits, such as a tool's name, are something else.
fn is_text_too_long_message(message: &str) -> bool {
    // OpenAI's of `string_above_max_length`; Titan's.
    const BEFORE: [&str; 2] = ["string too long. expected a string with maximum length ", "expected maxlength: "];
    const LEAST: u64 = 10_000;
    let limit = BEFORE.into_iter().find_map(|words| message.split_once(words)).map(|(_, after)| after);
    let digits = limit.map(|after| after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits.and_then(|digits| digits.parse::<u64>().ok()).is_some_and(|most| most >= LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(json: &str) -> (Option<String>, Option<String>, u16) {
        let said = parse(json).unwrap();
        let status = status(&said);
        (said.kind.or(said.code), said.message, status)
    }

    #[test]
    fn errors_of_every_shape_are_read() {
        for (json, kind, message, status) in [
            (
                r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}}"#,
                "invalid_request_error",
                "m",
                400,
            ),
            (r#"{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded"}}"#, "tokens", "m", 429),
            (
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                "unavailable_error",
                "Loading model",
                503,
            ),
            (r#"{"error":"model 'x' not found"}"#, "", "model 'x' not found", 500),
            (
                r#"{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}"#,
                "BadRequestError",
                "m",
                400,
            ),
            (r#"{"detail":"Not Found"}"#, "", "Not Found", 500),
            (r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, "", "field required", 500),
            (r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#, "INVALID_ARGUMENT", "m", 400),
            (r#"{"errors":[{"code":"7","message":"m"}],"success":false}"#, "", "m", 500),
            (
                r#"{"error":{"code":502,"message":"Provider returned error","metadata":{"raw":"why"}}}"#,
                "",
                "Provider returned error: why",
                502,
            ),
            (
                r#"{"type":"error","code":"server_error","message":"m","param":null,"sequence_number":3}"#,
                "server_error",
                "m",
                500,
            ),
            (
                r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"m"}}}"#,
                "rate_limit_exceeded",
                "m",
                429,
            ),
            (
                r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden"}]},"type":"invalid_request_error"}"#,
                "invalid_request_error",
                r#"[{"type":"extra_forbidden"}]"#,
                400,
            ),
        ] {
            let (own_kind, own_message, own_status) = read_as(json);
            assert_eq!(own_kind.unwrap_or_default(), kind, "{json}");
            assert_eq!(own_message.unwrap_or_default(), message, "{json}");
            assert_eq!(own_status, status, "{json}");
        }
        for none in ["", "<html>", "{}", r#"{"ok":true}"#, "[]", "7"] {
            assert!(parse(none).is_none(), "{none}");
        }
    }

    #[test]
    fn a_pause_is_read_from_a_message() {
        let asked = |message: &str| {
            let json = serde_json::json!({ "error": { "message": message, "code": "rate_limit_exceeded" } });
            parse(&json.to_string()).unwrap().retry_after.map(|pause| pause.as_millis())
        };
        for (message, milliseconds) in [
            (
                "Rate limit reached for gpt-5 on tokens per min. Please try again in 11.054s. Visit https://x",
                Some(11_054),
            ),
            ("Please try again in 250ms.", Some(250)),
            ("Please try again in 1m2.5s.", Some(62_500)),
            ("Please try again in 2h0m0s", Some(7_200_000)),
            ("Please try again in 20 seconds", Some(20_000)),
            ("No deployments available for selected model, Try again in 5 seconds. Passed model=m.", Some(5_000)),
            ("Please try again in 20 parsecs", None),
            ("Please try again in 20", None),
            ("Please try again in a few minutes", None),
            ("Please try again in 9999999999999999999999s", Some(Duration::MAX.as_millis())),
            ("Please try again in ", None),
            ("Try later", None),
        ] {
            assert_eq!(asked(message), milliseconds, "{message}");
        }
    }

    #[test]
    fn a_full_window_is_known_by_its_words() {
        for message in [
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "request (4476 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
            "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
            "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
            "Trying to keep the first 5000 tokens when context the overflows. The number of tokens to keep from the initial \
             prompt is greater than the context length",
            "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context \
             length of only 7866 tokens, which is not enough.",
            "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
            "Reached context length of 4096 tokens with model (arch: qwen2) that does not currently support mid-generation \
             context overflow.",
            "The decoder prompt (length 17772) is longer than the maximum model length of 16384.",
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens \
             and your request has 2104 input tokens (2000 > 4096 - 2104).",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 512 \
             `max_new_tokens`",
            "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.",
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
            "Range of input length should be [1, 129024]",
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
            "Unable to submit request because the input token count is 1251952 but model only supports up to 1048576.",
            "prompt token count of 128005 exceeds the limit of 128000",
            "Prompt exceeds max length",
            "invalid params, context window exceeds limit (2013)",
            "prompt too long; exceeded max context length by 10 tokens",
            "the input length exceeds the context length",
            "litellm.ContextWindowExceededError: litellm.BadRequestError: it is full",
            "Prompt has 5000 tokens, but the configured context size is 4096 tokens",
            "Context size has been exceeded.",
            "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only 1024 \
             tokens, resulting in a maximum input length of 1014 tokens. Please reduce the length of the input prompt. \
             (parameter=input_tokens, value=1015)",
            "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum length. \
             Please update the input to try again.",
            "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279 ",
            "Malformed input request: expected maxLength: 50000, actual: 52611, please reformat your input and try again.",
            "too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 tokens.",
            "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs, or setting \
             prompt_truncation='AUTO'.",
            "too many tokens: minimal context could not be added to prompt (size limit exceeded by 280 tokens)",
            "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354. Try using a \
             shorter prompt or a smaller max_tokens value.",
            "Invalid input argument for Model 'm': the number of input tokens 4098 cannot exceed the total tokens limit 4096 \
             for this model",
            "max tokens of 131072 exceeded",
            "Invalid 'input[3].content[0].text': string too long. Expected a string with maximum length 10485760, but got a \
             string with length 12582912 instead.",
            "litellm.BadRequestError: AnthropicException - b'{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",\
             \"message\":\"Request exceeds the maximum size\"}}'",
        ] {
            let said = ApiError { message: Some(message.to_owned()), ..ApiError::default() };
            assert_eq!(classify(400, &said), Some(ErrorClass::ContextFull), "{message}");
            assert_eq!(classify(429, &said), None);
        }
        for message in [
            "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
            "max_tokens exceeds the limit of 8192",
            "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024.",
            "Malformed input request: #/toolConfig/tools/0/toolSpec/name: expected maxLength: 64, actual: 70",
            "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model - received 8192.",
        ] {
            let said = ApiError { message: Some(message.to_owned()), ..ApiError::default() };
            assert_eq!(classify(400, &said), None, "{message}");
        }
        let said = |code: &str| ApiError { code: Some(code.to_owned()), ..ApiError::default() };
        assert_eq!(classify(400, &said("context_length_exceeded")), Some(ErrorClass::ContextFull));
        assert_eq!(classify(500, &said("exceed_context_size_error")), Some(ErrorClass::ContextFull));
        assert_eq!(classify(429, &said("insufficient_quota")), Some(ErrorClass::BillingExhausted));
        assert_eq!(classify(429, &said("rate_limit_exceeded")), None);
        let message = |message: &str| ApiError { message: Some(message.to_owned()), ..ApiError::default() };
        let openais = "You exceeded your current quota, please check your plan and billing details.";
        for (status, words, expected) in [
            (
                429,
                format!(
                    "litellm.RateLimitError: OpenAIException - {openais} For more information on this error, read the \
                docs: https://platform.openai.com/docs/guides/error-codes/api-errors."
                ),
                Some(ErrorClass::BillingExhausted),
            ),
            (
                429,
                format!("OpenAIException - {{\"message\":\"{openais}\",\"code\":\"insufficient_quota\"}}"),
                Some(ErrorClass::BillingExhausted),
            ),
            (429, format!("{openais} Quota exceeded for metric: generate_content_free_tier_requests, limit: 20"), None),
            (
                400,
                "Your credit balance is too low to access the Anthropic API.".to_owned(),
                Some(ErrorClass::BillingExhausted),
            ),
        ] {
            assert_eq!(classify(status, &message(&words)), expected, "{words}");
        }
        assert_eq!(classify(400, &said("budget_exceeded")), Some(ErrorClass::BillingExhausted));
        let large = ApiError {
            message: Some("Request too large for gpt-4o on tokens per min".to_owned()),
            ..ApiError::default()
        };
        assert_eq!(classify(429, &large), Some(ErrorClass::RequestTooLarge));
    }
}
