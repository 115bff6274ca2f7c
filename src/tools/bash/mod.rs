//! `bash`: runs a command in the workspace.

mod ast;
mod background;
mod cross_check;
mod lexer;
mod options;
mod rules;
mod unrestricted;
mod working_dirs;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use self::options::{BashOptions, CanonicalOptions, parse_options};
use self::rules::CommandRules;
pub(crate) use self::unrestricted::is_unrestricted;
use super::input::{lenient_bool, parse, schema};
use super::tool::{Builtin, CallFuture, MAX_RESULT_CHARS, Tool, ToolContext, options_schema};
use crate::job::GitAccess;
use crate::message::ToolError;
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::{MAX_PROCESSES, ProcessOutcome, ShellCommand, format_duration};

pub(super) const BUILTIN: Builtin = Builtin {
    name: "bash",
    reads_only: false,
    starts_commands: true,
    changes_files: true,
    reads_content: true,
    parent_only: false,
    subject_field: Some("command"),
    parse_options,
    options_schema: || Some(options_schema::<BashOptions>()),
    build: |options| Ok(Box::new(Bash::new(options)?)),
};

/// Characters reserved for the lines that say how a command ended.
const OUTCOME_CHARS: usize = 600;
/// The longest command in bytes, including its NUL: Linux accepts no longer argument (MAX_ARG_STRLEN).
const MAX_COMMAND_BYTES: usize = 128 << 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashInput {
    /// The command to run.
    command: String,
    /// What it is for, in a few words.
    #[serde(default)]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    description: Option<String>,
    /// The job sets the timeout. The unit of this one differs between programs.
    #[serde(default, alias = "timeout_ms", alias = "timeout_seconds", alias = "timeoutMs")]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    timeout: Option<IgnoredAny>,
    /// Whether to return before the command ends, which can't be done.
    #[serde(default, deserialize_with = "lenient_bool")]
    #[schemars(skip)]
    run_in_background: Option<bool>,
}

struct Bash {
    rules: Option<CommandRules>,
    timeout: Duration,
    read_only: bool,
}

impl Bash {
    fn new(options: &Value) -> Result<Self, String> {
        let options = match options {
            Value::Null => CanonicalOptions::default(),
            options => {
                CanonicalOptions::deserialize(options).map_err(|error| format!("bad options of `bash`: {error}"))?
            }
        };
        let rules = options.allow.map(|rules| CommandRules::new(&rules)).transpose();
        Ok(Self {
            rules: rules.map_err(|why| format!("bad rule of `bash`: {why}"))?,
            timeout: Duration::from_millis(options.timeout_ms.max(1)),
            read_only: options.read_only,
        })
    }
}

impl Tool for Bash {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> String {
        let mut text = format!(
            "Runs a command with `bash -c` in the workspace. Returns stdout and stderr combined, then the exit code if it \
             isn't 0. Long output is truncated in the middle. There is no stdin and no terminal. Each call starts a new \
             shell in the workspace: the working directory and variables don't persist. A command times out after {}. All \
             processes that it started, including background jobs, are killed when it ends.",
            format_duration(self.timeout)
        );
        if self.read_only {
            text.push_str(" The workspace is read-only; commands can write to $HOME and $TMPDIR.");
        }
        if let Some(rules) = &self.rules {
            text.push_str("\n\nOnly these commands are allowed: ");
            text.push_str(&rules.describe());
            text.push('.');
        }
        text
    }

    fn git_rules(&self, git: GitAccess) -> &'static str {
        match git {
            _ if self.read_only => "",
            GitAccess::Read => {
                "\n\nGit folders are read-only: git status, diff, log and show work; add, commit, stash and other commands that \
                 write to a repository don't."
            }
            GitAccess::Commit => {
                "\n\nIn git folders, commands can add objects and change the index, HEAD, branches, tags, notes and stashes. \
                 Everything else there can't change: configuration, hooks, remote-tracking branches, worktrees, submodules. A \
                 rebase, or a cherry-pick or revert of several commits, must finish in the command that starts it."
            }
        }
    }

    fn input_schema(&self) -> Value {
        schema::<BashInput>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let BashInput { mut command, run_in_background, .. } = parse(input)?;
            if run_in_background == Some(true) {
                return Err(ToolError::new(
                    "commands can't run in the background: all processes of a call are killed when it ends; run it and what \
                     needs it in one command",
                ));
            }
            if command.contains('\0') || command.len() >= MAX_COMMAND_BYTES {
                return Err(ToolError::new(
                    "the command contains a NUL character or is longer than 128 kB; write a long script to a file and run that",
                ));
            }
            if command.trim().is_empty() {
                return Err(ToolError::new("the command is empty"));
            }
            if let Some(rules) = &self.rules {
                command = rules.check(&command, context.workspace.root())?;
            }
            let shell_command = ShellCommand {
                command: &command,
                shell_options: &[],
                workspace: context.workspace,
                environment: context.environment,
                sandbox: context.sandbox,
                read_only: self.read_only,
                egress: context.egress,
                timeout: self.timeout,
                max_processes: MAX_PROCESSES,
                limits: context.limits,
            };
            let mut output = CommandOutput::new(context.redactor, MAX_RESULT_CHARS - OUTCOME_CHARS);
            let outcome = match shell_command.run(&mut output).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let text = error.to_string();
                    let _ = context.failure.set(error);
                    return Err(ToolError(text));
                }
            };
            // Otherwise all of it was ended.
            let has_exited = matches!(outcome, ProcessOutcome::Exited(_));
            let failure = shell_command.describe_failure(outcome);
            let mut text = output.finish();
            text.truncate(text.trim_end_matches('\n').len());
            if failure.is_some()
                && let Some(why) = context.sandbox.explain_failure(&text)
            {
                text.push('\n');
                text.push_str(why);
            }
            if has_exited && background::leaves_jobs(&command) {
                text.push_str(if text.is_empty() { "" } else { "\n" });
                text.push_str(background::NOTE);
            }
            match failure {
                None if text.is_empty() => Ok("(no output)".to_owned().into()),
                None => Ok(text.into()),
                Some(failure) if text.is_empty() => Err(ToolError(failure)),
                Some(failure) => Err(ToolError(format!("{text}\n{failure}"))),
            }
        })
    }
}

#[cfg(test)]
mod tests;
