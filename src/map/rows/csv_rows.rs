//! Rows in CSV. The `csv` crate splits records; it accepts every quote, so fields are scanned once more for their places
//! and for quotes that RFC 4180 doesn't allow.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::row_reader::{ColumnUse, RowReader};
use crate::plan::{Cell, CellValue};
use crate::text::pluralize;

pub(super) fn read(reader: &mut RowReader<'_>) {
    let text = reader.text();
    let mut records = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let offset = text.len() - text.trim_start_matches('\u{feff}').len();
    let mut record = csv::StringRecord::new();
    let mut header: Option<Vec<(Arc<str>, Option<ColumnUse>)>> = None;
    loop {
        // The text is UTF-8 and records may have any length, so reading from memory doesn't fail.
        if !records.read_record(&mut record).unwrap_or(false) {
            break;
        }
        let start = offset + record.position().map_or(0, |place| usize::try_from(place.byte()).unwrap_or_default());
        let end = offset + usize::try_from(records.position().byte()).unwrap_or_default();
        let start = start + text[start..end].len() - text[start..end].trim_start_matches(['\r', '\n']).len();
        let range = start..start + text[start..end].trim_end_matches(['\r', '\n']).len();
        if header.is_some() && reader.is_full(range.clone()) {
            return;
        }
        if header.is_none()
            && let Some(separator) = wrong_separator(reader, &text[range.clone()])
        {
            let message = format!("the columns are separated by {separator}");
            reader.error("rows-syntax", range, message, "separate them with commas, in all lines");
            reader.has_wrong_columns = true;
            return;
        }
        let fields = scan(text, range.clone());
        let mistakes: Vec<&Field> = fields.iter().filter(|field| field.mistake.is_some()).collect();
        for field in &mistakes {
            let message = field.mistake.unwrap_or_default();
            reader.error(
                "rows-syntax",
                field.range.clone(),
                message,
                r#"quote the whole field, and write a quote in it as """#,
            );
        }
        if !mistakes.is_empty() {
            // A header with a mistake would make every row wrong, and so would what follows an unclosed quote.
            if header.is_none() {
                return;
            }
            continue;
        }
        let Some(columns) = &header else {
            if !is_header(reader, &record) {
                let message = "the file seems to have no header line: its first line names no input of the job";
                reader.error("unknown-input", range, message, reader.known_names());
                reader.has_wrong_columns = true;
                return;
            }
            let columns = read_header(reader, &record, &fields);
            if let Some(id) = reader.id_column.filter(|id| !columns.iter().any(|(name, _)| **name == **id)) {
                let names: Vec<&str> = columns.iter().map(|(name, _)| &**name).collect();
                let message = format!("the header has no column `{id}`, which --id names");
                reader.error("bad-row-id", range, message, format!("its columns are `{}`", names.join("`, `")));
                return;
            }
            header = Some(columns);
            continue;
        };
        if fields.len() != columns.len() {
            let count = pluralize(fields.len() as u64, "field");
            let help = match fields.len() < columns.len() {
                true => "write a comma between two fields, also if one is empty",
                false => "quote fields that have a comma",
            };
            let message = format!("the row has {count}, and the header has {}", columns.len());
            reader.error("rows-syntax", range, message, help);
            continue;
        }
        let cells = columns.iter().zip(&record).zip(fields);
        let cells = cells.filter_map(|(((name, used), value), field)| {
            let cell = Cell { name: Arc::clone(name), value: CellValue::Text(value.to_owned()), range: field.range };
            Some((cell, (*used)?))
        });
        let cells = cells.collect();
        reader.row(range, cells);
    }
}

/// Whether the first record names a column that is known or may be misspelled. Without inputs, that can't be decided.
fn is_header(reader: &RowReader<'_>, record: &csv::StringRecord) -> bool {
    !reader.has_inputs() || record.iter().any(|name| reader.is_known(name) || reader.suggestion(name).is_some())
}

/// What separates the columns of a header instead of commas.
fn wrong_separator(reader: &RowReader<'_>, header: &str) -> Option<&'static str> {
    let line = header.lines().next().unwrap_or_default();
    let names = |separator: char| line.split(separator).map(|name| name.trim().trim_matches('"'));
    let separates = |separator| line.contains(separator) && names(separator).any(|name| reader.is_known(name));
    [(';', "semicolons"), ('\t', "tabs")].into_iter().find(|(it, _)| separates(*it)).map(|(_, what)| what)
}

fn read_header(
    reader: &mut RowReader<'_>,
    record: &csv::StringRecord,
    fields: &[Field],
) -> Vec<(Arc<str>, Option<ColumnUse>)> {
    let mut seen = HashSet::new();
    let mut columns = Vec::new();
    for (name, field) in record.iter().zip(fields) {
        let is_new = seen.insert(name.to_owned());
        if !is_new {
            let message = format!("the header has the column `{name}` twice");
            reader.error("duplicate-input", field.range.clone(), message, "remove one of them");
        }
        let used = if is_new { reader.column(name, field.range.clone()) } else { None };
        reader.has_wrong_columns |= used.is_none();
        columns.push((Arc::from(name), used));
    }
    columns
}

/// A field of a record.
struct Field {
    /// The bytes of its content, without quotes around it.
    range: Range<usize>,
    mistake: Option<&'static str>,
}

/// The fields of a record.
fn scan(text: &str, record: Range<usize>) -> Vec<Field> {
    let bytes = text.as_bytes();
    let mut fields = Vec::new();
    let mut at = record.start;
    loop {
        let field = if bytes.get(at) == Some(&b'"') && at < record.end {
            quoted_field(bytes, at + 1, record.end)
        } else {
            let end =
                bytes[at..record.end].iter().position(|byte| *byte == b',').map_or(record.end, |found| at + found);
            let mistake = bytes[at..end].contains(&b'"').then_some("a quote in a field that isn't quoted");
            (end, Field { range: at..end, mistake })
        };
        fields.push(field.1);
        if field.0 >= record.end {
            return fields;
        }
        at = field.0 + 1;
    }
}

/// A quoted field whose content starts at `start`, and where the next comma or the end of the record is.
fn quoted_field(bytes: &[u8], start: usize, record_end: usize) -> (usize, Field) {
    let mut at = start;
    while at < record_end {
        match (bytes[at], bytes[..record_end].get(at + 1)) {
            (b'"', Some(b'"')) => at += 2,
            (b'"', None | Some(b',')) => return (at + 1, Field { range: start..at, mistake: None }),
            (b'"', Some(_)) => {
                let next =
                    bytes[at..record_end].iter().position(|byte| *byte == b',').map_or(record_end, |found| at + found);
                return (next, Field { range: at..at + 1, mistake: Some("text after the closing quote of a field") });
            }
            _ => at += 1,
        }
    }
    (record_end, Field { range: start - 1..start, mistake: Some("the quote that begins here is never closed") })
}
