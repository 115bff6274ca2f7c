//! A step before the agent: a command whose output prompts and conditions can use.

use schemars::JsonSchema;
use serde::Deserialize;

use super::duration::{Duration, MAX_DURATION};
use super::prompt::PATH_PATTERN;
use crate::yaml::{self, Node, Spanned};

/// The default timeout of a step before the agent, in seconds.
pub const DEFAULT_STEP_SECONDS: u64 = 2 * 60;
/// The greatest number of steps before the agent.
pub const MAX_STEPS: usize = 50;
/// The longest output of a step, in bytes.
pub const MAX_STEP_BYTES: usize = 1 << 20;
/// The part of `before` with the path of the folder in which steps leave files. No step can have this name.
pub const FILES_PART: &str = "files";
/// The form of a step's name: that of an input.
const STEP_NAME_PATTERN: &str = "^[a-z_][a-z0-9_]{0,63}$";
/// The same in words.
pub const STEP_NAME_FORM: &str = "a step's name is 1 to 64 of `a-z`, `0-9` and `_`, and doesn't begin with a digit";

/// A command that runs before the agent starts. Its standard output is the value `{{ before.NAME }}`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "step before the agent")]
pub struct BeforeStep {
    /// Its name: templates use its output as `{{ before.NAME }}`.
    #[schemars(regex(pattern = STEP_NAME_PATTERN), extend("patternErrorMessage" = STEP_NAME_FORM))]
    pub name: Spanned<String>,

    /// The script for `bash -e -o pipefail -c`, plain shell. It gets every input as `$INPUT_NAME`, the name in capitals, and can
    /// leave files for the agent in `$LEGWORK_FILES`.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the command is empty"))]
    pub run: Spanned<String>,

    /// JSON Schema of the output, which must be JSON then; or `{ file: PATH }`. Without it, the output is a text.
    #[schemars(extend("type" = ["object", "boolean"], "properties" = { "file": {
        "description": "Path of a file that holds the schema, from the job file's folder and below it.",
        "type": "string", "pattern": PATH_PATTERN, "patternErrorMessage": "the path leads out of the job's folder",
    } }))]
    pub schema: Option<Node>,

    /// The time limit.
    #[schemars(extend("default" = "2m", "pattern" = Duration::pattern(MAX_DURATION),
        "patternErrorMessage" = "write it like `90s`, `20m` or `1h30m`, at most 30 days"))]
    pub timeout: Option<Spanned<Duration>>,

    /// Whether the run continues if the step fails; its value is null then.
    #[schemars(extend("default" = false))]
    pub optional: Option<Spanned<bool>>,

    /// Whether only trusted people can influence the output.
    #[schemars(extend("default" = false))]
    pub trusted: Option<Spanned<bool>>,

    /// Whether a map runs it once for all rows, without inputs.
    #[schemars(extend("default" = false))]
    pub once: Option<Spanned<bool>>,
}

impl BeforeStep {
    /// Whether the run continues if it fails.
    pub fn is_optional(&self) -> bool {
        yaml::value_or(self.optional.as_ref(), false)
    }

    /// Whether only trusted people can influence its output.
    pub fn is_trusted(&self) -> bool {
        yaml::value_or(self.trusted.as_ref(), false)
    }

    /// Whether a map runs it once for all rows.
    pub fn is_once(&self) -> bool {
        yaml::value_or(self.once.as_ref(), false)
    }
}
