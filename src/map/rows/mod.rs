//! Reads the rows of `legwork map`: one set of inputs for each run, as CSV, JSONL or JSON, with a place for every value.

mod csv_rows;
mod json_rows;
mod row_reader;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use self::row_reader::RowReader;
pub use self::row_reader::{
    ColumnOptions, MAX_ROWS, Rows, default_map_name, id_mistake, name_mistake, original_id, readable_id,
};
use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::job::Job;

/// The greatest size of a rows file in bytes: 256 MiB.
pub const MAX_FILE_BYTES: usize = 256 << 20;

/// The format of a rows file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated values (RFC 4180) with a header line.
    Csv,
    /// One JSON object per line.
    Jsonl,
    /// A JSON array of objects.
    Json,
}

impl RowFormat {
    /// The format by the ending of a file's name, else by the first character of its content.
    pub fn detect(path: &Path, content: &[u8]) -> Self {
        match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("csv") => Self::Csv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("json") => Self::Json,
            _ => match content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content).trim_ascii_start().first() {
                Some(b'[') => Self::Json,
                Some(b'{') => Self::Jsonl,
                _ => Self::Csv,
            },
        }
    }
}

/// Reads a rows file for a job. There are at most 1,000 findings and one that counts the rest.
///
/// # Errors
/// The mistakes of a file without a valid row, or whose columns aren't those of the job.
pub fn read<'a>(
    name: &str,
    content: Vec<u8>,
    format: RowFormat,
    columns: impl Into<ColumnOptions<'a>>,
    job: &Job,
) -> Result<Rows, Vec<Diagnostic>> {
    let source = decode(name, content).map_err(|finding| vec![*finding])?;
    read_rows(format, RowReader::new(&source, format == RowFormat::Csv, columns.into(), Some(job)))
}

/// Reads only the ids of the rows of a file, in its order. The job isn't known, so every column may be an input.
///
/// # Errors
/// All mistakes of the file, except those in values.
pub fn read_ids<'a>(
    name: &str,
    content: Vec<u8>,
    format: RowFormat,
    columns: impl Into<ColumnOptions<'a>>,
) -> Result<Vec<String>, Vec<Diagnostic>> {
    let source = decode(name, content).map_err(|finding| vec![*finding])?;
    let rows = read_rows(format, RowReader::new(&source, format == RowFormat::Csv, columns.into(), None))?;
    if !rows.findings.is_empty() {
        return Err(rows.findings);
    }
    Ok(rows.rows.into_iter().map(|row| row.id).collect())
}

fn read_rows(format: RowFormat, mut reader: RowReader<'_>) -> Result<Rows, Vec<Diagnostic>> {
    match format {
        RowFormat::Csv => csv_rows::read(&mut reader),
        RowFormat::Jsonl => json_rows::read_lines(&mut reader),
        RowFormat::Json => json_rows::read_array(&mut reader),
    }
    reader.finish()
}

/// Checks that the content is UTF-8 text of a bounded size, without NUL.
fn decode(name: &str, content: Vec<u8>) -> Result<Arc<Source>, Box<Diagnostic>> {
    let nowhere = || SourceSpan { source: Source::new(name, ""), range: 0..0 };
    if content.len() > MAX_FILE_BYTES {
        let finding = Diagnostic::error("too-large", nowhere(), "the rows file is larger than 256 MiB");
        return Err(Box::new(finding.help("split it, and put long texts into files that the agents can read")));
    }
    let text = String::from_utf8(content).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let byte = bytes[good];
        // Up to the end of the line, so that the place is right and can be quoted.
        let end = bytes[good..]
            .iter()
            .take(80)
            .position(|byte| *byte == b'\n')
            .map_or(bytes.len().min(good + 80), |at| good + at);
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let place = SourceSpan { source: Source::new(name, text), range: good..good };
        Box::new(
            Diagnostic::error("not-utf8", place, format!("the byte 0x{byte:02X} is not UTF-8"))
                .help("save the file as UTF-8"),
        )
    })?;
    let source = Source::new(name, text);
    match source.text.find('\0') {
        None => Ok(source),
        Some(at) => {
            let place = SourceSpan { source, range: at..at + 1 };
            Err(Box::new(
                Diagnostic::error("rows-syntax", place, "a NUL character isn't allowed")
                    .help("this looks like a binary file; save it as UTF-8 text"),
            ))
        }
    }
}
