//! JUnit XML, for CI systems: of test cases, and of a run with its checks.
//!
//! There is no standard. This is the common part of Jenkins' schema and of what GitLab and GitHub read:
//! <https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd>

use super::DisplayOptions;
use super::{proposed, run_stats};
use crate::cases::{CaseReport, EXPECT_FILE, Failure, TestReport};
use crate::event::{CheckResult, Outcome, RunModel, RunResult};
use crate::text::sanitize;
use crate::text::truncate;

/// The most characters of a run's answer.
const MAX_ANSWER_CHARS: usize = 20_000;

/// Tests that belong together.
pub(crate) struct TestSuite {
    pub(crate) name: String,
    pub(crate) time_ms: u64,
    pub(crate) cases: Vec<TestCase>,
}

/// One test.
pub(crate) struct TestCase {
    pub(crate) name: String,
    pub(crate) class: String,
    /// The file that declares it, if there is one.
    pub(crate) file: Option<String>,
    pub(crate) time_ms: u64,
    pub(crate) problem: Option<TestProblem>,
    /// Why it didn't run, if there was nothing to do.
    pub(crate) skipped: Option<String>,
    /// What it printed; empty for nothing.
    pub(crate) output: String,
}

/// Why a test didn't pass.
pub(crate) struct TestProblem {
    /// Whether it isn't known if the test would pass: an `error` instead of a `failure`.
    pub(crate) is_error: bool,
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) text: String,
}

impl TestProblem {
    fn element(&self) -> &'static str {
        if self.is_error { "error" } else { "failure" }
    }
}

