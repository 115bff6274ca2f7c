//! What must hold after the parent's last answer.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Duration, MAX_DURATION};
use crate::yaml::Spanned;

/// How long a check may take where the job doesn't say, in seconds.
pub const DEFAULT_CHECK_SECONDS: u64 = 10 * 60;
/// The greatest number of checks.
pub const MAX_CHECKS: usize = 100;
/// The greatest number of repairs that a job can ask for.
pub const MAX_REPAIRS: u32 = 100;

/// A command that must pass after the parent's last answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "check")]
pub struct Check {
    /// What it is called in the result and to the model.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the name is empty"))]
    pub name: Spanned<String>,

    /// The command: a template for `bash -c`, in which every value is quoted for the shell. It passes where it exits
    /// with 0.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the command is empty"))]
    pub run: Spanned<String>,

    /// How long it may take.
    #[schemars(extend("default" = "10m", "pattern" = Duration::pattern(MAX_DURATION),
        "patternErrorMessage" = "write it like `90s`, `20m` or `1h30m`, at most 30 days"))]
    pub timeout: Option<Spanned<Duration>>,

    /// A template that says `true` or `false`: whether the check is run at all.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the condition is empty"))]
    pub when: Option<Spanned<String>>,
}
