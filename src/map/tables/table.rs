//! The rows of a map as data: one line of `results.jsonl` for each row, and the short table that is kept in memory.

use std::collections::{BTreeSet, HashSet};

use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{CutOffRequests, ErrorInfo, Outcome, RunResult, Usage};
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_TEMPORARY};
use crate::text::truncate;

/// The version of the lines of `results.jsonl`.
pub const TABLE_FORMAT: u32 = 1;
/// How many inputs, and how many fields of results, have columns of their own in tables for people.
pub(super) const MAX_SHOWN_COLUMNS: usize = 10;
/// How many inputs, and how many fields of results, have columns of their own in `results.csv`.
pub(super) const MAX_COLUMNS: usize = 200;
/// The longest name of a column in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The most characters of a value in the table in memory.
const MAX_CELL_CHARS: usize = 200;
/// The most characters of an error in the table in memory.
const MAX_ERROR_CHARS: usize = 500;
/// How many bytes of values and texts the table in memory keeps. The rest is only in `results.jsonl` and `results.csv`.
const MAX_TEXT_BYTES: usize = 256 << 20;

/// What is known about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// The run has ended.
    Ended,
    /// The run continues, or it was killed.
    Unfinished,
    /// No run has started yet.
    NotStarted,
    /// There is a record that can't be read.
    Damaged,
    /// There is no record in the folders that were read.
    Missing,
}

impl RowState {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Unfinished => "unfinished",
            Self::NotStarted => "not_started",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
        }
    }
}

/// One row of a map, as a line of `results.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapRow {
    /// The version of this format: 1.
    pub format: u32,
    /// The row's id.
    pub id: String,
    /// The values of the inputs, defaults included.
    pub inputs: IndexMap<String, Value>,
    /// What is known about the row.
    pub state: RowState,
    /// How the run ended, if it has.
    pub outcome: Option<Outcome>,
    /// The exit code of the run, if it has ended.
    pub exit_code: Option<u8>,
    /// The final answer as data, if the job asks for it.
    pub result: Option<Value>,
    /// The first line of the final answer.
    pub text: String,
    /// The condition `skip_if` that was true, if the run was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_by: Option<String>,
    /// The error, if the run didn't complete.
    pub error: Option<ErrorInfo>,
    /// The parent's turns.
    pub turns: u32,
    /// The parent's tool calls.
    pub tool_calls: u64,
    /// Tokens of the whole run, subagents included.
    pub usage: Usage,
    /// The estimated cost of the whole run in US dollars; null if it isn't known.
    pub cost_usd: Option<f64>,
    /// The requests that were cut off, or are under way; absent if there are none. The tokens and the cost contain what was
    /// reserved for them.
    #[serde(default, skip_serializing_if = "CutOffRequests::is_none")]
    pub cut_off_requests: CutOffRequests,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// When the run started, if it has.
    pub started_at: Option<Timestamp>,
    /// When the run ended, if it has.
    pub finished_at: Option<Timestamp>,
    /// The folder of the record, relative to that of this file.
    pub record: Option<String>,
}

impl MapRow {
    /// A row without a record.
    pub fn new(id: &str, state: RowState) -> Self {
        Self {
            format: TABLE_FORMAT,
            id: id.to_owned(),
            inputs: IndexMap::new(),
            state,
            outcome: None,
            exit_code: None,
            result: None,
            text: String::new(),
            skipped_by: None,
            error: None,
            turns: 0,
            tool_calls: 0,
            usage: Usage::default(),
            cost_usd: None,
            cut_off_requests: CutOffRequests::NONE,
            duration_ms: 0,
            started_at: None,
            finished_at: None,
            record: None,
        }
    }

