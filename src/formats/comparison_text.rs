//! A comparison of two runs, in two columns and at most 80 characters wide.

use std::collections::BTreeSet;

use super::comparison::{ChangedFile, ComparedRun, Comparison};
use super::{DisplayOptions, run_stats};
use crate::event::{Change, ChangeKind, CheckResult, SubagentResult};
use crate::plan::diff::PlanChange;
use crate::text::pluralize;
use crate::text::sanitize;

/// Columns for a label, its mark and the space after them.
const LABEL_WIDTH: usize = 16;
/// Columns for a value.
const VALUE_WIDTH: usize = 31;
/// The most lines shown of one diff.
const MAX_DIFF_LINES: usize = 60;

/// Renders a comparison. An asterisk marks rows that differ.
pub(super) fn page(comparison: &Comparison, display: DisplayOptions) -> String {
    let mut page = ComparisonWriter { text: String::new(), display };
    let [one, other] = &comparison.runs;
    page.heading_row([&one.run_id, &other.run_id]);
    if !comparison.same_job {
        page.line("These runs are of different jobs.");
    }
    for side in [one, other].into_iter().filter(|side| side.outcome.is_none()) {
        page.line(&format!("{} has not ended; its numbers are from its journals.", side.run_id));
    }
    page.row("job", &[one, other].map(|side| side.job.clone()));
    page.row("outcome", &[one, other].map(|side| side.outcome.map_or("not ended".to_owned(), |it| it.to_string())));
    page.row("model", &[one, other].map(|side| side.model.clone()));
    page.row("turns", &[one, other].map(|side| side.turns.to_string()));
    page.row("tool calls", &[one, other].map(|side| side.tool_calls.to_string()));
    page.row("tokens", &[one, other].map(|side| run_stats::usage(&side.usage)));
    page.row("cost", &[one, other].map(|side| run_stats::estimated_cost(side.cost_usd)));
    let unknown = || "unknown".to_owned();
    page.row_without_mark("time", &[one, other].map(|side| side.duration_ms.map_or_else(unknown, run_stats::duration)));
    page.row("sandbox", &[one, other].map(|side| side.sandbox.clone().unwrap_or_else(unknown)));
    page.row("files", &[0, 1].map(|at| files(&comparison.files, &comparison.runs[at], at)));
    page.tools(one, other);
    page.subagents(one, other);
    page.checks(one, other);
    page.files(comparison);
    page.differences("plan", &comparison.plan);
    page.differences("result", &comparison.result);
    if let Some(diff) = &comparison.text {
        page.heading("text");
        page.diff(diff);
    }
    page.text
}

fn files(files: &[ChangedFile], side: &ComparedRun, at: usize) -> String {
    let changes: Vec<&Change> = files.iter().filter_map(|file| file.changes[at].as_ref()).collect();
    let sum = |lines: fn(&Change) -> Option<u64>| changes.iter().filter_map(|change| lines(change)).sum::<u64>();
    match changes.len() {
        _ if !side.has_changes => "unknown".to_owned(),
        0 => "none changed".to_owned(),
        count => {
            let all = side.changed_files.unwrap_or(count as u64);
            format!("{all} changed, +{} -{}", sum(|it| it.lines_added), sum(|it| it.lines_removed))
        }
    }
}

fn change(change: Option<&Change>) -> String {
    let Some(change) = change else { return "-".to_owned() };
    let word = match change.change {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
    };
    match change.lines_added.zip(change.lines_removed) {
        Some((added, removed)) => format!("{word}, +{added} -{removed}"),
        None => word.to_owned(),
    }
}

struct ComparisonWriter {
    text: String,
    display: DisplayOptions,
}

impl ComparisonWriter {
    fn line(&mut self, line: &str) {
        let line = sanitize::line(line);
        self.text += line.trim_end();
        self.text.push('\n');
    }

    fn heading(&mut self, title: &str) {
        self.text.push('\n');
        self.text += &self.display.paint(title, "1");
        self.text.push('\n');
    }

