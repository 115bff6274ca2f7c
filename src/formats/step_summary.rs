//! The summary of a run that GitHub shows for a workflow step.

use super::display::code_fence;
use super::run_stats;
use crate::event::{Outcome, RunResult};
use crate::text::pluralize;
use crate::text::sanitize::{self, escape_markdown};
use crate::text::truncate;

/// The most characters of the answer and of the result. GitHub accepts 1 MiB per step.
const MAX_ANSWER_CHARS: usize = 20_000;
/// The most subagents listed.
const MAX_SUBAGENTS: usize = 50;
/// The most characters of any other text from models, servers and job files.
const MAX_TEXT_CHARS: usize = 300;

/// Renders the outcome, the statistics, the subagents and the answer of a run as Markdown of at most 200 KiB. `record` is
/// the path of the run folder. Markdown in text from models and servers is escaped, so that it makes no links or images.
pub fn page(result: &RunResult, record: &str) -> String {
    let mark = if result.outcome == Outcome::Completed { "✅" } else { "❌" };
    let mut page = format!(
        "### {mark} {}: {}\n\n",
        escape_markdown(&result.job, 64),
        escape_markdown(&result.outcome.to_string(), 64)
    );
    if let Some(error) = &result.error {
        page += &format!("**{}**\n", escape_markdown(&error.message, MAX_TEXT_CHARS));
        if let Some(hint) = &error.hint {
            page += &format!("{}\n", escape_markdown(hint, MAX_TEXT_CHARS));
        }
        page.push('\n');
    }
    page += "| | |\n|---|---|\n";
    for (name, value) in
        run_stats::run_stats(result).into_iter().filter(|(name, _)| !["subagents", "checks"].contains(name))
    {
        page += &format!("| {name} | {} |\n", escape_markdown(&value, MAX_TEXT_CHARS));
    }
    page += &format!("| record | {} |\n", escape_markdown(record, MAX_TEXT_CHARS));
    checks(&mut page, result);
    subagents(&mut page, result);
    if let Some(data) = &result.result {
        page += "\nResult:\n\n";
        fenced(&mut page, &format!("{data:#}"));
    }
    if !result.text.trim().is_empty() {
        page += "\nAnswer:\n\n";
        fenced(&mut page, &result.text);
    }
    page.push('\n');
    page
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

/// Appends a code block, truncated if it is too long.
fn fenced(page: &mut String, text: &str) {
    let text = sanitize::text(text);
    let shown = truncate::first(&text, MAX_ANSWER_CHARS);
    let more = text[shown.len()..].chars().count();
    let fence = code_fence(shown);
    *page += &format!("{fence}text\n{}\n{fence}\n", shown.trim_end_matches('\n'));
    if more > 0 {
        *page += &format!("\n{} in result\\.json\\.\n", pluralize(more as u64, "more character"));
    }
}