    /// A row whose run has ended.
    pub fn ended(id: &str, inputs: IndexMap<String, Value>, result: RunResult) -> Self {
        let text = result.text.trim().lines().next().unwrap_or_default();
        Self {
            inputs,
            outcome: Some(result.outcome),
            exit_code: Some(result.exit_code),
            text: truncate::ellipsize(text.trim_end(), MAX_CELL_CHARS),
            result: result.result,
            skipped_by: result.skipped_by,
            error: result.error,
            turns: result.turns,
            tool_calls: result.tool_calls,
            usage: result.usage,
            cost_usd: result.cost_usd,
            cut_off_requests: result.cut_off_requests,
            duration_ms: result.duration_ms,
            started_at: Some(result.started_at),
            finished_at: Some(result.finished_at),
            ..Self::new(id, RowState::Ended)
        }
    }

    /// Whether the run has ended and can't be resumed.
    pub fn is_final(&self) -> bool {
        self.outcome.is_some_and(|outcome| !outcome.can_be_resumed())
    }

    /// The fields of the result with their values. A result that isn't an object is one field without a name.
    pub fn result_fields(&self) -> Vec<(&str, &Value)> {
        match &self.result {
            None => Vec::new(),
            Some(Value::Object(fields)) => fields.iter().map(|(name, value)| (name.as_str(), value)).collect(),
            Some(value) => vec![("", value)],
        }
    }
}

/// A value as the text of a cell: strings as they are, anything else as JSON.
pub(super) fn cell_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// The name of a result's column. The name of a result that isn't an object is empty.
pub(super) fn result_column(name: &str) -> String {
    if name.is_empty() { "result".to_owned() } else { format!("result.{name}") }
}

/// A row in the table in memory. Its texts are short, whatever the record has.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSummary {
    /// The row's id.
    pub id: String,
    /// What is known about the row.
    pub state: RowState,
    /// How the run ended, if it has.
    pub outcome: Option<Outcome>,
    /// The exit code of the run, if it has ended.
    pub exit_code: Option<u8>,
    /// Values of inputs by the number of their column, for the first columns.
    pub inputs: Vec<(usize, String)>,
    /// Fields of the result by the number of their column, for the first columns.
    pub result: Vec<(usize, String)>,
    /// The first line of the final answer.
    pub text: String,
    /// The condition that was true, if the run was skipped.
    pub skipped_by: Option<String>,
    /// The code and the message of the error, if the run didn't complete.
    pub error: Option<(String, String)>,
    /// The parent's turns.
    pub turns: u32,
    /// Tokens of the whole run.
    pub usage: Usage,
    /// The estimated cost in US dollars.
    pub cost_usd: Option<f64>,
    /// The requests that were cut off.
    pub cut_off_requests: CutOffRequests,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// The path of the run's report from the folder of the table, if there is one.
    pub report: Option<String>,
}

impl RowSummary {
    /// The outcome, or the state of a row that has none.
    pub fn verdict(&self) -> String {
        self.outcome.map_or_else(|| self.state.name().to_owned(), |outcome| outcome.to_string())
    }

    /// The exit code of the row alone: that of its run, 75 if the run can start or continue, or 5 if its record can't be used.
    pub fn code(&self) -> u8 {
        match (self.exit_code, self.state) {
            (Some(code), _) => code,
            (None, RowState::Damaged) => EXIT_ENVIRONMENT,
            (None, _) => EXIT_TEMPORARY,
        }
    }

    /// Whether the run completed, or there was nothing to do.
    pub fn is_good(&self) -> bool {
        self.outcome.is_some_and(Outcome::is_success)
    }
}

/// A record, file or row that a table can't take as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableProblem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// The row, if it is one.
    pub id: Option<String>,
    /// The file or folder, if there is one.
    pub path: Option<String>,
    /// What is wrong, in one sentence.
    pub message: String,
}

/// The kinds of problems with the rows of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// There is no record of the row.
    Missing,
    /// A file ends in the middle. The rest of the record was used.
    Torn,
    /// The record can't be read.
    Damaged,
    /// It isn't a record of this map.
    Foreign,
    /// There are several records of the row. One of them is used.
    Duplicate,
    /// The row ended more than once, in different ways.
    Conflict,
    /// The row isn't in the rows file.
    Unexpected,
}

