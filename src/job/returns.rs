//! An answer as data.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::yaml::Node;

/// Data that an agent ends with, in place of a text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "data")]
pub struct Returns {
    /// JSON Schema of the data; or `{ file: PATH }`, a file below the job's folder that holds one, YAML or JSON.
    #[schemars(extend("type" = ["object", "boolean"]))]
    pub schema: Node,
}
