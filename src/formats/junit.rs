//! JUnit XML, for CI systems: one suite per job and one test per case.
//!
//! There is no standard. This is the common part of Jenkins' schema and of what GitLab and GitHub read:
//! <https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd>

use super::DisplayOptions;
use crate::cases::{CaseReport, EXPECT_FILE, Failure, TestReport};
use crate::text::sanitize;

pub(super) fn test_report(report: &TestReport, _: DisplayOptions) -> String {
    let all: Vec<&CaseReport> = report.cases.iter().collect();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n",
        suite_attributes("legwork test", &all, report.duration_ms)
    );
    for suite in all.chunk_by(|one, other| one.job == other.job) {
        let time = suite.iter().map(|case| case.duration_ms).sum();
        xml += &format!("  <testsuite {} skipped=\"0\">\n", suite_attributes(&suite[0].job, suite, time));
        suite.iter().for_each(|case| xml += &test_case(case));
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn suite_attributes(name: &str, cases: &[&CaseReport], duration_ms: u64) -> String {
    let failed = cases.iter().filter(|case| !case.failures.is_empty()).count();
    let (name, tests, time) = (attribute(name), cases.len(), seconds(duration_ms));
    format!("name=\"{name}\" tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" time=\"{time}\"")
}

fn test_case(case: &CaseReport) -> String {
    let file = attribute(&format!("{}/{EXPECT_FILE}", case.folder));
    let (name, class, time) = (attribute(&case.case), attribute(&case.job), seconds(case.duration_ms));
    let open = format!("    <testcase name=\"{name}\" classname=\"{class}\" file=\"{file}\" time=\"{time}\"");
    let Some(first) = case.failures.first() else { return open + "/>\n" };
    // Most readers show one failure per test, so put all of them into it.
    let more = match case.failures.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let mut lines: Vec<String> = case.failures.iter().map(failure_text).collect();
    lines.extend(case.kept_folder.iter().map(|kept| format!("workspace and record: {}", kept.display())));
    let message = attribute(&format!("{}{more}", first.message));
    format!(
        "{open}>\n      <failure message=\"{message}\" type=\"expectation\">{}</failure>\n    </testcase>\n",
        text(&lines.join("\n"))
    )
}

fn failure_text(failure: &Failure) -> String {
    let place = match &failure.place {
        Some((file, line, column)) => format!("{file}:{line}:{column}: "),
        None => String::new(),
    };
    match failure.detail.as_str() {
        "" => format!("{place}{}", failure.message),
        detail => format!("{place}{}\n{detail}", failure.message),
    }
}

pub(super) fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

pub(super) fn attribute(value: &str) -> String {
    escape_xml(&sanitize::line(value))
}

pub(super) fn text(value: &str) -> String {
    escape_xml(&sanitize::text(value))
}

/// Escapes text for XML 1.0, after [`sanitize`] replaced all control characters. U+FFFE and U+FFFF aren't allowed, either.
fn escape_xml(value: &str) -> String {
    value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