impl ProblemKind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Torn => "torn",
            Self::Damaged => "damaged",
            Self::Foreign => "foreign",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::Unexpected => "unexpected",
        }
    }

    /// Whether the table can't be relied on.
    pub fn is_serious(self) -> bool {
        matches!(self, Self::Damaged | Self::Foreign | Self::Conflict)
    }
}

/// All rows of a map, in short.
#[derive(Debug, Default)]
pub struct MapTable {
    /// The name of the job.
    pub job: String,
    /// The name of the map.
    pub name: String,
    /// The names of the inputs, in the order in which they were found.
    pub input_columns: IndexSet<String>,
    /// The names of the fields of results, in the order in which they were found.
    pub result_columns: IndexSet<String>,
    /// Whether there are more columns.
    pub has_more_columns: bool,
    /// The bytes of values and texts in the rows.
    text_bytes: usize,
    /// The rows, in their order.
    pub rows: Vec<RowSummary>,
    /// What can't be taken as it is.
    pub problems: Vec<TableProblem>,
}

impl MapTable {
    /// A table without rows.
    pub fn new(job: &str, name: &str) -> Self {
        Self { job: job.to_owned(), name: name.to_owned(), ..Self::default() }
    }

    /// Whether the table keeps the values and texts of further rows.
    pub fn has_room(&self) -> bool {
        self.text_bytes < MAX_TEXT_BYTES
    }

    /// Takes the columns of a row, and returns the row in short. `report` is the path of its report.
    pub fn summarize(&mut self, row: &MapRow, report: Option<String>) -> RowSummary {
        let mut has_more = false;
        let has_room = self.has_room();
        let mut cells = |columns: &mut IndexSet<String>, values: &mut dyn Iterator<Item = (&str, &Value)>| {
            let mut cells = Vec::new();
            for (name, value) in values {
                let column = match columns.get_index_of(name) {
                    Some(column) => column,
                    None if columns.len() >= MAX_COLUMNS || name.len() > MAX_NAME_BYTES => {
                        has_more = true;
                        continue;
                    }
                    None => columns.insert_full(name.to_owned()).0,
                };
                if column < MAX_SHOWN_COLUMNS && has_room {
                    cells.push((column, truncate::ellipsize(&cell_text(value), MAX_CELL_CHARS)));
                }
            }
            cells
        };
        let inputs = cells(&mut self.input_columns, &mut row.inputs.iter().map(|(name, value)| (name.as_str(), value)));
        let result = cells(&mut self.result_columns, &mut row.result_fields().into_iter());
        self.has_more_columns |= has_more;
        let error =
            row.error.as_ref().filter(|_| has_room).map(|error| {
                (truncate::ellipsize(&error.code, 64), truncate::ellipsize(&error.message, MAX_ERROR_CHARS))
            });
        let skipped_by = row.skipped_by.as_ref().filter(|_| has_room);
        let skipped_by = skipped_by.map(|condition| truncate::ellipsize(condition, MAX_CELL_CHARS));
        let text = if has_room { truncate::ellipsize(&row.text, MAX_CELL_CHARS) } else { String::new() };
        let cell_bytes: usize = inputs.iter().chain(&result).map(|(_, text)| text.len()).sum();
        self.text_bytes += cell_bytes
            + text.len()
            + skipped_by.as_ref().map_or(0, String::len)
            + error.as_ref().map_or(0, |(_, message)| message.len());
        RowSummary {
            id: row.id.clone(),
            state: row.state,
            outcome: row.outcome,
            exit_code: row.exit_code,
            inputs,
            result,
            text,
            skipped_by,
            error,
            turns: row.turns,
            usage: row.usage,
            cost_usd: row.cost_usd,
            cut_off_requests: row.cut_off_requests,
            duration_ms: row.duration_ms,
            report,
        }
    }

    /// The exit code of the whole map: 75 if some row can continue or hasn't started, else 5 if the environment or a provider
    /// failed permanently or a record can't be used, else 1 if some row failed, 4 if rows only reached a limit, or 0.
    pub fn exit_code(&self) -> u8 {
        self.exit_code_of(|row| Some(row.code()))
    }

