//! A comparison of two runs: the data, and its text in two columns and at most 80 characters wide.

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use super::display::{LineWriter, serialized_name};
use super::{DisplayOptions, run_stats};
use crate::event::{Change, CheckResult, Outcome, SubagentResult, Usage};
use crate::plan::diff::PlanChange;
use crate::text::pluralize;
use crate::text::{sanitize, truncate};

/// Columns for a label, its mark and the space after them.
const LABEL_WIDTH: usize = 16;
/// Columns for a value.
const VALUE_WIDTH: usize = 31;
/// The most lines shown of one diff.
const MAX_DIFF_LINES: usize = 60;

/// Two runs and their differences. The JSON fields are stable; incompatible changes raise `format`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The version of this data format: 1.
    pub format: u32,
    /// Whether the jobs have the same name.
    pub same_job: bool,
    /// The runs, in the order of the command line.
    pub runs: [ComparedRun; 2],
    /// The differences between the plans, prompts as diffs.
    pub plan: Vec<PlanChange>,
    /// The differences between the results.
    pub result: Vec<PlanChange>,
    /// A unified diff of the parents' last texts, hunks only; null if they are equal.
    pub text: Option<String>,
    /// The files that either run changed, sorted by path.
    pub files: Vec<ChangedFile>,
}

/// One of the two runs.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedRun {
    /// The run id.
    pub run_id: String,
    /// The name of the job.
    pub job: String,
    /// The parent's model.
    pub model: String,
    /// How the run ended; null if it hasn't.
    pub outcome: Option<Outcome>,
    /// The turns of the parent.
    pub turns: u32,
    /// Tool calls of all agents.
    pub tool_calls: u64,
    /// Calls by tool, most used first. Calls of subagents whose journals weren't kept are missing.
    pub tools: IndexMap<String, u64>,
    /// The tokens of the whole run.
    pub usage: Usage,
    /// The cost in US dollars; null if it is unknown or the run hasn't ended.
    pub cost_usd: Option<f64>,
    /// The duration in milliseconds; null if the run hasn't ended.
    pub duration_ms: Option<u64>,
    /// The sandbox tier; null if the run hasn't ended.
    pub sandbox: Option<String>,
    /// The subagents that have ended.
    pub subagents: Vec<SubagentResult>,
    /// Every attempt of every check.
    pub checks: Vec<CheckResult>,
    /// Whether the changes of the run are known.
    pub has_changes: bool,
    /// The number of changed files, if the record doesn't list them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<u64>,
}

/// A file that at least one of the runs changed.
#[derive(Debug, Serialize)]
pub struct ChangedFile {
    /// The path, relative to the workspace.
    pub path: String,
    /// The change by each run; null if the run left the file unchanged.
    pub changes: [Option<Change>; 2],
    /// Whether both made the same change; null unless both patches contain the file.
    pub same: Option<bool>,
}

/// The value of a row for a run.
type RowValue = fn(&ComparedRun) -> String;
/// The rows about each run.
const ROWS: [(&str, RowValue); 9] = [
    ("job", |run| run.job.clone()),
    ("outcome", |run| run.outcome.map_or("not ended".to_owned(), |outcome| outcome.to_string())),
    ("model", |run| run.model.clone()),
    ("turns", |run| run.turns.to_string()),
    ("tool calls", |run| run.tool_calls.to_string()),
    ("tokens", |run| run_stats::usage(&run.usage)),
    ("cost", |run| run_stats::estimated_cost(run.cost_usd)),
    (TIME, |run| run.duration_ms.map_or("unknown".to_owned(), run_stats::duration)),
    ("sandbox", |run| run.sandbox.clone().unwrap_or("unknown".to_owned())),
];
/// The row that always differs.
const TIME: &str = "time";

/// Renders a comparison. An asterisk marks rows that differ.
pub(super) fn page(comparison: &Comparison, display: DisplayOptions) -> String {
    let mut page = LineWriter { text: String::new(), display };
    let runs = comparison.runs.each_ref();
    page.row_with_mark("", ' ', &runs.map(|run| run.run_id.clone()));
    if !comparison.same_job {
        page.line("These runs are of different jobs.");
    }
    for run in runs.into_iter().filter(|run| run.outcome.is_none()) {
        page.line(&format!("{} has not ended; its numbers are from its journals.", run.run_id));
    }
    for (label, value) in ROWS {
        match label {
            TIME => page.row_with_mark(label, ' ', &runs.map(value)),
            _ => page.row(label, &runs.map(value)),
        }
    }
    page.row("files", &[0, 1].map(|at| files(&comparison.files, runs[at], at)));
    page.section("calls", runs.iter().flat_map(|run| run.tools.keys()), |name| {
        runs.map(|run| run.tools.get(name).copied().unwrap_or_default().to_string())
    });
    page.section("subagents", runs.iter().flat_map(|run| &run.subagents).map(|child| &child.id), |id| {
        let child = |run: &ComparedRun| run.subagents.iter().find(|child| child.id == id).map(subagent_stats);
        runs.map(|run| child(run).unwrap_or("-".to_owned()))
    });
    page.section("checks", runs.iter().flat_map(|run| &run.checks).map(|check| &check.name), |name| {
        runs.map(|run| last_verdict(&run.checks, name))
    });
    page.files(comparison);
    page.differences("plan", &comparison.plan);
    page.differences("result", &comparison.result);
    if let Some(diff) = &comparison.text {
        page.heading("text");
        page.diff(diff);
    }
    page.text
}

