//! The page of a run that GitHub shows below a step of a workflow.

use super::{pluralize, run_stats};
use crate::event::{Outcome, RunResult};
use crate::text::sanitize;
use crate::text::sanitize::escape_markdown;

/// The longest text of the answer, and of the result, in characters. GitHub takes 1 MiB from a whole step.
const MAX_ANSWER_CHARS: usize = 20_000;
/// How many subagents are listed.
const MAX_SUBAGENTS: usize = 50;
/// The longest of all other foreign texts, in characters.
const MAX_FOREIGN_CHARS: usize = 300;

/// How a run ended, its figures, its subagents and its answer, as Markdown of at most 200 KiB. `record` names the run's
/// folder. What models and servers said is shown as it is: it has no links, and no images that would be fetched.
pub fn page(result: &RunResult, record: &str) -> String {
    let mark = if result.outcome == Outcome::Completed { "✅" } else { "❌" };
    let mut page = format!(
        "### {mark} {}: {}\n\n",
        escape_markdown(&result.job, 64),
        escape_markdown(&result.outcome.to_string(), 64)
    );
    if let Some(error) = &result.error {
        page += &format!("**{}**\n", escape_markdown(&error.message, MAX_FOREIGN_CHARS));
        if let Some(hint) = &error.hint {
            page += &format!("{}\n", escape_markdown(hint, MAX_FOREIGN_CHARS));
        }
        page.push('\n');
    }
    page += "| | |\n|---|---|\n";
    for (name, value) in
        run_stats::run_stats(result).into_iter().filter(|(name, _)| !["subagents", "checks"].contains(name))
    {
        page += &format!("| {name} | {} |\n", escape_markdown(&value, MAX_FOREIGN_CHARS));
    }
    page += &format!("| record | {} |\n", escape_markdown(record, MAX_FOREIGN_CHARS));
    checks(&mut page, result);
    subagents(&mut page, result);
    if let Some(data) = &result.result {
        page += "\nThe result:\n\n";
        fenced(&mut page, &format!("{data:#}"));
    }
    if !result.text.trim().is_empty() {
        page += "\nThe answer:\n\n";
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
        let code = match check.exit_code {
            _ if check.passed => String::new(),
            Some(code) => format!(" exit code {code}"),
            None => " no exit code".to_owned(),
        };
        let name = escape_markdown(&check.name, MAX_FOREIGN_CHARS);
        *page +=
            &format!("| {name} | {mark}{code} | {} | {} |\n", check.attempt, run_stats::duration(check.duration_ms));
    }
}

fn subagents(page: &mut String, result: &RunResult) {
    if result.subagents.is_empty() {
        return;
    }
    *page += "\n| subagent | for | outcome | spent |\n|---|---|---|---|\n";
    for child in result.subagents.iter().take(MAX_SUBAGENTS) {
        let spent = run_stats::agent_summary(child.turns, child.tool_calls, &child.usage, child.duration_ms);
        let about = escape_markdown(child.description.as_deref().unwrap_or_default(), MAX_FOREIGN_CHARS);
        let id = escape_markdown(&child.id, 100);
        *page += &format!(
            "| {id} | {about} | {} | {} |\n",
            escape_markdown(&child.outcome.to_string(), 64),
            escape_markdown(&spent, 200)
        );
    }
    if let Some(more) = result.subagents.len().checked_sub(MAX_SUBAGENTS).filter(|more| *more > 0) {
        *page += &format!("\nAnd {}.\n", pluralize(more, "more subagent"));
    }
}

/// A code block that its content can't leave.
fn fenced(page: &mut String, text: &str) {
    let text = sanitize::text(text);
    let (shown, more) = match text.char_indices().nth(MAX_ANSWER_CHARS) {
        Some((cut, _)) => (&text[..cut], text[cut..].chars().count()),
        None => (&*text, 0),
    };
    let longest_run = shown.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest_run.max(2) + 1);
    *page += &format!("{fence}text\n{}\n{fence}\n", shown.trim_end_matches('\n'));
    if more > 0 {
        *page += &format!("\n{} are in result\\.json\\.\n", pluralize(more, "more character"));
    }
}
