//! Reads events and variables.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::TriggerError;
use crate::text::truncate::ellipsize;

/// Reads JSON.
///
/// # Errors
/// What is wrong, and where. No text of the file is in it.
pub(super) fn parse<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Result<T, String> {
    let start = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    if !start.is_empty() && start[0] != b'{' {
        return Err("it isn't a JSON object".to_owned());
    }
    serde_json::from_slice(start).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        match error.classify() {
            serde_json::error::Category::Eof if start.is_empty() => "it is empty".to_owned(),
            serde_json::error::Category::Eof => format!("the JSON is cut off at {place}"),
            serde_json::error::Category::Data => format!("at {place}, a value has another type than in an event"),
            _ => format!("it isn't JSON at {place}"),
        }
    })
}

/// The value of a variable that isn't empty.
pub(super) fn variable<'v>(variables: &'v BTreeMap<String, String>, name: &str) -> Option<&'v str> {
    variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// The address of a server, without a slash at its end.
///
/// # Errors
/// It isn't an address of the web.
pub(super) fn server(
    variables: &BTreeMap<String, String>,
    name: &'static str,
    default: &str,
) -> Result<String, TriggerError> {
    let value = variable(variables, name).unwrap_or(default).trim_end_matches('/');
    let is_plain = value.len() <= 512 && value.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain && (value.starts_with("https://") || value.starts_with("http://")) {
        return Ok(value.to_owned());
    }
    let value = ellipsize(value, 80);
    Err(TriggerError::Variable { name, value, expected: "the address of a server (https://...)" })
}
