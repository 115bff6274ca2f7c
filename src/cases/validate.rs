//! Validates `expect.yaml` before its case is run.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::Expect;
use super::matchers::{CountRange, FileExpectation, TextMatcher};
use super::output_expectations::RefusedExpectation;
use crate::diagnostic::{Diagnostic, Severity, Source, suggest_name};
use crate::event::PARENT;
use crate::job::{Job, NOTHING_TO_DO, SERVER_SEPARATOR};
use crate::lints::{startable_subagents, subagent_name};
use crate::template::leaves_dir;
use crate::tools::TOOLS;
use crate::yaml::{self, Decoded, Spanned};

/// Decodes and validates the expectations of a case. `folder` is the folder of the case. Names are checked against the job
/// if that could be read.
pub fn check(source: &Arc<Source>, folder: &Path, job: Option<&Job>) -> (Option<Expect>, Vec<Diagnostic>) {
    let Decoded { value, mut findings, gaps } = yaml::read::<Expect>(source);
    let Some(expect) = value else { return (None, findings) };
    let mut found = Vec::new();
    check_paths(&expect, folder, &mut found);
    check_texts(&expect, &mut found);
    check_tool_names(&expect.tools, job, &mut found);
    for (id, agent) in &expect.agents {
        check_tool_names(&agent.tools, job, &mut found);
        if let Some(place) = agent.text.as_ref().and_then(|matcher| matcher.value.snapshot()) {
            let finding = Diagnostic::error("invalid-value", place, "only the parent's last text can have a snapshot");
            found.push(finding.help("write `is` or `contains`"));
        }
        if let Some(job) = job {
            found.extend(unknown_agent(id, job));
        }
    }
    check_refused_outputs(&expect, job, &mut found);
    if let Some(job) = job {
        if let Some(state) = expect.state.as_ref().filter(|_| job.state.is_none()) {
            let finding = Diagnostic::error("invalid-value", state.place(), "the job keeps no state");
            found.push(finding.help("remove `state`"));
        }
        let known: Vec<&str> = job.checks.iter().map(|check| check.name.value.as_str()).collect();
        for name in expect.checks.keys().filter(|name| !known.contains(&name.value.as_str())) {
            let message = format!("the job has no check `{}`", name.value);
            found.push(with_nearest(Diagnostic::error("unknown-value", name.place(), message), &name.value, &known));
        }
    }
    // Placeholders for values with mistakes must not cause further findings.
    found.retain(|finding| !gaps.iter().any(|gap| finding.span.is_within(gap)));
    findings.extend(found);
    findings.sort_by_key(|finding| finding.span.range.start);
    let is_wrong = findings.iter().any(|finding| finding.severity == Severity::Error);
    ((!is_wrong).then_some(expect), findings)
}

fn check_paths(expect: &Expect, folder: &Path, found: &mut Vec<Diagnostic>) {
    let check_path = |path: &Spanned<String>, root: &str, found: &mut Vec<Diagnostic>| {
        let is_bad = path.value.is_empty() || leaves_dir(&path.value);
        if is_bad {
            let finding = Diagnostic::error("invalid-value", path.place(), format!("this path leads out of {root}"));
            found.push(finding.help(format!("write a path relative to {root}")));
        }
        !is_bad
    };
    for name in expect.files.keys() {
        check_path(name, "the workspace", found);
    }
    for commit in expect.git.iter().flat_map(|git| &git.value) {
        if commit.message.value.trim().is_empty() && !commit.message.node.is_placeholder() {
            let finding = Diagnostic::error("invalid-value", commit.message.place(), "the message is empty");
            found.push(finding.help("write what the commit changes"));
        }
        for name in &commit.remove {
            check_path(name, "the workspace", found);
        }
        if let Some(name) = &commit.folder
            && check_path(name, "the case's folder", found)
            && !folder.join(&name.value).is_dir()
        {
            let message = format!("the case has no folder `{}`", name.value);
            let finding = Diagnostic::error("invalid-value", name.place(), message);
            found.push(finding.help("create the folder, with the files of the commit"));
        }
    }
}

