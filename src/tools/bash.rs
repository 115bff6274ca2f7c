//! `bash`: one command in the workspace.

mod folders;
mod free;
mod parser;
mod rules;
mod samples;
mod script;
mod words;

use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) use self::free::is_free;
use self::rules::{RULE_FORM, RULE_PATTERN, Rules};
use self::samples::Commands;
use super::input::{parse, schema};
use super::output::Output;
use super::process::{Ended, MOST_PROCESSES, failure, run};
use super::toolbox::MAX_CHARS;
use super::{Builtin, Refusal, Scope, Tool};
use crate::diagnostic::Diagnostic;
use crate::job;
use crate::yaml::{Decoded, Kind, Node, Spanned};

pub(super) const BUILTIN: Builtin = Builtin {
    name: "bash",
    reads_only: false,
    parent_only: false,
    subject: Some("command"),
    options,
    options_schema: || Some(super::options::schema::<Options>()),
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
struct Options {
    /// The commands that may run: words, of which the last may be `*` for any further ones, such as `cargo test *`. Left
    /// out: any command.
    #[serde(default)]
    #[schemars(extend("items" = {
        "type": "string", "pattern": RULE_PATTERN, "patternErrorMessage": RULE_FORM,
    }))]
    allow: Option<Vec<Spanned<String>>>,
    /// Tests of the rules: commands that they must let pass.
    #[serde(default)]
    r#match: Option<Commands>,
    /// Tests of the rules: commands that they must refuse.
    #[serde(default)]
    no_match: Option<Commands>,
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
struct Settings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<String>>,
    timeout_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
}

fn options(node: Option<&Node>) -> Decoded<Value> {
    let decoded = match node.filter(|node| !node.is_null()) {
        Some(node) => node.decode::<Options>(),
        None => Decoded { value: Some(Options::default()), findings: Vec::new(), holes: Vec::new() },
    };
    let mut findings = decoded.findings;
    let value = decoded.value.map(|options| {
        for pattern in options.allow.iter().flatten().filter(|pattern| !pattern.node.is_made_up()) {
            if let Err((_, why)) = Rules::new(std::slice::from_ref(&pattern.value)) {
                let finding = Diagnostic::error("bash-rule", pattern.place(), format!("bad rule: {why}"));
                // `git diff:*` is how other programs write it.
                let stem = pattern.value.strip_suffix('*').unwrap_or_default().trim_end_matches(':');
                let meant = format!("{stem} *");
                let is_rule = !stem.is_empty() && Rules::new(std::slice::from_ref(&meant)).is_ok();
                findings.push(match is_rule {
                    true if pattern.value.ends_with(":*") => {
                        finding.help(format!("did you mean `{meant}`?")).replace_at(pattern.node.inside(), meant)
                    }
                    true => finding.help(format!("did you mean `{meant}`? {RULE_FORM}")),
                    false => finding.help(RULE_FORM),
                });
            }
        }
        let is_none = options.allow.as_ref().is_some_and(Vec::is_empty);
        if let Some(allow) =
            node.and_then(|node| node.get("allow")).filter(|allow| is_none && allow.kind() == Kind::List)
            && allow.items().next().is_none()
        {
            findings.push(
                Diagnostic::warning("nothing-allowed", allow.place(), "an empty `allow` lets no command run")
                    .help("name the commands that may run, or take `bash` off the list"),
            );
        }
        findings.extend(samples::check(options.allow.as_deref(), options.r#match.as_ref(), options.no_match.as_ref()));
        if let Some(timeout) = options.timeout.as_ref().filter(|timeout| timeout.value.get() > MAX_TIMEOUT) {
            let message = "a command can be given at most `1h`";
            findings.push(Diagnostic::error("out-of-range", timeout.place(), message));
        }
        let settings = Settings {
            allow: options.allow.map(|patterns| patterns.into_iter().map(|pattern| pattern.value).collect()),
            timeout_ms: as_millis(options.timeout.map_or(TIMEOUT, |timeout| timeout.value.get())),
            read_only: options.read_only.is_some_and(|read_only| read_only.value),
        };
        json!(settings)
    });
    Decoded { value, findings, holes: decoded.holes }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The command, as `bash -c` takes it.
    command: String,
    /// What it is for, in a few words.
    #[serde(default)]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    description: Option<String>,
}

struct Bash {
    rules: Option<Rules>,
    timeout: Duration,
    read_only: bool,
}

impl Bash {
    fn new(options: &Value) -> Result<Self, String> {
        let settings = match options {
            Value::Null => Settings { allow: None, timeout_ms: as_millis(TIMEOUT), read_only: false },
            options => Settings::deserialize(options).map_err(|error| format!("bad options of `bash`: {error}"))?,
        };
        let rules = settings.allow.map(|patterns| Rules::new(&patterns)).transpose();
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
        schema::<Input>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a Scope<'a>) -> BoxFuture<'a, Result<String, Refusal>> {
        Box::pin(async move {
            let Input { mut command, .. } = parse(input)?;
            if command.contains('\0') || command.len() >= MAX_COMMAND {
                return Err(Refusal::new(
                    "the command holds a NUL or is longer than 128 kB; put a long one into a file",
                ));
            }
            if command.trim().is_empty() {
                return Err(Refusal::new("the command is empty"));
            }
            let root = scope.workspace.root();
            if let Some(rules) = &self.rules {
                command = rules.check(&command, root)?;
            }
            let mut output = Output::new(scope.mask, MAX_CHARS - VERDICT);
            let ended = run(&command, scope, self.read_only, self.timeout, MOST_PROCESSES, &mut output).await;
            let ended = ended.map_err(|error| Refusal(format!("bash can't be started: {error}")))?;
            scope.sandbox.inspect().map_err(|breach| Refusal(breach.to_string()))?;
            let mut text = output.finish();
            let verdict = match ended {
                Ended::Exited(status) => failure(status),
                Ended::TimedOut => Some(format!("timed out after {}", spell(self.timeout))),
                Ended::Stopped(why) => Some(format!("killed: {why}")),
                Ended::Crowded => Some(format!("killed: it had more than {MOST_PROCESSES} processes at once")),
            };
            while text.ends_with('\n') {
                text.pop();
            }
            if verdict.is_some()
                && let Some(why) = scope.sandbox.explain(&text)
            {
                text.push('\n');
                text.push_str(why);
            }
            match verdict {
                None if text.is_empty() => Ok("(no output)".to_owned()),
                None => Ok(text),
                Some(verdict) if text.is_empty() => Err(Refusal(verdict)),
                Some(verdict) => Err(Refusal(format!("{text}\n{verdict}"))),
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
