//! Checks all rows before any of them runs.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::rows::Rows;
use crate::diagnostic::{Diagnostic, OmittedFindings, SourceSpan};
use crate::error::Error;
use crate::plan::InputValues;

/// How many findings are shown; one more counts the rest.
const MAX_FINDINGS: usize = 1_000;

/// Checks every row: `check` gets its number and its inputs. Its plans aren't kept, because 100,000 of them would be large.
///
/// # Errors
/// All mistakes of all rows as one [`Error::Invalid`], at most 1,000 and one that counts the rest. A mistake in an option is
/// reported once, and so is one in a text of the job if all rows have it. Any other error ends the check.
pub fn check_rows(
    inputs: &mut InputValues,
    rows: &Rows,
    mut check: impl FnMut(usize, &InputValues) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut findings = RowFindings::new(rows);
    for (number, row) in rows.rows.iter().enumerate() {
        inputs.set_row(&rows.source, row.clone());
        let found = match check(number, inputs) {
            Ok(()) => Vec::new(),
            Err(Error::Invalid(found)) => found,
            Err(other) => return Err(other),
        };
        match found.iter().any(|finding| findings.is_in_rows(finding) || inputs.is_in_option(&finding.span)) {
            true => findings.add_of_values(found),
            false => findings.add_of_job(number, found),
        }
    }
    match findings.finish() {
        findings if findings.is_empty() => Ok(()),
        findings => Err(Error::Invalid(findings)),
    }
}

/// The code of a finding and its place: the name of the source, its text if it is an argument, and the range.
type Key = (&'static str, String, Option<String>, Range<usize>);

fn key(finding: &Diagnostic) -> Key {
    let source = &finding.span.source;
    let argument = source.name.starts_with("--").then(|| source.text.clone());
    (finding.code, source.name.clone(), argument, finding.span.range.clone())
}

/// Collects the findings of all rows.
struct RowFindings<'a> {
    rows: &'a Rows,
    /// The first findings.
    shown: Vec<Diagnostic>,
    omitted: OmittedFindings,
    /// How many rows had values without mistakes.
    rendered: usize,
    /// What was reported once for all rows.
    reported: HashSet<Key>,
    /// The mistakes in texts of the job that all rows so far have, and how many of their findings aren't in `shared`. A
    /// mistake that the first row doesn't have is never one of them, so there are few.
    common: Option<HashMap<Key, OmittedFindings>>,
    /// The findings of these mistakes, each with the number of its row.
    shared: Vec<(usize, Diagnostic)>,
}

impl<'a> RowFindings<'a> {
    fn new(rows: &'a Rows) -> Self {
        let (shown, omitted) = (rows.findings.clone(), OmittedFindings::default());
        Self { rows, shown, omitted, rendered: 0, reported: HashSet::new(), common: None, shared: Vec::new() }
    }

    fn is_in_rows(&self, finding: &Diagnostic) -> bool {
        Arc::ptr_eq(&finding.span.source, &self.rows.source)
    }

    fn add(&mut self, finding: Diagnostic) {
        match self.shown.len() < MAX_FINDINGS {
            true => self.shown.push(finding),
            false => self.omitted.add(&finding),
        }
    }

    /// Adds the mistakes of values. With them, no text of the job is rendered, so those that aren't in the row don't depend on
    /// it.
    fn add_of_values(&mut self, found: Vec<Diagnostic>) {
        for finding in found {
            if self.is_in_rows(&finding) || self.reported.insert(key(&finding)) {
                self.add(finding);
            }
        }
    }

    /// Adds the mistakes that show in texts of the job with the values of a row.
    fn add_of_job(&mut self, number: usize, found: Vec<Diagnostic>) {
        self.rendered += 1;
        let keys: HashSet<Key> = found.iter().map(key).collect();
        let mut common =
            self.common.take().unwrap_or_else(|| keys.iter().map(|key| (key.clone(), <_>::default())).collect());
        for (_, omitted) in common.extract_if(|key, _| !keys.contains(key)) {
            self.omitted.errors += omitted.errors;
            self.omitted.warnings += omitted.warnings;
        }
        for finding in found {
            match common.get_mut(&key(&finding)) {
                None => self.add(self.at_row(number, finding)),
                Some(_) if self.shared.len() < MAX_FINDINGS => self.shared.push((number, finding)),
                Some(omitted) => omitted.add(&finding),
            }
        }
        self.common = Some(common);
    }

    fn row_place(&self, number: usize) -> SourceSpan {
        SourceSpan { source: Arc::clone(&self.rows.source), range: self.rows.rows[number].range.clone() }
    }

    /// The finding at the place of its row, with a label in the job.
    fn at_row(&self, number: usize, finding: Diagnostic) -> Diagnostic {
        let place = finding.span.clone();
        Diagnostic { span: self.row_place(number), ..finding }.label(place, "in this text of the job")
    }

    /// All findings, those in the rows file first.
    fn finish(mut self) -> Vec<Diagnostic> {
        let common = self.common.take().unwrap_or_default();
        for (number, finding) in std::mem::take(&mut self.shared) {
            let key = key(&finding);
            if !common.contains_key(&key) {
                self.add(self.at_row(number, finding));
            } else if self.reported.insert(key) {
                let label = if self.rendered == 1 { "with this row" } else { "with this row and all others" };
                self.add(finding.label(self.row_place(number), label));
            }
        }
        self.omitted.errors += common.keys().filter(|key| !self.reported.contains(key)).count();
        let mut findings = std::mem::take(&mut self.shown);
        findings.sort_by_key(|finding| (!self.is_in_rows(finding), finding.span.range.start));
        let last = findings.last().map(|last| last.span.clone()).filter(|_| self.omitted.count() > 0);
        findings.extend(last.map(|last| self.omitted.to_diagnostic(last)));
        findings
    }
}
