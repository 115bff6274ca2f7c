//! `bash`: one command in the workspace.

mod ast;
mod cross_check;
mod lexer;
mod rule_tests;
mod rules;
mod unrestricted;
mod working_dirs;

use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::rule_tests::CommandList;
use self::rules::{CommandRules, RULE_FORM, RULE_PATTERN};
pub(crate) use self::unrestricted::is_unrestricted;
use super::input::{parse, schema};
use super::toolbox::MAX_RESULT_CHARS;
use super::{Builtin, Tool, ToolContext, ToolError};
use crate::diagnostic::Diagnostic;
use crate::job;
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::{MOST_PROCESSES, ProcessOutcome, describe_failure, run};
use crate::yaml::{Decoded, Node, NodeKind, Spanned};

pub(super) const BUILTIN: Builtin = Builtin {
    name: "bash",
    reads_only: false,
    parent_only: false,
    subject_field: Some("command"),
    parse_options: parse_options,
    options_schema: || Some(super::options::schema::<BashOptions>()),
    build: |options| Ok(Box::new(Bash::new(options)?)),
};

/// How long a command may take where the job says nothing.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time that a job can give a command.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Room for the lines that say how a command ended, in characters.
const VERDICT: usize = 600;
/// The longest command, in bytes with its NUL: Linux takes no longer argument (MAX_ARG_STRLEN).
const MAX_COMMAND: usize = 128 << 10;

/// Options of `bash` as a job writes them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "bash", extend("dependencies" = { "match": ["allow"], "no_match": ["allow"] }))]
struct BashOptions {
    /// The commands that may run: words, of which the last may be `*` for any further ones, such as `cargo test *`. Left
    /// out: any command.
    #[serde(default)]
    #[schemars(extend("items" = {
        "type": "string", "pattern": RULE_PATTERN, "patternErrorMessage": RULE_FORM,
    }))]
    allow: Option<Vec<Spanned<String>>>,
    /// Tests of the rules: commands that they must let pass.
    #[serde(default)]
    r#match: Option<CommandList>,
    /// Tests of the rules: commands that they must refuse.
    #[serde(default)]
    no_match: Option<CommandList>,
    /// How long one command may take, at most 1h.
    #[serde(default)]
    #[schemars(extend(
        "default" = "2m",
        "pattern" = job::Duration::pattern(MAX_TIMEOUT),
        "patternErrorMessage" = "write it like `90s` or `20m`, at most `1h`",
    ))]
    timeout: Option<Spanned<job::Duration>>,
    /// Whether commands leave everything as it is, the workspace included. The sandbox sees to it.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    read_only: Option<Spanned<bool>>,
}

/// The same in their canonical form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<String>>,
    timeout_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
}

