//! How many times something is expected to happen.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;

use crate::yaml::{self, Node, NodeKind};

const HELP: &str = "write a number, `never`, `called`, or `{ at_least: 1, at_most: 3 }`";

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

#[derive(Deserialize, JsonSchema)]
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
            NodeKind::Integer(number) => u64::try_from(number).map(exactly).map_err(|_| out_of_range(number)),
            NodeKind::String("never") => Ok(exactly(0)),
            NodeKind::String("called") => Ok(Self { at_least: 1, at_most: None }),
            NodeKind::Mapping => {
                let Some(bounds) = node.decode_nested::<CountFields>() else { return Ok(any) };
                let at_least = bounds.at_least.unwrap_or(0);
                match bounds.at_most {
                    None if bounds.at_least.is_none() && node.entries().next().is_none() => {
                        Err(yaml::coded_error("invalid-value", "this range is empty", Some(HELP)))
                    }
                    Some(max) if max < at_least => Err(yaml::coded_error(
                        "invalid-value",
                        format!("`at_least: {at_least}` is greater than `at_most: {max}`"),
                        None,
                    )),
                    at_most => Ok(Self { at_least, at_most }),
                }
            }
            _ => Err(yaml::coded_error(
                "wrong-type",
                format!("expected a number of times, found {}", node.describe()),
                Some(HELP),
            )),
        }
    }
}

fn out_of_range<E: serde::de::Error>(number: i128) -> E {
    yaml::coded_error("out-of-range", format!("{number} isn't a valid number of times"), Some(HELP))
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
                "at_least": { "type": "integer", "minimum": 0, "description": "The least number." },
                "at_most": { "type": "integer", "minimum": 0, "description": "The greatest number." },
            },
            "additionalProperties": false,
            "minProperties": 1,
            "examples": [1, "never", "called"],
        })
    }
}
