//! Matchers for texts, files and results.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::yaml::{self, Node, NodeKind, Spanned};

/// Conditions on a text. All of them must hold.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "text", extend("minProperties" = 1))]
pub struct TextMatcher {
    /// The whole text, except for line ends at its end.
    pub is: Option<Spanned<String>>,

    /// Texts that it contains.
    #[serde(default)]
    pub contains: OneOrMany<Spanned<String>>,

    /// Texts that it doesn't contain.
    #[serde(default)]
    pub lacks: OneOrMany<Spanned<String>>,

    /// Regular expressions that match somewhere in it. `^` and `$` match at the ends of the text, or with `(?m)` of a line.
    #[serde(default)]
    pub matches: OneOrMany<Pattern>,

    /// Whether it equals the case's snapshot, which `legwork test --accept` updates.
    #[serde(default)]
    pub snapshot: Option<Spanned<bool>>,
}

impl TextMatcher {
    /// Whether there is a snapshot to compare with.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.value)
    }
}

/// A single value or a list.
#[derive(Debug, Clone)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        Ok(Self(match node.kind() {
            _ if node.is_placeholder() => Vec::new(),
            NodeKind::List => node.decode_nested::<Vec<T>>().unwrap_or_default(),
            _ => node.decode_nested::<T>().into_iter().collect(),
        }))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "type": ["string", "array"], "items": one })
    }
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

impl JsonSchema for Pattern {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
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
    fn inline_schema() -> bool {
        true
    }

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

/// Whether two JSON values are equal. `1` equals `1.0`.
pub(super) fn json_equal(expected: &Value, found: &Value) -> bool {
    let is_same_key = |(key, value): (&String, &Value), other: &serde_json::Map<String, Value>| {
        other.get(key).is_some_and(|found| json_equal(value, found))
    };
    match (expected, found) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| json_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|pair| is_same_key(pair, other))
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
