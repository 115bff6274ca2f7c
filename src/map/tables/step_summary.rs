//! The summary of a map that GitHub shows for a workflow step.

use super::html::total_cost;
use super::table::MapTable;
use crate::reports::run_stats;
use crate::reports::step_summary::{MAX_TEXT_CHARS, heading, next_command};
use crate::text::pluralize;
use crate::text::sanitize::escape_markdown;

/// The most reasons why rows of a map didn't complete, and ids of each.
const MAX_REASONS: usize = 20;
const MAX_IDS: usize = 10;

/// Renders the totals of a map and the reasons why rows didn't complete. `folder` is the path of its folder; `next` says how to continue.
pub fn step_summary(table: &MapTable, exit_code: u8, folder: &str, next: Option<&str>) -> String {
    let completed = table.rows.iter().filter(|row| row.is_good()).count();
    let name = format!("{} {}", table.job, table.name);
    let verdict = format!("{completed} of {} completed", pluralize(table.rows.len() as u64, "row"));
    let mut page = heading(exit_code == 0, &escape_markdown(&name, 200), &verdict);
    next_command(&mut page, next);
    page += "| | |\n|---|---|\n";
    for (verdict, count) in table.verdicts() {
        page += &format!("| {} | {count} |\n", escape_markdown(&verdict, 64));
    }
    let (usage, ..) = table.totals();
    let figures = [
        ("tokens", run_stats::usage(&usage)),
        ("cost", total_cost(table)),
        ("exit code", exit_code.to_string()),
        ("record", folder.to_owned()),
    ];
    for (name, value) in figures {
        page += &format!("| {name} | {} |\n", escape_markdown(&value, MAX_TEXT_CHARS));
    }
    let failures = table.failures();
    if !failures.is_empty() {
        page += "\n| rows | reason | ids |\n|---|---|---|\n";
    }
    for (reason, rows) in failures.iter().take(MAX_REASONS) {
        let ids: Vec<&str> = rows.iter().take(MAX_IDS).map(|row| row.id.as_str()).collect();
        let dots = if rows.len() > MAX_IDS { ", ..." } else { "" };
        let ids = format!("{}{dots}", ids.join(", "));
        let (reason, ids) = (escape_markdown(reason, MAX_TEXT_CHARS), escape_markdown(&ids, MAX_TEXT_CHARS));
        page += &format!("| {} | {reason} | {ids} |\n", rows.len());
    }
    if let Some(more) = failures.len().checked_sub(MAX_REASONS).filter(|more| *more > 0) {
        page += &format!("\nAnd {}; results\\.csv has all rows.\n", pluralize(more as u64, "more reason"));
    }
    page.push('\n');
    page
}
