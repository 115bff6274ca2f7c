//! The report of `legwork apply`.

use serde::Serialize;

use crate::reports::{DisplayOptions, Formats};
use crate::text::pluralize;
use crate::text::sanitize;

/// How many files are listed per run in a text.
const MAX_LISTED: usize = 20;

/// The formats of the report.
pub static APPLY_REPORTS: Formats<fn(&ApplyReport, DisplayOptions) -> String> = &[("text", text), ("json", json)];

/// What became of the changes of all runs.
#[derive(Debug, Serialize)]
pub struct ApplyReport {
    /// The version of this format: 1.
    pub format: u32,
    /// Whether nothing was to be written.
    pub check: bool,
    /// The workspace, absolute.
    pub workspace: String,
    /// The runs, in the order in which they were merged.
    pub runs: Vec<AppliedRun>,
    /// The files that were written, or that would be if not for `--check`.
    pub files: Vec<String>,
    /// The file that couldn't be written.
    pub failed: Option<UnwrittenFile>,
    /// The files after it, which weren't written.
    pub unwritten: Vec<String>,
}

/// A file that couldn't be written.
#[derive(Debug, Serialize)]
pub struct UnwrittenFile {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// What became of the changes of one run.
#[derive(Debug, Serialize)]
pub struct AppliedRun {
    /// The run's id, or the map's name and the row's id.
    pub run: String,
    /// The run's folder.
    pub folder: String,
    /// What became of them.
    pub status: ApplyStatus,
    /// Why, if they aren't applied.
    pub reason: Option<String>,
    /// The files that the run changes in the workspace.
    pub files: Vec<String>,
    /// The files because of which the run isn't applied.
    pub problems: Vec<FileProblem>,
}

/// Why a run can't be applied to one file.
#[derive(Debug, Serialize)]
pub struct FileProblem {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Why.
    pub reason: String,
    /// The lines that both sides changed, in the file as it was at the start of the run.
    pub lines: Vec<usize>,
    /// The earlier runs that changed the same place; empty if the workspace itself differs.
    pub earlier: Vec<String>,
}

/// What became of the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyStatus {
    /// They are in the workspace now.
    Applied,
    /// The run has no changes, or they were in the workspace already.
    Unchanged,
    /// The run didn't complete, and wasn't named itself.
    Skipped,
    /// They conflict with the workspace or with an earlier run.
    Conflict,
    /// They may not be applied, or can't be read.
    Refused,
}

impl ApplyStatus {
    /// All values, in the order of the summary.
    const ALL: [Self; 5] = [Self::Applied, Self::Unchanged, Self::Skipped, Self::Conflict, Self::Refused];

    fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
        }
    }
}

fn json(report: &ApplyReport, _: DisplayOptions) -> String {
    serde_json::to_string_pretty(report).map(|text| sanitize::escape_json(&text) + "\n").unwrap_or_default()
}

fn text(report: &ApplyReport, display: DisplayOptions) -> String {
    let mut text = String::new();
    for run in &report.runs {
        let status = format!("{:<10}", run.status.name());
        let colour = match run.status {
            ApplyStatus::Applied => "32",
            ApplyStatus::Unchanged => "2",
            ApplyStatus::Skipped => "33",
            ApplyStatus::Conflict | ApplyStatus::Refused => "31",
        };
        let rest = match (&run.reason, run.status) {
            (Some(reason), _) => format!(": {}", sanitize::line(reason)),
            (None, ApplyStatus::Applied) => format!(": {}", named(&run.files)),
            (None, _) => String::new(),
        };
        text += &format!("{}{}{rest}\n", display.paint(&status, colour), sanitize::line(&run.run));
        for problem in run.problems.iter().take(MAX_LISTED) {
            let earlier = match problem.earlier.as_slice() {
                [] => String::new(),
                earlier => format!(" (changed before by {})", earlier.join(", ")),
            };
            let line = format!("{}: {}{earlier}", problem.path, problem.reason);
            text += &format!("          {}\n", sanitize::line(&line));
        }
        if let Some(more) = run.problems.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
            text += &format!("          and {more} more\n");
        }
    }
    let count = |status: ApplyStatus| report.runs.iter().filter(|run| run.status == status).count();
    let counts = ApplyStatus::ALL.map(|status| (status, count(status))).into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(status, count)| format!("{count} {}", status.name())).collect();
    let written = pluralize(report.files.len() as u64, "file");
    let verb = if report.check { "would be written" } else { "written" };
    text + &format!("{}: {}; {written} {verb}\n", pluralize(report.runs.len() as u64, "run"), counts.join(", "))
}

/// The first files, and how many more there are.
fn named(files: &[String]) -> String {
    let shown: Vec<String> = files.iter().take(MAX_LISTED).map(|file| sanitize::line(file)).collect();
    match files.len().saturating_sub(MAX_LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
