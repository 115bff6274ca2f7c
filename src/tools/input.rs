//! Tool inputs: schemas for the model, and lenient parsing.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::ToolError;
use crate::redaction::MARKER_PREFIX;

/// The JSON Schema of an input, as providers expect it: one object without references, titles or formats.
pub(super) fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Value::Object(object) = &mut schema {
        object.shift_remove("title");
        object.shift_remove("description");
    }
    schema
}

/// Removes what a model doesn't need: number formats, and `null` for optional fields.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("format").is_some_and(Value::is_string) {
                object.shift_remove("format");
            }
            if let Some(Value::String(description)) = object.get_mut("description") {
                // The line breaks of the source code.
                *description = description.replace('\n', " ");
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.shift_remove("default");
            }
            for key in ["type", "enum"] {
                if let Some(Value::Array(options)) = object.get_mut(key) {
                    options.retain(|option| !option.is_null() && option != "null");
                    if key == "type"
                        && let [only] = options.as_slice()
                    {
                        let only = only.clone();
                        object.insert(key.to_owned(), only);
                    }
                }
            }
            if let Some(variants) = documented_variants(object.get("oneOf")) {
                object.shift_remove("oneOf");
                object.insert("type".to_owned(), "string".into());
                object.insert("enum".to_owned(), variants);
            }
            object.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// The variants of an enum that documents them one by one.
fn documented_variants(options: Option<&Value>) -> Option<Value> {
    options?.as_array()?.iter().map(|option| option.get("const").cloned()).collect()
}

/// Parses an input. The error tells the model what was wrong and what is expected.
pub(super) fn parse<T: DeserializeOwned + JsonSchema>(input: &RawValue) -> Result<T, ToolError> {
    serde_json::from_str(input.get()).map_err(|error| {
        let error = error.to_string();
        let what = error.rsplit_once(" at line ").map_or(error.as_str(), |(what, _)| what);
        ToolError(format!("invalid input: {what}; expected {}", describe(&schema::<T>())))
    })
}

/// The longest pattern, in bytes. A compiled pattern takes hundreds of times as much memory.
const MAX_PATTERN_BYTES: usize = 16_000;

/// Refuses a pattern that is too long to compile.
pub(super) fn check_pattern_length(name: &str, pattern: &str) -> Result<(), ToolError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolError(format!("`{name}` is longer than 16,000 bytes")));
    }
    Ok(())
}

/// Refuses text with the placeholder of a masked secret, which would replace the secret in the file.
pub(super) fn reject_redacted_text(text: &str) -> Result<(), ToolError> {
    if text.contains(MARKER_PREFIX) {
        return Err(ToolError(format!(
            "the text contains `{MARKER_PREFIX}`, the placeholder of a masked secret; writing it would overwrite the secret \
             in the file, so leave that part out"
        )));
    }
    Ok(())
}

/// A schema on one line, such as `{"path": string, "limit"?: integer}`.
pub(super) fn describe(schema: &Value) -> String {
    if let Some(options) = schema["enum"].as_array() {
        return options.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            let properties = schema["properties"].as_object().into_iter().flatten();
            let members = properties.map(|(name, schema)| {
                let mark = if required.iter().any(|known| known == name.as_str()) { "" } else { "?" };
                format!("\"{name}\"{mark}: {}", describe(schema))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Some("array") => format!("[{}, ...]", describe(&schema["items"])),
        Some(kind) => kind.to_owned(),
        None => "any value".to_owned(),
    }
}

/// Deserializes an optional whole number. Accepts `"5"` and `5.0` for 5, because models write them.
pub(super) fn lenient_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    lenient(deserializer, "a whole number, 0 or greater", |value| match value {
        Value::String(text) => text.trim().parse().ok(),
        // Up to 2^53 every whole number is exact.
        _ => value.as_u64().or_else(|| {
            let number = value.as_f64()?;
            (number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number)).then_some(number as u64)
        }),
    })
}

/// Deserializes an optional boolean. Accepts `"true"` for true.
pub(super) fn lenient_bool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    lenient(deserializer, "true or false", |value| match value {
        Value::String(text) => text.trim().to_lowercase().parse().ok(),
        _ => value.as_bool(),
    })
}

fn lenient<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &str,
    read: fn(&Value) -> Option<T>,
) -> Result<Option<T>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        value => match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(D::Error::custom(format!("invalid value: {value}, expected {expected}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape is used")]
    struct Example {
        /// Where.
        path: String,
        /// How
        /// many.
        #[serde(default, deserialize_with = "lenient_integer")]
        limit: Option<u64>,
        /// Whether.
        #[serde(default)]
        all: bool,
    }

    #[test]
    fn the_schema_is_one_plain_object() {
        assert_eq!(
            schema::<Example>(),
            json!({
                "type": "object",
                "properties": {
                    "path": { "description": "Where.", "type": "string" },
                    "limit": { "description": "How many.", "type": "integer", "minimum": 0 },
                    "all": { "description": "Whether.", "type": "boolean", "default": false }
                },
                "additionalProperties": false,
                "required": ["path"]
            })
        );
    }

    #[test]
    fn numbers_may_be_strings_or_floats() {
        for (text, expected) in [("5", Some(5)), ("\"5\"", Some(5)), ("5.0", Some(5)), ("null", None)] {
            let input = RawValue::from_string(format!(r#"{{"path": "x", "limit": {text}}}"#)).unwrap();
            assert_eq!(parse::<Example>(&input).unwrap().limit, expected, "{text}");
        }
        for text in ["-1", "5.5", "\"five\"", "[]", "1e300"] {
            let input = RawValue::from_string(format!(r#"{{"path": "x", "limit": {text}}}"#)).unwrap();
            let refusal = parse::<Example>(&input).unwrap_err().0;
            assert!(refusal.contains("a whole number, 0 or greater"), "{refusal}");
        }
    }

    #[test]
    fn an_error_names_what_is_expected() {
        let input = RawValue::from_string(r#"{"pth": "x"}"#.into()).unwrap();
        assert_eq!(
            parse::<Example>(&input).unwrap_err().0,
            "invalid input: unknown field `pth`, expected one of `path`, `limit`, `all`; expected {\"path\": string, \
             \"limit\"?: integer, \"all\"?: boolean}"
        );
    }
}
