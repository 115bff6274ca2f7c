//! JUnit XML of a map: one suite with one test for each row.

use super::table::{MapTable, RowSummary, TableProblem};
use crate::event::Outcome;
use crate::reports::junit::{TestCase, TestProblem, TestSuite, document, skip_reason};

/// The most rows in the file.
const MAX_ROWS: usize = 100_000;

/// All rows of a map. A row that failed is a failure; one that hasn't ended, or whose environment or provider failed, is
/// an error. Rows beyond the limit are left out only if they completed.
pub(super) fn report(table: &MapTable) -> String {
    let rows = table.rows.iter().enumerate().filter(|(at, row)| *at < MAX_ROWS || !row.is_good());
    let mut cases: Vec<TestCase> = rows.map(|(_, row)| row_case(table, row)).collect();
    let time_ms = cases.iter().fold(0_u64, |sum, case| sum.saturating_add(case.time_ms));
    let problems = table.problems.iter().filter(|problem| problem.kind.is_serious());
    cases.extend(problems.map(|problem| problem_case(table, problem)));
    let name = format!("{} {}", table.job, table.name);
    document(&name, time_ms, &[TestSuite { name: name.clone(), time_ms, cases }])
}

fn row_case(table: &MapTable, row: &RowSummary) -> TestCase {
    let problem = (!row.is_good()).then(|| {
        let verdict = row.verdict();
        let message = row.error.as_ref().map_or(verdict.as_str(), |(_, message)| message).to_owned();
        let mut lines = vec![message.clone()];
        lines.extend((!row.text.is_empty()).then(|| row.text.clone()));
        lines.extend(row.report.iter().map(|report| format!("report: {report}")));
        let is_error = row.outcome.is_none_or(Outcome::can_be_resumed);
        TestProblem { is_error, kind: verdict, message, text: lines.join("\n") }
    });
    let skipped = (row.outcome == Some(Outcome::Skipped)).then(|| skip_reason(row.skipped_by.as_deref()));
    TestCase {
        name: row.id.clone(),
        class: table.job.clone(),
        file: None,
        time_ms: row.duration_ms,
        problem,
        skipped,
        output: String::new(),
    }
}

fn problem_case(table: &MapTable, problem: &TableProblem) -> TestCase {
    let name = problem.id.as_deref().or(problem.path.as_deref()).unwrap_or_default();
    let kind = problem.kind.name();
    let details = TestProblem {
        is_error: true,
        kind: kind.to_owned(),
        message: problem.message.clone(),
        text: problem.path.clone().unwrap_or_default(),
    };
    TestCase {
        name: format!("{name} ({kind})"),
        class: table.job.clone(),
        file: None,
        time_ms: 0,
        problem: Some(details),
        skipped: None,
        output: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ErrorInfo;
    use crate::map::tables::table::{MapRow, ProblemKind, RowState};

    #[test]
    fn every_row_that_is_not_good_is_a_failure_or_an_error() {
        let mut table = MapTable::new("j", "m");
        let rows = [
            (RowState::Ended, Some(Outcome::Completed)),
            (RowState::Ended, Some(Outcome::Refused)),
            (RowState::Ended, Some(Outcome::ProviderFailed)),
            (RowState::Missing, None),
        ];
        for (at, (state, outcome)) in rows.into_iter().enumerate() {
            let message = "a <b> & \"c\" ]]> \u{1b}[2J\u{ffff}".to_owned();
            let error = (at > 0).then(|| ErrorInfo { code: "x".into(), message, hint: None });
            let row = MapRow { outcome, error, ..MapRow::new(&format!("r{at}"), state) };
            let row = table.summarize(&row, None);
            table.rows.push(row);
        }
        let (id, path) = (None, Some("rows/<x>".to_owned()));
        table.problems.push(TableProblem { kind: ProblemKind::Foreign, id, path, message: "not a record".into() });
        let xml = report(&table);
        assert!(xml.contains("tests=\"5\" failures=\"1\" errors=\"3\""), "{xml}");
        assert!(xml.contains("<testcase name=\"r0\" classname=\"j\" time=\"0.000\"/>"), "{xml}");
        assert!(
            xml.contains("message=\"a &lt;b&gt; &amp; &quot;c&quot; ]]&gt; ␛[2J\u{fffd}\" type=\"refused\""),
            "{xml}"
        );
        assert!(xml.contains("rows/&lt;x&gt; (foreign)") && !xml.contains("<b>"), "{xml}");
    }
}
