//! Outputs that a command of the job publishes, in the checkout of this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::connect::TOKEN_VARIABLES;
use super::failure::Failure;
use crate::process::program::{ProgramCall, ProgramOutcome};
use crate::run::start_runtime;

/// How much a command may print, in bytes. It isn't shown.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// The variables that each command sees.
const ALWAYS: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"];

/// Where and how commands run.
#[derive(Debug, Clone)]
pub struct CommandPlace {
    /// The checkout.
    pub folder: PathBuf,
    /// The absolute path of bash.
    pub bash: PathBuf,
    /// The environment of this process.
    pub variables: BTreeMap<String, String>,
}

/// A command and its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputCommand<'a> {
    pub(super) run: &'a str,
    pub(super) env: &'a [String],
    pub(super) timeout: Duration,
    /// The id of the output.
    pub(super) id: &'a str,
    pub(super) data: &'a Value,
}

impl CommandPlace {
    /// Runs a command to its end.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn run(&self, command: &OutputCommand<'_>) -> Result<(), Failure> {
        let refused = |why: String| Failure::Refused(why);
        let is_wanted = |name: &str| ALWAYS.contains(&name) || command.env.iter().any(|wanted| wanted == name);
        let is_token = |name: &str| TOKEN_VARIABLES.contains(&name);
        let mut environment: BTreeMap<String, String> = self.variables.clone();
        environment.retain(|name, _| is_wanted(name) && !is_token(name) && !name.starts_with("LEGWORK_"));
        environment.insert("LEGWORK_OUTPUT_ID".to_owned(), command.id.to_owned());
        let input = command.data.to_string();
        let call = ProgramCall {
            program: &self.bash,
            arguments: &["-e", "-o", "pipefail", "-c", command.run].map(str::to_owned),
            folder: Path::new(&self.folder),
            input: input.as_bytes(),
            environment: &environment,
            timeout: command.timeout,
            max_bytes: MAX_OUTPUT_BYTES,
        };
        let runtime = start_runtime().map_err(|error| Failure::Later(error.to_string()))?;
        match runtime.block_on(call.run()) {
            Err(error) => Err(refused(format!("the command can't be started: {error}"))),
            Ok(ProgramOutcome::Exited(status, _)) if status.success() => Ok(()),
            Ok(ProgramOutcome::Exited(status, _)) => Err(refused(match status.code() {
                Some(code) => format!("the command failed with exit code {code}"),
                None => "the command was killed by a signal".to_owned(),
            })),
            Ok(ProgramOutcome::TimedOut) => Err(refused(format!("the command took longer than {:?}", command.timeout))),
            Ok(ProgramOutcome::TooMuchOutput) => Err(refused("the command printed too much".to_owned())),
        }
    }
}
