//! The output of `gather`.

use serde_json::json;

use super::html::total_cost;
use super::table::{MapTable, RowSummary};
use crate::reports::{DisplayOptions, LineWriter, run_stats, to_json};
use crate::text::pluralize;

/// The most problems, reasons, and ids of each, in the text.
const MAX_PROBLEMS: usize = 100;
const MAX_REASONS: usize = 20;
const MAX_IDS: usize = 10;
/// The most rows that are listed.
const MAX_ROWS: usize = 500;

/// The problems, why rows didn't complete, and the totals.
pub(super) fn gathered(table: &MapTable, display: DisplayOptions) -> String {
    let mut out = LineWriter { text: String::new(), display };
    for problem in table.problems.iter().take(MAX_PROBLEMS) {
        let kind = display.paint(problem.kind.name(), if problem.kind.is_serious() { "1;31" } else { "1;33" });
        let row = problem.id.iter().map(|id| format!(" row {id}:")).collect::<String>();
        let path = problem.path.iter().map(|path| format!(" ({path})")).collect::<String>();
        out.text += &format!("{kind}:");
        out.line(&format!("{row} {}{path}", problem.message));
    }
    if let Some(more) = table.problems.len().checked_sub(MAX_PROBLEMS).filter(|more| *more > 0) {
        out.line(&format!("and {}; --format json has all", pluralize(more as u64, "more problem")));
    }
    if !out.text.is_empty() && !table.failures().is_empty() {
        out.line("");
    }
    out.text + &map_summary(table, display)
}

/// How each row of a map ended, and the totals.
pub fn map_rows(table: &MapTable, display: DisplayOptions) -> String {
    let mut out = LineWriter { text: String::new(), display };
    let shown = table.rows.iter().take(MAX_ROWS);
    let width = { shown }.map(|row| row.id.chars().count()).max().unwrap_or_default();
    for row in table.rows.iter().take(MAX_ROWS) {
        out.line(&format!("{:<width$}  {}", row.id, row.verdict()));
    }
    if let Some(more) = table.rows.len().checked_sub(MAX_ROWS).filter(|more| *more > 0) {
        out.line(&format!("and {}; results.csv has all", pluralize(more as u64, "more row")));
    }
    out.line("");
    out.text + &map_summary(table, display)
}

/// Why rows of a map didn't complete, and the totals.
pub fn map_summary(table: &MapTable, display: DisplayOptions) -> String {
    let mut out = LineWriter { text: String::new(), display };
    let failures = table.failures();
    if !failures.is_empty() {
        for (reason, rows) in failures.iter().take(MAX_REASONS) {
            let ids: Vec<&str> = rows.iter().take(MAX_IDS).map(|row| row.id.as_str()).collect();
            let more = if rows.len() > MAX_IDS { ", ..." } else { "" };
            out.line(&format!("{} {reason}: {}{more}", pluralize(rows.len() as u64, "row"), ids.join(", ")));
        }
        if let Some(more) = failures.len().checked_sub(MAX_REASONS).filter(|more| *more > 0) {
            out.line(&format!("and {}; results.csv has all rows", pluralize(more as u64, "more reason")));
        }
        out.line("");
    }
    let verdicts: Vec<String> = table.verdicts().iter().map(|(name, count)| format!("{count} {name}")).collect();
    let (usage, ..) = table.totals();
    let mut totals = vec![format!("{}: {}", pluralize(table.rows.len() as u64, "row"), verdicts.join(", "))];
    if usage.total() > 0 || !table.cut_off_requests().is_none() {
        totals.push(run_stats::usage(&usage));
        totals.push(match total_cost(table) {
            text if text == "unknown" => "cost unknown".to_owned(),
            text => text,
        });
    }
    out.line(&totals.join(", "));
    out.text
}

/// The same for programs. The rows themselves are in `results.jsonl`.
pub(super) fn gathered_json(table: &MapTable, _: DisplayOptions) -> String {
    let (usage, cost, unknown) = table.totals();
    let verdicts: serde_json::Map<String, serde_json::Value> =
        table.verdicts().into_iter().map(|(name, count)| (name, json!(count))).collect();
    let open = |row: &&RowSummary| !row.is_good();
    let not_completed: Vec<_> = table.rows.iter().filter(open).map(|row| {
        let error = row.error.as_ref().map(|(_, message)| message);
        json!({ "id": row.id, "state": row.state, "outcome": row.outcome, "exit_code": row.exit_code, "error": error })
    }).collect();
    to_json(&json!({
        "format": 1,
        "job": table.job,
        "rows": table.rows.len(),
        "exit_code": table.exit_code(),
        "outcomes": verdicts,
        "usage": usage,
        "cost_usd": cost,
        "cut_off_requests": Some(table.cut_off_requests()).filter(|cut_off| !cut_off.is_none()),
        "rows_of_unknown_cost": unknown,
        "not_completed": not_completed,
        "problems": table.problems,
    }))
}
