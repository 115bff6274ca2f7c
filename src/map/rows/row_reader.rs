//! Rows and their values, and the collection of rows and findings while a file is read.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::diagnostic::{Diagnostic, OmittedFindings, Source, SourceSpan, suggest_name};
use crate::job::{Job, STATE_FILE};
use crate::plan::{Cell, CellValue, Row};

/// How many rows a file may have.
pub const MAX_ROWS: usize = 100_000;
/// The greatest size of one value in bytes: 1 MiB, as for `--set`.
const MAX_CELL_BYTES: usize = 1 << 20;
/// How many findings are shown; one more counts the rest.
const MAX_FINDINGS: usize = 1_000;
/// How many names of columns a message lists.
const MAX_NAMES: usize = 50;
/// The longest readable part of an id that is made from a text, in bytes, and the longest label.
const MAX_SLUG_BYTES: usize = 60;
const MAX_LABEL_CHARS: usize = 40;
/// The greatest length of a row's id in bytes.
const MAX_ID_BYTES: usize = 100;

/// The rows of a file, in its order.
#[derive(Debug)]
pub struct Rows {
    /// The file.
    pub source: Arc<Source>,
    /// The rows without mistakes. All ids differ, also without regard to case.
    pub rows: Vec<Row>,
    /// The mistakes of the other rows. If there are none, there is at least one row.
    pub findings: Vec<Diagnostic>,
}

/// What the columns of a rows file are for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ColumnOptions<'a> {
    /// The column with the ids of the rows. It needn't be an input.
    pub id: Option<&'a str>,
    /// If not empty, only these columns are inputs.
    pub only: &'a [String],
    /// These columns aren't inputs.
    pub ignored: &'a [String],
}

impl<'a> From<Option<&'a str>> for ColumnOptions<'a> {
    fn from(id: Option<&'a str>) -> Self {
        Self { id, ..Self::default() }
    }
}

impl ColumnOptions<'_> {
    /// Whether a column is no input, whatever its name.
    fn is_unused(&self, name: &str) -> bool {
        let is_listed = |names: &[String]| names.iter().any(|listed| listed == name);
        is_listed(self.ignored) || !(self.only.is_empty() || is_listed(self.only))
    }
}

/// The value of a key that has none.
const NO_VALUE: CellValue = CellValue::Json(Value::Null);

/// Collects rows and findings.
pub(super) struct RowReader<'a> {
    pub(super) source: &'a Arc<Source>,
    /// Whether the first line names the columns, as in CSV.
    pub(super) has_header: bool,
    pub(super) id_column: Option<&'a str>,
    columns: ColumnOptions<'a>,
    /// The names in the first row, those of `--columns` that are in any row, and whether the column of ids is.
    first_names: Vec<String>,
    seen_columns: HashSet<String>,
    has_ids: bool,
    /// Without a job, every column may be an input.
    pub(super) job: Option<&'a Job>,
    pub(super) rows: Vec<Row>,
    /// The number and the place of the first row with each id, in lower case.
    pub(super) ids: HashMap<String, (usize, Range<usize>)>,
    pub(super) findings: Vec<Diagnostic>,
    pub(super) omitted: OmittedFindings,
    /// Whether the mistakes concern all rows, so that checking their values would repeat them.
    pub(super) has_wrong_columns: bool,
    /// How many rows were read, also those with mistakes.
    count: usize,
    /// Whether the rest of the file wasn't read.
    is_too_long: bool,
}

