//! `results.csv`: the rows of a map for spreadsheets.

use std::io;

use indexmap::IndexSet;
use serde_json::Value;

use super::table::{MapRow, MapTable, cell_text, result_column};
use crate::text::sanitize;

/// The columns that every table has, before the inputs and after them.
const FIRST_COLUMNS: [&str; 4] = ["id", "state", "outcome", "exit_code"];
const LAST_COLUMNS: [&str; 15] = [
    "text",
    "error",
    "cost_usd",
    "reserved_cost_usd",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "turns",
    "tool_calls",
    "duration_ms",
    "started_at",
    "finished_at",
    "record",
];

/// Writes a table row by row. Its columns are known from the start.
pub(super) struct CsvTable<'a, W: io::Write> {
    writer: csv::Writer<W>,
    inputs: &'a IndexSet<String>,
    results: &'a IndexSet<String>,
    has_more: bool,
}

impl<'a, W: io::Write> CsvTable<'a, W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If writing failed.
    pub(super) fn new(out: W, table: &'a MapTable) -> io::Result<Self> {
        let (inputs, results, has_more) = (&table.input_columns, &table.result_columns, table.has_more_columns);
        let mut writer = csv::WriterBuilder::new().from_writer(out);
        let first = FIRST_COLUMNS.iter().map(ToString::to_string);
        let inputs_names = inputs.iter().map(|name| format!("inputs.{name}"));
        let results_names = results.iter().map(|name| result_column(name));
        // The rest of the values, as JSON.
        let more = has_more.then(|| ["more".to_owned()]).into_iter().flatten();
        let last = LAST_COLUMNS.iter().map(ToString::to_string);
        let header = first.chain(inputs_names).chain(results_names).chain(more).chain(last);
        writer.write_record(header.map(|name| text_cell(&name))).map_err(io::Error::other)?;
        Ok(Self { writer, inputs, results, has_more })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If writing failed.
    pub(super) fn row(&mut self, row: &MapRow) -> io::Result<()> {
        let number = |number: u64| number.to_string();
        let fields = row.result_fields();
        let mut cells = vec![
            text_cell(&row.id),
            row.state.name().to_owned(),
            row.outcome.map(|outcome| outcome.to_string()).unwrap_or_default(),
            row.exit_code.map(|code| code.to_string()).unwrap_or_default(),
        ];
        cells.extend(self.inputs.iter().map(|name| row.inputs.get(name).map(value_cell).unwrap_or_default()));
        let field = |name: &String| match (&row.result, name.as_str()) {
            (Some(Value::Object(fields)), name) => fields.get(name),
            (Some(value), "") => Some(value),
            _ => None,
        };
        cells.extend(self.results.iter().map(|name| field(name).map(value_cell).unwrap_or_default()));
        if self.has_more {
            let inputs = row.inputs.iter().filter(|(name, _)| !self.inputs.contains(*name));
            let inputs = inputs.map(|(name, value)| (format!("inputs.{name}"), value));
            let results = fields.iter().filter(|(name, _)| !self.results.contains(*name));
            let results = results.map(|(name, value)| (result_column(name), *value));
            let more: serde_json::Map<String, Value> =
                inputs.chain(results).map(|(name, value)| (name, value.clone())).collect();
            cells.push(if more.is_empty() { String::new() } else { value_cell(&Value::Object(more)) });
        }
        let error = row.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
        let usage = &row.usage;
        let reserved = row.cut_off_requests.reserved_cost_usd.filter(|_| !row.cut_off_requests.is_none());
        cells.extend([
            text_cell(&row.text),
            text_cell(&error.unwrap_or_default()),
            row.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
            reserved.map(|cost| cost.to_string()).unwrap_or_default(),
            number(usage.input_tokens),
            number(usage.output_tokens),
            number(usage.cache_read_tokens),
            number(usage.cache_write_tokens),
            number(usage.cache_write_1h_tokens),
            number(row.turns.into()),
            number(row.tool_calls),
            number(row.duration_ms),
            row.started_at.map(|at| at.to_string()).unwrap_or_default(),
            row.finished_at.map(|at| at.to_string()).unwrap_or_default(),
            text_cell(row.record.as_deref().unwrap_or_default()),
        ]);
        self.writer.write_record(cells).map_err(io::Error::other)
    }

    /// Writes what is still buffered.
    ///
    /// # Errors
    /// If writing failed.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// The cell of a value. A number is no formula, even if it is negative.
fn value_cell(value: &Value) -> String {
    match value {
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        value => text_cell(&cell_text(value)),
    }
}

/// The cell of a text. An apostrophe keeps spreadsheets from running it as a formula, see
/// <https://owasp.org/www-community/attacks/CSV_Injection>.
fn text_cell(text: &str) -> String {
    let text = sanitize::replace_control_chars(text);
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']) {
        format!("'{text}")
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::map::tables::table::RowState;

    fn csv_of(rows: &[MapRow]) -> Vec<Vec<String>> {
        let mut table = MapTable::default();
        rows.iter().for_each(|row| drop(table.summarize(row, None)));
        let mut bytes = Vec::new();
        let mut csv = CsvTable::new(&mut bytes, &table).unwrap();
        rows.iter().for_each(|row| csv.row(row).unwrap());
        csv.finish().unwrap();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(bytes.as_slice());
        reader.records().map(|record| record.unwrap().iter().map(ToOwned::to_owned).collect()).collect()
    }

    fn column(table: &[Vec<String>], name: &str) -> Vec<String> {
        let at = table[0].iter().position(|column| column == name).unwrap_or_else(|| panic!("{name}: {:?}", table[0]));
        table[1..].iter().map(|row| row[at].clone()).collect()
    }

    #[test]
    fn a_text_is_never_a_formula() {
        let mut row = MapRow::new("a", RowState::Ended);
        row.text = "=HYPERLINK(\"http://x\",\"y\")".into();
        row.inputs.insert("f".into(), json!("+1+cmd|' /C calc'!A0"));
        let fields = json!({ "n": -1.5, "tab": "\tx", "at": "@SUM(A1)", "minus": "-x", "list": [1], "none": null,
            "lines": "a\n\"b\", c\u{1b}[2J", "=x": 1 });
        row.result = Some(fields);
        let table = csv_of(&[row]);
        assert_eq!(column(&table, "text"), ["'=HYPERLINK(\"http://x\",\"y\")"]);
        assert_eq!(column(&table, "inputs.f"), ["'+1+cmd|' /C calc'!A0"]);
        for (name, cell) in [
            ("n", "-1.5"),
            ("tab", "'\tx"),
            ("at", "'@SUM(A1)"),
            ("minus", "'-x"),
            ("list", "[1]"),
            ("none", ""),
            ("lines", "a\n\"b\", c␛[2J"),
            ("=x", "1"),
        ] {
            assert_eq!(column(&table, &format!("result.{name}")), [cell], "{name}");
        }
    }

    #[test]
    fn rows_with_other_fields_share_one_table_of_bounded_width() {
        let row = |id: &str, result: Value| MapRow { result: Some(result), ..MapRow::new(id, RowState::Ended) };
        let many: serde_json::Map<String, Value> = (0..500).map(|n| (format!("f{n}"), json!(n))).collect();
        let table = csv_of(&[row("a", json!({ "x": 1 })), row("b", json!("plain")), row("c", Value::Object(many))]);
        assert_eq!(column(&table, "result.x"), ["1", "", ""]);
        assert_eq!(column(&table, "result"), ["", "plain", ""]);
        assert_eq!(column(&table, "result.f197"), ["", "", "197"]);
        assert_eq!(table[0].len(), FIRST_COLUMNS.len() + super::super::table::MAX_COLUMNS + 1 + LAST_COLUMNS.len());
        let more: Value = serde_json::from_str(&column(&table, "more")[2]).unwrap();
        assert_eq!((more.as_object().unwrap().len(), &more["result.f198"]), (302, &json!(198)));
    }
}
