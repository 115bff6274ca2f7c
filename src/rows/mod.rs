//! Reads the rows of `legwork map`: one set of inputs for each run, as CSV, JSONL or JSON, with a place for every value.

mod csv_rows;
mod json_rows;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::diagnostic::{Diagnostic, OmittedFindings, Rule, Source, SourceSpan, rule, suggest_name};
use crate::job::Job;

/// The rules for files of rows. `too-large`, `not-utf8`, `unknown-input` and `duplicate-input` belong to others, too.
pub const RULES: &[Rule] = &[
    rule!(Error "rows-syntax"),
    rule!(Error "no-rows"),
    rule!(Error "bad-row-id"),
    rule!(Error "duplicate-row-id"),
    rule!(Error "secret-column"),
];

/// The greatest size of a file of rows in bytes: 256 MiB.
pub const MAX_FILE_BYTES: usize = 256 << 20;
/// How many rows a file may have.
pub const MAX_ROWS: usize = 100_000;
/// The greatest size of one value in bytes: 1 MiB, as for `--set`.
const MAX_CELL_BYTES: usize = 1 << 20;
/// How many findings are shown; one more counts the rest.
const MAX_FINDINGS: usize = 1_000;
/// The greatest length of a row's id in bytes.
const MAX_ID_BYTES: usize = 100;

/// The format of a file of rows.
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

/// The rows of a file, in its order.
#[derive(Debug)]
pub struct Rows {
    /// The file.
    pub source: Arc<Source>,
    /// At least one row. All ids differ, also without regard to case.
    pub rows: Vec<Row>,
}

/// One row: the inputs of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its id, a safe name for a folder.
    pub id: String,
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
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Json(Value::String(text)) => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }
}

/// Reads a file of rows for a job. `id_column` names the column with the ids of the rows; it needn't be an input.
///
/// # Errors
/// All mistakes of the file, at most 1,000 and one that counts the rest.
pub fn read(
    name: &str,
    content: Vec<u8>,
    format: RowFormat,
    id_column: Option<&str>,
    job: &Job,
) -> Result<Rows, Vec<Diagnostic>> {
    let source = decode(name, content).map_err(|finding| vec![*finding])?;
    read_rows(format, RowReader::new(&source, id_column, Some(job)))
}

/// Reads only the ids of the rows of a file, in its order. The job isn't known, so every column may be an input.
///
/// # Errors
/// All mistakes of the file, except those in values.
pub fn read_ids(
    name: &str,
    content: Vec<u8>,
    format: RowFormat,
    id_column: Option<&str>,
) -> Result<Vec<String>, Vec<Diagnostic>> {
    let source = decode(name, content).map_err(|finding| vec![*finding])?;
    let rows = read_rows(format, RowReader::new(&source, id_column, None))?;
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
        let finding = Diagnostic::error("too-large", nowhere(), "the file of rows is larger than 256 MiB");
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

/// Collects rows and findings.
struct RowReader<'a> {
    source: &'a Arc<Source>,
    id_column: Option<&'a str>,
    /// Without a job, every column may be an input.
    job: Option<&'a Job>,
    rows: Vec<Row>,
    /// The place of the first row with each id, in lower case.
    ids: HashMap<String, Range<usize>>,
    findings: Vec<Diagnostic>,
    omitted: OmittedFindings,
}

/// What a column's values are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ColumnUse {
    is_id: bool,
    is_input: bool,
}

impl<'a> RowReader<'a> {
    fn new(source: &'a Arc<Source>, id_column: Option<&'a str>, job: Option<&'a Job>) -> Self {
        let (rows, ids, findings) = (Vec::new(), HashMap::new(), Vec::new());
        Self { source, id_column, job, rows, ids, findings, omitted: OmittedFindings::default() }
    }

