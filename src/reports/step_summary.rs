//! The summary of a run or a map that GitHub shows for a workflow step.

use super::display::{code_fence, serialized_name};
use super::{proposed, run_stats};
use crate::event::{RunModel, RunResult, StepBefore};
use crate::text::pluralize;
use crate::text::sanitize::{self, escape_markdown};
use crate::text::truncate;

/// The most characters of the answer and of the result. GitHub accepts 1 MiB per step.
const MAX_ANSWER_CHARS: usize = 20_000;
/// The most characters of all texts that the run proposes.
const MAX_PROPOSED_CHARS: usize = 60_000;
/// The most steps before the agent whose values are shown.
const MAX_STEPS: usize = 20;
/// The most subagents listed.
const MAX_SUBAGENTS: usize = 50;
/// The most changed files listed.
const MAX_FILES: usize = 50;
/// The most characters of any other text from models, servers and job files.
pub(crate) const MAX_TEXT_CHARS: usize = 300;

/// Renders the verdict, the figures, the steps before the agent, the subagents, the checks, the changed files, the result, the
/// answer and what is proposed of a run as Markdown of at most 500 KiB. `model` is what happened in it. `record` is the path of the run folder; `next` says how to continue. Markdown in text from models and servers is escaped, so
/// that it makes no links or images.
pub fn page(result: &RunResult, model: &RunModel, record: &str, next: Option<&str>) -> String {
    let mut page = heading(
        result.outcome.is_success(),
        &escape_markdown(&result.job, 64),
        &escape_markdown(&result.outcome.to_string(), 64),
    );
    if let Some(error) = &result.error {
        page += &format!("**{}**\n", escape_markdown(&error.message, MAX_TEXT_CHARS));
        if let Some(hint) = &error.hint {
            page += &format!("{}\n", escape_markdown(hint, MAX_TEXT_CHARS));
        }
        page.push('\n');
    }
    if let Some(condition) = &result.skipped_by {
        page += &format!("Nothing to do: skip\\_if is true: {}\n\n", escape_markdown(condition, MAX_TEXT_CHARS));
    }
    next_command(&mut page, next);
    page += "| | |\n|---|---|\n";
    for (name, value) in
        run_stats::run_stats(result).into_iter().filter(|(name, _)| !["subagents", "checks"].contains(name))
    {
        page += &format!("| {name} | {} |\n", escape_markdown(&value, MAX_TEXT_CHARS));
    }
    page += &format!("| record | {} |\n", escape_markdown(record, MAX_TEXT_CHARS));
    steps_before(&mut page, model);
    subagents(&mut page, result);
    checks(&mut page, result);
    changed_files(&mut page, result);
    if let Some(data) = &result.result {
        page += "\nResult:\n\n";
        fenced(&mut page, &format!("{data:#}"));
    }
    if !result.text.trim().is_empty() {
        page += "\nAnswer:\n\n";
        fenced(&mut page, &result.text);
    }
    if let Some(proposed) = model.proposed_outputs() {
        proposed::append(&mut page, &proposed, MAX_PROPOSED_CHARS);
    }
    page.push('\n');
    page
}

/// The heading of a summary, with how the run or the map ended.
pub(crate) fn heading(is_good: bool, name: &str, verdict: &str) -> String {
    let mark = if is_good { "✅" } else { "❌" };
    format!("### {mark} {name}: {verdict}\n\n")
}

/// Appends how to continue.
pub(crate) fn next_command(page: &mut String, next: Option<&str>) {
    if let Some(next) = next {
        *page += &format!("{}\n\n", sanitize::inline_code(next));
    }
}