fn files(files: &[ChangedFile], run: &ComparedRun, at: usize) -> String {
    let changes: Vec<&Change> = files.iter().filter_map(|file| file.changes[at].as_ref()).collect();
    let sum = |lines: fn(&Change) -> Option<u64>| {
        changes.iter().filter_map(|change| lines(change)).fold(0, u64::saturating_add)
    };
    match changes.len() {
        _ if !run.has_changes => "unknown".to_owned(),
        0 => "none changed".to_owned(),
        count => {
            let all = run.changed_files.unwrap_or(count as u64);
            format!("{all} changed, +{} -{}", sum(|it| it.lines_added), sum(|it| it.lines_removed))
        }
    }
}

fn change(change: Option<&Change>) -> String {
    let Some(change) = change else { return "-".to_owned() };
    let word = serialized_name(&change.change);
    match run_stats::change_size(change, "-") {
        Some(size) => format!("{word}, {size}"),
        None => word,
    }
}

impl LineWriter {
    fn row(&mut self, label: &str, values: &[String; 2]) {
        self.row_with_mark(label, if values[0] == values[1] { ' ' } else { '*' }, values);
    }

    fn row_with_mark(&mut self, label: &str, mark: char, [one, other]: &[String; 2]) {
        let mut label = sanitize::line(label);
        if label.chars().count() > LABEL_WIDTH - 3 {
            self.line(&label);
            label.clear();
        }
        let width = LABEL_WIDTH - 2;
        let (one, other) = (fit_column(one), fit_column(other));
        self.line(&format!("{label:<width$}{mark} {one:<VALUE_WIDTH$}  {other}"));
    }

    /// A row for each name that either run has.
    fn section<'a>(
        &mut self,
        title: &str,
        names: impl Iterator<Item = &'a String>,
        values: impl Fn(&str) -> [String; 2],
    ) {
        let names: IndexSet<&String> = names.collect();
        if !names.is_empty() {
            self.heading(title);
        }
        for name in names {
            self.row(&format!("  {name}"), &values(name));
        }
    }

    fn files(&mut self, comparison: &Comparison) {
        if !comparison.files.is_empty() {
            self.heading("files changed");
        }
        for file in &comparison.files {
            let mut values = file.changes.each_ref().map(|it| change(it.as_ref()));
            if file.same == Some(false) && values[0] == values[1] {
                values[1] += " (different lines)";
            }
            self.row(&format!("  {}", file.path), &values);
        }
    }

    fn differences(&mut self, title: &str, differences: &[PlanChange]) {
        if !differences.is_empty() {
            self.heading(title);
        }
        for difference in differences {
            match &difference.diff {
                Some(diff) => {
                    self.line(&format!("  {}", difference.path));
                    self.diff(diff);
                }
                None => self.line(&format!("  {difference}")),
            }
        }
    }

    fn diff(&mut self, diff: &str) {
        for line in diff.lines().take(MAX_DIFF_LINES) {
            self.line(&format!("    {line}"));
        }
        let more = diff.lines().count().saturating_sub(MAX_DIFF_LINES);
        if more > 0 {
            self.line(&format!("    ({more} more lines; --format json has them)"));
        }
    }
}

fn subagent_stats(child: &SubagentResult) -> String {
    let turns = pluralize(u64::from(child.turns), "turn");
    format!("{}, {turns}, {}", child.outcome, pluralize(child.tool_calls, "call"))
}

/// The verdict of the last attempt of a check, with its number.
fn last_verdict(checks: &[CheckResult], name: &str) -> String {
    let Some(last) = checks.iter().rev().find(|check| check.name == name) else { return "-".to_owned() };
    let word = if last.passed { "passed" } else { "failed" };
    if last.attempt > 1 { format!("{word}, attempt {}", last.attempt) } else { word.to_owned() }
}

/// Fits a value into its column: on one line, truncated if it is too long.
fn fit_column(value: &str) -> String {
    let value = sanitize::line(value);
    match value.chars().count() <= VALUE_WIDTH {
        true => value,
        false => format!("{}…", truncate::first(&value, VALUE_WIDTH - 1)),
    }
}
