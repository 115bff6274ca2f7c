//! What a text, a file or data is to be like.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::yaml::{self, Node, NodeKind, Spanned};

/// What a text is to be like; everything that is said must hold.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "text", extend("minProperties" = 1))]
pub struct TextMatcher {
    /// The whole text; line ends at its end don't count.
    pub is: Option<Spanned<String>>,

    /// Texts that are in it.
    #[serde(default)]
    pub contains: OneOrMany<Spanned<String>>,

    /// Texts that aren't in it.
    #[serde(default)]
    pub lacks: OneOrMany<Spanned<String>>,

    /// Regular expressions that match somewhere in it. `^` and `$` are the text's ends; `(?m)` makes them a line's.
    #[serde(default)]
    pub matches: OneOrMany<Pattern>,

    /// Whether it is what the case's snapshot says, which `legwork test --accept` renews.
    #[serde(default)]
    pub snapshot: Option<Spanned<bool>>,
}

impl TextMatcher {
    /// Whether there is a snapshot to compare with.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.value)
    }
}

/// One, or a list.
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
        format!("Several{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "type": ["string", "array"], "items": one })
    }
}

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// It itself.
    pub regex: grep_regex::RegexMatcher,
    /// Where it stands.
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
                Err(yaml::coded_error("invalid-value", format!("no regular expression: {why}"), None))
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

/// What is expected of a file.
#[derive(Debug, Clone)]
pub enum FileExpectation {
    /// It is there, whatever is in it.
    Exists,
    /// Nothing of that name is there.
    Absent,
    /// It is a text like this; one word for a snapshot alone.
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
                Ok(node.decode_nested::<TextMatcher>().map_or(Self::Exists, |like| Self::Text(Box::new(like))))
            }
            NodeKind::String(word) => {
                Err(yaml::coded_error("unknown-value", format!("a file is never `{word}`"), Some(FILE_HELP)))
            }
            _ => {
                let message = format!("expected what a file is like, found {}", node.describe());
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
        let like = generator.subschema_for::<TextMatcher>();
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "enum": ["exists", "absent", "snapshot"],
                    "enumDescriptions": [
                        "It is there, whatever is in it.",
                        "Nothing of that name is there.",
                        "It is the same, byte for byte, as the file of that name in the case's folder `expect`.",
                    ],
                },
                like,
            ],
        })
    }
}

/// What the final data is to be like.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "result", extend("minProperties" = 1))]
pub struct ResultExpectation {
    /// The very same.
    pub is: Option<Node>,
    /// What is in it: keys of mappings may be left out, at any depth; lists are as long, each item by the same rule.
    pub has: Option<Node>,
}

/// Whether two pieces of data are the same; `1` and `1.0` are.
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

/// The first place where data lacks what is expected to be in it, as a JSON pointer; `None` where it has all.
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
    fn data_is_compared_by_what_it_means() {
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
            "lists are as long"
        );
        assert_eq!(first_missing(&json!(null), &json!({})), Some(String::new()));
    }
}
