//! Compares a run with the expectations of its case.

use std::path::{Path, PathBuf};
use std::{fs, io};

use grep_matcher::Matcher;
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::expect::{AgentExpectation, CheckExpectation};
use super::matchers::{CountRange, FileExpectation, ResultExpectation, TextMatcher, first_missing, json_equal};
use super::output_expectations::{
    DataMismatch, OutputsExpectation, RefusedExpectation, compare_data, outputs_snapshot,
};
use super::snapshot::{self, StaleSnapshot};
use super::{Case, Failure, OUTPUTS_SNAPSHOT, TEXT_SNAPSHOT, WORKSPACE_PLACEHOLDER, with_placeholder};
use crate::diagnostic::SourceSpan;
use crate::event::{Outcome, PARENT, ProposedOutputs, RunModel, RunResult};
use crate::job::NOTHING_TO_DO;
use crate::outputs::Accepted;
use crate::providers::replay::relocate_value;
use crate::text::truncate::ellipsize;
use crate::yaml::{Node, Spanned};

/// The most failed calls to list.
const MAX_LISTED_CALLS: usize = 5;

/// The result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    /// How the run ended; `None` if it has no result.
    pub(super) outcome: Option<Outcome>,
    pub(super) failures: Vec<Failure>,
    /// The snapshots that differ, each with its failure.
    pub(super) stale_snapshots: Vec<(StaleSnapshot, Failure)>,
}

/// Compares a run that has ended with its case. `workspace` is the absolute path of its workspace.
pub(super) fn evaluate(case: &Case, result: &RunResult, counts: &RunModel, workspace: &Path) -> Evaluation {
    let workspace_text = workspace.to_string_lossy().into_owned();
    let evaluation = Evaluation { outcome: Some(result.outcome), ..Evaluation::default() };
    let mut evaluator = Evaluator { case, result, counts, workspace, workspace_text, evaluation };
    evaluator.check_outcome();
    evaluator.check_tool_calls();
    evaluator.check_agents();
    evaluator.check_job_checks();
    evaluator.check_outputs();
    evaluator.check_text();
    evaluator.check_result_data();
    evaluator.check_files();
    evaluator.check_unused_replies();
    evaluator.evaluation
}

struct Evaluator<'a> {
    case: &'a Case,
    result: &'a RunResult,
    counts: &'a RunModel,
    workspace: &'a Path,
    /// The path of the workspace as it appears in texts.
    workspace_text: String,
    evaluation: Evaluation,
}

