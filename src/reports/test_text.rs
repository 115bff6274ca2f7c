//! Test results for people, as test runners print them.

use super::DisplayOptions;
use crate::cases::{CaseReport, Failure, TestReport};
use crate::text::pluralize;
use crate::text::sanitize;

const GREEN: &str = "32";
const RED: &str = "31";
const CYAN: &str = "36";

/// The line for a case that has ended, without a line end.
pub fn case_line(case: &CaseReport, display: DisplayOptions) -> String {
    let word = if case.failures.is_empty() { display.paint("ok  ", GREEN) } else { display.paint("FAIL", RED) };
    let mut line = format!("{word} {} ({})", sanitize::line(&case.name), time(case.duration_ms));
    for snapshot in &case.updated_snapshots {
        line += &format!("\n     updated {}", sanitize::line(snapshot));
    }
    line
}

/// The failures, and the number of cases that passed.
pub fn summary(report: &TestReport, display: DisplayOptions) -> String {
    let mut text = String::new();
    for case in report.cases.iter().filter(|case| !case.failures.is_empty()) {
        text += &format!("\n{} {}\n", display.paint("FAIL", RED), sanitize::line(&case.name));
        case.failures.iter().for_each(|failure| text += &failure_text(failure, display));
        if let Some(kept) = &case.kept_folder {
            text += &format!("  workspace and record: {}\n", sanitize::line(&kept.to_string_lossy()));
        }
    }
    let failed = report.failed();
    let counts = match failed {
        0 => display.paint(&format!("{} passed", report.cases.len()), GREEN),
        _ => format!("{} passed, {}", report.cases.len() - failed, display.paint(&format!("{failed} failed"), RED)),
    };
    let interrupted = if report.interrupted { ", interrupted" } else { "" };
    text + &format!(
        "\n{}: {counts}{interrupted}, {}\n",
        pluralize(report.cases.len() as u64, "case"),
        time(report.duration_ms)
    )
}

fn failure_text(failure: &Failure, display: DisplayOptions) -> String {
    let mut text = format!("  {}\n", sanitize::line(&failure.message));
    if let Some((file, line, column)) = &failure.place {
        text += &format!("   --> {}:{line}:{column}\n", sanitize::line(file));
    }
    for line in failure.detail.lines() {
        let colour = match line.as_bytes().first() {
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            Some(b'@') => CYAN,
            _ => "",
        };
        let line = sanitize::line(line);
        text += &format!("    {}\n", if colour.is_empty() { line } else { display.paint(&line, colour) });
    }
    text
}

fn time(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}
