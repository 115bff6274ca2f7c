//! The HTML report of a map: one self-contained page that is complete without scripts. A small script sorts and filters.

use std::io::{self, Write};

use minijinja::{Environment, Value, context};

use super::table::{MAX_SHOWN_COLUMNS, MapTable, RowSummary, result_column};
use crate::reports::html::{csp_hash, show_control_chars};
use crate::reports::run_stats;
use crate::reports::uri::file_uri;
use crate::text::pluralize;

const PAGE_TEMPLATE: &str = include_str!("page.html");
const ROW_TEMPLATE: &str = include_str!("row.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The place of the rows in the page template.
const ENTRIES_MARK: &str = "<!-- entries -->";
/// The most rows on the page. Those that didn't complete come first.
const MAX_ROWS: usize = 20_000;
/// The most reasons, the most ids of each, and the most problems.
const MAX_REASONS: usize = 100;
const MAX_IDS: usize = 20;
const MAX_PROBLEMS: usize = 1_000;

/// Writes the report of a map.
///
/// # Errors
/// Writing to `out` failed.
pub(super) fn report(table: &MapTable, out: &mut dyn Write) -> io::Result<()> {
    let mut templates = Environment::new();
    // The names end in .html, which switches escaping on.
    templates.add_template("page.html", PAGE_TEMPLATE).map_err(io::Error::other)?;
    templates.add_template("row.html", ROW_TEMPLATE).map_err(io::Error::other)?;
    let good = table.rows.iter().filter(|row| row.is_good()).count();
    let failures = table.failures();
    let reasons: Vec<Value> = failures
        .iter()
        .take(MAX_REASONS)
        .map(|(reason, rows)| {
            let ids: Vec<String> = rows.iter().take(MAX_IDS).map(|row| row.id.clone()).collect();
            context! { count => rows.len(), reason, more => rows.len().saturating_sub(MAX_IDS), ids }
        })
        .collect();
    let problems: Vec<Value> = table.problems.iter().take(MAX_PROBLEMS).map(|problem| {
        context! { kind => problem.kind.name(), id => problem.id.as_deref(), message => problem.message.as_str(), path => problem.path.as_deref() }
    }).collect();
    let inputs = table.input_columns.iter().take(MAX_SHOWN_COLUMNS).map(|name| format!("inputs.{name}"));
    let results = table.result_columns.iter().take(MAX_SHOWN_COLUMNS).map(|name| result_column(name));
    let columns: Vec<String> = inputs.chain(results).collect();
    let rows = shown_rows(table);
    let page = templates.get_template("page.html").map_err(io::Error::other)?;
    let page = page.render(context! {
        style => STYLE, script => SCRIPT, style_hash => csp_hash(STYLE), script_hash => csp_hash(SCRIPT),
        job => table.job.as_str(), name => table.name.as_str(), good => good == table.rows.len() && table.exit_code() == 0,
        headline => format!("{good} of {} completed", pluralize(table.rows.len() as u64, "row")),
        verdicts => table.verdicts(), stats => stats(table),
        failures => reasons, more_failures => failures.len().saturating_sub(MAX_REASONS),
        problems, more_problems => table.problems.len().saturating_sub(MAX_PROBLEMS),
        hidden_rows => table.rows.len() - rows.len(),
        hidden_columns => table.input_columns.len().max(table.result_columns.len()) > MAX_SHOWN_COLUMNS, hidden_values => !table.has_room(),
        columns,
    });
    let page = page.map_err(io::Error::other)?;
    let (head, foot) = page.split_once(ENTRIES_MARK).unwrap_or((&page, ""));
    out.write_all(show_control_chars(head).as_bytes())?;
    let row_template = templates.get_template("row.html").map_err(io::Error::other)?;
    for row in rows {
        let html = row_template.render(row_context(table, row)).map_err(io::Error::other)?;
        out.write_all(show_control_chars(&html).as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.write_all(show_control_chars(foot).as_bytes())
}

/// The rows on the page, in their order. Where there are too many, completed ones are left out.
fn shown_rows(table: &MapTable) -> Vec<&RowSummary> {
    let bad = table.rows.iter().filter(|row| !row.is_good()).count();
    let mut room_for_good = MAX_ROWS.saturating_sub(bad);
    let is_shown = |row: &&RowSummary| {
        !row.is_good() || {
            let has_room = room_for_good > 0;
            room_for_good = room_for_good.saturating_sub(1);
            has_room
        }
    };
    table.rows.iter().filter(is_shown).collect()
}

/// Figures of the whole map.
fn stats(table: &MapTable) -> Vec<(&'static str, String)> {
    let (usage, ..) = table.totals();
    let time = table.rows.iter().map(|row| row.duration_ms).fold(0, u64::saturating_add);
    vec![
        ("tokens", run_stats::usage(&usage)),
        ("cost", total_cost(table)),
        ("time, all rows", run_stats::duration(time)),
    ]
}

/// The known cost of all rows with what was reserved for requests that were cut off, and how many rows have an unknown one.
pub(super) fn total_cost(table: &MapTable) -> String {
    let (_, cost, unknown) = table.totals();
    let text = match unknown {
        0 => run_stats::estimated_cost(Some(cost)),
        _ if cost == 0.0 => run_stats::estimated_cost(None),
        _ => format!("{}, and unknown for {}", run_stats::estimated_cost(Some(cost)), pluralize(unknown as u64, "row")),
    };
    run_stats::with_cut_off(text, &table.cut_off_requests())
}

fn row_context(table: &MapTable, row: &RowSummary) -> Value {
    let shown = |columns: usize, cells: &[(usize, String)]| -> Vec<String> {
        let mut texts = vec![String::new(); columns.min(MAX_SHOWN_COLUMNS)];
        for (column, text) in cells {
            if let Some(place) = texts.get_mut(*column) {
                place.clone_from(text);
            }
        }
        texts
    };
    let mut cells = shown(table.input_columns.len(), &row.inputs);
    cells.extend(shown(table.result_columns.len(), &row.result));
    let has_ended = row.outcome.is_some();
    context! {
        id => row.id.as_str(), verdict => row.verdict(), good => row.is_good(), exit_code => row.exit_code.map(|code| code.to_string()).unwrap_or_default(),
        report => row.report.as_deref().map(file_uri), cells, text => row.text.as_str(),
        error => row.error.as_ref().map(|(_, message)| message.as_str()).unwrap_or_default(),
        turns => row.turns, tokens => row.usage.total(),
        cost => if has_ended { run_stats::cost(row.cost_usd) } else { String::new() },
        cost_value => row.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
        time => if has_ended { run_stats::duration(row.duration_ms) } else { String::new() },
        time_value => if has_ended { row.duration_ms.to_string() } else { String::new() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{ErrorInfo, Outcome};
    use crate::map::tables::table::{MapRow, ProblemKind, RowState, TableProblem};

    fn page(table: &MapTable) -> String {
        let mut page = Vec::new();
        report(table, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn the_scripts_and_styles_on_the_page_are_the_ones_that_it_allows() {
        let page = page(&MapTable::default());
        for (tag, name) in [("style", "style-src"), ("script", "script-src")] {
            let (_, rest) = page.split_once(&format!("<{tag}>")).unwrap();
            let (inline, _) = rest.split_once(&format!("</{tag}>")).unwrap();
            assert!(page.contains(&format!("{name} 'sha256-{}'", csp_hash(inline))), "{tag}");
        }
        assert!(!page.contains("style=\"") && !page.contains("unsafe"), "{page}");
    }

    #[test]
    fn hostile_text_stays_text() {
        let hostile = "</td><script>alert(1)</script><img src=x onerror=y> \" ' & \u{1b}[2J\u{202e}<!-- entries -->";
        let mut table = MapTable::new(hostile, hostile);
        let mut row = MapRow::new("a", RowState::Ended);
        row.outcome = Some(Outcome::Refused);
        row.text = hostile.into();
        row.inputs.insert(hostile.into(), json!(hostile));
        row.result = Some(json!({ hostile: [hostile] }));
        row.error = Some(ErrorInfo { code: hostile.into(), message: hostile.into(), hint: None });
        let row = table.summarize(&row, Some(format!("javascript:{hostile}")));
        table.rows.push(row);
        let kind = ProblemKind::Foreign;
        table.problems.push(TableProblem { kind, id: Some(hostile.into()), path: None, message: hostile.into() });
        let page = page(&table);
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert!(!page.contains("<img") && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");
        assert!(!page.contains("javascript:") && page.contains("href=\"javascript%3A"), "{page}");
        assert_eq!(page.matches("<tr id=").count(), 1, "{page}");
    }

    #[test]
    fn failures_are_grouped_and_completed_rows_make_room_for_them() {
        let mut table = MapTable::default();
        for number in 0..MAX_ROWS + 30 {
            let mut row = MapRow::new(&number.to_string(), RowState::Ended);
            row.outcome = Some(if number % 1000 == 999 { Outcome::Stuck } else { Outcome::Completed });
            let row = table.summarize(&row, None);
            table.rows.push(row);
        }
        let page = page(&table);
        assert_eq!(page.matches("<tr id=").count(), MAX_ROWS);
        assert!(page.contains("30 completed rows aren't listed"), "the newest rows");
        assert!(page.contains("<td>20</td><td class=\"bad\">stuck</td>"), "one reason");
        assert!(page.contains("<tr id=\"row-19999\""));
    }
}
