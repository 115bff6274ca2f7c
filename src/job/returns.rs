//! An answer as data.

use schemars::JsonSchema;
use serde::Deserialize;

use super::PATH_PATTERN;
use crate::yaml::Node;

/// Data that an agent ends with, in place of a text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "data")]
pub struct Returns {
    /// JSON Schema of the data; or `{ file: PATH }`, a file below the job's folder that holds one, YAML or JSON.
    #[schemars(extend("type" = ["object", "boolean"], "properties" = { "file": {
        "description": "Path of a file that holds the schema, from the job file's folder and below it.",
        "type": "string", "pattern": PATH_PATTERN, "patternErrorMessage": "the path leads out of the job's folder",
    } }))]
    pub schema: Node,
}
