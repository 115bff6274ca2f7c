//! What programs can use: variables of the environment and the network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form of an environment variable's name.
pub const ENV_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// The same in words.
pub const ENV_FORM: &str = "a name is made of letters, digits and `_`, and doesn't begin with a digit";

/// The network access of tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network.
    #[default]
    None,
    /// Unrestricted network.
    Open,
}
