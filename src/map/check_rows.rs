//! Checks all rows before any of them runs.

use std::collections::HashSet;
use std::sync::Arc;

use crate::diagnostic::{OmittedFindings, SourceSpan};
use crate::error::Error;
use crate::plan::InputValues;
use crate::rows::Rows;

/// How many findings are shown; one more counts the rest.
const MAX_FINDINGS: usize = 1_000;

/// Checks every row: `check` gets its number and its inputs. Its plans aren't kept, because 100,000 of them would be large.
///
/// # Errors
/// All mistakes of all rows as one [`Error::Invalid`], at most 1,000 and one that counts the rest. A mistake that all rows
/// share is reported once. Any other error ends the check.
pub fn check_rows(
    inputs: &mut InputValues,
    rows: &Rows,
    mut check: impl FnMut(usize, &InputValues) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut findings = rows.findings.clone();
    let mut omitted = OmittedFindings::default();
    let mut shared = HashSet::new();
    for (number, row) in rows.rows.iter().enumerate() {
        inputs.set_row(&rows.source, row.clone());
        let found = match check(number, inputs) {
            Ok(()) => continue,
            Err(Error::Invalid(found)) => found,
            Err(other) => return Err(other),
        };
        for finding in found {
            let name = &finding.span.source.name;
            let is_of_row = *name == rows.source.name;
            if !is_of_row && !shared.insert((finding.code, name.clone(), finding.span.range.clone())) {
                continue;
            }
            if findings.len() >= MAX_FINDINGS {
                omitted.add(&finding);
                continue;
            }
            // A text of the job that can't be rendered with the values of this row.
            let depends_on_row = !is_of_row && !name.starts_with("--");
            let place = SourceSpan { source: Arc::clone(&rows.source), range: row.range.clone() };
            findings.push(if depends_on_row { finding.label(place, "with this row") } else { finding });
        }
    }
    findings.sort_by_key(|finding| (finding.span.source.name != rows.source.name, finding.span.range.start));
    let Some(last) = findings.last().map(|last| last.span.clone()) else { return Ok(()) };
    if omitted.count() > 0 {
        findings.push(omitted.to_diagnostic(last));
    }
    Err(Error::Invalid(findings))
}
