//! Matchers for texts, files, results and counts.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::diagnostic::SourceSpan;
use crate::yaml::{self, Node, NodeKind, Spanned};

/// Conditions on a text. All of them must hold.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "text", extend("minProperties" = 1))]
pub struct TextMatcher {
    /// The whole text, except for line ends at its end.
    pub is: Option<Spanned<String>>,

    /// Texts that it contains.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema")]
    pub contains: Vec<Spanned<String>>,

    /// Texts that it doesn't contain.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema")]
    pub lacks: Vec<Spanned<String>>,

    /// Regular expressions that match somewhere in it. `^` and `$` match at the ends of the text, or with `(?m)` of a line.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema")]
    pub matches: Vec<Pattern>,

    /// Whether it equals the case's snapshot, which `legwork test --accept` updates.
    #[serde(default)]
    pub snapshot: Option<Spanned<bool>>,
}

impl TextMatcher {
    /// The place that asks for a snapshot, if there is one to compare with.
    pub(super) fn snapshot(&self) -> Option<SourceSpan> {
        self.snapshot.as_ref().filter(|snapshot| snapshot.value).map(Spanned::place)
    }
}

/// A single value or a list.
fn one_or_many<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let node = Node::deserialize(deserializer)?;
    Ok(match node.kind() {
        _ if node.is_placeholder() => Vec::new(),
        NodeKind::List => node.decode_nested::<Vec<T>>().unwrap_or_default(),
        _ => node.decode_nested::<T>().into_iter().collect(),
    })
}

fn one_or_many_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
}

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The compiled expression.
    pub regex: grep_regex::RegexMatcher,
    /// Its node in the file.
    pub node: Node,
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Spanned::<String>::deserialize(deserializer)?;
        match grep_regex::RegexMatcher::new(&text.value) {
            Ok(regex) => Ok(Self { regex, node: text.node }),
            Err(error) => {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Err(yaml::coded_error("invalid-value", format!("invalid regular expression: {why}"), None))
            }
        }
    }
}

/// The expectation of a file.
#[derive(Debug, Clone)]
pub enum FileExpectation {
    /// The file exists.
    Exists,
    /// The file doesn't exist.
    Absent,
    /// The text of the file matches. The word `snapshot` stands for a snapshot alone.
    Text(Box<TextMatcher>),
}

const FILE_HELP: &str = "write `exists`, `absent`, `snapshot`, or a mapping such as `{ contains: TEXT }`";

impl<'de> Deserialize<'de> for FileExpectation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        match node.kind() {
            _ if node.is_placeholder() => Ok(Self::Exists),
            NodeKind::String("exists") => Ok(Self::Exists),
            NodeKind::String("absent") => Ok(Self::Absent),
            NodeKind::String("snapshot") => {
                let snapshot = Some(Spanned { value: true, node: node.clone() });
                Ok(Self::Text(Box::new(TextMatcher { snapshot, ..TextMatcher::default() })))
            }
            NodeKind::Mapping => {
                Ok(node.decode_nested::<TextMatcher>().map_or(Self::Exists, |matcher| Self::Text(Box::new(matcher))))
            }
            NodeKind::String(word) => {
                Err(yaml::coded_error("unknown-value", format!("unknown value `{word}` for a file"), Some(FILE_HELP)))
            }
            _ => {
                let message = format!("expected a condition on a file, found {}", node.describe());
                Err(yaml::coded_error("wrong-type", message, Some(FILE_HELP)))
            }
        }
    }
}

impl JsonSchema for FileExpectation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FileExpectation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let matcher = generator.subschema_for::<TextMatcher>();
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "enum": ["exists", "absent", "snapshot"],
                    "enumDescriptions": [
                        "The file exists.",
                        "The file doesn't exist.",
                        "The file equals the file of that name in the case's folder `expect`, byte for byte.",
                    ],
                },
                matcher,
            ],
        })
    }
}

/// Conditions on the result.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "result", extend("minProperties" = 1))]
pub struct ResultExpectation {
    /// The exact result.
    pub is: Option<Node>,
    /// A part of the result. Keys of mappings may be omitted at any depth. Lists must have the same length, and each item
    /// follows the same rule.
    pub has: Option<Node>,
}

const COUNT_HELP: &str = "write a number, `never`, `called`, or `{ at_least: 1, at_most: 3 }`";

