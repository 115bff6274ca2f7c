//! Parses the error objects of all APIs, and contains the tables that classify them.
//!
//! OpenAI's form is `{"error": {"message", "type", "param", "code"}}`
//! (<https://developers.openai.com/api/docs/guides/error-codes>), Anthropic's is the same with `details.error_code`
//! (<https://platform.claude.com/docs/en/api/errors>), and Google's has `code`, `message`, `status` and `details`
//! (<https://ai.google.dev/gemini-api/docs/troubleshooting>; the details are those of <https://google.aip.dev/193>).
//! Other servers send `{"error": "..."}` (Ollama), `{"object": "error", "message", "type", "code"}` (vLLM),
//! `{"detail": ...}` (FastAPI), `{"errors": [...]}` (Cloudflare), and `metadata.raw` with the error behind a gateway
//! (OpenRouter). Gateways pass errors of one API through another, so a single parser reads all forms.

use std::time::Duration;

use serde_json::Value;

use crate::providers::transport::rate_headers::{duration_from_secs, parse_duration};

/// The maximum number of characters of an unstructured error that are kept.
const MAX_UNSTRUCTURED_CHARS: usize = 200;
/// legwork's own code for Google's daily quota.
const DAILY_QUOTA: &str = "per_day";

/// A server's error.
#[derive(Debug, Default)]
pub(crate) struct ApiError {
    /// Its type, such as `rate_limit_error`.
    pub(crate) kind: Option<String>,
    /// The message for people.
    pub(crate) message: Option<String>,
    /// The code for programs.
    pub(crate) code: Option<String>,
    /// The HTTP status that the error object itself contains.
    pub(crate) status: Option<u16>,
    /// The id of the request.
    pub(crate) request_id: Option<String>,
    /// The pause that the error asks for.
    pub(crate) retry_after: Option<Duration>,
}

/// What an error means, if its status alone doesn't show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The conversation exceeds the model's context window.
    ContextFull,
    /// The account has no money left, or has reached its spending limit; no retry helps.
    BillingExhausted,
    /// This one request exceeds the account's limit for a single request.
    RequestTooLarge,
    /// The account's daily quota is used up.
    DailyQuotaExhausted,
    /// The key is invalid, whatever the status.
    InvalidKey,
}

/// One API's additions to the tables that apply to all APIs.
pub(crate) struct ErrorDialect {
    /// Types of errors, and the HTTP status of each. They override a status in the error object.
    pub(crate) statuses: &'static [(&'static str, u16)],
    /// Rows that are tried before those in [`CLASSES`].
    pub(crate) classes: &'static [ClassRow],
}

/// A row of the table of error classes. It matches if the status matches, and a code or a phrase does.
pub(crate) struct ClassRow {
    /// The HTTP statuses; empty for any.
    pub(crate) statuses: &'static [u16],
    /// Codes or types.
    pub(crate) codes: &'static [&'static str],
    /// Parts of messages in lower case; all strings of one list have to occur.
    pub(crate) phrases: &'static [&'static [&'static str]],
    /// What it means.
    pub(crate) class: ErrorClass,
}

/// The HTTP status for each code and type in lower case, for errors without a status, as in a stream. Google's are
/// mapped as in <https://google.aip.dev/193>.
const STATUSES: &[(&str, u16)] = &[
    ("rate_limit_exceeded", 429),
    ("rate_limit_error", 429),
    ("insufficient_quota", 429),
    ("resource_exhausted", 429),
    ("tokens", 429),
    ("requests", 429),
    ("overloaded_error", 503),
    ("unavailable_error", 503),
    ("unavailable", 503),
    ("service_unavailable", 503),
    ("invalid_api_key", 401),
    ("authentication_error", 401),
    ("unauthorized", 401),
    ("unauthenticated", 401),
    ("permission_error", 403),
    ("permission_denied", 403),
    ("bio_policy", 403),
    ("misalignment_policy_violation", 403),
    ("model_not_found", 404),
    ("not_found_error", 404),
    ("not_found", 404),
    ("invalid_request_error", 400),
    ("invalid_prompt", 400),
    ("invalid_argument", 400),
    ("failed_precondition", 400),
    ("out_of_range", 400),
    ("badrequesterror", 400),
    ("bad_request", 400),
    ("content_filter", 400),
    ("data_residency_mismatch", 400),
    ("context_length_exceeded", 400),
    ("exceed_context_size_error", 400),
];