fn parse_options(node: Option<&Node>) -> Decoded<Value> {
    let decoded = match node.filter(|node| !node.is_null()) {
        Some(node) => node.decode::<BashOptions>(),
        None => Decoded { value: Some(BashOptions::default()), findings: Vec::new(), gaps: Vec::new() },
    };
    let mut findings = decoded.findings;
    let value = decoded.value.map(|options| {
        for pattern in options.allow.iter().flatten().filter(|pattern| !pattern.node.is_placeholder()) {
            if let Err((_, why)) = CommandRules::new(std::slice::from_ref(&pattern.value)) {
                let finding = Diagnostic::error("bad-bash-rule", pattern.place(), format!("bad rule: {why}"));
                // `git diff:*` is how other programs write it.
                let stem = pattern.value.strip_suffix('*').unwrap_or_default().trim_end_matches(':');
                let meant = format!("{stem} *");
                let is_rule = !stem.is_empty() && CommandRules::new(std::slice::from_ref(&meant)).is_ok();
                findings.push(match is_rule {
                    true if pattern.value.ends_with(":*") => {
                        finding.help(format!("did you mean `{meant}`?")).replace_at(pattern.node.content_place(), meant)
                    }
                    true => finding.help(format!("did you mean `{meant}`? {RULE_FORM}")),
                    false => finding.help(RULE_FORM),
                });
            }
        }
        let is_none = options.allow.as_ref().is_some_and(Vec::is_empty);
        if let Some(allow) =
            node.and_then(|node| node.get("allow")).filter(|allow| is_none && allow.kind() == NodeKind::List)
            && allow.items().next().is_none()
        {
            findings.push(
                Diagnostic::warning("empty-allow", allow.place(), "an empty `allow` lets no command run")
                    .help("name the commands that may run, or take `bash` off the list"),
            );
        }
        findings.extend(rule_tests::check(
            options.allow.as_deref(),
            options.r#match.as_ref(),
            options.no_match.as_ref(),
        ));
        if let Some(timeout) = options.timeout.as_ref().filter(|timeout| timeout.value.get() > MAX_TIMEOUT) {
            let message = "a command can be given at most `1h`";
            findings.push(Diagnostic::error("out-of-range", timeout.place(), message));
        }
        let settings = CanonicalOptions {
            allow: options.allow.map(|patterns| patterns.into_iter().map(|pattern| pattern.value).collect()),
            timeout_ms: as_millis(options.timeout.map_or(TIMEOUT, |timeout| timeout.value.get())),
            read_only: options.read_only.is_some_and(|read_only| read_only.value),
        };
        json!(settings)
    });
    Decoded { value, findings, gaps: decoded.gaps }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashInput {
    /// The command, as `bash -c` takes it.
    command: String,
    /// What it is for, in a few words.
    #[serde(default)]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    description: Option<String>,
}

struct Bash {
    rules: Option<CommandRules>,
    timeout: Duration,
    read_only: bool,
}

impl Bash {
    fn new(options: &Value) -> Result<Self, String> {
        let settings = match options {
            Value::Null => CanonicalOptions { allow: None, timeout_ms: as_millis(TIMEOUT), read_only: false },
            options => {
                CanonicalOptions::deserialize(options).map_err(|error| format!("bad options of `bash`: {error}"))?
            }
        };
        let rules = settings.allow.map(|patterns| CommandRules::new(&patterns)).transpose();
        Ok(Self {
            rules: rules.map_err(|(_, why)| format!("bad rule of `bash`: {why}"))?,
            timeout: Duration::from_millis(settings.timeout_ms.max(1)),
            read_only: settings.read_only,
        })
    }
}

impl Tool for Bash {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> String {
        let mut text = format!(
            "Runs a command with `bash -c` in the workspace. Standard output and error come back together, then the exit \
             code where it isn't 0; long output keeps its beginning and its end. There is no input and no terminal; each call starts anew in the workspace, without \
             the last one's folder or variables. A command may take {}; whatever still runs when it ends, background \
             jobs included, is killed.",
            spell(self.timeout)
        );
        if self.read_only {
            text.push_str(" The workspace is read-only for commands; they can write to $HOME and $TMPDIR.");
        }
        if let Some(rules) = &self.rules {
            text.push_str("\n\nOnly these commands are allowed: ");
            text.push_str(&rules.describe());
            text.push('.');
        }
        text
    }

    fn input_schema(&self) -> Value {
        schema::<BashInput>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let BashInput { mut command, .. } = parse(input)?;
            if command.contains('\0') || command.len() >= MAX_COMMAND {
                return Err(ToolError::new(
                    "the command holds a NUL or is longer than 128 kB; put a long one into a file",
                ));
            }
            if command.trim().is_empty() {
                return Err(ToolError::new("the command is empty"));
            }
            let root = scope.workspace.root();
            if let Some(rules) = &self.rules {
                command = rules.check(&command, root)?;
            }
            let mut output = CommandOutput::new(scope.mask, MAX_RESULT_CHARS - VERDICT);
            let ended = run(&command, scope, self.read_only, self.timeout, MOST_PROCESSES, &mut output).await;
            let ended = ended.map_err(|error| ToolError(format!("bash can't be started: {error}")))?;
            scope.sandbox.check_tampering().map_err(|breach| ToolError(breach.to_string()))?;
            let mut text = output.finish();
            let verdict = match ended {
                ProcessOutcome::Exited(status) => describe_failure(status),
                ProcessOutcome::TimedOut => Some(format!("timed out after {}", spell(self.timeout))),
                ProcessOutcome::Stopped(why) => Some(format!("killed: {why}")),
                ProcessOutcome::TooManyProcesses => {
                    Some(format!("killed: it had more than {MOST_PROCESSES} processes at once"))
                }
            };
            while text.ends_with('\n') {
                text.pop();
            }
            if verdict.is_some()
                && let Some(why) = scope.sandbox.explain_failure(&text)
            {
                text.push('\n');
                text.push_str(why);
            }
            match verdict {
                None if text.is_empty() => Ok("(no output)".to_owned()),
                None => Ok(text),
                Some(verdict) if text.is_empty() => Err(ToolError(verdict)),
                Some(verdict) => Err(ToolError(format!("{text}\n{verdict}"))),
            }
        })
    }
}

/// A duration as a job writes it.
pub(super) fn spell(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if millis > 0 {
        return format!("{}ms", duration.as_millis());
    }
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

#[cfg(test)]
mod tests;