/// What a column's values are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ColumnUse {
    pub(super) is_id: bool,
    pub(super) is_input: bool,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(
        source: &'a Arc<Source>,
        has_header: bool,
        columns: ColumnOptions<'a>,
        job: Option<&'a Job>,
    ) -> Self {
        let (rows, ids, findings) = (Vec::new(), HashMap::new(), Vec::new());
        let (omitted, has_wrong_columns) = (OmittedFindings::default(), false);
        Self {
            source,
            has_header,
            id_column: columns.id,
            columns,
            first_names: Vec::new(),
            seen_columns: HashSet::new(),
            has_ids: false,
            job,
            rows,
            ids,
            findings,
            omitted,
            has_wrong_columns,
            count: 0,
            is_too_long: false,
        }
    }

    pub(super) fn text(&self) -> &'a str {
        &self.source.text
    }

    pub(super) fn place(&self, range: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range }
    }

    pub(super) fn report(&mut self, finding: Diagnostic) {
        match self.findings.len() < MAX_FINDINGS {
            true => self.findings.push(finding),
            false => self.omitted.add(&finding),
        }
    }

    pub(super) fn error(
        &mut self,
        code: &'static str,
        range: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let finding = Diagnostic::error(code, self.place(range), message).help(help);
        self.report(finding);
    }

    /// Whether a name is that of an input or of the column of ids.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.id_column == Some(name) || self.job.is_some_and(|job| job.inputs().any(|(known, _)| known.value == name))
    }

    /// Whether the job is known and has inputs.
    pub(super) fn has_inputs(&self) -> bool {
        self.job.is_some_and(|job| job.inputs().next().is_some())
    }

    /// The input of which an unknown name may be a misspelling.
    pub(super) fn suggestion(&self, name: &str) -> Option<&'a str> {
        let known = self.job.into_iter().flat_map(Job::inputs).map(|(name, _)| name.value.as_str());
        suggest_name(name, known).filter(|_| name.chars().any(char::is_alphabetic))
    }

    /// The help for unknown names.
    pub(super) fn known_names(&self) -> String {
        if !self.has_inputs() {
            return "the job has no inputs".to_owned();
        }
        let known: Vec<&str> =
            self.job.into_iter().flat_map(Job::inputs).map(|(name, _)| name.value.as_str()).collect();
        let inputs = format!(
            "inputs are `{}`; name the column of ids with --id, and other columns with --ignore-columns",
            known.join("`, `")
        );
        match self.has_header {
            true => format!("the first line must name the columns, separated by commas; the job's {inputs}"),
            false => format!("its {inputs}"),
        }
    }

    /// What a column or key is used for; a finding if it is neither an input nor the id.
    pub(super) fn column(&mut self, name: &str, range: Range<usize>) -> Option<ColumnUse> {
        let is_id = self.id_column == Some(name);
        self.has_ids |= is_id;
        if self.count <= 1 && self.first_names.len() < MAX_NAMES {
            self.first_names.push(name.to_owned());
        }
        if self.columns.only.iter().any(|only| only == name) && !self.seen_columns.contains(name) {
            self.seen_columns.insert(name.to_owned());
        }
        if self.columns.is_unused(name) {
            return Some(ColumnUse { is_id, is_input: false });
        }
        let Some(job) = self.job else { return Some(ColumnUse { is_id, is_input: true }) };
        let input = job.inputs().find(|(declared, _)| declared.value == name).map(|(_, input)| input);
        match input {
            Some(input) if input.is_secret() => {
                let message = format!("the input `{name}` is secret, and a rows file is kept in the record");
                self.error("secret-column", range, message, format!("give it with `--set-env {name}=VARIABLE`"));
                None
            }
            None if !is_id => {
                let help = match self.suggestion(name) {
                    Some(meant) if self.has_header => {
                        format!("did you mean `{meant}`? the first line must name the columns")
                    }
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => self.known_names(),
                };
                self.error("unknown-input", range, format!("the job has no input `{name}`"), help);
                None
            }
            input => Some(ColumnUse { is_id, is_input: input.is_some() }),
        }
    }

    /// Adds a row: its values with what they are used for.
    pub(super) fn row(&mut self, range: Range<usize>, values: Vec<(Cell, ColumnUse)>) {
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
        let mut label = None;
        let id = match self.id_column {
            Some(column) => match values.iter().find(|(cell, used)| used.is_id && cell.value != NO_VALUE) {
                Some((cell, _)) => (readable_id(&cell.value.to_text()), cell.range.clone()),
                // The column of ids is wrong, which was reported.
                None if self.has_wrong_columns => return,
                None => {
                    let message = format!("the row has no `{column}`, which is its id");
                    self.error("bad-row-id", range, message, "give every row an id");
                    return;
                }
            },
            None => {
                let texts = values.iter().filter(|(_, used)| used.is_input).map(|(cell, _)| cell.value.to_text());
                label = { texts }.find(|text| !text.trim().is_empty()).map(|text| label_of(&text));
                (digest(&values), range.clone())
            }
        };
        let (id, place) = id;
        if let Some(why) = id_mistake(&id) {
            let help = "an id names a folder: letters, digits, `.`, `_` and `-`, at most 100, a letter or digit first";
            self.error("bad-row-id", place, why, help);
            return;
        }
        // Without all columns, different rows may look the same.
        let is_partial = self.has_wrong_columns && self.id_column.is_none();
        if let Some((number, first)) = self.ids.get(&id.to_ascii_lowercase()).cloned().filter(|_| !is_partial) {
            let (message, help) = match self.id_column {
                None => (
                    "the row has the same values as another one".to_owned(),
                    "remove one of them, or name a column of ids with --id",
                ),
                Some(_) if self.rows[number].id == id => {
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
        self.ids.insert(id.to_ascii_lowercase(), (self.rows.len(), place));
        let cells = values.into_iter().filter(|(_, used)| used.is_input).map(|(cell, _)| cell).collect();
        self.rows.push(Row { id, label, range, cells });
    }

    /// Counts a row. Returns whether the file has more of them than are allowed; then the rest isn't read.
    pub(super) fn is_full(&mut self, range: Range<usize>) -> bool {
        self.count += 1;
        let is_full = self.count > MAX_ROWS;
        if is_full {
            let help = "split the file, and run `legwork map` for each part";
            self.error("too-large", range, format!("the file has more than {MAX_ROWS} rows"), help);
            self.is_too_long = true;
        }
        is_full
    }

    pub(super) fn finish(mut self) -> Result<Rows, Vec<Diagnostic>> {
        let is_missing = !self.has_header && !self.has_ids && !self.first_names.is_empty();
        if let Some(id) = self.id_column.filter(|_| is_missing) {
            let names = self.first_names.iter().map(String::as_str);
            let help = match suggest_name(id, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys of the first row are `{}`", self.first_names.join("`, `")),
            };
            let message = format!("no row has the key `{id}`, which --id names");
            return Err(vec![Diagnostic::error("bad-row-id", self.place(0..0), message).help(help)]);
        }
        let unseen = self.columns.only.iter().find(|name| !self.seen_columns.contains(*name));
        if let Some(name) = unseen.filter(|_| !self.first_names.is_empty()) {
            let names = self.first_names.join("`, `");
            // Without it, rows lack a value and look alike.
            self.findings.retain(|finding| !["duplicate-row-id", "missing-input"].contains(&finding.code));
            let message = format!("there is no column `{name}`, which --columns names");
            self.error("unknown-input", 0..0, message, format!("the columns are `{names}`"));
            self.has_wrong_columns = true;
        }
        if self.rows.is_empty() && self.findings.is_empty() {
            let range = self.text().len()..self.text().len();
            self.error("no-rows", range, "the file has no rows", "write one row for each run");
        }
        self.findings.sort_by_key(|finding| finding.span.range.start);
        if self.omitted.count() > 0 {
            let place = self.findings.last().map(|last| last.span.clone());
            self.findings.extend(place.map(|place| self.omitted.to_diagnostic(place)));
        }
        match self.has_wrong_columns || self.is_too_long || self.rows.is_empty() {
            true => Err(self.findings),
            false => Ok(Rows { source: Arc::clone(self.source), rows: self.rows, findings: self.findings }),
        }
    }
}

/// An id from the values of a row: 16 hexadecimal digits. It doesn't depend on their order or on the format of the file.
fn digest(values: &[(Cell, ColumnUse)]) -> String {
    let inputs = values.iter().filter(|(_, used)| used.is_input);
    let mut pairs: Vec<(&str, String)> = inputs.map(|(cell, _)| (&*cell.name, cell.value.to_text())).collect();
    pairs.sort_unstable();
    let mut hash = Sha256::new();
    for text in pairs.iter().flat_map(|(name, value)| [*name, value.as_str()]) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a map whose name isn't given: that of the rows file, or what of it can name a folder.
pub fn default_map_name(rows: &Path) -> String {
    readable_id(&format!("map-{}", rows.file_stem().unwrap_or_default().to_string_lossy()))
}

/// The text if it can name a folder, else its letters and digits with a digest of the whole: `src/a.py` is
/// `src-a.py-` and eight hexadecimal digits.
pub fn readable_id(text: &str) -> String {
    if text.is_empty() || id_mistake(text).is_none() {
        return text.to_owned();
    }
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let mut slug = String::new();
    for letter in text.chars().map(|letter| if is_allowed(letter) { letter } else { '-' }) {
        if letter != '-' || !slug.ends_with('-') {
            slug.push(letter);
        }
    }
    // The end of a path says more than its beginning.
    let end = &slug[slug.len().saturating_sub(MAX_SLUG_BYTES)..];
    let end = end.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric()).trim_end_matches(['-', '.']);
    let slug = if end.is_empty() { "row" } else { end };
    let digest: String = Sha256::digest(text).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{slug}-{digest}")
}

/// The beginning of a value, in one line.
fn label_of(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::text::truncate::first(&line, MAX_LABEL_CHARS).to_owned()
}

/// Why an id can't name a folder.
pub fn id_mistake(id: &str) -> Option<String> {
    name_mistake("id", id)
}

/// The id of the row whose earlier record has this name: `--retry` adds a number.
pub fn original_id(name: &str) -> Option<&str> {
    let (id, number) = name.rsplit_once('.')?;
    (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(id)
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
        _ if noun != "id" && id.eq_ignore_ascii_case(STATE_FILE) => {
            Some(format!("the {noun} can't be `{id}`, which is the file of the job's state"))
        }
        // The folder of the job would look like that of a map.
        _ if noun != "id" && ["map.json", "rows"].iter().any(|taken| id.eq_ignore_ascii_case(taken)) => {
            Some(format!("the {noun} can't be `{id}`, which is part of a map"))
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
