//! The inputs of one run of many, from a rows file.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::diagnostic::{Rule, rule};

/// The rules for rows files. `too-large`, `not-utf8`, `unknown-input` and `duplicate-input` belong to others, too.
pub(super) const ROW_RULES: &[Rule] = &[
    rule!(Error "rows-syntax"),
    rule!(Error "no-rows"),
    rule!(Error "bad-row-id"),
    rule!(Error "duplicate-row-id"),
    rule!(Error "secret-column"),
];

/// One row: the inputs of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its id, a safe name for a folder.
    pub id: String,
    /// The beginning of its first value, if its id is only a digest.
    pub label: Option<String>,
    /// The bytes of the file that hold it.
    pub range: Range<usize>,
    /// Its values, in the order of the file.
    pub cells: Vec<Cell>,
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The name of the input.
    pub name: Arc<str>,
    /// The value as it was written.
    pub value: CellValue,
    /// The bytes of the file that hold it.
    pub range: Range<usize>,
}

/// A value of a row before it is checked against its input.
#[derive(Debug, Clone, PartialEq)]
pub enum CellValue {
    /// A text of a CSV file, parsed like the value of `--set`.
    Text(String),
    /// A JSON value.
    Json(Value),
}

impl CellValue {
    /// The value as text: the same for a text and for the JSON value that it stands for.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Json(Value::String(text)) => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }
}