/// The outputs whose refused calls are counted are those of the job. Ids of accepted ones can be keys that the model chooses.
fn check_refused_outputs(expect: &Expect, job: Option<&Job>, found: &mut Vec<Diagnostic>) {
    for (name, expected) in &expect.refused_outputs {
        if let Some(job) = job.filter(|job| job.outputs().all(|(known, _)| known.value != name.value))
            && name.value != NOTHING_TO_DO
        {
            let known: Vec<&str> =
                job.outputs().map(|(known, _)| known.value.as_str()).chain([NOTHING_TO_DO]).collect();
            let message = format!("the job has no output `{}`", name.value);
            found.push(with_nearest(Diagnostic::error("unknown-output", name.place(), message), &name.value, &known));
        }
        if let RefusedExpectation::Why(matcher) = &expected.value
            && let Some(place) = matcher.snapshot()
        {
            let finding =
                Diagnostic::error("invalid-value", place, "the reasons of refused calls have no snapshot of their own");
            found.push(finding.help("write `outputs: snapshot`, whose snapshot has them, or `is` or `contains`"));
        }
    }
}

fn check_texts(expect: &Expect, found: &mut Vec<Diagnostic>) {
    let matchers = expect.files.values().filter_map(|file| match &file.value {
        FileExpectation::Text(matcher) => Some((&file.node, &**matcher)),
        _ => None,
    });
    let last = expect.text.iter().map(|text| (&text.node, &text.value));
    let agents = expect.agents.values().filter_map(|agent| agent.text.as_ref()).map(|text| (&text.node, &text.value));
    let refused = expect.refused_outputs.values().filter_map(|refused| match &refused.value {
        RefusedExpectation::Why(matcher) => Some((&refused.node, &**matcher)),
        RefusedExpectation::Count(_) => None,
    });
    for (node, matcher) in matchers.chain(last).chain(agents).chain(refused) {
        let TextMatcher { is, contains, lacks, matches, .. } = matcher;
        let has_text = is.is_some() || matcher.snapshot().is_some();
        if !has_text && contains.is_empty() && lacks.is_empty() && matches.is_empty() && !node.is_placeholder() {
            let finding = Diagnostic::error("invalid-value", node.place(), "no condition on the text");
            found.push(finding.help("write `is`, `contains`, `lacks`, `matches` or `snapshot: true`"));
        }
    }
    for (data, what) in [(&expect.result, "result"), (&expect.state, "state")] {
        if let Some(data) = data
            && data.value.is.is_none()
            && data.value.has.is_none()
            && !data.node.is_placeholder()
        {
            let finding = Diagnostic::error("invalid-value", data.place(), format!("no condition on the {what}"));
            found.push(finding.help(format!("write `is: DATA` for the whole {what}, or `has: DATA` for a part of it")));
        }
    }
}

fn check_tool_names(
    counts: &IndexMap<Spanned<String>, Spanned<CountRange>>,
    job: Option<&Job>,
    found: &mut Vec<Diagnostic>,
) {
    let outputs = job.iter().flat_map(|job| job.outputs()).map(|(name, _)| name.value.as_str());
    let others = ["skill", "submit_result", "set_state", NOTHING_TO_DO];
    let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).chain(others).chain(outputs).collect();
    let is_of_server = |name: &str| {
        let is_listed = |(server, tool): (&str, &str)| job.is_none_or(|job| job.lists_server_tool(server, tool));
        name.split_once(SERVER_SEPARATOR).is_some_and(is_listed)
    };
    for name in counts.keys().filter(|name| !known.contains(&name.value.as_str()) && !is_of_server(&name.value)) {
        let finding = Diagnostic::error("unknown-tool", name.place(), format!("unknown tool `{}`", name.value));
        found.push(with_nearest(finding, &name.value, &known));
    }
}

fn unknown_agent(id: &Spanned<String>, job: &Job) -> Option<Diagnostic> {
    if id.value == PARENT {
        return None;
    }
    let names = startable_subagents(job);
    if subagent_name(&id.value).is_some_and(|name| names.contains(&name)) {
        return None;
    }
    let help = match names.first() {
        Some(name) => format!("write `parent`, or the name and number of a subagent, such as `{name}-1`"),
        None => "the only agent is `parent`".to_owned(),
    };
    let message = format!("the job has no agent `{}`", id.value);
    Some(Diagnostic::error("unknown-subagent", id.place(), message).help(help))
}

