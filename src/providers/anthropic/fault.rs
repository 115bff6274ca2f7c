//! How the Messages API speaks of errors: <https://platform.claude.com/docs/en/api/errors>. Gateways before it, and other
//! servers that have it, speak as those of OpenAI's APIs do.

use serde_json::Value;

use crate::providers::fault::{Manners, Meaning, Said};
use crate::providers::openai::fault as openai;

/// Its ways.
pub(super) static MANNERS: Manners = Manners { read, status, meaning };

fn read(json: &str) -> Option<Said> {
    let mut said = (openai::MANNERS.read)(json)?;
    let value: Value = serde_json::from_str(json).ok()?;
    let code = value.pointer("/error/details/error_code").and_then(Value::as_str);
    said.code = code.map(str::to_owned).or(said.code);
    Some(said)
}

fn status(said: &Said) -> u16 {
    match said.kind.as_deref() {
        Some("billing_error") => 402,
        Some("request_too_large") => 413,
        Some("timeout_error") => 504,
        Some("overloaded_error") => 529,
        _ => (openai::MANNERS.status)(said),
    }
}

fn meaning(status: u16, said: &Said) -> Option<Meaning> {
    if said.code.as_deref() == Some("enforced_spend_limit_reached") {
        return Some(Meaning::Unpaid);
    }
    // That the prompt doesn't fit, the API says in words, too.
    (openai::MANNERS.meaning)(status, said)
}
