//! JUnit XML of a map: one suite with one test for each row.

use super::junit::{attribute, seconds, text};
use super::map_table::{MapTable, RowSummary};

/// The most rows in the file.
const MAX_ROWS: usize = 100_000;

/// All rows of a map. A row that ended badly is a failure; one that hasn't ended, or whose environment or provider failed, is
/// an error. Rows beyond the limit are left out only if they completed.
pub fn map_report(table: &MapTable) -> String {
    let rows =
        || table.rows.iter().enumerate().filter(|(at, row)| *at < MAX_ROWS || !row.is_good()).map(|(_, row)| row);
    let (mut failures, mut errors, mut time_ms) = (0, 0, 0_u64);
    for row in rows() {
        match element(row) {
            Some("failure") => failures += 1,
            Some(_) => errors += 1,
            None => {}
        }
        time_ms = time_ms.saturating_add(row.duration_ms);
    }
    let name = attribute(&format!("{} {}", table.job, table.name));
    let problems: Vec<_> = table.problems.iter().filter(|problem| problem.kind.is_serious()).collect();
    errors += problems.len();
    let counts = format!(
        "name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{}\"",
        rows().count() + problems.len(),
        seconds(time_ms)
    );
    let mut xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n");
    xml += &format!("  <testsuite {counts} skipped=\"0\">\n");
    rows().for_each(|row| xml += &test_case(table, row));
    for problem in problems {
        let name = problem.id.as_deref().or(problem.path.as_deref()).unwrap_or_default();
        let (name, class, kind) = (attribute(name), attribute(&table.job), problem.kind.name());
        let place = problem.path.as_deref().unwrap_or_default();
        xml += &format!(
            "    <testcase name=\"{name} ({kind})\" classname=\"{class}\" time=\"0.000\">\n      <error message=\"{}\" \
             type=\"{kind}\">{}</error>\n    </testcase>\n",
            attribute(&problem.message),
            text(place)
        );
    }
    xml + "  </testsuite>\n</testsuites>\n"
}

/// The element that says why a row isn't good.
fn element(row: &RowSummary) -> Option<&'static str> {
    match row.outcome {
        _ if row.is_good() => None,
        Some(outcome) if !outcome.can_be_resumed() => Some("failure"),
        _ => Some("error"),
    }
}

fn test_case(table: &MapTable, row: &RowSummary) -> String {
    let (name, class, time) = (attribute(&row.id), attribute(&table.job), seconds(row.duration_ms));
    let open = format!("    <testcase name=\"{name}\" classname=\"{class}\" time=\"{time}\"");
    let Some(element) = element(row) else { return open + "/>\n" };
    let verdict = row.verdict();
    let message = row.error.as_ref().map_or(verdict.as_str(), |(_, message)| message);
    let mut lines = vec![message.to_owned()];
    lines.extend((!row.text.is_empty()).then(|| row.text.clone()));
    lines.extend(row.report.iter().map(|report| format!("report: {report}")));
    format!(
        "{open}>\n      <{element} message=\"{}\" type=\"{}\">{}</{element}>\n    </testcase>\n",
        attribute(message),
        attribute(&verdict),
        text(&lines.join("\n"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ErrorInfo, Outcome};
    use crate::formats::map_table::{MapRow, ProblemKind, RowState, TableProblem};

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
        let xml = map_report(&table);
        assert!(xml.contains("tests=\"5\" failures=\"1\" errors=\"3\""), "{xml}");
        assert!(xml.contains("<testcase name=\"r0\" classname=\"j\" time=\"0.000\"/>"), "{xml}");
        assert!(
            xml.contains("message=\"a &lt;b&gt; &amp; &quot;c&quot; ]]&gt; ␛[2J\u{fffd}\" type=\"refused\""),
            "{xml}"
        );
        assert!(xml.contains("rows/&lt;x&gt; (foreign)") && !xml.contains("<b>"), "{xml}");
    }
}