fn with_nearest(finding: Diagnostic, word: &str, known: &[&str]) -> Diagnostic {
    match suggest_name(word, known.iter().copied()) {
        Some(near) => finding.help(format!("did you mean `{near}`?")),
        None if known.is_empty() => finding,
        None => finding.help(format!("expected one of {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let job = "model: anthropic/m\nparent: { prompt: x, tools: [task] }\nsubagents: { a: { tools: [] } }\n\
                   checks: [{ name: tests, run: 'true' }]\noutputs: { comment: {} }\n";
        let job = yaml::read::<Job>(&Source::new("job.yaml", job)).value.unwrap();
        let (expect, findings) = check(&Source::new("expect.yaml", text), Path::new("/none"), Some(&job));
        assert_eq!(expect.is_none(), !findings.is_empty());
        let shown = |finding: &Diagnostic| {
            let (line, column) = finding.span.start();
            format!("{line}:{column} {} {}", finding.code, finding.message)
        };
        findings.iter().map(shown).collect()
    }

    #[test]
    fn all_kinds_of_expectations_are_valid() {
        let text = "description: All.\noutcome: turn_limit\nexit_code: 4\nmax_turns: 3\n\
                    text: { is: a, contains: [b, c], lacks: d, matches: '^x', snapshot: true }\n\
                    result: { has: { a: [1, null] } }\n\
                    files: { a: exists, b/c: absent, d: snapshot, e: { contains: x } }\n\
                    tools: { bash: never, task: called, grep: 2, glob: { at_least: 1, at_most: 3 }, submit_result: 1 }\n\
                    failed_calls: 0\nsubagents: { at_most: 2 }\n\
                    agents: { parent: { max_turns: 2 }, a-1: { outcome: completed, text: { is: x }, tools: { bash: 0 } } }\n\
                    checks: { tests: passed }\ngit: [{ message: m, remove: [x], tag: v1 }]\ntimeout: 90s\n";
        assert_eq!(findings(text), Vec::<String>::new());
    }

    #[test]
    fn every_mistake_is_reported_with_its_place() {
        let text = "outcome: complete\nmax_turn: 3\ntext: {}\nresult: {}\n\
                    files: { ../a: exists, b: gone, c: { matches: '(' }, d: 1 }\n\
                    tools: { bahs: never, grep: often, glob: { at_least: 2, at_most: 1 }, task: -1, todo: {} }\n\
                    agents: { a: {}, b-1: {}, a-01: {}, a-1: { text: { snapshot: true } } }\n\
                    checks: { test: passed, tests: ok }\ngit: [{ folder: x }, { message: m, folder: /y }]\n\
                    refused_outputs: { coment: 1, comment: {} }\n";
        assert_eq!(
            findings(text),
            [
                "1:10 unknown-value unknown value `complete`",
                "2:1 unknown-key unknown key `max_turn`",
                "3:7 invalid-value no condition on the text",
                "4:9 invalid-value no condition on the result",
                "5:10 invalid-value this path leads out of the workspace",
                "5:27 unknown-value unknown value `gone` for a file",
                "5:47 invalid-value invalid regular expression: unclosed group",
                "5:57 wrong-type expected a condition on a file, found the integer 1",
                "6:10 unknown-tool unknown tool `bahs`",
                "6:29 wrong-type expected a number of times, found the string \"often\"",
                "6:42 invalid-value `at_least: 2` is greater than `at_most: 1`",
                "6:77 out-of-range -1 isn't a valid number of times",
                "6:87 invalid-value this range is empty",
                "7:11 unknown-subagent the job has no agent `a`",
                "7:18 unknown-subagent the job has no agent `b-1`",
                "7:27 unknown-subagent the job has no agent `a-01`",
                "7:62 invalid-value only the parent's last text can have a snapshot",
                "8:11 unknown-value the job has no check `test`",
                "8:32 unknown-value unknown value `ok`",
                "9:7 missing-key required key `message` is missing",
                "9:17 invalid-value the case has no folder `x`",
                "9:44 invalid-value this path leads out of the case's folder",
                "10:20 unknown-output the job has no output `coment`",
                "10:40 invalid-value no condition on the text",
            ]
        );
    }
}
