//! Rows in JSON: an array of objects, or one object per line. Values are borrowed from the text, which gives their places.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::row_reader::RowReader;
use crate::plan::{Cell, CellValue};

pub(super) fn read_lines(reader: &mut RowReader<'_>) {
    let text = reader.text();
    let mut start = text.len() - text.trim_start_matches('\u{feff}').len();
    for line in text[start..].split_inclusive('\n') {
        let content = line.trim();
        let range = trimmed_range(text, start..start + line.len());
        start += line.len();
        if content.is_empty() {
            continue;
        }
        if reader.is_full(range.clone()) {
            return;
        }
        read_row(reader, range);
    }
}

pub(super) fn read_array(reader: &mut RowReader<'_>) {
    let text = reader.text();
    let content = text.trim_start_matches('\u{feff}');
    match serde_json::from_str::<Vec<&RawValue>>(content) {
        Ok(items) => {
            for item in items {
                let range = range_in(text, item.get());
                if reader.is_full(range.clone()) {
                    return;
                }
                read_row(reader, range);
            }
        }
        Err(_) if content.trim().is_empty() => {}
        Err(error) => {
            report_syntax(reader, text.len() - content.len()..text.len(), &error, "expected a JSON array of objects");
        }
    }
}

/// Reads one object.
fn read_row(reader: &mut RowReader<'_>, range: Range<usize>) {
    let text = reader.text();
    let Object(members) = match serde_json::from_str::<Object<'_>>(&text[range.clone()]) {
        Ok(object) => object,
        Err(error) => return report_syntax(reader, range, &error, "expected a JSON object with the inputs of one run"),
    };
    let mut cells: Vec<(Cell, super::row_reader::ColumnUse)> = Vec::with_capacity(members.len());
    let mut is_whole = true;
    for (key, value) in members {
        let (key_place, place) = (range_in(text, key.get()), range_in(text, value.get()));
        let name = match serde_json::from_str::<String>(key.get()) {
            Ok(name) => name,
            Err(error) => {
                is_whole = false;
                report_syntax(reader, key_place, &error, "expected a key");
                continue;
            }
        };
        if cells.iter().any(|(cell, _)| *cell.name == *name) {
            let message = format!("the row has the key `{name}` twice");
            reader.error("duplicate-input", key_place, message, "remove one of them");
            is_whole = false;
            continue;
        }
        let Some(used) = reader.column(&name, key_place) else {
            is_whole = false;
            continue;
        };
        match serde_json::from_str(value.get()) {
            Ok(value) => {
                cells.push((Cell { name: Arc::from(name), value: CellValue::Json(value), range: place }, used));
            }
            Err(error) => {
                is_whole = false;
                report_syntax(reader, place, &error, "expected a JSON value");
            }
        }
    }
    if is_whole {
        reader.row(range, cells);
    }
}

/// Reports a syntax error at its place within a range.
fn report_syntax(reader: &mut RowReader<'_>, range: Range<usize>, error: &serde_json::Error, expected: &str) {
    let text = &reader.text()[range.clone()];
    let line = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    // The column is in bytes and counts the character at which the parser stopped.
    let at = text.floor_char_boundary((line + error.column().saturating_sub(1)).min(text.len()));
    let at = range.start + at;
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    reader.error(
        "rows-syntax",
        at..range.end.min(at + 1).max(at),
        format!("this isn't valid JSON here: {what}"),
        expected,
    );
}

/// The bytes of a text without white space around them.
fn trimmed_range(text: &str, range: Range<usize>) -> Range<usize> {
    range_in(text, text[range].trim())
}

/// The bytes of a piece of a text that was borrowed from it.
fn range_in(text: &str, piece: &str) -> Range<usize> {
    let start = piece.as_ptr().addr().saturating_sub(text.as_ptr().addr()).min(text.len());
    start..(start + piece.len()).min(text.len())
}

/// The members of an object, repeated keys included.
struct Object<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}
