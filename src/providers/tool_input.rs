//! The input of a call, bounded in length and depth.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The greatest size in bytes of a call's input: several times the longest reply of any model.
pub(super) const MAX_INPUT_BYTES: usize = 4 << 20;
/// The greatest depth of a call's input. Whoever reads it, the API when it comes back included, bounds that, too.
const MAX_INPUT_DEPTH: usize = 100;

/// The input of a call and, where it is none, why. The API takes only an object back, so that is what stands in.
pub(super) fn parse_input(written: Option<&str>) -> (Box<RawValue>, Option<String>) {
    let written = written.map(str::trim);
    // Some write it as JSON twice over.
    let within = written.filter(|written| written.starts_with("\"{"));
    let within = within.and_then(|written| serde_json::from_str::<String>(written).ok());
    let (written, fault) = match within.as_deref().map(str::trim).or(written) {
        None | Some("null" | "\"\"") => ("{}", None),
        Some(written) if written.len() > MAX_INPUT_BYTES => {
            ("{}", Some(format!("the input is longer than {MAX_INPUT_BYTES} bytes")))
        }
        Some(written) => match serde_json::from_str::<IgnoredAny>(written) {
            Ok(_) if !written.starts_with('{') => ("{}", Some("the input is no JSON object".to_owned())),
            Ok(_) if is_too_deep(written) => {
                ("{}", Some(format!("the input is nested deeper than {MAX_INPUT_DEPTH} levels")))
            }
            Ok(_) => (written, None),
            Err(error) => ("{}", Some(format!("the input is no valid JSON: {error}"))),
        },
    };
    match RawValue::from_string(written.to_owned()) {
        Ok(input) => (input, fault),
        Err(error) => (RawValue::NULL.to_owned(), Some(format!("the input is no valid JSON: {error}"))),
    }
}

/// Whether valid JSON is nested too deep.
fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_INPUT_DEPTH {
            return true;
        }
    }
    false
}

/// `{}`.
pub(super) fn empty_object() -> Arc<RawValue> {
    Arc::from(parse_input(None).0)
}

#[cfg(test)]
mod tests {
    use super::parse_input;

    #[test]
    fn an_input_that_is_json_twice_over_is_read() {
        for (written, input, is_broken) in [
            (r#""{\"n\":\"a\\nb\"}""#, r#"{"n":"a\nb"}"#, false),
            (r#""{\"n\":""#, "{}", true),
            (r#""{""#, "{}", true),
            (r#""text""#, "{}", true),
            (r#"{"n":1}"#, r#"{"n":1}"#, false),
        ] {
            let (read, broken) = parse_input(Some(written));
            assert_eq!((read.get(), broken.is_some()), (input, is_broken), "{written}");
        }
    }
}