impl Evaluator<'_> {
    fn fail(&mut self, place: &SourceSpan, message: impl Into<String>) {
        self.fail_with(place, message, "");
    }

    fn fail_with(&mut self, place: &SourceSpan, message: impl Into<String>, detail: impl Into<String>) {
        self.evaluation.failures.push(Failure::new(message).at(place).detail(detail));
    }

    fn check_outcome(&mut self) {
        let (case, result) = (self.case, self.result);
        let expected = case.expect.outcome.as_ref().map_or(Outcome::Completed, |outcome| outcome.value);
        if result.outcome != expected {
            let mut failure = Failure::new(format!("the outcome is `{}`, expected `{expected}`", result.outcome));
            if let Some(error) = &result.error {
                let hint = error.hint.iter().map(|hint| format!("\nhelp: {hint}"));
                failure.detail = std::iter::once(error.message.clone()).chain(hint).collect();
            }
            self.evaluation.failures.push(failure.at_value(case.expect.outcome.as_ref()));
        }
        if let Some(code) = case.expect.exit_code.as_ref().filter(|code| code.value != result.exit_code) {
            self.fail(&code.place(), format!("the exit code is {}, expected {}", result.exit_code, code.value));
        }
        self.check_turns(case.expect.max_turns.as_ref(), "the parent", result.turns);
        let started = result.subagents.len();
        if let Some(count) = case.expect.subagents.as_ref().filter(|count| !count.value.allows(started as u64)) {
            self.fail(&count.place(), format!("the number of subagents is {started}, expected {}", count.value));
        }
    }

    fn check_turns(&mut self, max: Option<&Spanned<u32>>, who: &str, turns: u32) {
        if let Some(max) = max.filter(|max| turns > max.value) {
            self.fail(&max.place(), format!("{who} took {turns} turns, expected at most {}", max.value));
        }
    }

    fn check_tool_calls(&mut self) {
        let counts = self.counts;
        self.check_tool_counts(&self.case.expect.tools, "", &|tool| counts.total_calls(tool));
        let Some(count) = &self.case.expect.failed_calls else { return };
        let failed = counts.agents.iter().flat_map(|(id, agent)| {
            agent.failed_calls.iter().map(move |call| format!("{id}: {}: {}", call.tool, call.error))
        });
        let failed: Vec<String> = failed.collect();
        if !count.value.allows(failed.len() as u64) {
            let message = format!("the number of failed calls is {}, expected {}", failed.len(), count.value);
            let listed = failed[..failed.len().min(MAX_LISTED_CALLS)].join("\n");
            self.fail_with(&count.place(), message, listed);
        }
    }

    fn check_tool_counts(
        &mut self,
        expected: &IndexMap<Spanned<String>, Spanned<CountRange>>,
        prefix: &str,
        calls: &dyn Fn(&str) -> u64,
    ) {
        for (tool, count) in expected {
            let number = calls(&tool.value);
            if !count.value.allows(number) {
                let times = if number == 1 { "once".to_owned() } else { format!("{number} times") };
                let message = format!("{prefix}`{}` was called {times}, expected {}", tool.value, count.value);
                self.fail(&tool.place(), message);
            }
        }
    }

    fn check_agents(&mut self) {
        for (id, expected) in &self.case.expect.agents {
            let AgentExpectation { outcome, max_turns, text, tools } = expected;
            let Some(agent) = self.counts.agents.get(&id.value) else {
                self.fail(&id.place(), format!("agent `{}` wasn't started", id.value));
                continue;
            };
            let prefix = format!("{}: ", id.value);
            self.check_tool_counts(tools, &prefix, &|tool| agent.calls.get(tool).copied().unwrap_or(0));
            let Some((ended, turns, last_text)) = &agent.end else {
                self.fail(&id.place(), format!("{prefix}it didn't finish"));
                continue;
            };
            if let Some(outcome) = outcome.as_ref().filter(|outcome| outcome.value != *ended) {
                self.fail(&outcome.place(), format!("{prefix}the outcome is `{ended}`, expected `{}`", outcome.value));
            }
            self.check_turns(max_turns.as_ref(), &format!("{prefix}it"), *turns);
            if let Some(matcher) = text {
                let text = with_placeholder(last_text, &self.workspace_text);
                self.check_matcher(&matcher.value, &format!("the text of {}", id.value), &text);
            }
        }
    }

    fn check_job_checks(&mut self) {
        for (name, expected) in &self.case.expect.checks {
            let last = self.result.checks.iter().rfind(|check| check.name == name.value);
            let ended = match last {
                None => CheckExpectation::NotRun,
                Some(check) if check.passed => CheckExpectation::Passed,
                Some(_) => CheckExpectation::Failed,
            };
            if ended != expected.value {
                let (name, ended, expected_word) = (&name.value, ended.as_str(), expected.value.as_str());
                self.fail(&expected.place(), format!("the check `{name}` is `{ended}`, expected `{expected_word}`"));
            }
        }
    }

    fn check_outputs(&mut self) {
        let proposed = self.counts.proposed_outputs().unwrap_or_default();
        if let Some(expected) = &self.case.expect.outputs {
            match &expected.value {
                OutputsExpectation::Snapshot => {
                    let actual = outputs_snapshot(&proposed, &self.workspace_text).into_bytes();
                    let path = self.case.folder.join(OUTPUTS_SNAPSHOT);
                    self.compare(&expected.place(), "what the run proposes", path, actual);
                }
                OutputsExpectation::ById(outputs) => self.check_proposed(&proposed, &expected.place(), outputs),
            }
        }
        for (name, expected) in &self.case.expect.refused_outputs {
            let refused = proposed.calls.refused.iter().filter(|call| call.name == name.value);
            let reasons: Vec<&str> = refused.map(|call| call.why.as_str()).collect();
            let reasons_text = with_placeholder(&reasons.join("\n"), &self.workspace_text);
            let at_least_one = CountRange { at_least: 1, at_most: None };
            let range = match &expected.value {
                RefusedExpectation::Count(range) => *range,
                RefusedExpectation::Why(_) => at_least_one,
            };
            if !range.allows(reasons.len() as u64) {
                let message = format!("{} calls of `{}` are refused, expected {range}", reasons.len(), name.value);
                self.fail_with(&expected.place(), message, reasons_text);
            } else if let RefusedExpectation::Why(matcher) = &expected.value {
                self.check_matcher(matcher, &format!("why `{}` is refused", name.value), &reasons_text);
            }
        }
    }

    fn check_proposed(
        &mut self,
        proposed: &ProposedOutputs,
        place: &SourceSpan,
        expected: &IndexMap<Spanned<String>, Node>,
    ) {
        let Accepted { entries, nothing_to_do } = &proposed.calls.accepted;
        let entries = entries.iter().map(|entry| (entry.id.clone(), entry.data.clone()));
        let nothing = nothing_to_do.iter().map(|reason| (NOTHING_TO_DO.to_owned(), json!({ "reason": reason })));
        let mut found: IndexMap<String, Value> = entries.chain(nothing).collect();
        found.values_mut().for_each(|data| relocate_value(data, &self.workspace_text, WORKSPACE_PLACEHOLDER));
        for (id, data) in expected {
            let Some(found) = found.get(&id.value) else {
                self.fail(&id.place(), format!("the output `{}` wasn't proposed", id.value));
                continue;
            };
            let mut mismatches = Vec::new();
            compare_data(data, found, "", &mut mismatches);
            for DataMismatch { node, pointer, text } in mismatches {
                let at = if pointer.is_empty() { String::new() } else { format!(" at `{pointer}`") };
                match text {
                    Some((matcher, text)) => {
                        self.check_matcher(&matcher, &format!("the output `{}`{at}", id.value), &text);
                    }
                    None => {
                        let message = format!("the output `{}` doesn't match{at}", id.value);
                        self.fail_with(&node.place(), message, format!("{found:#}"));
                    }
                }
            }
        }
        for (id, data) in found.iter().filter(|(id, _)| expected.keys().all(|known| known.value != **id)) {
            self.fail_with(place, format!("the output `{id}` isn't expected"), format!("{data:#}"));
        }
    }

    fn check_text(&mut self) {
        let Some(matcher) = &self.case.expect.text else { return };
        let text = with_placeholder(&self.result.text, &self.workspace_text);
        self.check_matcher(&matcher.value, "the last text", &text);
        let Some(place) = matcher.value.snapshot() else { return };
        self.compare(&place, "the last text", self.case.folder.join(TEXT_SNAPSHOT), one_line_end(&text).into_bytes());
    }

    fn check_result_data(&mut self) {
        let expect = &self.case.expect;
        let result = expect.result.as_ref().map(|expected| (expected, self.result.result.clone(), "result"));
        let after = self.result.state.as_ref().map(|state| state.after.clone());
        let state = expect.state.as_ref().map(|expected| (expected, after, "state"));
        for (expected, found, what) in result.into_iter().chain(state) {
            self.check_data(&expected.value, found.unwrap_or_default(), what);
        }
    }

    fn check_data(&mut self, expected: &ResultExpectation, found: Value, what: &str) {
        let ResultExpectation { is, has } = expected;
        let found = serde_json::from_str(&with_placeholder(&found.to_string(), &self.workspace_text)).unwrap_or(found);
        if let Some(is) = is.as_ref().filter(|is| !json_equal(&is.to_json(), &found)) {
            let detail = snapshot::diff(format!("{:#}\n", is.to_json()).as_bytes(), format!("{found:#}\n").as_bytes());
            self.fail_with(&is.place(), format!("the {what} differs"), detail);
        }
        if let Some((has, pointer)) = has.as_ref().and_then(|has| Some((has, first_missing(&has.to_json(), &found)?))) {
            let at = if pointer.is_empty() { String::new() } else { format!(" at `{pointer}`") };
            self.fail_with(&has.place(), format!("the {what} doesn't match{at}"), format!("{found:#}"));
        }
    }

    fn check_files(&mut self) {
        let files = &self.case.expect.files;
        for (name, expected) in files {
            if let Err(message) = self.check_file(&name.value, &expected.value) {
                self.fail(&name.place(), message);
            }
        }
        let has_snapshot = |expected: &FileExpectation| match expected {
            FileExpectation::Text(matcher) => matcher.snapshot().is_some(),
            FileExpectation::Exists | FileExpectation::Absent => false,
        };
        let used = files.iter().filter(|(_, expected)| has_snapshot(&expected.value));
        let used: Vec<PathBuf> =
            used.map(|(name, _)| snapshot::file_snapshot_path(&self.case.folder, &name.value)).collect();
        for path in snapshot::unused_snapshots(&self.case.folder, &used) {
            let shown = path.strip_prefix(&self.case.folder).unwrap_or(&path).display().to_string();
            let message = format!("the snapshot {shown} has no file in `files`");
            self.evaluation.failures.push(Failure::new(message).detail("Remove it, or add the file."));
        }
    }

    /// Checks one file of the workspace. An error is the message of a failure at the file's name.
    fn check_file(&mut self, name: &str, expected: &FileExpectation) -> Result<(), String> {
        let path = self.workspace.join(name);
        let exists = fs::symlink_metadata(&path).is_ok();
        let matcher = match expected {
            FileExpectation::Absent if exists => return Err(format!("{name} exists")),
            FileExpectation::Absent => return Ok(()),
            _ if !exists => return Err(format!("{name} doesn't exist")),
            FileExpectation::Exists => return Ok(()),
            FileExpectation::Text(matcher) => matcher,
        };
        let bytes =
            read_workspace_file(&path, self.workspace).map_err(|error| format!("can't read {name}: {error}"))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => with_placeholder(&text, &self.workspace_text).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        self.check_matcher(matcher, name, &String::from_utf8_lossy(&bytes));
        if let Some(place) = matcher.snapshot() {
            self.compare(&place, name, snapshot::file_snapshot_path(&self.case.folder, name), bytes);
        }
        Ok(())
    }

    fn check_unused_replies(&mut self) {
        // There was nothing to do, so nothing was asked.
        if self.result.outcome == Outcome::Skipped {
            return;
        }
        let replies = self.case.replies.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (agent, total) in &self.case.reply_counts {
            let (got, total) = (self.counts.agents.get(agent).map_or(0, |agent| agent.replies), *total);
            if got >= total {
                continue;
            }
            let are = if total == 1 { "is 1 reply".to_owned() } else { format!("are {total} replies") };
            let message = match got {
                0 if agent != PARENT => format!("{replies}: {agent} wasn't started, but there {are} for it"),
                _ if total == 1 => format!("{replies}: the only reply of {agent} wasn't used"),
                _ => format!("{replies}: only {got} of {total} replies of {agent} were used"),
            };
            self.evaluation.failures.push(Failure::new(message));
        }
    }

    /// Checks everything except for the snapshot.
    fn check_matcher(&mut self, matcher: &TextMatcher, what: &str, text: &str) {
        if let Some(is) = matcher.is.as_ref().filter(|is| one_line_end(&is.value) != one_line_end(text)) {
            let detail = snapshot::diff(one_line_end(&is.value).as_bytes(), one_line_end(text).as_bytes());
            self.fail_with(&is.place(), format!("{what} differs"), detail);
        }
        for part in matcher.contains.iter().filter(|part| !text.contains(&part.value)) {
            self.fail(&part.place(), format!("{what} doesn't contain \"{}\"", first_line(&part.value)));
        }
        for part in matcher.lacks.iter().filter(|part| text.contains(&part.value)) {
            self.fail(&part.place(), format!("{what} contains \"{}\"", first_line(&part.value)));
        }
        for pattern in &matcher.matches {
            if !pattern.regex.is_match(text.as_bytes()).unwrap_or(false) {
                let shown = first_line(pattern.node.text().unwrap_or_default());
                self.fail(&pattern.node.place(), format!("{what} doesn't match `{shown}`"));
            }
        }
    }

    fn compare(&mut self, place: &SourceSpan, what: &str, path: PathBuf, actual: Vec<u8>) {
        let shown = path.strip_prefix(&self.case.folder).unwrap_or(&path).display().to_string();
        let (message, detail) = match snapshot::read(&self.case.folder, &path) {
            Ok(expected) if expected == actual => return,
            Ok(expected) => (format!("{what} differs from {shown}"), snapshot::diff(&expected, &actual)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (format!("the snapshot {shown} doesn't exist"), "`legwork test --accept` creates it.".to_owned())
            }
            Err(error) => return self.fail(place, format!("can't read {shown}: {error}")),
        };
        let failure = Failure::new(message).at(place).detail(detail);
        self.evaluation.stale_snapshots.push((StaleSnapshot { path, actual }, failure));
    }
}

/// Reads a file of the workspace. Symbolic links out of the workspace aren't followed.
fn read_workspace_file(path: &Path, workspace: &Path) -> io::Result<Vec<u8>> {
    let real = path.canonicalize()?;
    if !real.starts_with(workspace) {
        return Err(io::Error::other("it is a symbolic link out of the workspace"));
    }
    snapshot::read_file(&real)
}

/// The text with one line end at its end.
fn one_line_end(text: &str) -> String {
    format!("{}\n", text.trim_end_matches(['\n', '\r']))
}

/// The first line of a text, truncated.
fn first_line(text: &str) -> String {
    ellipsize(text.trim().lines().next().unwrap_or_default(), 120)
}