/// An exact number, or bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountRange {
    /// The least number.
    pub at_least: u64,
    /// The greatest number; `None` for no upper bound.
    pub at_most: Option<u64>,
}

impl CountRange {
    /// Whether a number is in the range.
    pub fn allows(self, number: u64) -> bool {
        number >= self.at_least && self.at_most.is_none_or(|max| number <= max)
    }
}

impl fmt::Display for CountRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_least, self.at_most) {
            (least, None) => write!(f, "at least {least}"),
            (least, Some(max)) if least == max => write!(f, "{least}"),
            (0, Some(max)) => write!(f, "at most {max}"),
            (least, Some(max)) => write!(f, "{least} to {max}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountFields {
    /// The least number.
    at_least: Option<u64>,
    /// The greatest number.
    at_most: Option<u64>,
}

impl<'de> Deserialize<'de> for CountRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        let exactly = |number| Self { at_least: number, at_most: Some(number) };
        let any = Self { at_least: 0, at_most: None };
        match node.kind() {
            _ if node.is_placeholder() => Ok(any),
            NodeKind::Integer(number) => u64::try_from(number).map(exactly).map_err(|_| {
                let message = format!("{number} isn't a valid number of times");
                yaml::coded_error("out-of-range", message, Some(COUNT_HELP))
            }),
            NodeKind::String("never") => Ok(exactly(0)),
            NodeKind::String("called") => Ok(Self { at_least: 1, at_most: None }),
            NodeKind::Mapping => {
                let Some(bounds) = node.decode_nested::<CountFields>() else { return Ok(any) };
                let at_least = bounds.at_least.unwrap_or(0);
                match bounds.at_most {
                    None if bounds.at_least.is_none() && !node.entries().any(|(_, bound)| bound.is_placeholder()) => {
                        Err(yaml::coded_error("invalid-value", "this range is empty", Some(COUNT_HELP)))
                    }
                    Some(max) if max < at_least => {
                        let message = format!("`at_least: {at_least}` is greater than `at_most: {max}`");
                        Err(yaml::coded_error("invalid-value", message, None))
                    }
                    at_most => Ok(Self { at_least, at_most }),
                }
            }
            _ => {
                let message = format!("expected a number of times, found {}", node.describe());
                Err(yaml::coded_error("wrong-type", message, Some(COUNT_HELP)))
            }
        }
    }
}

impl JsonSchema for CountRange {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string", "object"],
            "minimum": 0,
            "pattern": "^(never|called)$",
            "patternErrorMessage": COUNT_HELP,
            "properties": {
                "at_least": { "type": ["integer", "null"], "minimum": 0, "description": "The least number." },
                "at_most": { "type": ["integer", "null"], "minimum": 0, "description": "The greatest number." },
            },
            "additionalProperties": false,
            "minProperties": 1,
            "examples": [1, "never", "called"],
        })
    }
}

/// Whether two JSON values are equal. `1` equals `1.0`.
pub(super) fn json_equal(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| json_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(key, value): (&String, &Value)| other.get(key).is_some_and(|found| json_equal(value, found));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => expected == found,
    }
}

/// The first place where a value lacks an expected part, as a JSON pointer; `None` if it has everything.
pub(super) fn first_missing(expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => expected.iter().find_map(|(key, value)| {
            let step = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            match found.get(key) {
                Some(found) => first_missing(value, found).map(|rest| format!("{step}{rest}")),
                None => Some(step),
            }
        }),
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => expected
            .iter()
            .zip(found)
            .enumerate()
            .find_map(|(at, (expected, found))| first_missing(expected, found).map(|rest| format!("/{at}{rest}"))),
        _ => (!json_equal(expected, found)).then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_compared_by_value() {
        assert!(json_equal(&json!({"a": 1, "b": [1.0]}), &json!({"b": [1], "a": 1.0})));
        assert!(!json_equal(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert_eq!(first_missing(&json!({"a": [{"b": 1}]}), &json!({"a": [{"b": 1, "c": 2}], "d": 3})), None);
        assert_eq!(
            first_missing(&json!({"a": [{"b/c": 1}]}), &json!({"a": [{"b/c": 2}]})),
            Some("/a/0/b~1c".to_owned())
        );
        assert_eq!(
            first_missing(&json!({"a": [1]}), &json!({"a": [1, 2]})),
            Some("/a".to_owned()),
            "lists must have the same length"
        );
        assert_eq!(first_missing(&json!(null), &json!({})), Some(String::new()));
    }
}
