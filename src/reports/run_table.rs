//! A list of records: what `legwork runs` prints.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use super::DisplayOptions;
use super::display::to_json;
use super::run_stats;
use crate::event::Outcome;
use crate::record::{RunRow, RunStatus};
use crate::text::sanitize;
use crate::text::truncate;

/// The version of the JSON form.
const LIST_FORMAT: u32 = 1;
/// The most characters of a value in the table.
const MAX_CELL_CHARS: usize = 600;
/// How narrow a column can become on a terminal.
const MIN_CELL_CHARS: usize = 8;
/// The space between columns.
const GAP: &str = "  ";

/// Records, in the order in which they are shown.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunTable {
    /// The version of this format: 1.
    pub format: u32,
    /// The records, newest first.
    pub runs: Vec<RunRow>,
    /// The greatest width in columns, if the table is for a terminal.
    #[serde(skip)]
    pub width: Option<usize>,
}

impl RunTable {
    /// A table of these rows.
    pub fn new(runs: Vec<RunRow>, width: Option<usize>) -> Self {
        Self { format: LIST_FORMAT, runs, width }
    }
}

/// The JSON Schema of the list in JSON, draft 2020-12.
pub fn schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RunTable>().to_value()
}

/// The list as JSON.
pub(super) fn json(table: &RunTable, _: DisplayOptions) -> String {
    to_json(table)
}

/// A column of the table.
struct Column {
    title: &'static str,
    is_right_aligned: bool,
    /// Whether it can become narrower.
    shrinks: bool,
    cell: fn(&RunRow) -> String,
}

const COLUMNS: [Column; 8] = [
    Column { title: "started (UTC)", is_right_aligned: false, shrinks: false, cell: started },
    Column { title: "job", is_right_aligned: false, shrinks: true, cell: |row| row.job.clone() },
    Column { title: OUTCOME, is_right_aligned: false, shrinks: true, cell: outcome },
    Column { title: "time", is_right_aligned: true, shrinks: false, cell: duration },
    Column { title: "cost", is_right_aligned: true, shrinks: false, cell: cost },
    Column { title: TURNS, is_right_aligned: true, shrinks: false, cell: turns },
    Column { title: KEY, is_right_aligned: false, shrinks: true, cell: |row| row.key.clone().unwrap_or_default() },
    Column { title: "run", is_right_aligned: false, shrinks: true, cell: name },
];
const OUTCOME: &str = "outcome";
const KEY: &str = "key";
const TURNS: &str = "turns";

