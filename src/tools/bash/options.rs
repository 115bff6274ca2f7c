//! The options of `bash` in a job, and the tests of its rules.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rules::{CommandRules, RULE_FORM, RULE_PATTERN};
use crate::diagnostic::Diagnostic;
use crate::job;
use crate::yaml::{Decoded, Node, NodeKind, Spanned};

/// How long a command may take by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest timeout that a job can set.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Options of `bash` as a job writes them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "bash", extend("dependencies" = { "match": ["allow"], "no_match": ["allow"] }))]
pub(super) struct BashOptions {
    /// The commands that may run, such as `cargo test *`, where a final `*` stands for any further words. Default: any
    /// command.
    #[serde(default)]
    #[schemars(extend("items" = {
        "type": "string", "pattern": RULE_PATTERN, "patternErrorMessage": RULE_FORM,
    }))]
    allow: Option<Vec<Spanned<String>>>,
    /// Tests of the rules: commands that they must allow.
    #[serde(default)]
    r#match: Option<CommandList>,
    /// Tests of the rules: commands that they must refuse.
    #[serde(default)]
    no_match: Option<CommandList>,
    /// How long one command may take, at most `1h`.
    #[serde(default)]
    #[schemars(extend(
        "default" = "2m",
        "pattern" = job::Duration::pattern(MAX_TIMEOUT),
        "patternErrorMessage" = "write it like `90s` or `20m`, at most `1h`",
    ))]
    timeout: Option<Spanned<job::Duration>>,
    /// Whether the sandbox makes the workspace read-only for commands.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    read_only: Option<Spanned<bool>>,
}

/// The options in the canonical form that a plan holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CanonicalOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) allow: Option<Vec<String>>,
    pub(super) timeout_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) read_only: bool,
}

impl Default for CanonicalOptions {
    fn default() -> Self {
        Self { allow: None, timeout_ms: as_millis(DEFAULT_TIMEOUT), read_only: false }
    }
}

pub(super) fn parse_options(node: Option<&Node>) -> Decoded<Value> {
    let decoded = match node.filter(|node| !node.is_null()) {
        Some(node) => node.decode::<BashOptions>(),
        None => Decoded { value: Some(BashOptions::default()), findings: Vec::new(), gaps: Vec::new() },
    };
    let mut findings = decoded.findings;
    let value = decoded.value.map(|options| {
        findings.extend(options.allow.iter().flatten().filter_map(check_rule));
        let is_empty = options.allow.as_ref().is_some_and(Vec::is_empty);
        if let Some(allow) = node.and_then(|node| node.get("allow")).filter(|allow| allow.kind() == NodeKind::List)
            && is_empty
            && allow.items().next().is_none()
        {
            findings.push(
                Diagnostic::warning("empty-allow", allow.place(), "an empty `allow` permits no command")
                    .help("list the commands that may run, or remove `bash` from the tools"),
            );
        }
        findings.extend(test_rules(options.allow.as_deref(), options.r#match.as_ref(), options.no_match.as_ref()));
        if let Some(timeout) = options.timeout.as_ref().filter(|timeout| timeout.value.get() > MAX_TIMEOUT) {
            findings.push(Diagnostic::error("out-of-range", timeout.place(), "`timeout` can be at most `1h`"));
        }
        json!(CanonicalOptions {
            allow: options.allow.map(|rules| rules.into_iter().map(|rule| rule.value).collect()),
            timeout_ms: as_millis(options.timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value.get())),
            read_only: options.read_only.is_some_and(|read_only| read_only.value),
        })
    });
    Decoded { value, findings, gaps: decoded.gaps }
}

fn check_rule(rule: &Spanned<String>) -> Option<Diagnostic> {
    if rule.node.is_placeholder() {
        return None;
    }
    let is_valid = |rule: &String| CommandRules::new(std::slice::from_ref(rule)).map(drop);
    let why = is_valid(&rule.value).err()?;
    let finding = Diagnostic::error("bad-bash-rule", rule.place(), format!("bad rule: {why}"));
    // Other programs write `git diff:*`.
    let stem = rule.value.strip_suffix('*').unwrap_or_default().trim_end_matches(':');
    let suggestion = format!("{stem} *");
    Some(match !stem.is_empty() && is_valid(&suggestion).is_ok() {
        true if rule.value.ends_with(":*") => {
            finding.help(format!("did you mean `{suggestion}`?")).replace_at(rule.node.content_place(), suggestion)
        }
        true => finding.help(format!("did you mean `{suggestion}`? {RULE_FORM}")),
        false => finding.help(RULE_FORM),
    })
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The commands of `match` or `no_match`.
type CommandList = Spanned<Vec<Spanned<String>>>;

/// Runs the tests of the rules. Malformed rules are reported elsewhere and skip the tests.
fn test_rules(
    allow: Option<&[Spanned<String>]>,
    allowed: Option<&CommandList>,
    refused: Option<&CommandList>,
) -> Vec<Diagnostic> {
    let Some(allow) = allow else {
        let lists = [("match", allowed), ("no_match", refused)];
        return lists.into_iter().filter_map(|(key, commands)| Some(missing_allow(key, commands?))).collect();
    };
    let patterns: Vec<String> = allow.iter().map(|rule| rule.value.clone()).collect();
    let Ok(rules) = CommandRules::new(&patterns) else { return Vec::new() };
    if allow.iter().any(|rule| rule.node.is_placeholder()) {
        return Vec::new();
    }
    let commands = |list: Option<&CommandList>| {
        let commands = list.map(|list| list.value.clone()).unwrap_or_default();
        commands.into_iter().filter(|command| !command.node.is_placeholder())
    };
    let mut findings = Vec::new();
    for command in commands(allowed) {
        if let Err(why) = rules.test(&command.value) {
            let message = format!("the rules refuse a command of `match`: {why}");
            let finding = Diagnostic::error("rule-test-failed", command.place(), message);
            findings.push(finding.help("add the missing rule to `allow`, or move the command to `no_match`"));
        }
    }
    for command in commands(refused) {
        if rules.test(&command.value).is_ok() {
            let message = format!("the rules allow a command of `no_match`: `{}`", command.value);
            let mut finding = Diagnostic::error("rule-test-failed", command.place(), message);
            let allows_it = |rule: &String| {
                CommandRules::new(std::slice::from_ref(rule)).is_ok_and(|rule| rule.test(&command.value).is_ok())
            };
            if let Some(rule) = patterns.iter().position(allows_it).and_then(|at| allow.get(at)) {
                finding = finding.label(rule.place(), "this rule allows it");
            }
            findings.push(finding.help("narrow the rule, or move the command to `match`"));
        }
    }
    findings
}

fn missing_allow(key: &str, commands: &CommandList) -> Diagnostic {
    let place = commands.node.own_key().map_or_else(|| commands.place(), |key| key.place());
    Diagnostic::error("missing-key", place, format!("`{key}` tests the rules under `allow`, but there is no `allow`"))
        .help(format!("list the commands that may run under `allow`, or remove `{key}`"))
}