/// The classes of errors from any API. The first matching row decides.
const CLASSES: &[ClassRow] = &[
    ClassRow {
        statuses: &[],
        codes: &["context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"],
        phrases: &[],
        class: ErrorClass::ContextFull,
    },
    ClassRow { statuses: &[400, 413, 422, 500], codes: &[], phrases: CONTEXT_FULL, class: ErrorClass::ContextFull },
    ClassRow {
        statuses: &[],
        codes: &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "budget_exceeded"],
        phrases: &[],
        class: ErrorClass::BillingExhausted,
    },
    ClassRow {
        statuses: &[400, 403, 429],
        codes: &[],
        // OpenAI's code and message as gateways pass them on, and Anthropic's message. Google uses the first half of
        // OpenAI's message for rate limits, too.
        phrases: &[
            &["insufficient_quota"],
            &["credit balance is too low"],
            &["exceeded your current quota", "platform.openai.com"],
        ],
        class: ErrorClass::BillingExhausted,
    },
    ClassRow { statuses: &[429], codes: &[DAILY_QUOTA], phrases: &[], class: ErrorClass::DailyQuotaExhausted },
    ClassRow { statuses: &[429], codes: &[], phrases: &[&["request too large"]], class: ErrorClass::RequestTooLarge },
];

/// Phrases in errors for a prompt that is too long; few servers have a code for that. A message about the reply length
/// alone ("max_tokens: 9 > 8, which is the maximum allowed number of output tokens") must not match.
#[rustfmt::skip]
const CONTEXT_FULL: &[&[&str]] = &[
    &["maximum context length"],
    &["maximum model length"], // vLLM
    &["prompt is too long"],
    &["prompt too long"], // Ollama
    &["input is too long"],
    &["context_length_exceeded"],
    &["context length exceeded"],
    &["contextwindowexceedederror"], // LiteLLM
    &["request_too_large"], // Anthropic's code, as LiteLLM passes it on
    &["maximum prompt length"],
    &["reduce the length of the messages"],
    &["reduce the length of the input"],
    // LM Studio, several versions
    &["greater than the context length"],
    &["with context length of only"],
    &["truncate prompt with n_keep"],
    &["reached context length of"],
    // Text Generation Inference
    &["`inputs` tokens + `max_new_tokens` must be"],
    &["`inputs` must have less than"],
    // Moonshot, DashScope, Cohere, Vertex AI
    &["exceeded model token limit"],
    &["range of input length should be"],
    &["tokens in the prompt cannot exceed"],
    &["the input token count is"],
    &["the configured context size is"], // ds4 server
    &["resulting in a maximum input length of"], // vLLM from 0.16 on
    // Amazon Nova, Titan
    &["input tokens exceeded"],
    &["too many input tokens"],
    // Cohere, several versions
    &["too many tokens: size limit exceeded by"],
    &["total number of tokens (prompt and prediction) cannot exceed"],
    &["minimal context could not be added to prompt"],
    &["cannot exceed the total tokens limit"], // watsonx
    &["max tokens of ", " exceeded"], // Snowflake
    &["prompt exceeds max length"],
];
/// Names of the context window. They match only together with a word for exceeding it.
const WINDOW_NAMES: [&str; 8] = [
    "context size",
    "context window",
    "context length",
    "context limit",
    "input length",
    "prompt length",
    "input token count",
    "prompt token count",
];
const EXCEEDING: [&str; 3] = ["exceed", "longer than", "larger than"];

impl ErrorDialect {
    /// The HTTP status of an error in a stream.
    pub(crate) fn status(&self, error: &ApiError) -> u16 {
        let known = self.statuses.iter().find(|(kind, _)| error.kind.as_deref() == Some(kind));
        let common = || {
            let words: Vec<String> =
                [&error.code, &error.kind].into_iter().flatten().map(|word| word.to_ascii_lowercase()).collect();
            STATUSES.iter().find(|(word, _)| words.iter().any(|known| known == word))
        };
        known.map(|(_, status)| *status).or(error.status).or_else(|| common().map(|(_, status)| *status)).unwrap_or(500)
    }

