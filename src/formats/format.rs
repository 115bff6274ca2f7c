//! What a format is: a way to show findings, plans, runs, test reports and the like.

use std::io::{self, Write};

use super::comparison::Comparison;
use crate::cases::{CaseReport, TestReport};
use crate::diagnostic::{Diagnostic, OmittedFindings, Rule, Severity};
use crate::event::{JournalEntry, RunResult, in_call_order};
use crate::plan::{CostBound, Plan};

/// An output format. Each method shows one kind of thing, or returns `None` if the format can't show it.
pub trait Format: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// What the format can show.
    fn subjects(&self) -> &'static [Subject];

    /// All findings of a command, as one text that is empty or ends with a line end.
    fn diagnostics(&self, findings: &[Diagnostic], display: DisplayOptions) -> Option<String> {
        let _ = (findings, display);
        None
    }

    /// The full pages of some rules, as one text.
    fn rule_pages(&self, rules: &[&Rule], display: DisplayOptions) -> Option<String> {
        let _ = (rules, display);
        None
    }

    /// A list of rules with their summaries, as one text.
    fn rule_list(&self, rules: &[&Rule], display: DisplayOptions) -> Option<String> {
        let _ = (rules, display);
        None
    }

    /// A plan, before it is run.
    fn plan(&self, preview: &PlanPreview<'_>) -> Option<String> {
        let _ = preview;
        None
    }

    /// An event as it happens, as one line without its line end.
    fn event(&self, entry: &JournalEntry) -> Option<String> {
        let _ = entry;
        None
    }

    /// What stdout gets at the end of a run.
    fn run_result(&self, result: &RunResult) -> Option<String> {
        let _ = result;
        None
    }

    /// A comparison of two runs.
    fn comparison(&self, comparison: &Comparison, display: DisplayOptions) -> Option<String> {
        let _ = (comparison, display);
        None
    }

    /// The result of one test case, without a final line end.
    fn case_result(&self, case: &CaseReport, display: DisplayOptions) -> Option<String> {
        let _ = (case, display);
        None
    }

    /// The report of all test cases, as one text. Formats with [`Format::case_result`] leave out what that showed.
    fn test_report(&self, report: &TestReport, display: DisplayOptions) -> Option<String> {
        let _ = (report, display);
        None
    }

    /// Writes a recorded run, from its first event to its last.
    ///
    /// # Errors
    /// Writing to `out` failed.
    fn transcript(&self, transcript: &mut Transcript<'_>, out: &mut dyn Write) -> Option<io::Result<()>> {
        let _ = (transcript, out);
        None
    }
}

/// What a format can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Findings: [`Format::diagnostics`].
    Diagnostics,
    /// The rules behind findings: [`Format::rule_pages`] and [`Format::rule_list`].
    Rules,
    /// A run: its [`Format::plan`], each [`Format::event`] and its [`Format::run_result`].
    Run,
    /// A recorded run: [`Format::transcript`].
    Transcript,
    /// Two recorded runs: [`Format::comparison`].
    Comparison,
    /// Test cases: [`Format::case_result`] and [`Format::test_report`].
    Cases,
}

/// What the reader's display is capable of.
#[derive(Debug, Clone, Copy)]
pub struct DisplayOptions {
    /// Whether to use escape sequences for colours.
    pub colour: bool,
    /// Columns per line. Longer source lines are cut on both sides of the relevant part.
    pub width: usize,
}

impl DisplayOptions {
    /// Colours text with the parameters of an SGR escape sequence, such as `1;31`, if the display has colours.
    pub fn paint(self, text: &str, sgr: &str) -> String {
        if self.colour { format!("\u{1b}[{sgr}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// What a dry run shows.
pub struct PlanPreview<'a> {
    /// What would run.
    pub plan: &'a Plan,
    /// The most that the run can cost.
    pub cost_bound: &'a CostBound,
    /// A short description of how tools would be confined.
    pub sandbox: &'a str,
    /// Whether to include the tool descriptions that the models get.
    pub verbose: bool,
    /// The reader's display.
    pub display: DisplayOptions,
}

/// A recorded run.
pub struct Transcript<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The result; `None` if the run hasn't ended.
    pub result: Option<&'a RunResult>,
    /// The parent's events, sorted for reading.
    pub(super) entries: Box<dyn Iterator<Item = JournalEntry> + 'a>,
}

impl<'a> Transcript<'a> {
    /// Takes the parent's events in the order of the journal.
    pub fn new(
        plan: &'a Plan,
        result: Option<&'a RunResult>,
        journal: impl Iterator<Item = JournalEntry> + 'a,
    ) -> Self {
        Self { plan, result, entries: Box::new(in_call_order(journal)) }
    }
}

/// The number of findings of a severity, including those that were omitted.
pub(super) fn count(findings: &[Diagnostic], severity: Severity) -> usize {
    let mut all = OmittedFindings::default();
    findings.iter().for_each(|finding| all.add(finding));
    match severity {
        Severity::Error => all.errors,
        Severity::Warning => all.warnings,
    }
}

/// A code fence that is longer than any run of backticks in the text, so that the text can't end the block.
pub(super) fn code_fence(text: &str) -> String {
    let longest_run = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest_run.max(2) + 1)
}
