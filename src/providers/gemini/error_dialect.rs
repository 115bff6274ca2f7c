//! How the Gemini API speaks of errors: `{"error": {"code", "message", "status", "details"}}`, also as the only element of a
//! list (<https://ai.google.dev/gemini-api/docs/troubleshooting>; the details are those of <https://google.aip.dev/193>).
//! Gateways before it speak as those of OpenAI's APIs do.

use std::time::Duration;

use serde_json::Value;

use crate::providers::errors::classification::{ApiError, ErrorClass, ErrorDialect};
use crate::providers::openai::error_dialect as openai;

/// Its ways.
pub(super) static ERROR_DIALECT: ErrorDialect = ErrorDialect { parse, status, classify };

/// The code of a limit that counts by the day.
const DAILY_QUOTA: &str = "per_day";

fn parse(json: &str) -> Option<ApiError> {
    let mut said = (openai::ERROR_DIALECT.parse)(json)?;
    let value: Value = serde_json::from_str(json).ok()?;
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    for detail in value.pointer("/error/details").and_then(Value::as_array).into_iter().flatten() {
        said.code = text(detail.get("reason")).or(said.code);
        said.retry_after = text(detail.get("retryDelay")).and_then(|delay| seconds(&delay)).or(said.retry_after);
        for violation in detail.get("violations").and_then(Value::as_array).into_iter().flatten() {
            if text(violation.get("quotaId")).is_some_and(|quota| quota.contains("PerDay")) {
                said.code = Some(DAILY_QUOTA.to_owned());
            }
        }
    }
    Some(said)
}

/// `34.5s`, as JSON writes a duration of protocol buffers.
fn seconds(delay: &str) -> Option<Duration> {
    crate::providers::transport::rate_headers::duration_from_secs(delay.strip_suffix('s')?.parse().ok()?)
}

fn status(said: &ApiError) -> u16 {
    // The codes of <https://google.aip.dev/193>, as HTTP maps them.
    match (said.status, said.kind.as_deref()) {
        (Some(status), _) => status,
        (None, Some("INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE")) => 400,
        (None, Some("UNAUTHENTICATED")) => 401,
        (None, Some("PERMISSION_DENIED")) => 403,
        (None, Some("NOT_FOUND")) => 404,
        (None, Some("RESOURCE_EXHAUSTED")) => 429,
        _ => (openai::ERROR_DIALECT.status)(said),
    }
}

fn classify(status: u16, said: &ApiError) -> Option<ErrorClass> {
    let message = said.message.as_deref().unwrap_or_default().to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
    match status {
        400 if said.code.as_deref() == Some("API_KEY_INVALID") => Some(ErrorClass::InvalidKey),
        400 if has(&["api key not valid", "api key expired", "api key not found"]) => Some(ErrorClass::InvalidKey),
        400 if has(&["enable billing"]) => Some(ErrorClass::BillingExhausted),
        // Of the whole body in bytes.
        400 if has(&["request payload size exceeds"]) => Some(ErrorClass::ContextFull),
        429 if has(&["credits are depleted", "spending cap", "spend cap"]) => Some(ErrorClass::BillingExhausted),
        429 if said.code.as_deref() == Some(DAILY_QUOTA) => Some(ErrorClass::DailyQuotaExhausted),
        _ => (openai::ERROR_DIALECT.classify)(status, said),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_as(error: &Value) -> (ApiError, Option<ErrorClass>) {
        let said = parse(&error.to_string()).unwrap();
        let meaning = classify(status(&said), &said);
        (said, meaning)
    }

    fn error(code: u16, message: &str, status: &str, details: &Value) -> Value {
        json!({ "error": { "code": code, "message": message, "status": status, "details": details } })
    }

    #[test]
    fn what_an_error_says_is_read() {
        let details = json!([
            { "@type": "type.googleapis.com/google.rpc.Help", "links": [] },
            { "@type": "type.googleapis.com/google.rpc.QuotaFailure",
              "violations": [{ "quotaId": "GenerateRequestsPerMinutePerProjectPerModel" }] },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s" },
        ]);
        let throttled = error(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", &details);
        for error in [json!([throttled]), throttled] {
            let (said, meaning) = read_as(&error);
            assert_eq!((said.kind.as_deref(), said.status), (Some("RESOURCE_EXHAUSTED"), Some(429)));
            assert_eq!(said.message.as_deref(), Some("You exceeded your current quota."));
            assert_eq!((said.retry_after, meaning), (Some(Duration::from_millis(34_500)), None));
        }
        assert_eq!(seconds("99999999999999999999999s"), Some(Duration::MAX));
        for delay in ["", "s", "-1s", "34"] {
            assert_eq!(seconds(delay), None, "{delay}");
        }
        assert!(parse("<html>").is_none());
    }

    #[test]
    fn an_error_without_a_number_has_the_one_of_its_word() {
        for (word, number) in [
            ("INVALID_ARGUMENT", 400),
            ("UNAUTHENTICATED", 401),
            ("PERMISSION_DENIED", 403),
            ("NOT_FOUND", 404),
            ("RESOURCE_EXHAUSTED", 429),
            ("UNAVAILABLE", 503),
            ("INTERNAL", 500),
        ] {
            let said = parse(&json!({ "error": { "message": "m", "status": word } }).to_string()).unwrap();
            assert_eq!(status(&said), number, "{word}");
        }
    }

    #[test]
    fn what_no_later_try_mends_is_known() {
        let reason = |reason: &str| json!([{ "reason": reason, "domain": "googleapis.com" }]);
        let daily = json!([
            { "violations": [{ "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" }] },
            { "retryDelay": "3s" },
        ]);
        let none = json!([]);
        let bad = "INVALID_ARGUMENT";
        for (error, expected) in [
            (
                error(400, "API key not valid. Please pass a valid API key.", bad, &reason("API_KEY_INVALID")),
                ErrorClass::InvalidKey,
            ),
            (error(400, "API key expired. Please renew the API key.", bad, &none), ErrorClass::InvalidKey),
            (
                error(400, "The input token count (9) exceeds the maximum number of tokens allowed (8).", bad, &none),
                ErrorClass::ContextFull,
            ),
            (
                error(400, "Request payload size exceeds the limit: 20971520 bytes.", bad, &none),
                ErrorClass::ContextFull,
            ),
            (
                error(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", &daily),
                ErrorClass::DailyQuotaExhausted,
            ),
            (
                error(429, "Your prepayment credits are depleted.", "RESOURCE_EXHAUSTED", &none),
                ErrorClass::BillingExhausted,
            ),
        ] {
            assert_eq!(read_as(&error).1, Some(expected), "{error}");
        }
        let (_, meaning) = read_as(&error(400, "Function call is missing a thought_signature", bad, &none));
        assert_eq!(meaning, None);
    }
}