    /// The class of an error, if it has one.
    pub(crate) fn classify(&self, status: u16, error: &ApiError) -> Option<ErrorClass> {
        let message = error.message.as_deref().unwrap_or_default().to_ascii_lowercase();
        let matches = |row: &&ClassRow| {
            let has_code =
                [&error.code, &error.kind].into_iter().flatten().any(|known| row.codes.contains(&known.as_str()));
            let has_phrase = || row.phrases.iter().any(|parts| parts.iter().all(|part| message.contains(part)));
            let is_of_context = || row.class == ErrorClass::ContextFull && exceeds_context(&message);
            (row.statuses.is_empty() || row.statuses.contains(&status))
                && (has_code || has_phrase() || !row.phrases.is_empty() && is_of_context())
        };
        self.classes.iter().chain(CLASSES).find(matches).map(|row| row.class)
    }
}

/// Whether a message in lower case says that the context window is exceeded, or that a text is too long.
fn exceeds_context(message: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
    has(&EXCEEDING) && has(&WINDOW_NAMES) || is_text_too_long(message)
}

/// Whether a message in lower case says that a text of the conversation is too long. Fields with short limits, such as
/// a tool's name, don't count.
fn is_text_too_long(message: &str) -> bool {
    // From OpenAI, with the code `string_above_max_length`, and from Titan.
    const PREFIXES: [&str; 2] = ["string too long. expected a string with maximum length ", "expected maxlength: "];
    const MIN_LIMIT: u64 = 10_000;
    let limit = PREFIXES.into_iter().find_map(|prefix| message.split_once(prefix)).map(|(_, after)| after);
    let digits = limit.map(|after| after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits.and_then(|digits| digits.parse::<u64>().ok()).is_some_and(|limit| limit >= MIN_LIMIT)
}

/// Whether Claude refuses thinking because it was produced after other messages. The model's name doesn't always show
/// that this can happen, because a deployment may have any name.
pub(crate) fn is_prefix_mismatch(message: &str) -> bool {
    message.contains("bound to a different conversation") || message.contains("prefix_mismatch_behavior")
}

impl ApiError {
    /// The error in a JSON body or event, if any.
    pub(crate) fn parse(json: &str) -> Option<Self> {
        Self::from_value(&serde_json::from_str(json).ok()?)
    }

    fn from_value(value: &Value) -> Option<Self> {
        let value = first_element(value);
        let inner =
            value.get("error").or_else(|| value.pointer("/response/error")).or_else(|| value.pointer("/errors/0"));
        let error = inner.filter(|error| error.is_object() || error.is_string()).unwrap_or(value);
        let message = message(error);
        let mut parsed = Self {
            kind: non_numeric_text(error.get("type"))
                .filter(|kind| kind != "error")
                .or_else(|| non_numeric_text(error.get("status"))),
            code: non_numeric_text(error.get("code")),
            status: status_code(error.get("code")).or_else(|| status_code(error.get("status"))),
            request_id: non_numeric_text(value.get("request_id")),
            retry_after: message.as_deref().and_then(parse_retry_after),
            message,
        };
        parsed.read_details(error);
        (parsed.message.is_some() || parsed.kind.is_some() || parsed.code.is_some()).then_some(parsed)
    }

    /// Reads Anthropic's and Google's `details`.
    fn read_details(&mut self, error: &Value) {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        self.code = text(error.pointer("/details/error_code")).or(self.code.take());
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
            self.code = text(detail.get("reason")).or(self.code.take());
            self.retry_after = text(detail.get("retryDelay")).and_then(|delay| seconds(&delay)).or(self.retry_after);
            for violation in detail.get("violations").and_then(Value::as_array).into_iter().flatten() {
                if text(violation.get("quotaId")).is_some_and(|quota| quota.contains("PerDay")) {
                    self.code = Some(DAILY_QUOTA.to_owned());
                }
            }
        }
    }

    /// The error in a JSON body with status 200: an `error` of any kind, FastAPI's `detail`, Cloudflare's `errors`,
    /// vLLM's `"object": "error"`, `"success": false`, or an HTTP status of an error.
    pub(crate) fn parse_unexpected(value: &Value) -> Option<Self> {
        let value = first_element(value);
        let is_set = |key: &&str| match value.get(key) {
            Some(Value::Array(items)) => !items.is_empty(),
            Some(value) => value.is_object() || value.is_string() || value == true,
            None => false,
        };
        let status = ["code", "status", "statusCode"].iter().find_map(|key| status_code(value.get(*key)));
        let is_error = ["error", "errors", "detail"].iter().any(is_set)
            || value.get("success").is_some_and(|success| success == false)
            || value.get("object").is_some_and(|object| object == "error")
            || status.is_some();
        if !is_error {
            return None;
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut parsed = Self::from_value(value).unwrap_or_default();
        parsed.message = parsed.message.or_else(|| text("message")).or_else(|| text("msg"));
        parsed.status = parsed.status.or(status);
        parsed.message.get_or_insert_with(|| value.to_string().chars().take(MAX_UNSTRUCTURED_CHARS).collect());
        Some(parsed)
    }
}

/// The value, or its first element if it is a list: Gemini's API sends an error as the only element of a list.
fn first_element(value: &Value) -> &Value {
    value.as_array().and_then(|list| list.first()).unwrap_or(value)
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

/// The pause that a message asks for. OpenAI writes `Please try again in 1m2.5s`, or `250ms`, which matters if there is
/// no header for it, as in a stream. LiteLLM writes `Try again in 5 seconds`.
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

/// The string, unless it is a number.
fn non_numeric_text(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    // `None` is a Python server's null.
    (!text.is_empty() && text != "None" && text.parse::<f64>().is_err()).then(|| text.to_owned())
}

/// The value, if it is an HTTP status of an error.
fn status_code(value: Option<&Value>) -> Option<u16> {
    let value = value?;
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// Parses `34.5s`, a protocol buffer duration in JSON.
fn seconds(delay: &str) -> Option<Duration> {
    duration_from_secs(delay.strip_suffix('s')?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: ErrorDialect = ErrorDialect { statuses: &[], classes: &[] };

    fn read_as(json: &str) -> (Option<String>, Option<String>, u16) {
        let said = ApiError::parse(json).unwrap();
        let status = PLAIN.status(&said);
        (said.kind.or(said.code), said.message, status)
    }

    #[test]
    fn errors_of_every_form_are_parsed() {
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
            assert!(ApiError::parse(none).is_none(), "{none}");
        }
    }

    #[test]
    fn a_retry_delay_is_parsed_from_a_message() {
        let asked = |message: &str| {
            let json = json!({ "error": { "message": message, "code": "rate_limit_exceeded" } });
            ApiError::parse(&json.to_string()).unwrap().retry_after.map(|pause| pause.as_millis())
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
    fn a_full_context_window_is_recognized_by_its_message() {
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
            assert_eq!(PLAIN.classify(400, &said), Some(ErrorClass::ContextFull), "{message}");
            assert_eq!(PLAIN.classify(429, &said), None);
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
            assert_eq!(PLAIN.classify(400, &said), None, "{message}");
        }
        let said = |code: &str| ApiError { code: Some(code.to_owned()), ..ApiError::default() };
        assert_eq!(PLAIN.classify(400, &said("context_length_exceeded")), Some(ErrorClass::ContextFull));
        assert_eq!(PLAIN.classify(500, &said("exceed_context_size_error")), Some(ErrorClass::ContextFull));
        assert_eq!(PLAIN.classify(429, &said("insufficient_quota")), Some(ErrorClass::BillingExhausted));
        assert_eq!(PLAIN.classify(429, &said("rate_limit_exceeded")), None);
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
            assert_eq!(PLAIN.classify(status, &message(&words)), expected, "{words}");
        }
        assert_eq!(PLAIN.classify(400, &said("budget_exceeded")), Some(ErrorClass::BillingExhausted));
        let large = ApiError {
            message: Some("Request too large for gpt-4o on tokens per min".to_owned()),
            ..ApiError::default()
        };
        assert_eq!(PLAIN.classify(429, &large), Some(ErrorClass::RequestTooLarge));
    }

    #[test]
    fn errors_are_recognized_in_many_forms_without_false_positives() {
        for (json, message, status) in [
            (r#"{"error": true, "message": "out of luck"}"#, "out of luck", None),
            (r#"{"error": "asleep"}"#, "asleep", None),
            (r#"[{"error": {"code": 429, "message": "slowly"}}]"#, "slowly", Some(429)),
            (r#"{"errors": [{"message": "bad", "code": 1000}], "success": false}"#, "bad", None),
            (r#"{"detail": "Not authenticated"}"#, "Not authenticated", None),
            (r#"{"detail": [{"loc": ["x"], "msg": "field required"}]}"#, "field required", None),
            (r#"{"object": "error", "message": "no such model", "code": 404}"#, "no such model", Some(404)),
            (r#"{"code": 401, "msg": "invalid token"}"#, "invalid token", Some(401)),
            (r#"{"success": false, "why": 3}"#, r#"{"success":false,"why":3}"#, None),
        ] {
            let said = ApiError::parse_unexpected(&serde_json::from_str(json).unwrap()).unwrap();
            assert_eq!((said.message.as_deref(), said.status), (Some(message), status), "{json}");
        }
        for json in [
            r#"{"message": "Welcome"}"#,
            r#"{"error": null, "errors": [], "code": 0}"#,
            r#"{"status": "ok"}"#,
            r#"{"choices": []}"#,
            "[]",
            "null",
        ] {
            assert!(ApiError::parse_unexpected(&serde_json::from_str(json).unwrap()).is_none(), "{json}");
        }
    }

    const GOOGLE: ErrorDialect = crate::providers::gemini::ERROR_DIALECT;

    fn read_google(error: &Value) -> (ApiError, Option<ErrorClass>) {
        let said = ApiError::parse(&error.to_string()).unwrap();
        let meaning = GOOGLE.classify(GOOGLE.status(&said), &said);
        (said, meaning)
    }

    fn google_error(code: u16, message: &str, status: &str, details: &Value) -> Value {
        json!({ "error": { "code": code, "message": message, "status": status, "details": details } })
    }

    #[test]
    fn the_fields_of_an_error_are_parsed() {
        let details = json!([
            { "@type": "type.googleapis.com/google.rpc.Help", "links": [] },
            { "@type": "type.googleapis.com/google.rpc.QuotaFailure",
              "violations": [{ "quotaId": "GenerateRequestsPerMinutePerProjectPerModel" }] },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s" },
        ]);
        let throttled = google_error(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", &details);
        for error in [json!([throttled]), throttled] {
            let (said, meaning) = read_google(&error);
            assert_eq!((said.kind.as_deref(), said.status), (Some("RESOURCE_EXHAUSTED"), Some(429)));
            assert_eq!(said.message.as_deref(), Some("You exceeded your current quota."));
            assert_eq!((said.retry_after, meaning), (Some(Duration::from_millis(34_500)), None));
        }
        assert_eq!(seconds("99999999999999999999999s"), Some(Duration::MAX));
        for delay in ["", "s", "-1s", "34"] {
            assert_eq!(seconds(delay), None, "{delay}");
        }
        assert!(ApiError::parse("<html>").is_none());
    }

    #[test]
    fn an_error_without_a_code_gets_one_from_its_status_name() {
        for (word, number) in [
            ("INVALID_ARGUMENT", 400),
            ("UNAUTHENTICATED", 401),
            ("PERMISSION_DENIED", 403),
            ("NOT_FOUND", 404),
            ("RESOURCE_EXHAUSTED", 429),
            ("UNAVAILABLE", 503),
            ("INTERNAL", 500),
        ] {
            let said = ApiError::parse(&json!({ "error": { "message": "m", "status": word } }).to_string()).unwrap();
            assert_eq!(GOOGLE.status(&said), number, "{word}");
        }
    }

    #[test]
    fn errors_that_retries_cannot_fix_are_classified() {
        let reason = |reason: &str| json!([{ "reason": reason, "domain": "googleapis.com" }]);
        let daily = json!([
            { "violations": [{ "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" }] },
            { "retryDelay": "3s" },
        ]);
        let none = json!([]);
        let bad = "INVALID_ARGUMENT";
        for (error, expected) in [
            (
                google_error(400, "API key not valid. Please pass a valid API key.", bad, &reason("API_KEY_INVALID")),
                ErrorClass::InvalidKey,
            ),
            (google_error(400, "API key expired. Please renew the API key.", bad, &none), ErrorClass::InvalidKey),
            (
                google_error(
                    400,
                    "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                    bad,
                    &none,
                ),
                ErrorClass::ContextFull,
            ),
            (
                google_error(400, "Request payload size exceeds the limit: 20971520 bytes.", bad, &none),
                ErrorClass::ContextFull,
            ),
            (
                google_error(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", &daily),
                ErrorClass::DailyQuotaExhausted,
            ),
            (
                google_error(429, "Your prepayment credits are depleted.", "RESOURCE_EXHAUSTED", &none),
                ErrorClass::BillingExhausted,
            ),
        ] {
            assert_eq!(read_google(&error).1, Some(expected), "{error}");
        }
        let (_, meaning) = read_google(&google_error(400, "Function call is missing a thought_signature", bad, &none));
        assert_eq!(meaning, None);
    }
}