    fn text(&self) -> &'a str {
        &self.source.text
    }

    fn place(&self, range: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range }
    }

    fn report(&mut self, finding: Diagnostic) {
        match self.findings.len() < MAX_FINDINGS {
            true => self.findings.push(finding),
            false => self.omitted.add(&finding),
        }
    }

    fn error(&mut self, code: &'static str, range: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let finding = Diagnostic::error(code, self.place(range), message).help(help);
        self.report(finding);
    }

    /// What a column or key is used for; a finding if it is neither an input nor the id.
    fn column(&mut self, name: &str, range: Range<usize>) -> Option<ColumnUse> {
        let is_id = self.id_column == Some(name);
        let Some(job) = self.job else { return Some(ColumnUse { is_id, is_input: true }) };
        let input = job.inputs().find(|(declared, _)| declared.value == name).map(|(_, input)| input);
        match input {
            Some(input) if input.is_secret() => {
                let message = format!("the input `{name}` is secret, and a file of rows is kept in the record");
                self.error("secret-column", range, message, format!("give it with `--set-env {name}=VARIABLE`"));
                None
            }
            None if !is_id => {
                let known: Vec<&str> = job.inputs().map(|(name, _)| name.value.as_str()).collect();
                let finding =
                    Diagnostic::error("unknown-input", self.place(range), format!("the job has no input `{name}`"));
                self.report(match suggest_name(name, known.iter().copied()) {
                    Some(meant) => finding.help(format!("did you mean `{meant}`?")),
                    None if known.is_empty() => finding.help("the job has no inputs"),
                    None => finding
                        .help(format!("its inputs are `{}`; name the column of ids with --id", known.join("`, `"))),
                });
                None
            }
            input => Some(ColumnUse { is_id, is_input: input.is_some() }),
        }
    }

    /// Adds a row: its values with what they are used for.
    fn row(&mut self, range: Range<usize>, values: Vec<(Cell, ColumnUse)>) {
        if let Some((cell, _)) = values.iter().find(|(cell, _)| cell.range.len() > MAX_CELL_BYTES) {
            let help = "put it into a file, and give its path as an input of type `path`";
            self.error(
                "too-large",
                cell.range.clone(),
                format!("the value of `{}` is larger than 1 MiB", cell.name),
                help,
            );
            return;
        }
        let id = match self.id_column {
            Some(column) => match values.iter().find(|(_, used)| used.is_id) {
                Some((cell, _)) => (cell.value.to_text(), cell.range.clone()),
                None => {
                    let message = format!("the row has no `{column}`, which is its id");
                    self.error("bad-row-id", range, message, "give every row an id");
                    return;
                }
            },
            None => (digest(&values), range.clone()),
        };
        let (id, place) = id;
        if let Some(why) = id_mistake(&id) {
            let help = "an id names a folder: letters, digits, `.`, `_` and `-`, at most 100, a letter or digit first";
            self.error("bad-row-id", place, why, help);
            return;
        }
        if let Some(first) = self.ids.get(&id.to_ascii_lowercase()).cloned() {
            let (message, help) = match self.id_column {
                None => (
                    "the row has the same values as another one".to_owned(),
                    "remove one of them, or name a column of ids with --id",
                ),
                Some(_) if self.rows.iter().any(|row| row.id == id) => {
                    (format!("two rows have the id `{id}`"), "give each row an id of its own")
                }
                Some(_) => (
                    format!("the id `{id}` differs from another one only in case"),
                    "choose another id: some file systems ignore case",
                ),
            };
            let finding = Diagnostic::error("duplicate-row-id", self.place(place), message)
                .label(self.place(first), "first here")
                .help(help);
            self.report(finding);
            return;
        }
        self.ids.insert(id.to_ascii_lowercase(), place);
        let cells = values.into_iter().filter(|(_, used)| used.is_input).map(|(cell, _)| cell).collect();
        self.rows.push(Row { id, range, cells });
    }

    /// Whether the file has more rows than are allowed; then the rest isn't read.
    fn is_full(&mut self, range: Range<usize>) -> bool {
        let is_full = self.rows.len() >= MAX_ROWS;
        if is_full {
            let help = "split the file, and run `legwork map` for each part";
            self.error("too-large", range, format!("the file has more than {MAX_ROWS} rows"), help);
        }
        is_full
    }

    fn finish(mut self) -> Result<Rows, Vec<Diagnostic>> {
        if self.rows.is_empty() && self.findings.is_empty() {
            let range = self.text().len()..self.text().len();
            self.error("no-rows", range, "the file has no rows", "write one row for each run");
        }
        if self.findings.is_empty() {
            return Ok(Rows { source: Arc::clone(self.source), rows: self.rows });
        }
        self.findings.sort_by_key(|finding| finding.span.range.start);
        if self.omitted.count() > 0 {
            let place = self.findings.last().map(|last| last.span.clone());
            self.findings.extend(place.map(|place| self.omitted.to_diagnostic(place)));
        }
        Err(self.findings)
    }
}

/// An id from the values of a row: 16 hexadecimal digits. It doesn't depend on their order or on the format of the file.
fn digest(values: &[(Cell, ColumnUse)]) -> String {
    let mut pairs: Vec<(&str, String)> = values.iter().map(|(cell, _)| (&*cell.name, cell.value.to_text())).collect();
    pairs.sort_unstable();
    let mut hash = Sha256::new();
    for text in pairs.iter().flat_map(|(name, value)| [*name, value.as_str()]) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Why an id can't name a folder.
pub fn id_mistake(id: &str) -> Option<String> {
    name_mistake("id", id)
}

/// Why an id, a key or the name of a map can't name a folder; `noun` says which of them it is.
pub fn name_mistake(noun: &str, id: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match id.bytes().next() {
        None => Some(format!("the {noun} is empty")),
        _ if id.len() > MAX_ID_BYTES => Some(format!("the {noun} is longer than {MAX_ID_BYTES} characters")),
        _ if id.contains(['/', '\\']) => Some(format!("the {noun} `{id}` is a path")),
        _ if id.eq_ignore_ascii_case("latest") => {
            Some(format!("the {noun} can't be `{id}`, which is the name of the newest run"))
        }
        Some(first) if !first.is_ascii_alphanumeric() => {
            Some(format!("the {noun} `{id}` doesn't begin with a letter or digit"))
        }
        _ => id
            .bytes()
            .find(|byte| !is_allowed(*byte))
            .map(|_| format!("the {noun} `{id}` has a character that isn't allowed")),
    }
}