    /// The exit code of some of the rows: those for which `code` returns one, usually [`RowSummary::code`].
    pub fn exit_code_of(&self, code: impl Fn(&RowSummary) -> Option<u8>) -> u8 {
        let mut left_out = HashSet::new();
        let mut found = BTreeSet::new();
        for row in &self.rows {
            match code(row) {
                Some(code) => drop(found.insert(code)),
                None => drop(left_out.insert(row.id.as_str())),
            }
        }
        let concerns = |id: &Option<String>| id.as_ref().is_none_or(|id| !left_out.contains(id.as_str()));
        if self.problems.iter().any(|problem| problem.kind.is_serious() && concerns(&problem.id)) {
            found.insert(EXIT_ENVIRONMENT);
        }
        let limit = Outcome::TimedOut.exit_code(None);
        match () {
            // Above 128: a signal interrupted the run.
            () if found.iter().any(|code| *code == EXIT_TEMPORARY || *code > 128) => EXIT_TEMPORARY,
            () if found.contains(&EXIT_ENVIRONMENT) => EXIT_ENVIRONMENT,
            () if found.iter().any(|code| *code != 0 && *code != limit) => 1,
            () if found.contains(&limit) => limit,
            () => 0,
        }
    }

    /// How many rows have each verdict, the most frequent first, `completed` before all others.
    pub fn verdicts(&self) -> Vec<(String, usize)> {
        let mut counts: IndexMap<String, usize> = IndexMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row.verdict()).or_default() += 1);
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_by(|one, other| {
            let rank = |(name, count): &(String, usize)| (name != "completed", std::cmp::Reverse(*count));
            rank(one).cmp(&rank(other)).then_with(|| one.0.cmp(&other.0))
        });
        counts
    }

    /// The usage of all rows, their known cost, and the number of rows whose cost isn't known.
    pub fn totals(&self) -> (Usage, f64, usize) {
        let mut usage = Usage::default();
        let (mut cost, mut unknown) = (0.0, 0);
        for row in &self.rows {
            usage += row.usage;
            match row.cost_usd {
                Some(usd) => cost += usd,
                None if row.usage.total() > 0 || row.outcome.is_some() => unknown += 1,
                None => {}
            }
        }
        (usage, crate::pricing::round_usd(cost), unknown)
    }

    /// The requests of all rows that were cut off.
    pub fn cut_off_requests(&self) -> CutOffRequests {
        let mut all = CutOffRequests::NONE;
        self.rows.iter().for_each(|row| all += row.cut_off_requests);
        all.reserved_cost_usd = all.reserved_cost_usd.map(crate::pricing::round_usd);
        all
    }

    /// What is reserved for requests of rows that haven't ended: tokens and US dollars. It is part of the totals.
    pub fn reserved(&self) -> (u64, f64) {
        let open = self.rows.iter().filter(|row| row.outcome.is_none()).map(|row| row.cut_off_requests);
        open.fold((0, 0.0), |(tokens, cost), row| {
            (tokens.saturating_add(row.reserved_tokens), cost + row.reserved_cost_usd.unwrap_or_default())
        })
    }

    /// The rows that didn't complete by their reasons, the most frequent reason first. Reasons that differ only in numbers are
    /// one, the first of them.
    pub fn failures(&self) -> Vec<(String, Vec<&RowSummary>)> {
        let mut groups: IndexMap<String, (String, Vec<&RowSummary>)> = IndexMap::new();
        for row in self.rows.iter().filter(|row| !row.is_good()) {
            let reason = match &row.error {
                Some((_, message)) => format!("{}: {}", row.verdict(), message.lines().next().unwrap_or_default()),
                None => row.verdict(),
            };
            let without_numbers = reason.split(|char: char| char.is_ascii_digit()).filter(|part| !part.is_empty());
            let key = without_numbers.collect::<Vec<_>>().join("0");
            groups.entry(key).or_insert_with(|| (reason, Vec::new())).1.push(row);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
        groups
    }
}
