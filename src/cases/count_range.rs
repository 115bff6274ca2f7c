//! How often something happens.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;

use crate::yaml::{self, Node, NodeKind};

const HELP: &str = "write a number, `never`, `called`, or `{ at_least: 1, at_most: 3 }`";

/// A number, or bounds of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountRange {
    /// No fewer.
    pub at_least: u64,
    /// No more; `None`: as many as there are.
    pub at_most: Option<u64>,
}

impl CountRange {
    /// Whether a number is within.
    pub fn allows(self, number: u64) -> bool {
        number >= self.at_least && self.at_most.is_none_or(|most| number <= most)
    }
}

impl fmt::Display for CountRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_least, self.at_most) {
            (least, None) => write!(f, "at least {least}"),
            (least, Some(most)) if least == most => write!(f, "{least}"),
            (0, Some(most)) => write!(f, "at most {most}"),
            (least, Some(most)) => write!(f, "{least} to {most}"),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountFields {
    /// No fewer.
    at_least: Option<u64>,
    /// No more.
    at_most: Option<u64>,
}

impl<'de> Deserialize<'de> for CountRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        let exactly = |number| Self { at_least: number, at_most: Some(number) };
        let any = Self { at_least: 0, at_most: None };
        match node.kind() {
            _ if node.is_placeholder() => Ok(any),
            NodeKind::Integer(number) => u64::try_from(number).map(exactly).map_err(|_| out_of_range(number)),
            NodeKind::String("never") => Ok(exactly(0)),
            NodeKind::String("called") => Ok(Self { at_least: 1, at_most: None }),
            NodeKind::Mapping => {
                let Some(bounds) = node.decode_nested::<CountFields>() else { return Ok(any) };
                let at_least = bounds.at_least.unwrap_or(0);
                match bounds.at_most {
                    None if bounds.at_least.is_none() && node.entries().next().is_none() => {
                        Err(yaml::coded_error("invalid-value", "these bounds bound nothing", Some(HELP)))
                    }
                    Some(most) if most < at_least => Err(yaml::coded_error(
                        "invalid-value",
                        format!("no number is at least {at_least} and at most {most}"),
                        None,
                    )),
                    at_most => Ok(Self { at_least, at_most }),
                }
            }
            _ => Err(yaml::coded_error(
                "wrong-type",
                format!("expected how often, found {}", node.describe()),
                Some(HELP),
            )),
        }
    }
}

fn out_of_range<E: serde::de::Error>(number: i128) -> E {
    yaml::coded_error("out-of-range", format!("nothing happens {number} times"), Some(HELP))
}

impl JsonSchema for CountRange {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string", "object"],
            "minimum": 0,
            "pattern": "^(never|called)$",
            "patternErrorMessage": HELP,
            "properties": {
                "at_least": { "type": "integer", "minimum": 0, "description": "No fewer." },
                "at_most": { "type": "integer", "minimum": 0, "description": "No more." },
            },
            "additionalProperties": false,
            "minProperties": 1,
            "examples": [1, "never", "called"],
        })
    }
}
