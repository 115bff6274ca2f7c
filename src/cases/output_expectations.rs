//! What a case expects a run to propose to do outside.

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::{Map, Value, json};

use super::matchers::{CountRange, TextMatcher, json_equal};
use super::placeholder::with_placeholder;
use crate::event::{PARENT, ProposedOutputs};
use crate::job::NOTHING_TO_DO;
use crate::yaml::{self, Node, NodeKind, Spanned};

/// What a run proposes.
#[derive(Debug, Clone)]
pub enum OutputsExpectation {
    /// What the snapshot has, refused calls included.
    Snapshot,
    /// The outputs with these ids, and no others. The word `none` stands for an empty mapping.
    ById(IndexMap<Spanned<String>, Node>),
}

const OUTPUTS_HELP: &str =
    "write `none`, `snapshot`, or a mapping such as `{ comment-1: { body: { contains: TEXT } } }`";

impl<'de> Deserialize<'de> for OutputsExpectation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        match node.kind() {
            _ if node.is_placeholder() => Ok(Self::ById(IndexMap::new())),
            NodeKind::String("none") => Ok(Self::ById(IndexMap::new())),
            NodeKind::String("snapshot") => Ok(Self::Snapshot),
            NodeKind::Mapping => Ok(Self::ById(node.decode_nested().unwrap_or_default())),
            NodeKind::String(word) => {
                let message = format!("unknown value `{word}` for the outputs");
                Err(yaml::coded_error("unknown-value", message, Some(OUTPUTS_HELP)))
            }
            _ => {
                let message = format!("expected outputs, found {}", node.describe());
                Err(yaml::coded_error("wrong-type", message, Some(OUTPUTS_HELP)))
            }
        }
    }
}

impl JsonSchema for OutputsExpectation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OutputsExpectation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "object"],
            "pattern": "^(none|snapshot)$",
            "patternErrorMessage": OUTPUTS_HELP,
            "additionalProperties": true,
            "examples": ["none", "snapshot"],
        })
    }
}

/// The calls of an output that are refused: how many, or why.
#[derive(Debug, Clone)]
pub enum RefusedExpectation {
    /// How many.
    Count(CountRange),
    /// Some are, and their reasons, each on lines of its own, meet these conditions.
    Why(Box<TextMatcher>),
}

impl<'de> Deserialize<'de> for RefusedExpectation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        let is_bound = |key: &Node| key.text().is_some_and(|key| ["at_least", "at_most"].contains(&key));
        let is_text = matches!(node.kind(), NodeKind::Mapping) && !node.entries().any(|(key, _)| is_bound(&key));
        let count = || Self::Count(CountRange { at_least: 0, at_most: None });
        Ok(match is_text && !node.is_placeholder() {
            true => node.decode_nested().map_or_else(count, |why| Self::Why(Box::new(why))),
            false => node.decode_nested().map_or_else(count, Self::Count),
        })
    }
}

impl JsonSchema for RefusedExpectation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RefusedExpectation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (count, why) = (generator.subschema_for::<CountRange>(), generator.subschema_for::<TextMatcher>());
        json_schema!({ "anyOf": [count, why] })
    }
}

/// A part of an output's data that isn't as expected.
pub(super) struct DataMismatch {
    /// What was expected.
    pub(super) node: Node,
    /// Where, as a JSON pointer.
    pub(super) pointer: String,
    /// The text that is there, if conditions on it are expected.
    pub(super) text: Option<(TextMatcher, String)>,
}

/// Compares data: keys may be left out at any depth, and in place of a text there may be conditions on it. Those are returned, too,
/// each with its text.
pub(super) fn compare_data(expected: &Node, found: &Value, pointer: &str, into: &mut Vec<DataMismatch>) {
    let mismatch = |pointer: &str, text| DataMismatch { node: expected.clone(), pointer: pointer.to_owned(), text };
    match (expected.kind(), found) {
        (NodeKind::Mapping, Value::String(text)) => {
            let decoded = expected.decode::<TextMatcher>();
            let matcher = decoded.value.filter(|_| decoded.findings.is_empty());
            into.push(mismatch(pointer, matcher.map(|matcher| (matcher, text.clone()))));
        }
        (NodeKind::Mapping, Value::Object(fields)) => {
            for (key, value) in expected.entries() {
                let name = key.text().unwrap_or_default();
                let below = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                match fields.get(name) {
                    Some(field) => compare_data(&value, field, &below, into),
                    None => into.push(mismatch(&below, None)),
                }
            }
        }
        (NodeKind::List, Value::Array(items)) if expected.items().count() == items.len() => {
            for (at, (value, item)) in expected.items().zip(items).enumerate() {
                compare_data(&value, item, &format!("{pointer}/{at}"), into);
            }
        }
        _ if json_equal(&expected.to_json(), found) => {}
        _ => into.push(mismatch(pointer, None)),
    }
}

/// What a run proposes and what was refused, as the snapshot has it.
pub fn outputs_snapshot(proposed: &ProposedOutputs, workspace: &str) -> String {
    let calls = &proposed.calls;
    let mut file = Map::new();
    let entries = calls.accepted.entries.iter().map(|entry| {
        let mut fields = Map::new();
        fields.insert("id".to_owned(), json!(entry.id));
        fields.insert("output".to_owned(), json!(entry.name));
        fields.extend(entry.target.map(|target| ("target".to_owned(), json!(target))));
        fields.insert("data".to_owned(), entry.data.clone());
        Value::Object(fields)
    });
    file.insert("proposed".to_owned(), entries.collect());
    if let Some(reason) = &calls.accepted.nothing_to_do {
        file.insert(NOTHING_TO_DO.to_owned(), json!(reason));
    }
    if !calls.refused.is_empty() {
        let refused = calls.refused.iter().map(|refused| {
            let mut fields = Map::new();
            fields.insert("output".to_owned(), json!(refused.name));
            if refused.agent != PARENT {
                fields.insert("agent".to_owned(), json!(refused.agent));
            }
            fields.insert("why".to_owned(), json!(refused.why));
            Value::Object(fields)
        });
        file.insert("refused".to_owned(), refused.collect());
    }
    with_placeholder(&yaml::to_yaml(&Value::Object(file)), workspace)
}
