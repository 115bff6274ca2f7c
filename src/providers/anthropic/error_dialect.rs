//! How the Messages API speaks of errors: <https://platform.claude.com/docs/en/api/errors>. Gateways before it, and other
//! servers that have it, speak as those of OpenAI's APIs do.

use serde_json::Value;

use crate::providers::errors::classification::{ApiError, ErrorClass, ErrorDialect};
use crate::providers::openai::error_dialect as openai;

/// Its ways.
pub(super) static ERROR_DIALECT: ErrorDialect = ErrorDialect { parse, status, classify };

fn parse(json: &str) -> Option<ApiError> {
    let mut said = (openai::ERROR_DIALECT.parse)(json)?;
    let value: Value = serde_json::from_str(json).ok()?;
    let code = value.pointer("/error/details/error_code").and_then(Value::as_str);
    said.code = code.map(str::to_owned).or(said.code);
    Some(said)
}

fn status(said: &ApiError) -> u16 {
    match said.kind.as_deref() {
        Some("billing_error") => 402,
        Some("request_too_large") => 413,
        Some("timeout_error") => 504,
        Some("overloaded_error") => 529,
        _ => (openai::ERROR_DIALECT.status)(said),
    }
}

fn classify(status: u16, said: &ApiError) -> Option<ErrorClass> {
    if said.code.as_deref() == Some("enforced_spend_limit_reached") {
        return Some(ErrorClass::BillingExhausted);
    }
    // That the prompt doesn't fit, the API says in words, too.
    (openai::ERROR_DIALECT.classify)(status, said)
}
