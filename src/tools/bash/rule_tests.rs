//! Tests of the rules in the job file: commands that they must let pass, and commands that they must refuse.

use super::rules::CommandRules;
use crate::diagnostic::Diagnostic;
use crate::yaml::Spanned;

/// Commands as a job lists them.
pub(super) type CommandList = Spanned<Vec<Spanned<String>>>;

/// What the tests find wrong. Rules that can't be read are found elsewhere, and say nothing here.
pub(super) fn check(
    allow: Option<&[Spanned<String>]>,
    pass: Option<&CommandList>,
    refuse: Option<&CommandList>,
) -> Vec<Diagnostic> {
    let Some(allow) = allow else {
        let given = [("match", pass), ("no_match", refuse)];
        return given.into_iter().filter_map(|(key, commands)| Some(without_rules(key, commands?))).collect();
    };
    let patterns: Vec<String> = allow.iter().map(|pattern| pattern.value.clone()).collect();
    let Ok(rules) = CommandRules::new(&patterns) else { return Vec::new() };
    if allow.iter().any(|pattern| pattern.node.is_placeholder()) {
        return Vec::new();
    }
    let of = |commands: Option<&CommandList>| commands.map(|commands| commands.value.clone()).unwrap_or_default();
    let mut findings = Vec::new();
    for command in of(pass).iter().filter(|command| !command.node.is_placeholder()) {
        if let Err(why) = rules.test(&command.value) {
            let message = format!("the rules refuse what `match` says they allow: {why}");
            let finding = Diagnostic::error("rule-test-failed", command.place(), message);
            findings.push(finding.help("add the rule that is missing under `allow`, or move this to `no_match`"));
        }
    }
    for command in of(refuse).iter().filter(|command| !command.node.is_placeholder()) {
        if rules.test(&command.value).is_ok() {
            let message = format!("the rules allow what `no_match` says they refuse: `{}`", command.value);
            let mut finding = Diagnostic::error("rule-test-failed", command.place(), message);
            let alone = |pattern: &String| {
                CommandRules::new(std::slice::from_ref(pattern)).is_ok_and(|rule| rule.test(&command.value).is_ok())
            };
            if let Some(pattern) = patterns.iter().position(alone).and_then(|at| allow.get(at)) {
                finding = finding.label(pattern.place(), "this rule allows it");
            }
            findings.push(finding.help("narrow the rule, or move this to `match`"));
        }
    }
    findings
}

fn without_rules(key: &str, commands: &CommandList) -> Diagnostic {
    let place = commands.node.own_key().map_or_else(|| commands.place(), |key| key.place());
    Diagnostic::error("missing-key", place, format!("`{key}` tests the rules under `allow`, and there is no `allow`"))
        .help(format!("list under `allow` the commands that may run, or remove `{key}`"))
}
