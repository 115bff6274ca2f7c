//! Checks all rows before any of them runs.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, OmittedFindings};
use crate::lints::ValidJob;
use crate::plan::{InputValues, Plan, RunContext, SecretInputs};
use crate::rows::Rows;

/// How many findings are shown; one more counts the rest.
const MAX_FINDINGS: usize = 1_000;

/// Makes the plan of every row, and passes it on with the row's number. Plans aren't kept: 100,000 of them can be large.
/// `context` has the workspace; the run's id is the row's.
///
/// # Errors
/// All mistakes of all rows, at most 1,000 and one that counts the rest. A mistake that all rows share is reported once.
pub fn check_rows(
    job: &ValidJob,
    inputs: &mut InputValues,
    rows: &Rows,
    context: &RunContext,
    mut each: impl FnMut(usize, Plan, SecretInputs),
) -> Result<(), Vec<Diagnostic>> {
    let mut findings = Vec::new();
    let mut omitted = OmittedFindings::default();
    let mut shared = HashSet::new();
    let mut context = context.clone();
    for (number, row) in rows.rows.iter().enumerate() {
        context.run_id.clone_from(&row.id);
        inputs.set_row(&rows.source, row.clone());
        let found = match Plan::new(job, inputs, &context) {
            Ok((plan, secrets)) => {
                each(number, plan, secrets);
                continue;
            }
            Err(found) => found,
        };
        for finding in found {
            let is_of_row = finding.span.source.name == rows.source.name;
            let key = (finding.code, finding.span.source.name.clone(), finding.span.range.clone());
            if !is_of_row && !shared.insert(key) {
                continue;
            }
            if findings.len() >= MAX_FINDINGS {
                omitted.add(&finding);
                continue;
            }
            let place =
                crate::diagnostic::SourceSpan { source: std::sync::Arc::clone(&rows.source), range: row.range.clone() };
            // A text of the job that can't be rendered with the values of this row.
            let depends_on_row = !is_of_row && !finding.span.source.name.starts_with("--");
            findings.push(if depends_on_row { finding.label(place, "with this row") } else { finding });
        }
    }
    let Some(last) = findings.last().map(|last| last.span.clone()) else { return Ok(()) };
    if omitted.count() > 0 {
        findings.push(omitted.to_diagnostic(last));
    }
    Err(findings)
}