fn changed_files(page: &mut String, result: &RunResult) {
    let changes = result.changes.as_deref().unwrap_or_default();
    if changes.is_empty() {
        return;
    }
    *page += "\n| file | | lines |\n|---|---|---|\n";
    for change in changes.iter().take(MAX_FILES) {
        let path = escape_markdown(&change.path, MAX_TEXT_CHARS);
        let lines = run_stats::change_size(change, "\u{2212}").unwrap_or_default();
        *page += &format!("| {path} | {} | {lines} |\n", serialized_name(&change.change));
    }
    let all = result.changed_files.unwrap_or_default().max(changes.len() as u64);
    if let Some(more) = all.checked_sub(MAX_FILES as u64).filter(|more| *more > 0) {
        *page += &format!("\nAnd {}.\n", pluralize(more, "more file"));
    }
    if let Some(gap) = &result.changes_incomplete {
        *page += &format!("\n{}\n", escape_markdown(gap, MAX_TEXT_CHARS));
    }
}

fn checks(page: &mut String, result: &RunResult) {
    let last = run_stats::last_checks(result);
    if last.is_empty() {
        return;
    }
    *page += "\n| check | | attempts | time |\n|---|---|---|---|\n";
    for check in last {
        let mark = if check.passed { "✅" } else { "❌" };
        let name = escape_markdown(&check.name, MAX_TEXT_CHARS);
        let verdict = run_stats::check_verdict(check.passed, check.exit_code);
        let time = run_stats::duration(check.duration_ms);
        *page += &format!("| {name} | {mark} {verdict} | {} | {time} |\n", check.attempt);
    }
}

fn subagents(page: &mut String, result: &RunResult) {
    if result.subagents.is_empty() {
        return;
    }
    *page += "\n| subagent | task | outcome | used |\n|---|---|---|---|\n";
    for child in result.subagents.iter().take(MAX_SUBAGENTS) {
        let used = run_stats::agent_summary(child.turns, child.tool_calls, &child.usage, child.duration_ms);
        let task = escape_markdown(child.description.as_deref().unwrap_or_default(), MAX_TEXT_CHARS);
        let id = escape_markdown(&child.id, 100);
        *page += &format!(
            "| {id} | {task} | {} | {} |\n",
            escape_markdown(&child.outcome.to_string(), 64),
            escape_markdown(&used, 200)
        );
    }
    if let Some(more) = result.subagents.len().checked_sub(MAX_SUBAGENTS).filter(|more| *more > 0) {
        *page += &format!("\nAnd {}.\n", pluralize(more as u64, "more subagent"));
    }
}

fn steps_before(page: &mut String, model: &RunModel) {
    let steps = model.steps_before();
    if steps.is_empty() {
        return;
    }
    *page += "\n| step before the agent | | time |\n|---|---|---|\n";
    for StepBefore { result: step, .. } in steps {
        let name = escape_markdown(&step.name, MAX_TEXT_CHARS);
        let verdict = if step.passed { "✅" } else { "❌ failed" };
        *page += &format!("| {name} | {verdict} | {} |\n", run_stats::duration(step.duration_ms));
    }
    for StepBefore { result, shown, more_chars } in steps.iter().filter(|step| !step.shown.is_empty()).take(MAX_STEPS) {
        *page += &format!("\n{}:\n\n", escape_markdown(&result.name, MAX_TEXT_CHARS));
        fenced_part(page, shown, *more_chars, "events\\.jsonl");
    }
}

/// Appends a code block, truncated if it is too long.
fn fenced(page: &mut String, text: &str) {
    let shown = truncate::first(text, MAX_ANSWER_CHARS);
    fenced_part(page, shown, text[shown.len()..].chars().count() as u64, "result\\.json");
}

/// Appends the beginning of a text as a code block, and how much more a file has.
fn fenced_part(page: &mut String, shown: &str, more: u64, file: &str) {
    let shown = sanitize::text(shown);
    let fence = code_fence(&shown);
    *page += &format!("{fence}text\n{}\n{fence}\n", shown.trim_end_matches('\n'));
    if more > 0 {
        *page += &format!("\n{} in {file}\\.\n", pluralize(more, "more character"));
    }
}
