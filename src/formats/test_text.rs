//! Cases for people, as a test runner shows them.

use super::{DisplayOptions, pluralize};
use crate::cases::{CaseReport, Failure, TestReport};
use crate::text::sanitize;

const GREEN: &str = "32";
const RED: &str = "31";
const CYAN: &str = "36";

/// A case, as it ends.
pub(super) fn case_line(case: &CaseReport, look: DisplayOptions) -> String {
    let word = if case.failures.is_empty() { paint("ok  ", GREEN, look) } else { paint("FAIL", RED, look) };
    let mut line = format!("{word} {} ({})", sanitize::line(&case.name), time(case.duration_ms));
    for renewed in &case.updated_snapshots {
        line += &format!("\n     renewed {}", sanitize::line(renewed));
    }
    line
}

/// What failed, and how many passed.
pub(super) fn summary(report: &TestReport, look: DisplayOptions) -> String {
    let mut text = String::new();
    for case in report.cases.iter().filter(|case| !case.failures.is_empty()) {
        text += &format!("\n{} {}\n", paint("FAIL", RED, look), sanitize::line(&case.name));
        case.failures.iter().for_each(|failure| text += &failure_text(failure, look));
        if let Some(kept) = &case.kept_folder {
            text += &format!("  workspace and record: {}\n", sanitize::line(&kept.to_string_lossy()));
        }
    }
    let failed = report.failed();
    let counts = match failed {
        0 => paint(&format!("{} passed", report.cases.len()), GREEN, look),
        _ => format!("{} passed, {}", report.cases.len() - failed, paint(&format!("{failed} failed"), RED, look)),
    };
    let stopped = if report.interrupted { ", interrupted" } else { "" };
    text + &format!("\n{}: {counts}{stopped}, {}\n", pluralize(report.cases.len(), "case"), time(report.duration_ms))
}

fn failure_text(failure: &Failure, look: DisplayOptions) -> String {
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
        text += &format!("    {}\n", if colour.is_empty() { line } else { paint(&line, colour, look) });
    }
    text
}

fn paint(text: &str, colour: &str, look: DisplayOptions) -> String {
    if look.colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn time(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}