fn started(row: &RunRow) -> String {
    row.started_at.map_or("-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

fn outcome(row: &RunRow) -> String {
    match &row.rows {
        Some(rows) if row.status != RunStatus::Damaged => {
            let counts: Vec<String> = rows.iter().map(|(name, count)| format!("{count} {name}")).collect();
            if counts.is_empty() { "no rows yet".to_owned() } else { counts.join(", ") }
        }
        _ => row.status.name(),
    }
}

fn duration(row: &RunRow) -> String {
    row.duration_ms.map_or("-".to_owned(), run_stats::duration)
}

fn cost(row: &RunRow) -> String {
    row.cost_usd.map_or("-".to_owned(), |usd| run_stats::cost(Some(usd)))
}

fn turns(row: &RunRow) -> String {
    row.turns.map_or("-".to_owned(), |turns| turns.to_string())
}

/// The name without the job, which has a column of its own.
fn name(row: &RunRow) -> String {
    row.run.strip_prefix(&format!("{}/", row.job)).unwrap_or(&row.run).to_owned()
}

/// The list as a table. On a terminal, it is as wide as that; elsewhere, nothing is cut.
pub(super) fn text(table: &RunTable, display: DisplayOptions) -> String {
    if table.runs.is_empty() {
        return String::new();
    }
    let has_keys = table.runs.iter().any(|row| row.key.is_some());
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(|column| has_keys || column.title != KEY).collect();
    let cell =
        |column: &Column, row: &RunRow| truncate::ellipsize(&sanitize::line(&(column.cell)(row)), MAX_CELL_CHARS);
    let width = |column: &&Column| {
        let cells = table.runs.iter().map(|row| cell(column, row).chars().count());
        cells.chain([column.title.chars().count()]).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = columns.iter().map(width).collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
    // A key is also in the name, and a name that is cut is of little use.
    for title in [KEY, TURNS] {
        if table.width.is_some_and(|most| total(&widths) > most)
            && let Some(at) = columns.iter().position(|column| column.title == title)
        {
            columns.remove(at);
            widths.remove(at);
        }
    }
    while table.width.is_some_and(|most| total(&widths) > most) {
        let widest = (0..widths.len())
            .filter(|at| columns[*at].shrinks && widths[*at] > MIN_CELL_CHARS)
            .max_by_key(|at| widths[*at]);
        let Some(widest) = widest else { break };
        widths[widest] -= 1;
    }
    let line = |cells: Vec<String>, paint: &dyn Fn(&Column, String) -> String| {
        let mut line = String::new();
        for ((cell, column), width) in cells.into_iter().zip(&columns).zip(&widths) {
            let length = cell.chars().count();
            let cell = if length > *width { truncate::ellipsize(&cell, width - 1) } else { cell };
            let space = " ".repeat(width - length.min(*width));
            let cell = paint(column, cell);
            line += &if column.is_right_aligned { space + &cell } else { cell + &space };
            line += GAP;
        }
        line.trim_end().to_owned() + "\n"
    };
    let titles = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut text = line(titles, &|_, title| display.paint(&title, "1"));
    for row in &table.runs {
        let cells = columns.iter().map(|column| cell(column, row)).collect();
        text += &line(cells, &|column, cell| {
            if column.title == OUTCOME { display.paint(&cell, colour(row)) } else { cell }
        });
    }
    text
}

/// The colour of an outcome.
fn colour(row: &RunRow) -> &'static str {
    match row.status {
        RunStatus::Ended(Outcome::Completed) => "32",
        RunStatus::Ended(Outcome::Skipped) => "2",
        RunStatus::Running => "36",
        _ if row.is_resumable => "33",
        RunStatus::NotStarted => "33",
        _ => "31",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RowKind;

    fn row(job: &str, run: &str, status: RunStatus) -> RunRow {
        RunRow {
            job: job.to_owned(),
            run: format!("{job}/{run}"),
            started_at: "2026-11-23T04:42:34Z".parse().ok(),
            ..RunRow::new(RowKind::Run, status)
        }
    }

    fn show(rows: Vec<RunRow>, width: Option<usize>, colour: bool) -> String {
        text(&RunTable::new(rows, width), DisplayOptions { colour, width: 140 })
    }

    #[test]
    fn every_outcome_has_a_name_in_the_list() {
        let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Outcome>().to_value();
        let mut names: Vec<&str> = Vec::new();
        for choice in schema["oneOf"].as_array().into_iter().flatten() {
            names.extend(choice["const"].as_str());
            names.extend(choice["enum"].as_array().into_iter().flatten().filter_map(Value::as_str));
        }
        assert_eq!(names.len(), 16, "{schema}");
        let listed: Vec<String> = RunStatus::all().into_iter().map(RunStatus::name).collect();
        assert!(names.iter().all(|name| listed.iter().any(|listed| listed == name)), "{listed:?}");
    }

    #[test]
    fn the_table_fits_a_terminal_and_is_whole_elsewhere() {
        let long = "x".repeat(60);
        let rows = || vec![row("job", &long, RunStatus::Running), row(&long, "k", RunStatus::Damaged)];
        let whole = show(rows(), None, false);
        assert_eq!(whole.matches(&long).count(), 2, "{whole}");
        let narrow = show(rows(), Some(80), false);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.contains('…') && narrow.contains("running") && narrow.contains("damaged"), "{narrow}");
        assert!(show(Vec::new(), None, false).is_empty());
    }

    #[test]
    fn a_usual_list_is_not_cut_on_a_usual_terminal() {
        let status = RunStatus::Ended(Outcome::ChecksFailed);
        let mut rows = vec![row("docs", "20261123-044234-1d3hq0", status), row("docs", "nightly.1", status)];
        rows[1].key = Some("nightly".to_owned());
        let narrow = show(rows.clone(), Some(80), false);
        assert!(narrow.contains("checks_failed") && narrow.contains("20261123-044234-1d3hq0"), "{narrow}");
        assert!(!narrow.contains("key") && !narrow.contains('…'), "{narrow}");
        assert!(show(rows, Some(120), false).contains("  nightly  nightly.1\n"));
    }

    #[test]
    fn names_in_a_table_control_nothing() {
        let name = "::error::a\n##[group]b\u{1b}[2J\u{202e}";
        let text =
            show(vec![RunRow { key: Some(name.to_owned()), ..row(name, name, RunStatus::Running) }], None, false);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains("##[") && !text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        let coloured = show(vec![row("a", "b", RunStatus::Ended(Outcome::Completed))], None, true);
        assert!(coloured.contains("\u{1b}[32mcompleted\u{1b}[0m"), "{coloured:?}");
    }
}
