//! A check of a job: a command that must pass after the parent's last answer.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Duration, MAX_DURATION};
use crate::yaml::Spanned;

/// The default timeout of a check, in seconds.
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
    /// Its name in the result and for the model.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the name is empty"))]
    pub name: Spanned<String>,

    /// The script for `bash -e -o pipefail -c`, plain shell: a line that fails fails the check, and so does a pipe. It gets every
    /// input as an environment variable: `$INPUT_NAME`, the name in capitals. The check passes if the script exits with 0.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the command is empty"))]
    pub run: Spanned<String>,

    /// The time limit.
    #[schemars(extend("default" = "10m", "pattern" = Duration::pattern(MAX_DURATION),
        "patternErrorMessage" = "write it like `90s`, `20m` or `1h30m`, at most 30 days"))]
    pub timeout: Option<Spanned<Duration>>,

    /// Whether the check runs at all: a template that renders to `true` or `false`.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the condition is empty"))]
    pub when: Option<Spanned<String>>,
}

/// An environment variable of an input, `INPUT_NAME`, that a command mentions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableMention {
    /// The name's place in the command.
    pub range: Range<usize>,
    /// Whether the command needs its value, as `$INPUT_NAME` does; `${INPUT_NAME:-none}` has a value in any case.
    pub is_needed: bool,
}

/// The variables of inputs that a command mentions, in order.
pub fn input_variables(command: &str) -> Vec<VariableMention> {
    const PREFIX: &str = "INPUT_";
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mention = |(start, _): (usize, &str)| {
        let (before, rest) = command.split_at(start);
        let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let after = &rest[length..];
        let is_needed = before.ends_with('$')
            || (before.ends_with("${") || before.ends_with("${#")) && !after.starts_with([':', '-', '+', '=', '?']);
        let is_whole = !before.ends_with(is_part) && length > PREFIX.len();
        is_whole.then_some(VariableMention { range: start..start + length, is_needed })
    };
    command.match_indices(PREFIX).filter_map(mention).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_a_command_are_found() {
        let command = "test -f \"$INPUT_FILE\" && X=${INPUT_A:-b} INPUT_B=1 f ${INPUT_C} $MY_INPUT_D ${#INPUT_E} $INPUT_ $INPUT_2";
        let found: Vec<_> = input_variables(command).into_iter().map(|it| (&command[it.range], it.is_needed)).collect();
        let expected = [
            ("INPUT_FILE", true),
            ("INPUT_A", false),
            ("INPUT_B", false),
            ("INPUT_C", true),
            ("INPUT_E", true),
            ("INPUT_2", true),
        ];
        assert_eq!(found, expected);
    }
}