    fn heading_row(&mut self, names: [&String; 2]) {
        self.row_without_mark("", &names.map(Clone::clone));
    }

    fn row(&mut self, label: &str, values: &[String; 2]) {
        let mark = if values[0] == values[1] { ' ' } else { '*' };
        self.row_with_mark(label, mark, values);
    }

    fn row_without_mark(&mut self, label: &str, values: &[String; 2]) {
        self.row_with_mark(label, ' ', values);
    }

    fn row_with_mark(&mut self, label: &str, mark: char, [one, other]: &[String; 2]) {
        let label = sanitize::line(label);
        let label = if label.chars().count() > LABEL_WIDTH - 3 {
            self.line(&label);
            String::new()
        } else {
            label
        };
        let width = LABEL_WIDTH - 2;
        let (one, other) = (fit_column(one), fit_column(other));
        self.line(&format!("{label:<width$}{mark} {one:<VALUE_WIDTH$}  {other}"));
    }

    fn tools(&mut self, one: &ComparedRun, other: &ComparedRun) {
        let mut names: Vec<&String> = one.tools.keys().collect();
        names.extend(other.tools.keys().filter(|name| !one.tools.contains_key(*name)));
        if names.is_empty() {
            return;
        }
        self.heading("calls");
        for name in names {
            let calls = |side: &ComparedRun| side.tools.get(name).copied().unwrap_or_default().to_string();
            self.row(&format!("  {name}"), &[calls(one), calls(other)]);
        }
    }

    fn subagents(&mut self, one: &ComparedRun, other: &ComparedRun) {
        let mut ids: Vec<&String> = one.subagents.iter().map(|child| &child.id).collect();
        ids.extend(other.subagents.iter().map(|child| &child.id).filter(|id| !ids.contains(id)).collect::<Vec<_>>());
        if ids.is_empty() {
            return;
        }
        self.heading("subagents");
        for id in ids {
            let child = |side: &ComparedRun| side.subagents.iter().find(|child| child.id == *id).map(subagent_stats);
            self.row(&format!("  {id}"), &[one, other].map(|side| child(side).unwrap_or_else(|| "-".to_owned())));
        }
    }

    fn checks(&mut self, one: &ComparedRun, other: &ComparedRun) {
        let mut names: Vec<&str> = Vec::new();
        for check in one.checks.iter().chain(&other.checks) {
            if !names.contains(&check.name.as_str()) {
                names.push(&check.name);
            }
        }
        if names.is_empty() {
            return;
        }
        self.heading("checks");
        for name in names {
            self.row(&format!("  {name}"), &[one, other].map(|side| last_verdict(&side.checks, name)));
        }
    }

    fn files(&mut self, comparison: &Comparison) {
        if comparison.files.is_empty() {
            return;
        }
        self.heading("files changed");
        for file in &comparison.files {
            let mut values = [0, 1].map(|at| change(file.changes[at].as_ref()));
            let differs = file.same == Some(false) || values[0] != values[1];
            if file.same == Some(false) && values[0] == values[1] {
                values[1] += " (different lines)";
            }
            self.row_with_mark(&format!("  {}", file.path), if differs { '*' } else { ' ' }, &values);
        }
    }

    fn differences(&mut self, title: &str, differences: &[PlanChange]) {
        if differences.is_empty() {
            return;
        }
        self.heading(title);
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
        let lines: BTreeSet<usize> = diff.match_indices('\n').map(|(at, _)| at).collect();
        for line in diff.lines().take(MAX_DIFF_LINES) {
            self.line(&format!("    {line}"));
        }
        if let Some(more) = lines.len().checked_sub(MAX_DIFF_LINES).filter(|more| *more > 0) {
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
    if value.chars().count() <= VALUE_WIDTH {
        return value;
    }
    value.chars().take(VALUE_WIDTH - 1).chain(['…']).collect()
}