/// A whole file.
pub(crate) fn document(name: &str, time_ms: u64, suites: &[TestSuite]) -> String {
    let all = || suites.iter().flat_map(|suite| &suite.cases);
    let mut xml =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n", totals(name, all(), time_ms));
    for suite in suites {
        let skipped = suite.cases.iter().filter(|case| case.skipped.is_some()).count();
        let totals = totals(&suite.name, suite.cases.iter(), suite.time_ms);
        xml += &format!("  <testsuite {totals} skipped=\"{skipped}\">\n");
        suite.cases.iter().for_each(|case| xml += &test_case(case));
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn totals<'a>(name: &str, cases: impl Iterator<Item = &'a TestCase>, time_ms: u64) -> String {
    let (mut tests, mut failures, mut errors) = (0, 0, 0);
    for case in cases {
        tests += 1;
        match &case.problem {
            Some(problem) if problem.is_error => errors += 1,
            Some(_) => failures += 1,
            None => {}
        }
    }
    let (name, time) = (attribute(name), seconds(time_ms));
    format!("name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time}\"")
}

fn test_case(case: &TestCase) -> String {
    let file = case.file.as_ref().map(|file| format!(" file=\"{}\"", attribute(file))).unwrap_or_default();
    let (name, class, time) = (attribute(&case.name), attribute(&case.class), seconds(case.time_ms));
    let open = format!("    <testcase name=\"{name}\" classname=\"{class}\"{file} time=\"{time}\"");
    let mut inner = String::new();
    if let Some(why) = &case.skipped {
        inner += &format!("      <skipped message=\"{}\"/>\n", attribute(why));
    } else if let Some(problem) = &case.problem {
        let element = problem.element();
        inner += &format!(
            "      <{element} message=\"{}\" type=\"{}\">{}</{element}>\n",
            attribute(&problem.message),
            attribute(&problem.kind),
            text(&problem.text)
        );
    }
    if !case.output.is_empty() {
        inner += &format!("      <system-out>{}</system-out>\n", text(&case.output));
    }
    match inner.is_empty() {
        true => open + "/>\n",
        false => format!("{open}>\n{inner}    </testcase>\n"),
    }
}

/// The report of `legwork test`: a suite for each job.
pub(super) fn test_report(report: &TestReport, _: DisplayOptions) -> String {
    let all: Vec<&CaseReport> = report.cases.iter().collect();
    let suites: Vec<TestSuite> = all
        .chunk_by(|one, other| one.job == other.job)
        .map(|cases| TestSuite {
            name: cases[0].job.clone(),
            time_ms: cases.iter().map(|case| case.duration_ms).sum(),
            cases: cases.iter().map(|case| expectations(case)).collect(),
        })
        .collect();
    document("legwork test", report.duration_ms, &suites)
}

fn expectations(case: &CaseReport) -> TestCase {
    let problem = case.failures.first().map(|first| {
        // Most readers show one failure per test, so put all of them into it.
        let more = match case.failures.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let mut lines: Vec<String> = case.failures.iter().map(failure_text).collect();
        lines.extend(case.kept_folder.iter().map(|kept| format!("workspace and record: {}", kept.display())));
        TestProblem {
            is_error: false,
            kind: "expectation".to_owned(),
            message: format!("{}{more}", first.message),
            text: lines.join("\n"),
        }
    });
    TestCase {
        name: case.case.clone(),
        class: case.job.clone(),
        file: Some(format!("{}/{EXPECT_FILE}", case.folder)),
        time_ms: case.duration_ms,
        problem,
        skipped: None,
        output: String::new(),
    }
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

/// A run: a suite with the run itself and the last attempt of each check. `record` is the path of its folder. If only checks
/// failed, the run itself counts as passed. `model` is what happened in the run; the run's test names what it proposes.
pub fn run_report(result: &RunResult, model: &RunModel, record: &str) -> String {
    let checks = run_stats::last_checks(result);
    let of_checks: u64 = checks.iter().map(|check| check.duration_ms).fold(0, u64::saturating_add);
    let failed_by_checks = result.outcome == Outcome::ChecksFailed && checks.iter().any(|check| !check.passed);
    let has_problem = !result.outcome.is_success() && !failed_by_checks;
    let run = TestCase {
        name: "run".to_owned(),
        class: result.job.clone(),
        file: None,
        time_ms: result.duration_ms.saturating_sub(of_checks),
        problem: has_problem.then(|| run_problem(result, record)),
        skipped: (result.outcome == Outcome::Skipped).then(|| skip_reason(result.skipped_by.as_deref())),
        output: model.proposed_outputs().map(|proposed| proposed::lines(&proposed)).unwrap_or_default(),
    };
    let cases = std::iter::once(run).chain(checks.into_iter().map(|check| check_case(check, result, record))).collect();
    let suite = TestSuite { name: result.job.clone(), time_ms: result.duration_ms, cases };
    document(&result.job, result.duration_ms, &[suite])
}

fn run_problem(result: &RunResult, record: &str) -> TestProblem {
    let outcome = result.outcome.to_string();
    let message = result.error.as_ref().map_or(outcome.as_str(), |error| &error.message);
    let mut lines = vec![message.to_owned()];
    lines.extend(result.error.as_ref().and_then(|error| error.hint.clone()));
    let answer = truncate::ellipsize(&result.text, MAX_ANSWER_CHARS);
    lines.extend((!answer.trim().is_empty()).then_some(answer));
    lines.push(format!("record: {record}"));
    TestProblem {
        is_error: result.outcome.can_be_resumed(),
        message: message.to_owned(),
        kind: outcome,
        text: lines.join("\n"),
    }
}

fn check_case(check: &CheckResult, result: &RunResult, record: &str) -> TestCase {
    let problem = (!check.passed).then(|| TestProblem {
        is_error: false,
        kind: Outcome::ChecksFailed.to_string(),
        message: run_stats::check_verdict(check.passed, check.exit_code),
        text: format!("in attempt {}; its output is in the record: {record}", check.attempt),
    });
    TestCase {
        name: format!("check {}", check.name),
        class: result.job.clone(),
        file: None,
        time_ms: check.duration_ms,
        problem,
        skipped: None,
        output: String::new(),
    }
}

/// Why a run or a row was skipped.
pub(crate) fn skip_reason(condition: Option<&str>) -> String {
    condition
        .map_or_else(|| "nothing to do".to_owned(), |condition| format!("nothing to do: skip_if is true: {condition}"))
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

fn attribute(value: &str) -> String {
    escape_xml(&sanitize::line(value))
}

fn text(value: &str) -> String {
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
