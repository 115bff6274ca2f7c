//! A job's state: one JSON value that is kept between its runs.

use schemars::JsonSchema;
use serde::Deserialize;

use super::prompt::PATH_PATTERN;
use super::size::Size;
use crate::yaml::{Node, Spanned};

/// The default of `max`, in bytes.
pub const STATE_BYTES: u64 = 256_000;
/// The greatest value of `max`, in bytes.
pub const MAX_STATE_BYTES: u64 = 1 << 20;
/// How deep lists and mappings can be nested in a state. The files that hold it add some levels, and readers have a limit.
pub const MAX_STATE_DEPTH: usize = 64;
/// The name of the state's file in the job's folder of records, and in a test case.
pub const STATE_FILE: &str = "state.json";

/// A JSON value that is kept between runs. Templates read it as `{{ state }}`, and the parent replaces it with the tool
/// `set_state`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "state")]
pub struct JobState {
    /// JSON Schema of the value, or `{ file: PATH }`.
    #[schemars(extend("type" = ["object", "boolean"], "properties" = { "file": {
        "description": "Path of a file that holds the schema, from the job file's folder and below it.",
        "type": "string", "pattern": PATH_PATTERN, "patternErrorMessage": "the path leads out of the job's folder",
    } }))]
    pub schema: Node,

    /// The value of the first run. Default: null, which needn't fit the schema.
    pub initial: Option<Node>,

    /// The longest value as JSON, at most `1MiB`.
    #[schemars(extend("default" = "256kB"))]
    pub max: Option<Spanned<Size>>,
}

impl JobState {
    /// The longest value as JSON, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max.as_ref().map_or(STATE_BYTES, |max| max.value.bytes().min(MAX_STATE_BYTES))
    }
}

/// How deep lists and mappings are nested in a value: 0 for a text or a number.
pub fn json_depth(value: &serde_json::Value) -> usize {
    use serde_json::Value::{Array, Object};
    let within = match value {
        Array(items) => items.iter().map(json_depth).max(),
        Object(fields) => fields.values().map(json_depth).max(),
        _ => return 0,
    };
    within.unwrap_or_default() + 1
}
